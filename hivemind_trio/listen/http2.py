"""HTTP/2 and WebSocket apps: Hypercorn's protocols, with their task group and four of their faults mended.

- DATA for a stream that was answered early raised KeyError and ended everything: it is read, bounded, and dropped.
- A body was acknowledged before the app had taken it, or blocked every other stream: here the stream's window is the
  bound, opened again as the app reads.
- An app that crashes or stops half-way left the stream open for ever: it is reset.
- Nothing bounded what frames may cost: see `http2_frames.py`. Slices of them take turns, a request that is reset
  within its slice is not begun, and who resets too much or sends too many frames without content is told
  ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, final

import trio
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    PingReceived,
    PriorityUpdated,
    RemoteSettingsChanged,
    RequestReceived,
    StreamReset,
)
from h2.events import Event as H2Event
from h2.exceptions import H2Error
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Body
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, H2Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.task_group import TaskGroup

from .asgi import Message
from .http1 import ConnectionState
from .http2_frames import FrameAllowance, FrameCutter

_STREAM_WINDOW: Final = 65_535  # the protocol's default, which we leave
_WEBSOCKET_MESSAGES: Final = 16
_REFILL_S: Final = 10.0
"""In which an allowance that is used up is whole again."""
_LAST_WORDS_S: Final = 1.0
"""In which a client takes what was said before an answer was broken off."""
_RESETS_FEW: Final = 20
"""A connection that has reset fewer lately is not closed for what the others do."""


_IDLE: Final = (PingReceived, PriorityUpdated, RemoteSettingsChanged)


@final
class Tasks(TaskGroup):
    """The tasks of one connection, in its nursery; and what connects an app to Hypercorn's stream objects."""

    def __init__(self, link: ConnectionState, nursery: trio.Nursery) -> None:
        super().__init__()
        self._nursery = nursery
        self._link = link
        self.inboxes: dict[Inbox, None] = {}
        self._gone = False

    async def spawn_app(
        self, app: object, config: object, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        """Run the application for a stream; return the callback that feeds it."""
        stream: HTTPStream | WSStream = send.__self__  # type: ignore[attr-defined]  # Hypercorn passes its bound app_send
        inbox = (
            Inbox({"type": "http.disconnect"}, inf)  # bounded by the stream's window
            if scope["type"] == "http"
            else Inbox({"type": "websocket.disconnect", "code": 1006}, _WEBSOCKET_MESSAGES)
        )
        self.inboxes[inbox] = None
        if self._gone:
            inbox.hang_up()
        self.spawn(self._run, stream, dict(scope), inbox, send)
        return inbox.put

    def hang_up(self) -> None:
        """End the connection, and tell the streams that Hypercorn forgot."""
        self._gone = True
        for inbox in self.inboxes:
            inbox.hang_up()

    async def _run(
        self, stream: HTTPStream | WSStream, scope: Any, inbox: Inbox, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        protocol = stream.send.__self__  # type: ignore[attr-defined]  # the protocol's bound stream_send
        http2 = protocol if isinstance(protocol, Http2) else None

        def abort() -> None:
            if http2 is None:
                self._link.wire.reset()
            elif stream.stream_id in http2.streams:
                http2.reset(stream.stream_id)

        async def receive() -> Message:
            message = await inbox.take(self._link.bounds.body_idle_ns / 1e9 if http2 is not None else inf)
            if http2 is not None and message.get("body"):
                await http2.taken(stream.stream_id, len(message["body"]))
            return message

        async def send_patiently(message: Message) -> None:
            if http2 is not None and stream.closed:  # Hypercorn's streams would send it
                await trio.lowlevel.checkpoint()
                return
            # Bytes are bounded by the wire's patience, a stream's flow-control window by this one.
            with trio.move_on_after(self._link.bounds.write_patience_ns / 1e9) as patience:
                await send(message)
            if patience.cancelled_caught:
                abort()
                inbox.hang_up()

        scope["extensions"] = {
            **scope["extensions"],
            "hivemind.on_disconnect": inbox.on_disconnect,
            "hivemind.abort": abort,
        }
        try:
            await self._link.app(scope, receive, send_patiently)
        except Exception as error:  # noqa: BLE001  # an app's bug ends its own stream only
            self._link.report(error)
        finally:
            untaken = inbox.end()
            del self.inboxes[inbox]
        if isinstance(stream, HTTPStream) and stream.state in (ASGIHTTPState.RESPONSE, ASGIHTTPState.TRAILERS):
            abort()  # half an answer
        with trio.move_on_after(self._link.bounds.write_patience_ns / 1e9):
            await send(None)  # Hypercorn answers in the app's place where it did not
        if http2 is not None and untaken:
            await http2.taken(stream.stream_id, untaken)


@final
class Inbox:
    """Events that an app has still to receive. Putting waits while it is full, unless the app has ended."""

    def __init__(self, farewell: Message, messages_at_most: float) -> None:
        self._farewell = farewell  # of a client that left without one
        self._bound = messages_at_most
        self._messages: deque[Message] = deque()
        self._changed = trio.Event()
        self._ended = False
        self._whole = False  # the request's body is all here, or there is none
        self._gone: Message | None = None
        self._hang_up: Callable[[], object] | None = None

    async def put(self, message: Message) -> None:
        """Queue a message for the application, with back-pressure."""
        while len(self._messages) >= self._bound and not self._ended and self._gone is None:
            await self._changed.wait()
        if self._ended:
            return
        if message["type"].endswith(".disconnect"):
            self.hang_up(message)
        else:
            self._messages.append(message)
            self._whole = not message.get("more_body")
            self._change()

    def hang_up(self, message: Message | None = None) -> None:
        """Tell the application that the client is gone."""
        if self._gone is None and not self._ended:
            self._gone = message or self._farewell
            self._change()
            if self._hang_up is not None:
                self._hang_up()

    def on_disconnect(self, hang_up: Callable[[], object]) -> None:
        """Register the callback for a client that disconnects."""
        self._hang_up = hang_up
        if self._gone is not None:
            hang_up()

    async def take(self, patience_s: float) -> Message:
        """Return the next message; a body that stands still for longer than that counts as a hang-up."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(inf if self._whole else patience_s) as patience:
            while not self._messages and self._gone is None:
                await self._changed.wait()
        if patience.cancelled_caught:
            self.hang_up()
        if not self._messages:
            assert self._gone is not None
            return self._gone
        message = self._messages.popleft()
        self._change()
        return message

    def end(self) -> int:
        """Nobody receives any more; the bytes of body that nobody took."""
        self._ended = True
        self._change()
        return sum(len(message.get("body", b"")) for message in self._messages)

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@final
class Http2(H2Protocol):
    """HTTP/2 connection with bounds on its streams and windows."""

    def __init__(self, link: ConnectionState, tasks: Tasks, *args: Any) -> None:
        super().__init__(*args)
        self._link = link
        self._tasks = tasks
        self.frames = FrameCutter()
        self._late_bytes = 0
        bounds = link.bounds
        self._resets = FrameAllowance(bounds.resets, bounds.resets / _REFILL_S)
        self._idle_frames = FrameAllowance(bounds.idle_frames, bounds.idle_frames / _REFILL_S)

    async def initiate(self, headers: Any = None, settings: bytes | None = None) -> None:
        # The connection's window must not be what a stream waits for because another one's app does not read.
        """Send the settings and the connection window."""
        await super().initiate(headers, settings)
        self.connection.increment_flow_control_window(self._link.bounds.streams * _STREAM_WINDOW)
        await self._flush()

    async def handle(self, event: Event) -> None:
        """Process an event of the connection."""
        await super().handle(event)
        if isinstance(event, Closed):
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()  # else whoever waits for it to drain waits for ever

    async def stream_send(self, event: StreamEvent) -> None:
        """Send an event of a stream."""
        await super().stream_send(event)
        # Hypercorn's own pause ends at the next attempt to send, even of nothing: a shut window would bound nothing.
        if isinstance(event, Body):
            buffer = self.stream_buffers.get(event.stream_id)
            if buffer is not None and len(buffer.buffer) >= BUFFER_HIGH_WATER:
                await buffer.drain()

    def reset(self, stream_id: int) -> None:
        """RST_STREAM behind what was said: it is not a whole answer."""
        self.streams.pop(stream_id).closed = True
        self.task_group.spawn(self._reset, stream_id)

    async def taken(self, stream_id: int, body_bytes: int) -> None:
        """Open the windows by what an app has read."""
        with suppress(H2Error):
            self.connection.acknowledge_received_data(body_bytes, stream_id)
        await self._flush()

    async def _reset(self, stream_id: int) -> None:
        buffer = self.stream_buffers.get(stream_id)
        if buffer is not None and buffer.buffer:
            # RST_STREAM takes back what waits in the buffer: the error that ends a stream, above all.
            with trio.move_on_after(_LAST_WORDS_S):
                await buffer.drain()
        with suppress(H2Error):
            self.connection.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
        is_idle = all(stream.idle for stream in self.streams.values())
        if is_idle and self._link.closing:
            self.connection.close_connection()
        await self._flush()
        if buffer is not None and stream_id in self.stream_buffers:
            await buffer.close()
            await self._window_updated(stream_id)  # the sending task notices and forgets the stream
        await self.send(Updated(idle=is_idle))

    async def _handle_events(self, events: list[H2Event]) -> None:
        resets = {event.stream_id for event in events if isinstance(event, StreamReset)}
        idle = sum(
            isinstance(event, _IDLE) or (isinstance(event, DataReceived) and not event.data and not event.stream_ended)
            for event in events
        )
        rest: list[H2Event] = []
        for event in events:
            if isinstance(event, RequestReceived) and not self._is_worth_a_start(event, resets):
                continue
            if isinstance(event, DataReceived):
                await super()._handle_events(rest)
                rest = []
                await self._data(event)
            else:
                rest.append(event)
        await super()._handle_events(rest)
        # Both are counted, whatever the first says.
        within = [self._may_reset(len(resets)), self._idle_frames.take(idle)]
        if not all(within) and not self.closed:
            self.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            await self._flush()
            await self.send(Closed())

    def _is_worth_a_start(self, request: RequestReceived, resets: set[int]) -> bool:
        """Return False if the client has reset the stream already, or it is refused here."""
        if request.stream_id in resets:
            return False
        if len(self._tasks.inboxes) >= 2 * self._link.bounds.streams:
            with suppress(H2Error):  # too many reset streams are still ending
                self.connection.reset_stream(request.stream_id, ErrorCodes.REFUSED_STREAM)
            return False
        fields = dict(request.headers or ())
        refusal = self._link.refusal(fields.get(b":path", b""))
        if refusal is None:
            return True
        with suppress(H2Error):
            stream_id = request.stream_id
            bodyless = fields.get(b":method") == b"HEAD"
            fits = len(refusal.body) <= self.connection.local_flow_control_window(stream_id)
            self.connection.send_headers(stream_id, refusal.http2(), end_stream=bodyless)
            if not bodyless and fits:
                self.connection.send_data(stream_id, refusal.body, end_stream=True)
            elif not bodyless:
                self.connection.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
        return False

    def _may_reset(self, count: int) -> bool:
        in_all = self._link.resets.take(count)
        return self._resets.take(count) and (in_all or not count or self._resets.used <= _RESETS_FEW)

    async def _data(self, event: DataReceived) -> None:
        stream = self.streams.get(event.stream_id)
        padding = event.flow_controlled_length - len(event.data)
        if stream is None:
            self._late_bytes += event.flow_controlled_length
            if self._late_bytes > self._link.bounds.linger_bytes:
                with suppress(H2Error):
                    self.connection.reset_stream(event.stream_id, ErrorCodes.NO_ERROR)
            padding = event.flow_controlled_length
        elif isinstance(stream, HTTPStream):
            if event.data:
                await stream.handle(Body(stream_id=event.stream_id, data=event.data))
        else:
            await stream.handle(Body(stream_id=event.stream_id, data=event.data))
            padding = event.flow_controlled_length
        if padding:
            await self.taken(event.stream_id, padding)
