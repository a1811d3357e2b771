"""A simulated LLM provider behind a real socket: Anthropic Messages, OpenAI Chat and Responses, streamed and plain.

How it behaves is `hivemind_trio.sim`'s to say; this is its face. The demo and the end-to-end tests call it, so it does
what a provider does and what a test must be able to make it do: it refuses above its cap, stops generating when the
client hangs up, and dies, stalls or answers nonsense on request (`Reply`).
"""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import h11
import trio

from hivemind_trio.sim import Accepted, Ask, Provider, Refused, Service, Traits

from ._dialects import Anthropic, Asked, Dialect, OpenAIChat, Said, asked, without_slot
from ._reply import Reply, Seen

INSTANT: Final = Traits(latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0)
"""Answers at once: for tests that are not about time."""

_REQUESTS_REMEMBERED: Final = 10_000
_BODY_MAX: Final = 64 * 1024 * 1024
_AHEAD_MAX: Final = 64 * 1024
"""What a client may send before its answer has ended; more than that and nobody reads it until then."""


# Linux tells a closed peer from one that has more to say; elsewhere only a connection closed both ways is known.
_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class _Dies(Exception):  # noqa: N818 - control flow, not an error
    """The script says that the connection ends here."""


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
    _generating: dict[int, _Exchange] = attrs.field(init=False, factory=dict)
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
                await _Exchange(self, stream).converse()
        except trio.BrokenResourceError:
            pass  # the client went away between two answers, or while it was being told off
        finally:
            self.connections -= 1
            self._tell()

    def _arrive(self, ask: Ask, exchange: _Exchange) -> Accepted | Refused:
        cap = self.traits.concurrency
        if cap is not None and self.world.inflight >= cap:
            for number, other in list(self._generating.items()):
                if other.client_gone():
                    self._leave(number, other)
                    other.scope.cancel()
        answer = self.world.arrive(ask, _now_ns())
        if isinstance(answer, Accepted):
            self._generating[answer.number] = exchange
            exchange.accepted = answer
        self._tell()
        return answer

    def _leave(self, number: int, exchange: _Exchange) -> None:
        """Idempotent: a client that hangs up may be found gone by the next arrival or by its own task."""
        if self._generating.pop(number, None) is not None:
            assert exchange.accepted is not None
            self.world.leave(exchange.accepted, _now_ns(), tokens_out=exchange.tokens_out)
            self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


