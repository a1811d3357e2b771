"""HTTP/1.1, lean: requests are read here if they are like almost all, else by h11; the answers are framed here.

Hypercorn's H11Protocol makes three shielded writes, a memory channel and a timer task of every exchange. This one makes
a task for the app and nothing else: the body waits in a list, one task at most is parked in `receive()`, every deadline
is the reader's. A WebSocket handshake is handed to Hypercorn's own code with the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final, Protocol, final
from urllib.parse import unquote

import h11
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h11 import H2ProtocolAssumedError, H11Protocol

from .asgi import App, Message
from .bounds import Bounds
from .http2_frames import FrameAllowance
from .refusing import OverloadResponse
from .request_head import ParsedHead, read_head
from .wire import InboundWire

_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_BODYLESS: Final = frozenset({204, 304})
_EVENTS_PER_TURN: Final = 32
"""Number of h11 events a turn: one for each chunk of a body, at 30 microseconds each."""
_TINY_BYTES: Final = 4_096
"""Shorter pieces of a body are put together."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_READ_BY_US: Final = frozenset({b"connection", b"content-length", b"transfer-encoding", b"upgrade"})


class ConnectionState(Protocol):
    """Services of the connection for its protocol, all synchronous."""

    app: App
    wire: InboundWire
    bounds: Bounds

    @property
    def resets(self) -> FrameAllowance:
        """HTTP/2 streams that all clients together may reset."""

    @property
    def closing(self) -> bool:
        """No further request is wanted: we are draining."""

    def within(self, limit_ns: int | None) -> None:
        """Set the time limit of the peer's next bytes; None for no limit."""

    def rest(self) -> None:
        """Nothing is in progress: the connection may be closed without loss."""

    def pause(self) -> None:
        """Stop reading from the connection."""
        ...

    def resume(self) -> None:
        """Read from the connection again."""
        ...

    def finish(self) -> None:
        """Say FIN, and read on for a while, so that what was said reaches a peer that is still sending."""

    def report(self, error: BaseException) -> None:
        """Log an error of the application."""
        ...

    def refusal(self, target: bytes) -> OverloadResponse | None:
        """Return the answer to a new request while the loop lags too much; None: it is served."""

    def refuse_unread(self, data: bytes) -> bool:
        """Answer a new request at once if the loop lags too much and nothing of it is still to come; True: it is done.

        The connection stays, for the client comes back.
        """

    def unread_answer(self, status: int) -> tuple[bytes, bytes]:
        """Return header lines and body of an answer in place of the application."""
        ...

    def refused(self, status: int, bytes_out: int) -> None:
        """Note that a request was answered in place of the application, with a body of this size."""

    def start(self, run: Callable[..., Any], *args: object) -> None:
        """In the connection's nursery."""


