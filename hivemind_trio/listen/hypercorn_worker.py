"""One accepted connection: Hypercorn's Trio TCPServer, isolated from the others.

This file, `http1.py` (its H11Protocol) and `http2.py` (its H2Protocol and TaskGroup) are all that knows Hypercorn.
They lean on names that Hypercorn does not promise, which is why `pyproject.toml` pins the minor version and
`tests/listen/test_pin.py` lists them. What differs from the stock worker, and why:

- an exception ends its own connection and is reported, where any could end the server;
- writes can be cancelled and are bounded, where they were shielded for as long as a client liked;
- every deadline is on the one read, where each request started and cancelled a timer task;
- an answer to a request that was not read to its end is followed by FIN and a bounded reading on, where tasks leaked
  and the client was reset before it could read the refusal;
- no upgrade to h2c. HTTP/2 by prior knowledge works.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from typing import Any, Protocol, final

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H2ProtocolAssumedError
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from .asgi import App
from .bounds import Bounds
from .http1 import Http1
from .http2 import Http2, Tasks
from .http2_frames import FrameAllowance, Pacer
from .listener_fault import ListenerFault
from .overload import LoopLag
from .refusing import OverloadResponse, Refuser
from .sockets import peer_of
from .wire import Flusher, InboundWire, SharedPoll


def config_for(bounds: Bounds) -> Config:
    """As transparent as a proxy must be: no header of Hypercorn's own, no access log, no limit on requests."""
    config = Config()
    config.include_date_header = False
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = None
    config.h11_max_incomplete_size = bounds.header_bytes
    config.h2_max_header_list_size = bounds.header_bytes
    config.h2_max_concurrent_streams = bounds.streams
    config.keep_alive_max_requests = 2**62
    return config


class ListenerContext(Protocol):
    """Services that a connection needs of its listener."""

    app: App
    bounds: Bounds
    config: Config
    context: WorkerContext
    flusher: Flusher
    pacer: Pacer
    resets: FrameAllowance
    lag: LoopLag
    refuser: Refuser
    shared: SharedPoll
    closing: bool

    def report(self, fault: ListenerFault, detail: str, error: BaseException) -> None:
        """Report a fault of the listener."""
        ...

    def refused(self, status: int, peer: str, bytes_out: int) -> None:
        """Count a request that is rejected before it is read."""
        ...

    def unread_answer(self, status: int) -> tuple[bytes, bytes]:
        """Return header lines and body of an answer in place of the application."""
        ...

    def overloaded(self, now_s: float) -> None:
        """Count a call that was rejected because the event loop lags."""

    def rested(self) -> None:
        """Note that a connection is idle, and could make room for another."""


