"""Search for fewer attempts at once that are served more in all, by the speed of their streams (`stream_speed.py`).

The number in flight varies as agents begin, think and end, and a lower one that was served plainly more is gone to at
once. Where nothing varies it, fewer are probed: for a few reports no new attempt begins beyond a lower limit. That
costs a flat provider some slots for seconds, so what gains nothing is probed ever more seldom.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple, final

import attrs

from .stream_speed import StreamSpeed
from .throughput_search import STEP_DOWN, STEP_FAR_DOWN

SECOND_NS: Final = 1_000_000_000

AFTER_NS: Final = 10 * SECOND_NS
"""Time for which streams are served before fewer are probed."""
REPORTS_MAX: Final = 8
"""Reports after which a probe is over, though nothing is plain."""
REST_NS: Final = 60 * SECOND_NS
REST_MAX_NS: Final = 960 * SECOND_NS
"""Time between two probes; doubled each time that fewer are not served more."""
SILENT_NS: Final = 5 * SECOND_NS
"""Time without a report after which a probe is over."""


@final
class LimitStep(Enum):
    """Change of the limit."""

    PROBE = auto()
    """Fewer, for a few reports."""
    BACK = auto()
    """The limit from before the probe."""
    STAY = auto()
    """Fewer, for they are served more."""


class LimitMove(NamedTuple):
    """Limit to go to, and why. It is 0 for `BACK`."""

    step: LimitStep
    limit: int


@final
@attrs.define(eq=False)
class FewerProbe:
    """Told of reports of streams; says where the limit should go."""

    speeds: StreamSpeed = attrs.field(factory=StreamSpeed, init=False)
    _compared: float | None = attrs.field(default=None, init=False)
    """Number in flight that fewer are compared with in a probe; None: there is none."""
    _reports: int = attrs.field(default=0, init=False)
    """Reports of the probe."""
    _told_ns: int = attrs.field(default=0, init=False)
    """Time of the last report."""
    _next_ns: int | None = attrs.field(default=None, init=False)
    """When fewer may next be probed; None: no stream has told anything yet."""
    _rest_ns: int = attrs.field(default=REST_NS, init=False)
    """Time until the next probe, if this one gains nothing."""
    _falls: bool = attrs.field(default=False, init=False)
    """The last comparison has shown that fewer are served more."""

    @property
    def is_probing(self) -> bool:
        """True while fewer are probed."""
        return self._compared is not None

    def is_silent(self, now_ns: int) -> bool:
        """Return True if a probe gets no reports any more."""
        return self.is_probing and now_ns - self._told_ns > SILENT_NS

    def stop(self, now_ns: int) -> None:
        """End a probe that has shown nothing."""
        self._compared, self._falls = None, False
        self._next_ns, self._rest_ns = now_ns + self._rest_ns, min(2 * self._rest_ns, REST_MAX_NS)

    def on_report(self, level: float, now_ns: int, *, limit: int, low: int, may_probe: bool) -> LimitMove | None:
        """Learn from a report that `speeds` has been told of. Return where the limit should go; None: it stays.

        Args:
            level: Attempts in flight that it is about.
            limit: Concurrency limit of now.
            low: Its lower bound.
            may_probe: False if something else is being compared, or is known to be worse with fewer.
        """
        self._told_ns = now_ns
        if self._next_ns is None:
            self._next_ns = now_ns + AFTER_NS
        if self._compared is not None:
            return self._judge(level, self._compared, limit, now_ns) if level < limit + 0.5 else None
        fewer = self.speeds.better(level, now_ns)
        if fewer is not None:
            most = max(low, min(round(fewer), round(level) - 1))
            if most < limit:
                return self._won(most, now_ns)
            return self._begin(fewer, limit, low)
        if may_probe and now_ns >= self._next_ns and self._is_untried(level, now_ns):
            return self._begin(level, limit, low)
        return None

    def _is_untried(self, level: float, now_ns: int) -> bool:
        return self.speeds.knows(level, now_ns) and not self.speeds.knows_fewer(level, now_ns)

    def _begin(self, level: float, limit: int, low: int) -> LimitMove | None:
        step = STEP_FAR_DOWN if self._falls else STEP_DOWN
        fewer = max(low, min(round(level) - 1, round(step * level)))
        if fewer >= min(limit, round(level)):
            return None
        self._compared, self._reports = level, 0
        return LimitMove(LimitStep.PROBE, fewer)

    def _judge(self, level: float, compared: float, limit: int, now_ns: int) -> LimitMove | None:
        self._reports += 1
        gain = self.speeds.gain(level, compared, now_ns)
        if gain is not None and gain.is_plain:
            return self._won(limit, now_ns)
        if self._reports >= REPORTS_MAX or (gain is not None and gain.is_out):
            self.stop(now_ns)
            return LimitMove(LimitStep.BACK, 0)
        return None

    def _won(self, limit: int, now_ns: int) -> LimitMove:
        self._compared, self._falls = None, True
        self._next_ns, self._rest_ns = now_ns, REST_NS
        return LimitMove(LimitStep.STAY, limit)
