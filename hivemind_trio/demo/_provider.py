"""A simulated LLM provider behind a real socket: Anthropic Messages, OpenAI Chat and Responses, streamed and plain.

How it behaves is `hivemind_trio.sim`'s to say; this is its face. The demo and the end-to-end tests call it, so it does
what a provider does and what a test must be able to make it do: it refuses above its cap and beyond its quotas, fails
as often as its traits say, stops generating when the client hangs up, and dies, stalls or answers nonsense on request
(`Reply`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio

from hivemind_trio.sim import Accepted, Answer, Ask, Provider, Traits

from ._exchange import Exchange
from ._reply import Reply, Seen

INSTANT: Final = Traits(latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0)
"""Answers at once: for tests that are not about time."""

_REQUESTS_REMEMBERED: Final = 10_000


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

    world: Provider = attrs.field(init=False)
    url: str = attrs.field(init=False, default="")
    """`http://127.0.0.1:PORT`, once `run` has started."""
    replies: deque[Reply] = attrs.field(init=False, factory=deque)
    """Each request takes the leftmost; ordinary answers when it is empty."""
    default: Reply = attrs.field(init=False, default=Reply())
    """For requests that find no `replies`."""
    seen: deque[Seen] = attrs.field(init=False, factory=lambda: deque(maxlen=_REQUESTS_REMEMBERED))
    """The latest requests, oldest first."""
    hangups: int = attrs.field(init=False, default=0)
    """Clients that went away while they were being answered."""
    connections: int = attrs.field(init=False, default=0)
    """Open now."""
    connections_made: int = attrs.field(init=False, default=0)
    changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set, and replaced, whenever a request arrives or ends; see `until`."""
    _began_s: float | None = attrs.field(init=False, default=None)
    _generating: dict[int, Exchange] = attrs.field(init=False, factory=dict)
    """Attempt number -> who is being answered."""

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
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=1024)
        self.url = f"http://{host}:{listeners[0].socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self.converse, listeners)
            task_status.started(self)

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
                await Exchange(self, stream).converse()
        except trio.BrokenResourceError:
            pass  # the client went away between two answers, or while it was being told off
        finally:
            self.connections -= 1
            self.tell()

    def arrive(self, ask: Ask, exchange: Exchange) -> Answer:
        """A request is there, and `exchange` will answer it."""
        cap = self.traits.concurrency
        if cap is not None and self.world.inflight >= cap:
            for number, other in list(self._generating.items()):
                if other.client_gone():
                    self.leave(number, other)
                    other.scope.cancel()
        answer = self.world.arrive(ask, self.now_ns())
        if isinstance(answer, Accepted):
            self._generating[answer.number] = exchange
            exchange.accepted = answer
        self.tell()
        return answer

    def generate(self, exchange: Exchange, tokens: int) -> None:
        """So many tokens more are there, unless the next arrival has found the client gone."""
        if exchange.accepted is not None and exchange.accepted.number in self._generating:
            self.world.generate(exchange.accepted, tokens, self.now_ns())

    def leave(self, number: int, exchange: Exchange, *, whole: bool = False, breaks: bool = False) -> None:
        """Free the slot. Idempotent: a client that hangs up may be found gone by the next arrival or by its own task.

        Args:
            whole: All of the answer is there.
            breaks: The provider is about to break the connection.
        """
        if self._generating.pop(number, None) is None:
            return
        assert exchange.accepted is not None
        if breaks:
            self.world.break_off(exchange.accepted, self.now_ns())
        else:
            self.world.leave(exchange.accepted, self.now_ns(), whole=whole)
        self.tell()

    def now_ns(self) -> int:
        """Since it was first asked: how long a fleet or a test took to get ready is no part of it."""
        if self._began_s is None:
            self._began_s = trio.current_time()
        return round((trio.current_time() - self._began_s) * 1e9)

    def tell(self) -> None:
        """Something has changed: let those who wait `until` look."""
        self.changed.set()
        self.changed = trio.Event()