@final
class InboundConnection(TCPServer):
    """Reads, keeps the time, and hands bytes to a protocol."""

    def __init__(
        self, house: ListenerContext, sock: socket.socket, begun: bytes = b"", *, admitted: bool = False
    ) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))  # sets TCP_NODELAY
        super().__init__(ASGIWrapper(house.app), house.config, house.context, ConnectionState({}), stream)  # type: ignore[arg-type]  # our ASGI types are looser
        self.app: Any = house.app
        self.bounds = house.bounds
        self.resting = False
        self._admitted = admitted  # the request that has begun to come is served, whatever the load is meanwhile
        self.wire = InboundWire(sock, house.bounds.write_patience_ns / 1e9, house.flusher, self._closed, begun)
        self._house = house
        self._refused_s = -math.inf  # the last call at rest that was refused; it does not move the deadline
        self._peer = "a client"
        self._nursery: trio.Nursery
        self._tasks: Tasks
        self._reading = trio.CancelScope()
        self._resumed: trio.Event | None = None
        self._lingering = False
        self._linger_bytes_left = house.bounds.linger_bytes
        self._http: Http1 | Http2 | None = None  # None until we know whom we talk to

    async def run(self) -> None:
        """Until the connection has ended and every app on it too. Raises nothing but cancellation."""
        try:
            client = peer_of(self.stream.socket)
            server = parse_socket_addr(self.stream.socket.family, self.stream.socket.getsockname())
            self._peer = "{}:{}".format(*client) if client else self._peer
            async with trio.open_nursery() as self._nursery:
                self._tasks = tasks = Tasks(self, self._nursery)
                self._arguments = (
                    self.app, self.config, self.context, tasks, self.state, False, client, server, self.protocol_send,
                )  # fmt: skip
                self._http = Http1(self, *self._arguments)
                self.rest()
                await self._read_data()
                await self._http.handle(Closed())
                tasks.hang_up()
        except* OSError:
            pass  # it was gone before we looked
        except* Exception as errors:  # noqa: BLE001  # this is the isolation
            self.report(errors)
        finally:
            if isinstance(self._http, Http1):
                self._http.cut_off()
            self.wire.close()

    def close_if_resting(self) -> bool:
        """Close, unless something is in progress, or has come while the loop was busy; True: it is closed."""
        if not self.resting or self.wire.has_unread():
            return False
        self.wire.close()
        return True

    # -- for the protocols (Link) ------------------------------------------------------------------------------------

    @property
    def resets(self) -> FrameAllowance:
        """Allowance for reset streams, shared by all connections."""
        return self._house.resets

    def refusal(self, target: bytes) -> OverloadResponse | None:
        """Return the response of an overloaded listener to a request; None: it is served."""
        admitted, self._admitted = self._admitted, False
        if admitted or not self._house.lag.is_overloaded or self.closing:
            return None
        refusal = self._house.refuser.refusal(target)
        self._house.overloaded(trio.current_time())
        return refusal

    def refuse_unread(self, data: bytes) -> bool:
        """Answer a whole request in place of everybody, if the listener is overloaded; True: it is done.

        If it is not overloaded the request is admitted for good: to refuse it a turn later costs as much as serving it.
        """
        house = self._house
        self._admitted |= not house.lag.is_overloaded
        if self._admitted or house.closing or self._lingering:
            return False
        refused = house.refuser.of_whole(data)
        if refused is None:
            return False
        said, keeps = refused
        now_s = trio.current_time()
        if self.wire.send_some(said) < len(said):
            self.wire.reset()  # its client has left many answers unread, and would take the next one for the rest
        elif keeps:
            self._refused_s = now_s
        else:
            self.finish()
        house.overloaded(now_s)
        return True

    @property
    def closing(self) -> bool:
        """True once the listener shuts down."""
        return self._house.closing

    def within(self, limit_ns: int | None) -> None:
        """Set the time limit of the next read; None for no limit."""
        self.resting = False
        self._reading.deadline = trio.current_time() + limit_ns / 1e9 if limit_ns is not None else float("inf")

    def rest(self) -> None:
        """Apply the keep-alive time limit until the next request."""
        self.within(self.bounds.keep_alive_ns)
        self.resting = True
        if self.closing:
            self.finish()
        else:
            self._house.rested()

    def pause(self) -> None:
        """Stop reading from the connection."""
        if self._resumed is None:
            self._resumed = trio.Event()

    def resume(self) -> None:
        """Read from the connection again."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def finish(self) -> None:
        """Close the connection after its current request."""
        if not self._lingering:
            self.wire.finish()
            self._lingering = True
            self.resume()
            self.within(self.bounds.linger_ns)

    def report(self, error: BaseException) -> None:
        """Report an error of the application."""
        root = error
        while isinstance(root, BaseExceptionGroup):
            root = root.exceptions[0]
        self._house.report(ListenerFault.CONNECTION_CRASHED, f"{self._peer}: {type(root).__name__}: {root}", error)

    def unread_answer(self, status: int) -> tuple[bytes, bytes]:
        """Return header lines and body of an answer in place of the application."""
        return self._house.unread_answer(status)

    def refused(self, status: int, bytes_out: int) -> None:
        """Count a rejected request of this connection."""
        self._house.refused(status, self._peer, bytes_out)

    def start(self, run: Callable[..., Any], *args: object) -> None:
        """Start a task that ends with the connection."""
        self._nursery.start_soon(run, *args)

    # -- for Hypercorn -----------------------------------------------------------------------------------------------

    async def protocol_send(self, event: Event) -> None:
        """Write the output of the protocol to the connection."""
        match event:
            case RawData():
                await self.wire.write(event.data)
            case Closed():
                self.finish()
                if self._http is not None:
                    await self._http.handle(Closed())
            case Updated(idle=True):
                self.rest()
            case Updated():
                self.within(None)

    # -- the reader --------------------------------------------------------------------------------------------------

    async def _read_data(self) -> None:
        while not self.wire.closed:
            with trio.CancelScope(deadline=self._reading.deadline) as self._reading:
                await self._read()
                return
            rests_until_s = self._refused_s + self.bounds.keep_alive_ns / 1e9
            if self.resting and not self.wire.closed and rests_until_s > trio.current_time():
                self._reading.deadline = rests_until_s
                continue
            if self.wire.closed or self.resting or self._lingering or not isinstance(self._http, Http1):
                return
            self._http.timed_out()

    async def _read(self) -> None:
        """Until the peer is done, we are, or (by cancellation) it took too long."""
        while True:
            while self._resumed is not None:
                await self._resumed.wait()
            data = await self._received()
            if not data:
                return
            if self._lingering:
                self._linger_bytes_left -= len(data)
                if self._linger_bytes_left < 0:
                    return
            elif isinstance(http := self._http, Http1) and http.lean:
                try:
                    http.feed(data)
                    while http.unread and not self.wire.closed:
                        await self._house.pacer.turn()
                        http.read_on()
                except H2ProtocolAssumedError as assumed:
                    self._http = Http2(self, self._tasks, *self._arguments)
                    await self._http.initiate()
                    await self._feed_frames(self._http, assumed.data)
            elif isinstance(http, Http2):
                await self._feed_frames(http, data)
            elif http is not None:
                await http.handle(RawData(data))
            del data  # else 64 KiB stay with every connection that waits

    async def _received(self) -> bytes:
        """Return what comes next; while calls are refused, those of HTTP/1.1 are not worth a task each."""
        house, http = self._house, self._http
        if not isinstance(http, Http1) or not house.shared.is_available:
            return await self.wire.read()
        if house.lag.refuses_s(trio.current_time()) is None:
            return await self.wire.read()
        return await self.wire.read_shared(house.shared, http.refuses)

    async def _feed_frames(self, http: Http2, data: bytes) -> None:
        """Feed the frames in slices, one for each turn of the loop, as other connections do."""
        for piece in http.frames.cut(data):
            await self._house.pacer.turn()
            if self._lingering or self.wire.closed:
                return
            await http.handle(RawData(piece))

    def _closed(self) -> None:
        """Wake a reader whose connection was closed while it waits for something else."""
        self._reading.cancel()