class Framing(Enum):
    """Framing of a response body."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


def _without_blank_lines(data: bytes) -> bytes:
    """Skip empty lines before a request line (RFC 9112, section 2.2)."""
    start = 0
    while data.startswith(b"\r\n", start):
        start += 2
    return data[start:]


def _unsplit(lines: list[bytes]) -> bytes:
    """Join the names, if none of them hides another one."""
    block = b"".join(lines)
    if block.count(b"\n") != len(lines) or block.count(b"\r") != len(lines) or b"\0" in block:
        raise ValueError("a line break in a header")
    return block


@final
class AsgiExchange:
    """One request and its answer, as the ASGI app sees them."""

    def __init__(
        self, owner: Http1, link: ConnectionState, scope: dict[str, Any], *, expects: bool, keep: bool
    ) -> None:
        self.expects = expects  # the client waits for 100 Continue
        self.keep = keep
        self.whole = False  # the request's body has arrived
        self.started = False
        self.over = False  # answered, refused or aborted: nothing more is sent
        self.gone = False  # the client hung up
        self.scope = scope
        self.buffered = 0
        self._owner = owner
        self._link = link
        self.body: list[bytes | bytearray] = []
        self._body_told = False  # the app has had the message with more_body False
        self._framing = Framing.NONE
        self._remaining = 0
        self._trailers: list[bytes] | None = None  # None: none will follow the body
        self._hang_up: Callable[[], object] | None = None
        self._parked: trio.lowlevel.Task | None = None
        scope["extensions"] = {
            "http.response.trailers": {},
            "hivemind.on_disconnect": self.on_disconnect,
            "hivemind.abort": self.abort,
        }

    # -- the reader's side -------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take a part of the request body."""
        self.expects = False  # it did not wait after all
        if len(data) >= _TINY_BYTES:
            self.body.append(data)
        elif self.body and isinstance(self.body[-1], bytearray) and len(self.body[-1]) < _TINY_BYTES:
            self.body[-1] += data  # an object for each chunk of one byte would be 40 bytes
        else:
            self.body.append(bytearray(data))
        self.buffered += len(data)
        self._wake()

    def end_of_body(self) -> None:
        """Note that the request body is complete."""
        self.whole = True
        self._wake()

    def hang_up(self) -> None:
        """Tell the application that the client is gone, or sends no more: half-closing counts as hanging up."""
        if self.gone or self.over:
            return
        self.gone = True
        self._wake()
        if self._hang_up is not None:
            self._hang_up()

    def end(self) -> None:
        """Whatever is still said is dropped; whoever still listens hears that it is over."""
        self.over = True
        self._wake()

    # -- the app's side ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the application for this request."""
        try:
            await self._link.app(self.scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001  # an app's bug ends its own exchange only
            self._link.report(error)
        finally:
            # They refer to this exchange: what a call held, its body above all, is freed now and not by the collector.
            self.scope["extensions"] = {}
        if not self.over and not (self.gone and not self.started):
            if self.started:
                self.abort()
            else:
                self._owner.refuse(500)

    def on_disconnect(self, hang_up: Callable[[], object]) -> None:
        """Register the callback for a client that disconnects."""
        self._hang_up = hang_up
        if self.gone:
            hang_up()

    def abort(self) -> None:
        """End the response without its rest."""
        if self.over:
            return
        self.end()
        wire = self._link.wire
        if self._framing is Framing.CLOSE:
            wire.reset()  # here a FIN would be the regular end
        else:
            wire.write_now(b"")
            wire.close()

    async def receive(self) -> Message:
        """Return the next ASGI message of the request."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if (self.body or self.whole) and not self._body_told and (self.whole or not self.gone) and not self.over:
                return self._take()
            if self.gone or self.over:
                await trio.lowlevel.checkpoint()
                return {"type": "http.disconnect"}
            if self.expects:
                self.expects = False
                await self._link.wire.write(_CONTINUE)
                self._owner.await_body()
                continue
            if self._parked is not None:
                raise trio.BusyResourceError("another task is in receive()")
            self._parked = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._unpark)

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response."""
        if self.over:
            await trio.lowlevel.checkpoint()
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        match message["type"]:
            case "http.response.body" if self.started:
                more = message.get("more_body", False)
                await self._link.wire.write(self._framed(message.get("body", b""), more or self._trailers is not None))
                if not more and self._trailers is None:
                    self._finish()
            case "http.response.start" if not self.started:
                head = self._head(message["status"], message.get("headers", ()))
                self.started = True
                self._link.wire.hold(head)
                if message.get("trailers") and self._framing is Framing.CHUNKED:
                    self._trailers = []
            case "http.response.trailers" if self._trailers is not None:
                self._trailers += [b"%b: %b\r\n" % field for field in message["headers"]]
                if not message.get("more_trailers", False):
                    await self._link.wire.write(_unsplit([b"0\r\n", *self._trailers, b"\r\n"]))
                    self._finish()
            case kind:
                raise RuntimeError(f"unexpected ASGI message {kind!r}")

    def _finish(self) -> None:
        if not self.over:
            self.end()
            self._owner.answered(self)

    def _take(self) -> Message:
        body = self.body[0] if len(self.body) == 1 and isinstance(self.body[0], bytes) else b"".join(self.body)
        self.body.clear()
        self._body_told = self.whole
        if self.buffered:
            self.buffered = 0
            self._owner.await_body()
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    def _head(self, status: int, headers: Any) -> bytes:
        """Case, order and duplicates as given; only what frames the message is ours."""
        if not 200 <= status <= 999:
            raise ValueError(f"not the status of an answer: {status}")
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b""))]
        length: int | None = None
        for name, value in headers:
            match name.lower():
                case b"connection":
                    self.keep &= b"close" not in value.lower()
                    continue
                case b"transfer-encoding":
                    continue
                case b"content-length":
                    if length is not None and length != int(value):
                        raise ValueError("two lengths for one answer")
                    length = int(value)
                    if status == 204:
                        continue
            lines.append(b"%b: %b\r\n" % (name, value))

        if self.scope["method"] == "HEAD" or status in _BODYLESS:
            self._framing = Framing.NONE
        elif length is not None:
            self._framing = Framing.LENGTH
            self._remaining = length
        elif self.scope["http_version"] == "1.1":
            self._framing = Framing.CHUNKED
            lines.append(b"transfer-encoding: chunked\r\n")
        else:
            self._framing = Framing.CLOSE

        # An answer before the end of the request: we shall not wait for the rest to find the next one.
        self.keep &= self.whole and not self._link.closing
        if not self.keep:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return _unsplit(lines)

    def _framed(self, body: bytes, more: bool) -> bytes:
        match self._framing:
            case Framing.CHUNKED:
                chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                return chunk if more else chunk + b"0\r\n\r\n"
            case Framing.LENGTH:
                self._remaining -= len(body)
                if self._remaining < 0 or (self._remaining and not more):
                    raise RuntimeError("the body is not as long as content-length said")
                return body
            case Framing.NONE:
                return b""
            case Framing.CLOSE:
                return body

    def _wake(self) -> None:
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None

    def _unpark(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED


@final
class Http1(H11Protocol):
    """The requests of one connection, one after the other."""

    def __init__(self, link: ConnectionState, *args: Any) -> None:
        super().__init__(*args)
        self._link = link
        self._exchange: AsgiExchange | None = None
        self._first = True
        self._in_head = False
        self._left: int | None = None  # of the request's body; None: h11 reads this request
        self._unread = False  # h11 holds events that are left for a later turn of the loop
        self._ahead = 0  # bytes of the next request that came before their time
        self._switching = False
        self._websocket = False
        self._gone = False

    async def handle(self, event: Event) -> None:
        """Process an event of the connection."""
        self._gone |= isinstance(event, Closed)
        if self._websocket:
            await super().handle(event)
            # Hypercorn refuses a handshake without saying that the connection ends.
            if self.stream is None or self.stream.closed:
                self._link.finish()
        elif isinstance(event, RawData):
            self.feed(event.data)
        elif isinstance(event, Closed) and self._exchange is not None:
            self._exchange.hang_up()

    @property
    def lean(self) -> bool:
        """`feed` may be called instead of `handle`."""
        return not self._websocket

    def feed(self, data: bytes) -> None:
        """Take bytes of the client.

        Raises:
            H2ProtocolAssumedError: It speaks HTTP/2.
        """
        exchange, fresh = self._exchange, self._is_fresh
        if fresh and data.startswith(b"\r\n"):
            data = _without_blank_lines(data)
            if not data:
                return
        if self.refuses(data):
            return
        if fresh and (head := read_head(data)) is not None:
            self._left = head.length
            if self._begin(head, expects=False):
                self._fed(data[head.end :])
            return
        if exchange is not None and not exchange.whole and self._left is not None:
            self._fed(data)
            return
        self.connection.receive_data(data)
        if self._switching:
            return
        if exchange is None or not exchange.whole:
            self._advance()
        else:
            self._ahead += len(data)
            if self._ahead >= self._link.bounds.body_buffer_bytes:
                self._link.pause()

    def refuses(self, data: bytes) -> bool:
        """Refuse a request that has come whole, if the loop lags too much; True: it is done."""
        if not self._is_fresh or not self._link.refuse_unread(data):
            return False
        self._first = False
        return True

    @property
    def _is_fresh(self) -> bool:
        """A request begins with the next byte."""
        return self._exchange is None and not self._in_head and not self._switching and not self._websocket

    def _fed(self, data: bytes) -> None:
        """Body of a request that we read ourselves, and maybe what follows it, which is kept where h11 will find it."""
        exchange = self._exchange
        assert exchange is not None
        assert self._left is not None
        piece = data[: self._left]
        self._left -= len(piece)
        if piece:
            exchange.feed(piece)
        if not self._left:
            exchange.end_of_body()
            if len(data) > len(piece):
                self.connection.receive_data(data[len(piece) :])
                self._ahead = len(data) - len(piece)
        self._await(exchange)

    @property
    def unread(self) -> bool:
        """Some of what was fed is still to be read: `read_on`, after others have had their turn."""
        return self._unread

    def read_on(self) -> None:
        """Continue with requests that were read already."""
        if self._unread:
            self._advance()

    def timed_out(self) -> None:
        """End the connection of a client that took too long over a head or a body."""
        self.refuse(408)

    def await_body(self) -> None:
        """Note that the application has taken what was read, or wants the body."""
        exchange = self._exchange
        if exchange is not None and not exchange.whole and not exchange.expects:
            self._link.within(self._link.bounds.body_idle_ns)
            self._link.resume()

    def answered(self, exchange: AsgiExchange) -> None:
        """Turn to the next request, of which some or all may be here already."""
        if self._exchange is not exchange:
            return
        self._exchange = None
        if not exchange.keep or not exchange.whole or self._gone or self._link.closing:
            self._link.resume()
            self._link.finish()
            return
        ahead = _without_blank_lines(self.connection.trailing_data[0]) if self._ahead else b""
        self._ahead = 0
        if ahead or self._left is None:
            self.connection = self._parser()
        self._left = None
        self._link.rest()
        self._link.resume()
        if ahead:
            self.connection.receive_data(ahead)
            self._advance()
            if self._unread:
                self._link.start(self._read_on)

    async def _read_on(self) -> None:
        while self._unread:
            await trio.lowlevel.checkpoint()
            self.read_on()

    def cut_off(self) -> None:
        """End the connection now, whatever is in progress."""
        if self._exchange is not None and self._exchange.started:
            self._exchange.abort()

    def refuse(self, status: int) -> None:
        """Answer in the app's place, if it is not too late for that, and end the connection."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and (exchange.started or exchange.over):
            exchange.abort()
            self._link.wire.close()
            return
        fields, body = self._link.unread_answer(status)
        self._link.wire.write_now(
            b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, _REASONS[status], fields, len(body), body)
        )
        if exchange is not None:
            exchange.hang_up()
            exchange.end()
        else:
            self._link.refused(status, len(body))
        self._link.resume()
        self._link.finish()

    def _parser(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._link.bounds.header_bytes)

    def _advance(self) -> None:
        self._unread = False
        for _ in range(_EVENTS_PER_TURN):
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                self.refuse(error.error_status_hint)
                return
            if isinstance(event, h11.Request):
                if not self._begin_with_h11(event):
                    return
            elif isinstance(event, h11.Data) and self._exchange is not None:
                self._exchange.feed(bytes(event.data))
            else:
                break
        else:
            self._unread = True

        exchange = self._exchange
        if exchange is None:
            if not self._in_head and self.connection.trailing_data[0]:
                self._in_head = True
                self._link.within(self._link.bounds.header_ns)
        else:
            if isinstance(event, h11.EndOfMessage):
                exchange.end_of_body()
                self._ahead = len(self.connection.trailing_data[0])
            self._await(exchange)

    def _await(self, exchange: AsgiExchange) -> None:
        """Start the timeout of the party that must act next."""
        if exchange.whole or exchange.expects:
            self._link.within(None)
        elif exchange.buffered >= self._link.bounds.body_buffer_bytes:
            self._link.within(None)
            self._link.pause()
        else:
            self._link.within(self._link.bounds.body_idle_ns)

    def _begin_with_h11(self, request: h11.Request) -> bool:
        version = request.http_version
        if version == b"2.0" and self._first and request.method == b"PRI" and request.target == b"*":
            raise H2ProtocolAssumedError(b"PRI * HTTP/2.0\r\n\r\n" + self.connection.trailing_data[0])
        if version not in (b"1.1", b"1.0"):
            self.refuse(505)
            return False
        headers = [(name.lower(), value) for name, value in request.headers.raw_items()]
        head = ParsedHead(request.method, request.target, version, headers, 0, 0)
        return self._begin(head, expects=self.connection.they_are_waiting_for_100_continue, request=request)

    def _begin(self, head: ParsedHead, *, expects: bool, request: h11.Request | None = None) -> bool:
        """Begin a request; return True if its body is still to be read here."""
        self._first = self._in_head = False
        connection, upgrade, framings, size = b"", b"", set(), len(head.target)
        for name, value in head.headers:
            size += len(name) + len(value)
            if name in _READ_BY_US:
                if name == b"connection":
                    connection += b"," + value.lower()
                elif name == b"upgrade":
                    upgrade = value.lower()
                else:
                    framings.add(name)
        if size > self._link.bounds.header_bytes:
            self.refuse(431)
            return False
        if len(framings) > 1:
            # Whoever sends both a length and chunks hopes that two servers in a row believe different ones.
            self.refuse(400)
            return False
        if refusal := self._link.refusal(head.target):
            self._link.wire.write_now(refusal.http1(head.method))
            self._link.resume()
            self._link.finish()
            return False
        tokens = [token.strip() for token in connection.split(b",")] if connection else []
        if request is not None and upgrade == b"websocket" and b"upgrade" in tokens and head.method == b"GET":
            self._switching = True
            self._link.within(None)
            self._link.start(self._switch, request)
            return False

        path, _, query = head.target.partition(b"?")
        exchange = self._exchange = AsgiExchange(
            self,
            self._link,
            {
                "type": "http",
                "asgi": {"spec_version": "2.1", "version": "3.0"},
                "http_version": head.version.decode("ascii"),
                "method": head.method.decode("ascii").upper(),
                "scheme": "http",
                "path": unquote(path.decode("ascii")),
                "raw_path": path,
                "query_string": query,
                "root_path": "",
                "headers": head.headers,
                "client": self.client,
                "server": self.server,
                "state": {},
            },
            expects=expects,
            keep=head.version == b"1.1" and b"close" not in tokens,
        )
        self._link.start(exchange.run)
        return True

    async def _switch(self, request: h11.Request) -> None:
        """Leave the connection to Hypercorn's WebSocket."""
        await self._create_stream(request)
        self._switching = False
        self._websocket = True
        await self.handle(RawData(b""))
