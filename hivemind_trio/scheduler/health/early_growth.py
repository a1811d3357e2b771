"""Growth of a concurrency limit before answers have ended: the first content of a few tells whether more at once help.

To measure a limit by whole answers takes as long as those do, so that a fleet which a provider would serve at once
waits for several answers' time. Until the first refusal the limit is raised earlier: when a quarter of the calls that
it let in have had their first content, as soon as they had at the limit before. If they have not, more at once only
wait longer for each other, and the limit goes back, for whole answers to measure it (`throughput_search.py`).
"""

from __future__ import annotations

from math import ceil, log, sqrt
from typing import Final, final

import attrs

from .throughput_search import FEW, GAIN, KEPT, LINEAR, STEP_FAR_DOWN, SURE, Moments

SHARE: Final = 0.25
"""Share of a limit whose first content is waited for."""
SHARE_OF_FIRST: Final = 0.6
"""The same for the first limit, that others are compared with: all that went when half of it was in flight."""
STEP: Final = 1.5
"""Factor of the first step."""
LATE: Final = 2.0
"""Multiple of the usual time after which too few of them have come."""


@final
@attrs.define(eq=False)
class EarlyGrowth:
    """Told of grants and of first content while the limit binds; says where the limit should go."""

    is_over: bool = attrs.field(default=False, init=False)
    """More at once have made others wait longer, or there cannot be more."""
    falls: bool = attrs.field(default=False, init=False)
    """More at once finished plainly less, so fewer are compared with the first limit."""
    is_linear: bool = attrs.field(default=False, init=False)
    """First content came as soon at the last limit as at the first."""
    _limit: int = attrs.field(default=0, init=False)
    """0: none has been granted at the limit of now."""
    since_ns: int = attrs.field(default=0, init=False)
    """When it began to be the limit."""
    _awaited: int = attrs.field(default=0, init=False)
    """Attempts granted since then whose content is still to come."""
    _filled_ns: int | None = attrs.field(default=None, init=False)
    """Since when they are half of it; None: they are fewer."""
    _times: Moments = attrs.field(factory=Moments, init=False)
    _first: tuple[int, Moments] | None = attrs.field(default=None, init=False)
    """The first limit, and its times."""
    _before: int = attrs.field(default=0, init=False)
    """The limit before."""
    _usual_ns: float = attrs.field(default=0.0, init=False)
    """At the limit before."""

    def on_granted(self, limit: int, now_ns: int) -> None:
        """Count an attempt that begins."""
        if self.is_over:
            return
        if limit != self._limit:
            self._limit, self.since_ns, self._times = limit, now_ns, Moments()
            self._awaited, self._filled_ns = 0, None
        self._awaited += 1
        if self._filled_ns is None and 2 * self._awaited >= limit:
            self._filled_ns = now_ns

    def on_failed(self, granted_ns: int) -> None:
        """Count an attempt off whose content is no longer awaited."""
        if granted_ns >= self.since_ns and self._limit:
            self._awaited -= 1
            if 2 * self._awaited < self._limit:
                self._filled_ns = None

    def on_begun(self, granted_ns: int, level: int, now_ns: int, *, limit_is_binding: bool) -> int | None:
        """Learn from first content. Return the limit to go to; None: stay."""
        if self.is_over or not self._limit:
            return None
        if granted_ns >= self.since_ns:
            if 2 * level >= self._limit:
                self._times.add(max(1, now_ns - granted_ns))
            self.on_failed(granted_ns)
        if not limit_is_binding:
            return None
        limit, count, first = self._limit, self._times.count, self._first
        if count < max(FEW, ceil(SHARE * limit)):
            return self._back(STEP_FAR_DOWN) if self._is_late(now_ns) else None
        if self.falls:
            return self._compare_fewer()
        if first is None or limit <= first[0]:
            if count < ceil(SHARE_OF_FIRST * limit):
                return None
            self._first = limit, self._times
        else:
            growth = limit / first[0]
            gain = log(growth) + first[1].mean - self._times.mean
            asked = log(1 + GAIN * (growth - 1))
            error = sqrt(self._times.error + first[1].error)
            if gain + SURE * error < asked:
                # If more at once finish plainly less, the limit before may have been too high as well.
                return self._back(STEP_FAR_DOWN if gain + SURE * error < log(KEPT) else 1.0)
            if gain < asked and limit > STEP * first[0]:
                self.is_over = True  # whole answers will tell
                return None
            self.is_linear = gain >= LINEAR * log(growth)
        self._usual_ns = self._times.usual
        self._limit, self._before = 0, limit
        return 2 * limit if self.is_linear else ceil(STEP * limit)

    def _is_late(self, now_ns: int) -> bool:
        first, filled_ns = self._first, self._filled_ns
        return (
            first is not None
            and self._limit > first[0]
            and filled_ns is not None
            and now_ns - filled_ns > LATE * self._usual_ns
        )

    def _back(self, step: float) -> int:
        limit = max(1, int(min(self._before, self._limit) * step))
        self.is_linear, self.falls = False, step < 1
        self.is_over = not self.falls
        self._limit = 0
        return limit

    def _compare_fewer(self) -> int | None:
        """Return the first limit if fewer at once finish less; None: they finish about as much, or more."""
        assert self._first is not None
        limit, times = self._first
        self.is_over = True
        gain = log(self._limit / limit) + times.mean - self._times.mean
        return None if gain >= log(KEPT) else limit
