"""Refusals of an overloaded listener, as cheap as they can be: a call is refused before it is read, let alone parsed.

To refuse a call takes 2 to 3 % of the CPU time that serving it takes (`bench/overload.py`). At 10 % a proxy that is
offered five times what it can serve would serve little more than half of that.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from hivemind_trio.model import Reason, rejection_text

from .overload import LoopLag
from .wire import SocketPoll


def error_body(kind: str, reason: Reason, case: str = "", advice: str = "") -> bytes:
    """Return a body as Anthropic's and OpenAI's clients read it, for a request that the app does not see.

    The path, and so the API, is not known.
    """
    message = f"hivemind-trio: {rejection_text(reason, case)}{advice}"
    error = {"type": kind, "code": str(reason), "param": None, "message": message}
    return json.dumps({"type": "error", "error": error}).encode()


_UNREAD: Final = {
    400: (Reason.BAD_REQUEST, error_body("invalid_request_error", Reason.BAD_REQUEST, "http")),
    431: (Reason.HEADER_TOO_LARGE, error_body("invalid_request_error", Reason.HEADER_TOO_LARGE)),
}
_UNREAD_FIELDS: Final = b"content-type: application/json\r\nx-should-retry: false\r\nx-hivemind-reason: %b\r\n"


def unread_answer(status: int) -> tuple[bytes, bytes]:
    """Return header lines and body for an agent whose request the app does not see; most statuses have neither."""
    if status not in _UNREAD:
        return b"", b""
    reason, body = _UNREAD[status]
    return _UNREAD_FIELDS % reason.encode(), body


_REASON: Final = Reason.PROXY_OVERLOADED
OVERLOAD_BODY: Final = error_body("overloaded_error", _REASON, advice="; retry later")
ALIVE: Final = b"/healthz"
"""Answered whatever the load is: a supervisor that hears nothing, or 503, would start the process anew."""

_LENGTH: Final = b"\r\ncontent-length:"
_CHUNKED: Final = b"\r\ntransfer-encoding"
_DIGITS: Final = 18
_READY_MAX: Final = 256
"""Responses that are kept ready: agents send few different request lines."""
_READ_BYTES: Final = 64 * 1024
_DROPPED_BYTES: Final = 1024 * 1024
_MORE: Final = getattr(socket, "MSG_MORE", 0)
"""The answer and FIN go in one packet, where the system knows how to."""
_AT_ONCE: Final = getattr(socket, "MSG_DONTWAIT", 0)
"""Spares a system call for each connection."""
_UNCOPIED: Final = getattr(socket, "MSG_TRUNC", 0) if hasattr(select, "epoll") else 0
"""Linux drops what was received without copying it."""


def framed(data: bytes) -> tuple[bytes, bytes, bool] | None:
    """Read what a refusal needs to know of a request: a few searches, for to parse it costs as much as to refuse it.

    Returns:
        The first line; the head in lower case; True if nothing of its body is still to come, nor anything behind it,
        so that no byte is lost by closing. None: the head has not come whole, or does not say how long the body is.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[: end + 2].lower()
    line = data[: head.find(b"\r\n")]
    if _CHUNKED in head:
        return line, head, False
    start = head.find(_LENGTH)
    if start < 0:
        return line, head, len(data) == end + 4
    said = head[start + len(_LENGTH) : head.find(b"\r\n", start + 2)].strip()
    if not said.isdigit() or len(said) > _DIGITS or head.find(_LENGTH, start + 2) >= 0:
        return None
    return line, head, len(data) == end + 4 + int(said)


def _stays(head: bytes) -> bool:
    """Return True if the connection may be used for another request: both ends agree where this one ended."""
    return b"\r\nconnection: close" not in head and head.count(b"\n") == head.count(b"\r\n")


