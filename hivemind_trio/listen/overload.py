"""Admission by measured loop lag: the law that says when new calls are refused, and for how long."""

from __future__ import annotations

import math
import time
from typing import Final, final

import attrs
import trio

BUSY_S: Final = 2.0
"""A loop that was idle within this has caught up with all that came."""
STANDING_S: Final = 0.3
"""CPU time for which turns have been long, in all, before calls are refused."""
_IDLE_S: Final = 0.0005
"""A shorter wait is none: something was ready."""
_WINDOW_S: Final = 0.1
"""CPU time over which turns are averaged, in seconds."""
_ONE_TURN: Final = 3.0
"""A turn counts for so many times the limit at most: one long one, such as a garbage collection, is no overload."""
_ONE_WAIT_S: Final = 0.5
"""Wall-clock time that a turn counts for at most: the process or its machine may have been suspended within it."""

RECENT_S: Final = 60.0
"""Time after the last refusal for which operators are told of it, and for which a loop is wary."""
_WARY: Final = 0.5
"""Share of the limit that a wary loop's turns may take, and of what one of them counts for."""
_SOONER: Final = 0.25
"""Share of `STANDING_S` after which a wary loop refuses: more than one long turn comes to, with short ones after it."""

RETRY_AFTER_MAX_S: Final = 60
_RETRY_PER_LAG: Final = 20
"""Seconds to stay away for each second of lag: a call takes ten to twenty turns of the loop."""
_SPREAD_S: Final = 4.0
"""Time over which callers are told to come back, at least; else as long as the loop has been busy."""
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Multiples of it, without their whole part, are even over an interval however many of them are taken."""


@final
@attrs.define(eq=False)
class LoopLag(trio.abc.Instrument):
    """Lag of the event loop: the time since it was idle, and the work of its turns.

    As in CoDel, a queue is bad if it stands: new calls are refused while the loop was never idle for `BUSY_S` and its
    turns have been long for `STANDING_S`. Work is CPU time: a turn in which a quota, or the machine's other work, stops
    the process is not a long one. A busy loop with short turns serves a few callers as fast as it can; long turns are
    those of many calls in progress.

    While calls have been refused lately the loop is wary: it refuses as soon as turns half as long have stood for a
    quarter of the time, though never for a single one. Else every overload would begin anew as soon as the loop has
    caught up, and each time hundreds of calls would be accepted that take seconds.
    """

    limit_s: float
    """CPU time of a turn from which on a loop that is never idle is overloaded."""
    lag_s: float = attrs.field(init=False, default=0.0)
    """Wall-clock time of the last turns, which an event waits for."""
    refused: int = attrs.field(init=False, default=0)
    """Calls that were refused for it."""
    busy_s: float = attrs.field(init=False, default=0.0)
    """Time since the loop was idle."""
    standing_s: float = attrs.field(init=False, default=0.0)
    """CPU time of long turns, less that of short ones since."""
    is_overloaded: bool = attrs.field(init=False, default=False)
    """True if new calls are to be refused, so that those in progress are served."""
    since_s: float | None = attrs.field(init=False, default=None)
    """Start of the refusals, none of which came a minute after another; None: there was none yet."""
    last_s: float = attrs.field(init=False, default=-math.inf)
    """Time of the last of them, to the second."""
    _soonest_s: int = attrs.field(init=False, default=1)
    _spread_s: float = attrs.field(init=False, default=_SPREAD_S)
    _ended_s: float = attrs.field(init=False, factory=trio.current_time)
    _began_s: float = attrs.field(init=False, factory=trio.current_time)
    _worked_s: float | None = attrs.field(init=False, factory=time.thread_time)
    """CPU time at the start of the turn; None: the loop had been idle."""
    _squares: float = attrs.field(init=False, default=0.0)
    _sum: float = attrs.field(init=False, default=0.0)

    def after_io_wait(self, timeout: float) -> None:
        """Note that a turn of the event loop begins."""
        self._began_s = trio.current_time()
        if timeout > 0 and self._began_s - self._ended_s > _IDLE_S:
            self.idled()
            self._worked_s = None
        else:
            self._worked_s = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        """End the measurement of a turn."""
        self._ended_s = trio.current_time()
        turn_s, worked_s = self._ended_s - self._began_s, self._worked_s
        if worked_s is not None:
            self.turned(turn_s, time.thread_time() - worked_s)
        else:
            # Nothing stands after an idle wait: a loop with little to do is spared what a long queue is measured by.
            self._waited(turn_s)

    def idled(self) -> None:
        """Note that the loop has waited: nothing is left undone."""
        self.busy_s = self.standing_s = self._squares = self._sum = 0.0
        self.is_overloaded = False

    def _waited(self, turn_s: float) -> None:
        """Take the wall-clock time of a turn into account, for which an event had to wait."""
        self.lag_s += (min(turn_s, 1.0) - self.lag_s) * 0.2
        self.busy_s += min(turn_s, _ONE_WAIT_S)

    def turned(self, turn_s: float, work_s: float) -> None:
        """Take a turn into account: its wall-clock time and its CPU time."""
        self._waited(turn_s)
        is_wary = self.refuses_s(self._ended_s) is not None
        share = _WARY if is_wary else 1.0
        limit_s = share * self.limit_s
        work_s = min(work_s, share * _ONE_TURN * limit_s)
        kept = math.exp(-work_s / _WINDOW_S)
        self._squares = self._squares * kept + work_s * work_s
        self._sum = self._sum * kept + work_s
        is_long = self.turn_s >= limit_s
        # Twice as much at most, so that what has stood for an hour is forgotten as soon as what has stood a second.
        self.standing_s = min(max(0.0, self.standing_s + (work_s if is_long else -work_s)), 2 * STANDING_S)
        stands = self.standing_s >= (STANDING_S * _SOONER if is_wary else STANDING_S)
        self.is_overloaded = is_long and stands and (is_wary or self.busy_s >= BUSY_S)
        if self.is_overloaded:
            self._soonest_s = 1 + math.ceil(self.lag_s * _RETRY_PER_LAG)
            self._spread_s = min(max(_SPREAD_S, self.busy_s), RETRY_AFTER_MAX_S - self._soonest_s)

    def noted(self, now_s: float) -> None:
        """Note that calls were refused within the last second."""
        if self.since_s is None or now_s - self.last_s > RECENT_S:
            self.since_s = now_s
        self.last_s = now_s

    def refuses_s(self, now_s: float) -> float | None:
        """Return for how long calls have been refused; None: none was within the last minute."""
        return now_s - self.since_s if self.since_s is not None and now_s - self.last_s <= RECENT_S else None

    @property
    def turn_s(self) -> float:
        """CPU time of the turn in which an average piece of work was done."""
        return self._squares / self._sum if self._sum else 0.0

    def refuse(self) -> int:
        """Count a call that is refused; return the seconds after which it is worth coming back.

        No two in a row are told the same, and the longer the overload has lasted the more time they are spread over: as
        many as were refused in that time come back in as much.
        """
        self.refused += 1
        return self._soonest_s + int(self.refused * _GOLDEN % 1.0 * self._spread_s)
