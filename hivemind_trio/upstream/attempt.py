"""The bounds of one attempt: four deadlines on one cancel scope, of which one is running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from hivemind_trio.policy import Timeouts

from .errors import NotSent, Stage, UpstreamError, UpstreamErrorKind

_S_PER_NS: Final = 1e-9
_A_YEAR_NS: Final = 365 * 86_400 * 1_000_000_000

UNBOUNDED: Final = Timeouts(connect_ns=_A_YEAR_NS, first_byte_ns=_A_YEAR_NS, idle_ns=_A_YEAR_NS, total_ns=_A_YEAR_NS)
"""For who bounds it otherwise."""


@final
@attrs.define(eq=False)
class AttemptDeadlines:
    """Deadlines of an attempt, and the stage that it has reached.

    A cancel scope costs four times what moving its deadline does, so there is one for the whole attempt, the caller's
    handling of the response included. Moving it costs as much as handling a streamed piece, so `idle` is moved only
    when an eighth of it is used up: silence is noticed within nine eighths.
    """

    _timeouts: Timeouts
    _may_send: Callable[[], bool] | None = None
    """Asked right before the request is written; None: it may."""
    scope: trio.CancelScope = attrs.field(init=False)
    stage: Stage = attrs.field(default=Stage.CONNECTING, init=False)
    _running: UpstreamErrorKind = attrs.field(default=UpstreamErrorKind.CONNECT, init=False)
    _total_at: float = attrs.field(init=False)
    _first_byte_at: float = attrs.field(default=0.0, init=False)
    _opening: bool = attrs.field(default=False, init=False)
    """The head has come, and `first-byte` runs on until the caller says `opened`."""
    # Asked for every piece of a stream; `trio.current_time` would look for the clock each time.
    _time_s: Callable[[], float] = attrs.field(factory=lambda: trio.lowlevel.current_clock().current_time, init=False)

    def __attrs_post_init__(self) -> None:
        """Begin the attempt: it is connecting."""
        now_s = self._time_s()
        self._total_at = now_s + self._timeouts.total_ns * _S_PER_NS
        connect_at = now_s + self._timeouts.connect_ns * _S_PER_NS
        if connect_at >= self._total_at:
            self._running = UpstreamErrorKind.TOTAL
        self.scope = trio.CancelScope(deadline=min(connect_at, self._total_at))

    def sending(self) -> None:
        """Note the connection; from here on the request may have been executed.

        Raises:
            NotSent: It may not be sent any more. The connection is as it was.
        """
        if self._may_send is not None and not self._may_send():
            raise NotSent
        self.stage = Stage.SENT
        self._first_byte_at = self._time_s() + self._timeouts.first_byte_ns * _S_PER_NS
        self._run_until(UpstreamErrorKind.FIRST_BYTE, self._first_byte_at)

    def headed(self) -> None:
        """Note the head of the response."""
        self.stage = Stage.HEADED
        self.handling()

    def opening(self) -> None:
        """Let `first-byte` run on, and not `idle`: the head alone says nothing."""
        self._opening = True
        self._run_until(UpstreamErrorKind.FIRST_BYTE, self._first_byte_at)

    def opened(self) -> None:
        """Note that the answer has begun."""
        self._opening = False
        self.handling()

    def reading(self) -> None:
        """Wait for the next piece."""
        if self._opening:
            return
        idle_s = self._timeouts.idle_ns * _S_PER_NS
        if self._running is UpstreamErrorKind.IDLE and self.scope.deadline >= self._time_s() + idle_s:
            return
        self._run(UpstreamErrorKind.IDLE, self._timeouts.idle_ns + self._timeouts.idle_ns // 8)

    def handling(self) -> None:
        """Let the caller take as long as it likes, within the total."""
        self._running = UpstreamErrorKind.TOTAL
        self.scope.deadline = self._total_at

    def overdue(self) -> UpstreamError:
        """Return the error of the deadline that ended the attempt."""
        words = {
            UpstreamErrorKind.CONNECT: "no connection in time",
            UpstreamErrorKind.FIRST_BYTE: "no response head in time",
            UpstreamErrorKind.IDLE: "the body stopped coming",
            UpstreamErrorKind.TOTAL: "the attempt took too long",
        }
        if self._opening:
            words[UpstreamErrorKind.FIRST_BYTE] = "no content in time"
        message = f"{self._running}: {words[self._running]}"
        return UpstreamError(self._running, message, sent=self.stage is not Stage.CONNECTING)

    def _run(self, kind: UpstreamErrorKind, timeout_ns: int) -> None:
        self._run_until(kind, self._time_s() + timeout_ns * _S_PER_NS)

    def _run_until(self, kind: UpstreamErrorKind, at: float) -> None:
        if at < self._total_at:
            self._running = kind
            self.scope.deadline = at
        else:
            self.handling()