@final
@attrs.frozen
class OverloadResponse:
    """A 503 of an overloaded listener."""

    retry_after_s: int
    body: bytes

    def http1(self, method: bytes) -> bytes:
        """Return it as an HTTP/1.1 response, whole, after which the connection closes."""
        before, after = _http1(self.body, keep=False, with_body=method != b"HEAD")
        return b"%b%d%b" % (before, self.retry_after_s, after)

    def http2(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of an HTTP/2 response."""
        return [
            (b":status", b"503"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body)),
            (b"retry-after", b"%d" % self.retry_after_s),
            (b"x-hivemind-reason", _REASON.encode()),
        ]


def _http1(body: bytes, *, keep: bool, with_body: bool) -> tuple[bytes, bytes]:
    """Return an HTTP/1.1 response: what stands before the seconds of `retry-after`, and what behind them."""
    before = (
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"x-hivemind-reason: %b\r\n%bretry-after: "
        % (len(body), _REASON.encode(), b"" if keep else b"connection: close\r\n")
    )
    return before, b"\r\n\r\n%b" % (body if with_body else b"")


@final
class Refuser:
    """Refuses calls while the loop lags.

    Args:
        lag: Law that says when, and until when.
        body_for: Given the target of a request, the body of its 503.
        porch: Where connections wait.
    """

    def __init__(self, lag: LoopLag, body_for: Callable[[bytes], bytes], porch: Porch) -> None:
        self._lag = lag
        self._body_for = body_for
        self._porch = porch
        self._ready: dict[tuple[bytes, bool], tuple[bytes, bytes]] = {}  # by request line, and whether it is kept

    def refusal(self, target: bytes) -> OverloadResponse | None:
        """Return the refusal of a request; None: it is served."""
        if not self._lag.is_overloaded or target == ALIVE:
            return None
        return OverloadResponse(self._lag.refuse(), self._body_for(target))

    def of_whole(self, data: bytes) -> tuple[bytes, bool] | None:
        """Return the response to a request that has come whole, and True if the connection stays; None: read it."""
        if not self._lag.is_overloaded or (found := framed(data)) is None or not found[2]:
            return None
        keep = _stays(found[1])
        response = self._response(found[0], keep=keep)
        return (response, keep) if response else None

    def begun(self, sock: socket.socket) -> bytes:
        """Return what a fresh connection has sent already, if calls have been refused lately: it is to be served."""
        if not _AT_ONCE or self._lag.refuses_s(trio.current_time()) is None:
            return b""
        try:
            return sock.recv(_READ_BYTES, _AT_ONCE)
        except OSError:
            return b""

    def refuse(self, sock: socket.socket) -> bytes | None:
        """Refuse what a fresh connection asks, now or when it asks; if it is to be served, return what was read of it.

        Bytes that are left unread would make the kernel send a reset, which can overtake the answer.
        """
        if not _AT_ONCE:
            sock.setblocking(False)
        try:
            data = sock.recv(_READ_BYTES, _AT_ONCE)
        except BlockingIOError:
            if self._porch.is_full:
                return b""
            self._porch.take(sock, refused=False)
            return None
        except OSError:
            data = b""
        if not data:
            sock.close()  # it was gone before
            return None
        found = framed(data)
        if found is None or (not found[2] and self._porch.is_full):
            return data
        line, _, is_whole = found
        response = self._response(line, keep=False)
        if not response:
            return data
        try:
            sock.send(response, _AT_ONCE | _MORE)
            if not is_whole:
                sock.shutdown(socket.SHUT_WR)
                self._porch.take(sock, refused=True)
                return None
        except OSError:
            pass  # it was gone before
        sock.close()
        return None

    def _response(self, line: bytes, *, keep: bool) -> bytes:
        """Return the response to a request; empty: it is to be read, or served."""
        ready = self._ready.get((line, keep))
        if ready is None:
            method, target, version = words if len(words := line.split(b" ")) == 3 else (b"", b"", b"")
            if version != b"HTTP/1.1" or target == ALIVE:
                return b""
            if len(self._ready) >= _READY_MAX:
                self._ready.clear()
            ready = _http1(self._body_for(target), keep=keep, with_body=method != b"HEAD")
            self._ready[line, keep] = ready
        return b"%b%d%b" % (ready[0], self._lag.refuse(), ready[1])


@final
@attrs.define(eq=False)
class _Guest:
    sock: socket.socket
    until_s: float
    is_refused: bool
    left_bytes: int


@final
class Porch:
    """Connections that need no task of their own: one task waits for all of them.

    Those that were refused before their request had come whole are read to their end. Those that have not asked
    anything yet are shown in when they do, or when their time is over.

    Args:
        bytes_each: As many are read of a connection that was refused, at most.
        time_s: For so long each stays, at most.
        at_most: So many connections.
        show_in: Given a connection that was not refused and is here no more.
    """

    def __init__(
        self, bytes_each: int, time_s: float, at_most: int, show_in: Callable[[socket.socket], object]
    ) -> None:
        self._bytes_each = bytes_each
        self._time_s = time_s
        self._at_most = at_most
        self._show_in = show_in
        self._guests: dict[int, _Guest] = {}  # by descriptor, in the order of their arrival, and so of their ends
        self._poll = SocketPoll(self._ready, self._first_end_s, self._end_overdue)
        self._sink = bytearray(_DROPPED_BYTES)

    def __len__(self) -> int:
        return len(self._guests)

    @property
    def is_full(self) -> bool:
        """True if no connection is taken: there are too many, or the system cannot wait for many at once."""
        return not self._poll.is_available or len(self._guests) >= self._at_most

    def take(self, sock: socket.socket, *, refused: bool) -> None:
        """Wait for a connection, and own it until then."""
        number = sock.fileno()
        self._poll.add(number)
        self._guests[number] = _Guest(sock, trio.current_time() + self._time_s, refused, self._bytes_each)

    async def run(self) -> None:
        """Until cancelled; then the connections are closed."""
        try:
            await self._poll.run()
        finally:
            for guest in self._guests.values():
                guest.sock.close()

    def _first_end_s(self) -> float:
        return next(iter(self._guests.values())).until_s

    def _ready(self, number: int) -> None:
        guest = self._guests[number]
        if not guest.is_refused:
            self._leave(number)
            return
        try:
            got = guest.sock.recv_into(self._sink, 0, _AT_ONCE | _UNCOPIED)
        except BlockingIOError:
            return
        except OSError:
            got = 0
        guest.left_bytes -= got
        if not got or guest.left_bytes < 0:
            self._leave(number)

    def _end_overdue(self) -> None:
        now_s, overdue = trio.current_time(), []
        for number, guest in self._guests.items():
            if guest.until_s > now_s:
                break
            overdue.append(number)
        for number in overdue:
            self._leave(number)

    def _leave(self, number: int) -> None:
        guest = self._guests.pop(number)
        self._poll.remove(number)
        if guest.is_refused:
            guest.sock.close()
        else:
            self._show_in(guest.sock)
