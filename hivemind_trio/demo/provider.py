"""A simulated LLM provider behind a real socket: Anthropic Messages, OpenAI Chat and Responses, streamed and plain.

How it behaves is `hivemind_trio.sim`'s to say; this is its face. The demo and the end-to-end tests call it, so it does
what a provider does and what a test must be able to make it do: it refuses above its cap and beyond its quotas, fails
as often as its traits say, stops generating when the client hangs up, and dies, stalls or answers nonsense on request
(`ScriptedReply`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from hivemind_trio.model import Usage
from hivemind_trio.sim import Accepted, Answer, Ask, Provider, Traits

from .connection import ProviderConnection
from .reply import ScriptedReply, Seen
from .wire_dialects import ParsedRequest

INSTANT: Final = Traits(latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0)
"""Answers at once: for tests that are not about time."""

_REQUESTS_REMEMBERED: Final = 10_000

Reads = Callable[[ParsedRequest], tuple[Provider, Ask]]
Billed = Callable[[ParsedRequest, Usage], None]


@attrs.define(eq=False)
class SimulatedProvider:
    """One provider on one port.

    ```python
    async with trio.open_nursery() as nursery:
        provider = SimulatedProvider(Traits(concurrency=5), seed=7)
        await nursery.start(provider.run)
        ...  # provider.url is there
    ```

    `world` counts attempts, refusals, tokens and the most in flight. An attempt counts as in flight from its last
    request byte until its answer has been generated, or until the client closed the connection: what the kernel already
    knows to be closed does not count, so a proxy that hangs up before it sends the next call is not wronged by the
    order in which events happen to be read.
    """

    traits: Traits = INSTANT
    seed: int = 0
    reads: Reads | None = None
    """Function that finds the provider behind this port that a request is for, and its contents.

    None: `world`, and the contents of its bytes.
    """
    billed: Billed | None = None
    """Told of every answer that has ended, whole or not, what it has cost."""

    world: Provider = attrs.field(init=False)
    url: str = attrs.field(init=False, default="")
    """`http://127.0.0.1:PORT`, once `run` has started."""
    replies: deque[ScriptedReply] = attrs.field(init=False, factory=deque)
    """Each request takes the leftmost; ordinary answers when it is empty."""
    default: ScriptedReply = attrs.field(init=False, default=ScriptedReply())
    """For requests that find no `replies`."""
    seen: deque[Seen] = attrs.field(init=False, factory=lambda: deque(maxlen=_REQUESTS_REMEMBERED))
    """The latest requests, oldest first."""
    hangups: int = attrs.field(init=False, default=0)
    """Clients that went away while they were being answered."""
    connections: int = attrs.field(init=False, default=0)
    """Open now."""
    connections_made: int = attrs.field(init=False, default=0)
    vanished: bool = attrs.field(init=False, default=False)
    """Nobody can connect."""
    changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set, and replaced, whenever a request arrives or ends; see `until`."""
    _began_s: float | None = attrs.field(init=False, default=None)
    """On Trio's clock."""
    _generating: dict[ProviderConnection, None] = attrs.field(init=False, factory=dict)
    """Connections with an answer under way, in the order of arrival."""
    _conversations: dict[ProviderConnection, None] = attrs.field(init=False, factory=dict)
    """Open connections."""
    _listening: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _wanted: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when it is to be reached again."""

    def __attrs_post_init__(self) -> None:
        self.world = Provider(traits=self.traits, seed=self.seed)

    async def run(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        task_status: trio.TaskStatus[SimulatedProvider] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen until cancelled. Reports itself as started when `url` is there."""
        async with trio.open_nursery() as connections:
            while True:
                listeners = await trio.open_tcp_listeners(port, host=host, backlog=1024)
                port = listeners[0].socket.getsockname()[1]
                async with trio.open_nursery() as nursery:
                    self._listening = nursery.cancel_scope
                    serve = partial(trio.serve_listeners, handler_nursery=connections)
                    await nursery.start(serve, self.converse, listeners)
                    self.vanished = False
                    if not self.url:
                        self.url = f"http://{host}:{port}"
                        task_status.started(self)
                await self._wanted.wait()

    def vanish(self) -> None:
        """From here on nobody can connect, and connections end with the answer under way on them."""
        self.vanished, self._wanted = True, trio.Event()
        self._listening.cancel()
        for exchange in self._conversations:
            exchange.between.cancel()

    def come_back(self) -> None:
        """Accept connections again, at the same address."""
        self._wanted.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about this provider is true: `until(lambda: provider.world.inflight == 3)`."""
        while not holds():
            await self.changed.wait()

    async def converse(self, stream: trio.SocketStream) -> None:
        """Answer one connection's requests until either side closes it."""
        self.connections += 1
        self.connections_made += 1
        try:
            async with stream:
                exchange = ProviderConnection(self, stream)
                self._conversations[exchange] = None
                try:
                    await exchange.converse()
                finally:
                    del self._conversations[exchange]
        except trio.BrokenResourceError:
            pass  # the client went away between two answers, or while it was being told off
        finally:
            self.connections -= 1
            self.tell()

    def arrive(self, asked: ParsedRequest, exchange: ProviderConnection) -> Answer:
        """Take a request, which `exchange` will answer."""
        world, ask = (self.world, asked.ask) if self.reads is None else self.reads(asked)
        exchange.asked, exchange.world = asked, world
        cap = world.traits.concurrency
        if cap is not None and world.inflight >= cap:
            for other in list(self._generating):
                if other.world is world and other.client_gone():
                    self.leave(other)
                    other.scope.cancel()
        answer = world.arrive(ask, self.now_ns())
        if isinstance(answer, Accepted):
            self._generating[exchange] = None
            exchange.accepted, exchange.tokens_in, exchange.tokens_out = answer, ask.tokens_in, 0
        self.tell()
        return answer

    def generate(self, exchange: ProviderConnection, tokens: int) -> None:
        """So many tokens more are there, unless the next arrival has found the client gone."""
        if exchange in self._generating:
            assert exchange.accepted is not None
            exchange.world.generate(exchange.accepted, tokens, self.now_ns())
            exchange.tokens_out += tokens

    def leave(self, exchange: ProviderConnection, *, whole: bool = False, breaks: bool = False) -> None:
        """Free the slot. Idempotent: a client that hangs up may be found gone by the next arrival or by its own task.

        Args:
            whole: All of the answer is there.
            breaks: The provider is about to break the connection.
        """
        if exchange not in self._generating:
            return
        del self._generating[exchange]
        assert exchange.accepted is not None
        if breaks:
            exchange.world.break_off(exchange.accepted, self.now_ns())
        else:
            exchange.world.leave(exchange.accepted, self.now_ns(), whole=whole)
        if self.billed is not None:
            assert exchange.asked is not None
            self.billed(exchange.asked, exchange.usage(whole=whole))
        self.tell()

    def begin(self) -> None:
        """Its time begins now, asked or not."""
        self._began_s = trio.current_time()

    def now_ns(self) -> int:
        """Since it was first asked: how long a fleet or a test took to get ready is no part of it."""
        if self._began_s is None:
            self.begin()
        assert self._began_s is not None
        return round((trio.current_time() - self._began_s) * 1e9)

    def tell(self) -> None:
        """Something has changed: let those who wait `until` look."""
        self.changed.set()
        self.changed = trio.Event()
