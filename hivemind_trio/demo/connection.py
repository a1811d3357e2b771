"""One connection to the simulated provider, and the answer under way on it."""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from typing import Final, Protocol, assert_never

import attrs
import h11
import trio

from hivemind_trio.model import Usage
from hivemind_trio.sim import Accepted, Answer, Dropped, Provider, Refused, Trouble

from . import rate_limit_headers
from .rate_limit_headers import Headers
from .reply import ScriptedReply, Seen
from .wire_dialects import AnswerFormat, Anthropic, OpenAIChat, ParsedRequest, Said, asked, without_slot

_BODY_MAX: Final = 64 * 1024 * 1024
_AHEAD_MAX: Final = 64 * 1024
"""Bytes that a client may send before its answer has ended; beyond them nothing is read until then."""

# Linux tells a closed peer from one that has more to say; elsewhere only a connection closed both ways is known.
_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

_JSON: Final = b"application/json"
_GATEWAY_PAGE: Final = b"<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>\r\n"
"""A gateway knows nothing of the API behind it."""


class _Dies(Exception):  # noqa: N818 - control flow, not an error
    """The connection ends here, with RST or with FIN."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__()
        self.reset = reset


class Owner(Protocol):
    """The simulated provider, as far as one of its connections needs it."""

    world: Provider
    seen: deque[Seen]
    replies: deque[ScriptedReply]
    default: ScriptedReply
    hangups: int
    vanished: bool

    def arrive(self, asked: ParsedRequest, exchange: ProviderConnection) -> Answer:
        """Begin a request on this connection."""

    def generate(self, exchange: ProviderConnection, tokens: int) -> None:
        """Count tokens that the answer has so far."""

    def leave(self, exchange: ProviderConnection, *, whole: bool = False, breaks: bool = False) -> None:
        """End the request under way, if there is one."""

    def now_ns(self) -> int:
        """Return the time since the provider began, in nanoseconds."""

    def tell(self) -> None:
        """Wake those who wait for a change of the provider."""


@attrs.define(eq=False)
class ProviderConnection:
    """One connection, and the answer under way on it."""

    provider: Owner
    stream: trio.SocketStream
    wire: h11.Connection = attrs.field(init=False, factory=lambda: h11.Connection(h11.SERVER))
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """Cancel scope of the answer under way."""
    between: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """Cancel scope of the wait for the next request."""
    asked: ParsedRequest | None = attrs.field(init=False, default=None)
    world: Provider = attrs.field(init=False)
    """Provider that answers: of several behind this port, that of the latest request."""
    accepted: Accepted | None = attrs.field(init=False, default=None)
    tokens_in: int = attrs.field(init=False, default=0)
    """Input tokens of the answer under way; so is the next."""
    tokens_out: int = attrs.field(init=False, default=0)
    ending: bool = attrs.field(init=False, default=False)
    """The last of the answer is being written: a client that closes now has what it wanted."""

    def __attrs_post_init__(self) -> None:
        self.world = self.provider.world

    def usage(self, *, whole: bool) -> Usage:
        """Return the usage of the answer under way, so far."""
        cached = self.accepted.tokens_cached if self.accepted is not None else 0
        return Usage(input=self.tokens_in - cached, cache_read=cached, output=self.tokens_out, exact=whole)

    async def converse(self) -> None:
        """Answer the requests of one connection until it ends."""
        while not self.provider.vanished:
            seen: Seen | None = None
            try:
                with trio.CancelScope() as self.between:
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
            except _Dies as death:
                if death.reset:
                    _reset_on_close(self.stream)
                return
            if not whole or self.wire.our_state is not h11.DONE or self.wire.their_state is not h11.DONE:
                return
            self.wire.start_next_cycle()

    async def _request(self) -> Seen | None:
        """Return the next request with its body; None if the client closes instead."""
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

    async def _answer(self, seen: Seen, reply: ScriptedReply) -> bool:
        """Answer, watching for the client to hang up. False if it did."""
        self._begin()
        death: _Dies | None = None
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch)
                    try:
                        await self._generate(seen, reply)
                    except _Dies as dies:
                        death = dies
                    except trio.BrokenResourceError:
                        self.scope.cancel()
                    nursery.cancel_scope.cancel()
        finally:
            self.provider.leave(self)
        if death is not None:
            raise death
        if self.scope.cancel_called:
            self.provider.hangups += 1
            self.provider.tell()
        return not self.scope.cancel_called

    def _begin(self) -> None:
        self.scope, self.accepted, self.ending = trio.CancelScope(), None, False

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

    async def _generate(self, seen: Seen, reply: ScriptedReply) -> None:
        path = seen.target.split(b"?", 1)[0].decode("ascii", "replace")
        request = asked(path, seen.body)
        dialect: AnswerFormat = (
            request.dialect if request else Anthropic() if path.startswith("/v1/m") else OpenAIChat()
        )
        if reply.reset and reply.die_after is None:
            raise _Dies(reset=True)
        if reply.status is not None:
            if reply.hold is not None:
                await reply.hold.wait()
            body = reply.body if reply.body is not None else dialect.error("api_error", "as the script says")
            await self._whole(seen, reply, reply.status, body, content_type=reply.content_type)
            return
        if request is None:
            found = without_slot(path, seen.body)
            body = found if found is not None else dialect.error("not_found_error", f"not served: {path}")
            await self._whole(seen, reply, 404 if found is None else 200, body)
            return
        answer = self.provider.arrive(request, self)
        match answer:
            case Accepted():
                await self._serve(seen, request, answer, reply)
            case Refused():
                await self._refuse(seen, request.dialect, answer, reply)
            case Dropped():
                raise _Dies(reset=True)
            case _:
                assert_never(answer)

    async def _refuse(self, seen: Seen, dialect: AnswerFormat, refused: Refused, reply: ScriptedReply) -> None:
        if refused.trouble is Trouble.BAD_GATEWAY:
            await self._whole(seen, reply, refused.status, _GATEWAY_PAGE, content_type=b"text/html")
            return
        headers = self._limits(dialect) if refused.dimension is not None else []
        if refused.retry_after_ns is not None:
            headers += rate_limit_headers.retry_after(refused.retry_after_ns)
        body = dialect.error(refused.kind, refused.message, refused.dimension)
        await self._whole(seen, reply, refused.status, body, headers)

    async def _serve(self, seen: Seen, request: ParsedRequest, accepted: Accepted, reply: ScriptedReply) -> None:
        if reply.hold is not None:
            await reply.hold.wait()
        said = Said(
            number=accepted.number,
            model=request.model,
            tokens_in=self.tokens_in,
            tokens_cached=accepted.tokens_cached,
            events=accepted.service.events,
            usage_wanted=request.usage_wanted,
        )
        if request.stream:
            await self._streamed(request.dialect, said, accepted, reply)
            return
        await _sleep_ns(accepted.service.latency_ns)
        self.provider.generate(self, accepted.service.tokens_out)
        body = reply.body if reply.body is not None else request.dialect.whole(said)
        await self._whole(seen, reply, 200, body, self._limits(request.dialect))

    def _limits(self, dialect: AnswerFormat) -> Headers:
        now_ns = self.provider.now_ns()
        return list(dialect.limits(self.world.readings(now_ns), now_ns)) if self.world.tells else []

    async def _whole(
        self,
        seen: Seen,
        reply: ScriptedReply,
        status: int,
        body: bytes,
        limits: Headers | None = None,
        *,
        content_type: bytes = _JSON,
    ) -> None:
        headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        headers += [*(limits or []), *reply.headers]
        half = len(body) // 2
        if reply.die_after is None and self.accepted is not None:
            # The slot is free once the answer is generated, before the client can have read the last of it.
            self.provider.leave(self, whole=True)
        self.ending = reply.die_after is None
        head = self.wire.send(h11.Response(status_code=status, headers=headers)) or b""
        if seen.method == b"HEAD":
            body = b""
        elif reply.die_after is not None:
            await self.stream.send_all(head + (self.wire.send(h11.Data(data=body[:half])) or b""))
            raise _Dies(reset=reply.reset)
        data = self.wire.send(h11.Data(data=body)) or b""
        await self.stream.send_all(head + data + (self.wire.send(h11.EndOfMessage()) or b""))

    async def _streamed(self, dialect: AnswerFormat, said: Said, accepted: Accepted, reply: ScriptedReply) -> None:
        streamed, service = dialect.streamed(said), accepted.service
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await _sleep_ns(service.first_byte_ns)
        headers += [*self._limits(dialect), *reply.headers]
        head = self.wire.send(h11.Response(status_code=200, headers=headers)) or b""
        await self.stream.send_all(head + (self.wire.send(h11.Data(data=streamed.opening)) or b""))
        for number, (tokens, piece) in enumerate(zip(service.events, streamed.pieces, strict=True)):
            if reply.die_after == number:
                raise _Dies(reset=reply.reset)
            if accepted.breaks_after == number:
                self.provider.leave(self, breaks=True)
                raise _Dies(reset=True)
            if accepted.stalls_after == number:
                await trio.sleep_forever()  # until the client has had enough
            if reply.hold_after is not None and reply.hold_after[0] == number:
                await reply.hold_after[1].wait()
            await _sleep_ns(service.gap_ns)
            self.provider.generate(self, tokens)
            await self._send(h11.Data(data=piece))
        if reply.die_after is not None:
            raise _Dies(reset=reply.reset)
        self.provider.leave(self, whole=True)
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
        """Return True if the kernel knows that the client has closed the connection."""
        poll = select.poll()
        poll.register(self.stream.socket.fileno(), _GONE)
        return bool(poll.poll(0))


def _reset_on_close(stream: trio.SocketStream) -> None:
    """Make closing send RST."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _sleep_ns(ns: int) -> None:
    await trio.sleep(ns / 1e9)