@attrs.define(eq=False)
class _Exchange:
    """One connection, and the answer under way on it."""

    provider: SimulatedProvider
    stream: trio.SocketStream
    wire: h11.Connection = attrs.field(init=False, factory=lambda: h11.Connection(h11.SERVER))
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """Of the answer under way."""
    accepted: Accepted | None = attrs.field(init=False, default=None)
    tokens_out: int = attrs.field(init=False, default=0)
    ending: bool = attrs.field(init=False, default=False)
    """The last of the answer is being written: a client that closes now has what it wanted."""

    async def converse(self) -> None:
        while True:
            try:
                seen = await self._request()
            except h11.RemoteProtocolError as error:
                await self._refuse_malformed(error)
                return
            if seen is None:
                return
            self.provider.seen.append(seen)
            reply = self.provider.replies.popleft() if self.provider.replies else self.provider.default
            try:
                whole = await self._answer(seen, reply)
            except _Dies:
                if reply.reset:
                    _reset_on_close(self.stream)
                return
            if not whole or self.wire.our_state is not h11.DONE or self.wire.their_state is not h11.DONE:
                return
            self.wire.start_next_cycle()

    async def _request(self) -> Seen | None:
        """The next request with its body; None if the client closes instead."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self.wire.next_event()
            if event is h11.NEED_DATA:
                if self.wire.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                self.wire.receive_data(await self.stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _BODY_MAX:
                    raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                headers = [(bytes(name), bytes(value)) for name, value in head.headers.raw_items()]
                return Seen(method=bytes(head.method), target=bytes(head.target), headers=headers, body=bytes(body))
            else:
                assert isinstance(event, h11.ConnectionClosed), event
                return None

    async def _answer(self, seen: Seen, reply: Reply) -> bool:
        """Answer, watching for the client to hang up. False if it did."""
        self._begin()
        dies = False
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch)
                    try:
                        await self._generate(seen, reply)
                    except _Dies:
                        dies = True
                    except trio.BrokenResourceError:
                        self.scope.cancel()
                    nursery.cancel_scope.cancel()
        finally:
            if self.accepted is not None:
                self.provider._leave(self.accepted.number, self)
        if dies:
            raise _Dies
        if self.scope.cancel_called:
            self.provider.hangups += 1
            self.provider._tell()
        return not self.scope.cancel_called

    def _begin(self) -> None:
        self.scope, self.accepted, self.tokens_out, self.ending = trio.CancelScope(), None, 0, False

    async def _watch(self) -> None:
        """Cancel the answer when the client hangs up. A half-closed client counts as gone, as it does for real ones."""
        ahead = 0
        while ahead < _AHEAD_MAX:
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                if not self.ending:
                    self.scope.cancel()
                return
            ahead += len(data)
            self.wire.receive_data(data)

    async def _generate(self, seen: Seen, reply: Reply) -> None:
        path = seen.target.split(b"?", 1)[0].decode("ascii", "replace")
        request = asked(path, seen.body)
        dialect: Dialect = request.dialect if request else Anthropic() if path.startswith("/v1/m") else OpenAIChat()
        if reply.reset and reply.die_after is None:
            raise _Dies
        if reply.status is not None:
            if reply.hold is not None:
                await reply.hold.wait()
            body = reply.body if reply.body is not None else dialect.error("api_error", "as the script says")
            await self._whole(seen, reply, reply.status, body)
            return
        if request is None:
            found = without_slot(path, seen.body)
            body = found if found is not None else dialect.error("not_found_error", f"not served: {path}")
            await self._whole(seen, reply, 404 if found is None else 200, body)
            return
        answer = self.provider._arrive(request.ask, self)
        if isinstance(answer, Refused):
            await self._whole(seen, reply, answer.status, dialect.error(answer.kind, answer.message))
            return
        if reply.hold is not None:
            await reply.hold.wait()
        said = Said(
            number=answer.number,
            model=request.model,
            tokens_in=request.ask.tokens_in,
            events=answer.service.events,
            usage_wanted=request.usage_wanted,
        )
        if request.stream:
            await self._streamed(request, said, answer.service, reply)
        else:
            await _sleep_ns(answer.service.latency_ns)
            self.tokens_out = answer.service.tokens_out
            await self._whole(seen, reply, 200, reply.body if reply.body is not None else request.dialect.whole(said))

    async def _whole(self, seen: Seen, reply: Reply, status: int, body: bytes) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *reply.headers]
        half = len(body) // 2
        if reply.die_after is None and self.accepted is not None:
            # The slot is free once the answer is generated, before the client can have read the last of it.
            self.provider._leave(self.accepted.number, self)
        self.ending = reply.die_after is None
        head = self.wire.send(h11.Response(status_code=status, headers=headers)) or b""
        if seen.method == b"HEAD":
            body = b""
        elif reply.die_after is not None:
            await self.stream.send_all(head + (self.wire.send(h11.Data(data=body[:half])) or b""))
            raise _Dies
        data = self.wire.send(h11.Data(data=body)) or b""
        await self.stream.send_all(head + data + (self.wire.send(h11.EndOfMessage()) or b""))

    async def _streamed(self, request: Asked, said: Said, service: Service, reply: Reply) -> None:
        assert self.accepted is not None
        streamed = request.dialect.streamed(said)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await _sleep_ns(service.first_byte_ns)
        head = self.wire.send(h11.Response(status_code=200, headers=[*headers, *reply.headers])) or b""
        await self.stream.send_all(head + (self.wire.send(h11.Data(data=streamed.opening)) or b""))
        for number, (tokens, piece) in enumerate(zip(service.events, streamed.pieces, strict=True)):
            if reply.die_after == number:
                raise _Dies
            if reply.hold_after is not None and reply.hold_after[0] == number:
                await reply.hold_after[1].wait()
            await _sleep_ns(service.gap_ns)
            self.tokens_out += tokens
            await self._send(h11.Data(data=piece))
        if reply.die_after is not None:
            raise _Dies
        self.provider._leave(self.accepted.number, self)
        self.ending = True
        closing = self.wire.send(h11.Data(data=streamed.closing)) or b""
        await self.stream.send_all(closing + (self.wire.send(h11.EndOfMessage()) or b""))

    async def _send(self, event: h11.Event) -> None:
        await self.stream.send_all(self.wire.send(event) or b"")

    async def _refuse_malformed(self, error: h11.RemoteProtocolError) -> None:
        if self.wire.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = OpenAIChat().error("invalid_request_error", str(error))
        headers = [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        head = self.wire.send(h11.Response(status_code=error.error_status_hint, headers=headers)) or b""
        await self.stream.send_all(head + (self.wire.send(h11.Data(data=body)) or b""))

    def client_gone(self) -> bool:
        """Whether the kernel knows that the client has closed the connection."""
        poll = select.poll()
        poll.register(self.stream.socket.fileno(), _GONE)
        return bool(poll.poll(0))


def _reset_on_close(stream: trio.SocketStream) -> None:
    """Make closing send RST."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _now_ns() -> int:
    return round(trio.current_time() * 1e9)


async def _sleep_ns(ns: int) -> None:
    await trio.sleep(ns / 1e9)
