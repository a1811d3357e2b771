"""Admission by measured loop lag: refuse new calls at once while the process cannot keep up."""

from __future__ import annotations

import math
import re
import socket
import time
from typing import Final, final

import attrs
import trio

from hivemind_trio.model import Reason

from .error_body import error_body

BUSY_S: Final = 2.0
"""A loop that was idle within this has caught up with all that came."""
_IDLE_S: Final = 0.0005
"""A shorter wait is none: something was ready."""
_WINDOW_S: Final = 0.2
"""CPU time over which turns are averaged, in seconds."""

RETRY_AFTER_MAX_S: Final = 60
_RETRY_PER_LAG: Final = 20
"""Seconds to stay away for each second of lag: a call takes ten to twenty turns of the loop."""
_SPREAD: Final = 4
"""Callers are told to come back in one of so many seconds, in turn: they do not come back together."""

_REASON: Final = Reason.PROXY_OVERLOADED

OVERLOAD_BODY: Final = error_body("overloaded_error", _REASON, advice="; retry later")

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_PEEK_BYTES: Final = 64 * 1024


@final
@attrs.define(eq=False)
class LoopLag(trio.abc.Instrument):
    """Lag of the event loop: the time since it was idle, and the work of its turns.

    Work is CPU time: a turn in which a quota, or the machine's other work, stops the process is not a long one. A busy
    loop with short turns serves a few callers as fast as it can; long turns are those of many calls in progress.
    """

    limit_s: float
    """CPU time of a turn from which on a loop that is never idle is overloaded."""
    lag_s: float = attrs.field(init=False, default=0.0)
    """Wall-clock time of the last turns, which an event waits for."""
    refused: int = attrs.field(init=False, default=0)
    """Calls that were refused for it."""
    idle_at_s: float = attrs.field(init=False, factory=trio.current_time)
    _began_s: float = attrs.field(init=False, factory=trio.current_time)
    ended_s: float = attrs.field(init=False, factory=trio.current_time)
    _worked_s: float = attrs.field(init=False, factory=time.thread_time)
    _squares: float = attrs.field(init=False, default=0.0)
    _sum: float = attrs.field(init=False, default=0.0)

    def after_io_wait(self, timeout: float) -> None:
        """Note that a turn of the event loop begins."""
        self._began_s = trio.current_time()
        self._worked_s = time.thread_time()
        if timeout > 0 and self._began_s - self.ended_s > _IDLE_S:
            self.idle_at_s = self._began_s

    def before_io_wait(self, timeout: float) -> None:
        """End the measurement of a turn."""
        self.ended_s = trio.current_time()
        self.turned(self.ended_s - self._began_s, time.thread_time() - self._worked_s)

    def turned(self, turn_s: float, work_s: float) -> None:
        """Take a turn into account."""
        self.lag_s += (min(turn_s, 1.0) - self.lag_s) * 0.2
        kept = math.exp(-work_s / _WINDOW_S)
        self._squares = self._squares * kept + work_s * work_s
        self._sum = self._sum * kept + work_s

    @property
    def turn_s(self) -> float:
        """CPU time of the turn in which an average piece of work was done."""
        return self._squares / self._sum if self._sum else 0.0

    @property
    def is_overloaded(self) -> bool:
        """True if new calls are to be refused, so that those in progress are served."""
        return self.ended_s - self.idle_at_s >= BUSY_S and self.turn_s >= self.limit_s

    def retry_after_s(self) -> int:
        """When it is worth coming back."""
        return min(RETRY_AFTER_MAX_S, math.ceil(self.lag_s * _RETRY_PER_LAG) + 1 + self.refused % _SPREAD)

    def refusal(self) -> bytes:
        """Return the next 503, whole."""
        self.refused += 1
        return (
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"retry-after: %d\r\nx-hivemind-reason: %b\r\nconnection: close\r\n\r\n%b"
            % (len(OVERLOAD_BODY), self.retry_after_s(), _REASON.encode(), OVERLOAD_BODY)
        )


def is_whole(data: bytes) -> bool:
    """Return True if these bytes are one HTTP/1.1 request with all of its body, so that nothing is lost by closing."""
    head, mark, body = data.partition(b"\r\n\r\n")
    if not mark or data.startswith(b"PRI "):
        return False
    length = _LENGTH.search(head + b"\r\n")
    if length is None:
        return not body and b"\r\ntransfer-encoding:" not in head.lower()
    return len(body) == int(length[1])


def refuse_at_once(sock: socket.socket, lag: LoopLag) -> bool:
    """Answer 503 and close, without a task; False: the request has not come whole, so it is read as others are.

    Unread bytes would make the kernel send a reset, which can overtake the answer.
    """
    try:
        data = sock.recv(_PEEK_BYTES, socket.MSG_PEEK)
        if not is_whole(data):
            return False
        sock.recv(len(data))
        sock.send(lag.refusal())
    except BlockingIOError:
        return False
    except OSError:
        pass  # it was gone before
    sock.close()
    return True
