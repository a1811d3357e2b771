"""Accepting, counting and letting go of connections."""

from __future__ import annotations

import errno
import logging
import math
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, final

import trio
from hypercorn.trio.worker_context import WorkerContext

from .asgi import App
from .bounds import Bounds
from .http2_frames import FrameAllowance, Pacer
from .hypercorn_worker import InboundConnection, config_for
from .listener_fault import ListenerFault
from .overload import LoopLag
from .refusing import OVERLOAD_BODY, Porch, Refuser, unread_answer
from .sockets import ConnectionSource
from .wire import Flusher, SharedPoll

_OUT_OF_SOMETHING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_BREATH_S: Final = 0.1


def log(fault: ListenerFault, detail: str, error: BaseException) -> None:
    """Log a fault of the listener."""
    logging.getLogger(__name__).error("%s: %s", fault, detail, exc_info=error)


def _ignore(status: int, peer: str, bytes_out: int) -> None:
    pass


def _overload_body(target: bytes) -> bytes:
    return OVERLOAD_BODY


@final
class Listener:
    """Serves a raw ASGI 3 app; scopes are `http` and `websocket`, never `lifespan`.

    Besides what ASGI says, `scope["extensions"]` has

    - `hivemind.on_disconnect`: give it a synchronous callable such as `cancel_scope.cancel`. It is called once, when
      the client hangs up before the answer is complete; at once if it already has. Cheaper than a task in `receive()`.
    - `hivemind.abort`: call it to end an answer so that no client takes it for complete.

    An app that raises, or returns before its answer is complete, has the same effect: 500 if nothing was sent.

    Args:
        app: The ASGI app.
        bounds: What one client may take.
        report: Given the fault, one line of detail and the exception. It must not raise.
        refused: Given status, peer and size of the answer for a request that the app never saw. It must not raise.
        overload_body: Given the target of a request that is refused unread, the body of its 503. It must be cheap.
        unread_answer: Given the status of an answer in the app's place, its header lines and its body.
    """

    def __init__(
        self,
        app: App,
        bounds: Bounds | None = None,
        report: Callable[[ListenerFault, str, BaseException], None] = log,
        refused: Callable[[int, str, int], None] = _ignore,
        overload_body: Callable[[bytes], bytes] = _overload_body,
        unread_answer: Callable[[int], tuple[bytes, bytes]] = unread_answer,
    ) -> None:
        self.app = app
        self.bounds = bounds or Bounds()
        self.closing = False
        self.report = report
        self.refused = refused
        self.unread_answer = unread_answer
        self.config = config_for(self.bounds)
        self.context = WorkerContext(None)
        self.flusher: Flusher
        self.pacer = Pacer()
        self.lag: LoopLag
        self.refuser: Refuser
        self.shared: SharedPoll
        self._overload_body = overload_body
        self._said_s = -math.inf
        self._said = 0
        self.resets: FrameAllowance
        self.sockets: Sequence[ConnectionSource] = ()
        self.open_connections: dict[InboundConnection, None] = {}  # in the order of their arrival
        self.on_connections: Callable[[int], None] | None = None
        """Told their number whenever it changes."""
        self._changed: trio.Event | None = None  # somebody waits for a connection to end or to come to rest

    @property
    def connections(self) -> int:
        """Number of connections, idle ones included."""
        return len(self.open_connections)

    async def run(
        self, sockets: Sequence[ConnectionSource], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve what `bind` returned, until cancelled, or until `stop_accepting` was called and all have gone.

        Being cancelled ends every connection at once, whatever its client does or does not do.
        """
        self.sockets = sockets
        for sock in sockets:
            sock.setblocking(False)
        try:
            async with trio.open_nursery() as helpers:
                self.flusher = Flusher(helpers)
                self.lag = LoopLag(self.bounds.turn_ns / 1e9)
                trio.lowlevel.add_instrument(self.lag)
                self.resets = FrameAllowance(self.bounds.resets_in_all, self.bounds.resets_in_all / 10)
                self.shared = SharedPoll()
                helpers.start_soon(self.flusher.run)
                helpers.start_soon(self.shared.run)
                async with trio.open_nursery() as nursery:
                    porch = Porch(
                        self.bounds.linger_bytes,
                        self.bounds.linger_ns / 1e9,
                        self.bounds.connections,
                        lambda sock: self._meet(sock, nursery),
                    )
                    self.refuser = Refuser(self.lag, self._overload_body, porch)
                    helpers.start_soon(porch.run)
                    for sock in sockets:
                        nursery.start_soon(self._accept_all, sock, nursery)
                    task_status.started()
                helpers.cancel_scope.cancel()
        finally:
            self._close_sockets()
            with suppress(KeyError):
                trio.lowlevel.remove_instrument(self.lag)

    def stop_accepting(self) -> None:
        """Close the listening sockets and what rests; what is in progress is answered with `connection: close`."""
        self.closing = True
        self.context.terminated._event.set()  # type: ignore[attr-defined]  # Hypercorn's wrapper has only a coroutine, which waits for nothing
        self._close_sockets()
        self.close_idle()
        self.rested()

    async def idle(self) -> None:
        """Return when no connection is left. Of use after `stop_accepting`, and best bounded by a cancel scope."""
        await trio.lowlevel.checkpoint()
        while self.open_connections:
            await self._change()

    def close_idle(self) -> None:
        """Close the connections on which nothing is in progress."""
        for connection in list(self.open_connections):
            connection.close_if_resting()

    def rested(self) -> None:
        """Note that a connection has become idle."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _change(self) -> None:
        """Until a connection ends or comes to rest."""
        self._changed = self._changed or trio.Event()
        await self._changed.wait()

    def _close_sockets(self) -> None:
        for sock in self.sockets:
            if sock.fileno() != -1:
                trio.lowlevel.notify_closing(sock)
                sock.close()

    async def _accept_all(self, sock: ConnectionSource, nursery: trio.Nursery) -> None:
        while sock.fileno() != -1:
            try:
                await trio.lowlevel.wait_readable(sock)
                if self.lag.is_overloaded and not self.closing:
                    self._refuse_all(sock, nursery)
                    continue
                await self._make_room()
                if sock.fileno() == -1:
                    return
                for _ in range(self.bounds.accepted_per_turn):
                    accepted, _ = sock.accept()
                    self._meet(accepted, nursery)
                    if len(self.open_connections) >= self.bounds.connections:
                        break  # room is made once another one has come
            except trio.ClosedResourceError:
                return
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in _OUT_OF_SOMETHING:
                    self.report(ListenerFault.ACCEPT_FAILED, str(error.strerror), error)
                    self.close_idle()
                    await trio.sleep(_BREATH_S)
                continue  # otherwise it was the client who had gone before we looked

    def _refuse_all(self, sock: ConnectionSource, nursery: trio.Nursery) -> None:
        """Refuse the calls that wait unaccepted, and serve the connections that ask nothing yet.

        Refused are the newest calls: those in progress, and those that wait in line for a provider, go on.

        Raises:
            BlockingIOError: None waits any more.
        """
        try:
            for _ in range(self.bounds.refused_per_turn):
                accepted, _ = sock.accept()
                self._meet(accepted, nursery)
                if len(self.open_connections) >= self.bounds.connections:
                    self.close_idle()
        finally:
            self.overloaded(trio.current_time())

    def _meet(self, accepted: socket.socket, nursery: trio.Nursery) -> None:
        """Refuse what a connection asks, or serve it."""
        if self.closing or not self.lag.is_overloaded:
            begun = self.refuser.begun(accepted)
            self._take(accepted, nursery, begun, admitted=bool(begun))
        elif (odd := self.refuser.refuse(accepted)) is not None:
            self._take(accepted, nursery, odd)

    def _take(
        self, accepted: socket.socket, nursery: trio.Nursery, begun: bytes = b"", *, admitted: bool = False
    ) -> None:
        accepted.setblocking(False)
        connection = InboundConnection(self, accepted, begun, admitted=admitted)
        self.open_connections[connection] = None
        self._counted()
        nursery.start_soon(self._serve, connection)

    def _counted(self) -> None:
        if self.on_connections is not None:
            self.on_connections(len(self.open_connections))

    def overloaded(self, now_s: float) -> None:
        """Log a call that was rejected for the lag, once a second: to log each would cost what rejecting saves."""
        if self.lag.refused > self._said and now_s >= self._said_s + 1.0:
            self._said = self.lag.refused
            self._said_s = now_s
            self.lag.noted(now_s)
            self.refused(
                503, f"{self.lag.refused} calls since start, lag {self.lag.lag_s * 1e3:.0f} ms", len(OVERLOAD_BODY)
            )

    async def _make_room(self) -> None:
        """Wait until there is room for one more. The longest established of the resting connections has to go."""
        while len(self.open_connections) >= self.bounds.connections and not self.closing:
            for connection in self.open_connections:
                if connection.close_if_resting():
                    break
            await self._change()

    async def _serve(self, connection: InboundConnection) -> None:
        try:
            await connection.run()
        finally:
            del self.open_connections[connection]
            self._counted()
            self.rested()
