"""Search for fewer attempts at once that are served more in all, by the speed of their streams (`stream_speed.py`).

The number in flight varies as agents begin, think and end, and a lower one that was served plainly more is gone to at
once. Where nothing varies it, fewer are probed: for a few reports no new attempt begins beyond a lower limit. That
costs a flat provider some slots for seconds, so what gains nothing is probed ever more seldom. A probe is over at the
latest when no answer has ended for half a minute, or when no stream tells anything any more.

A stream may be faster late in its answer, which is seen with fewer in flight more often. So whole answers have the last
word (`LoadCurve.finishes_less`): where they show that fewer finish less, streams are not believed for a while.
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
LASTS_NS: Final = 30 * SECOND_NS
"""Time in which no answer has ended, and after which a probe is over though there are not fewer yet."""
SILENT_NS: Final = 15 * SECOND_NS
"""Time without a report after which a probe is over."""
IDLE: Final = 0.5
"""Share of the most in flight of late from which on fewer are looked for: the tail of a wave is no crowd."""
LATE_NS: Final = 60 * SECOND_NS
DISTRUST_NS: Final = 960 * SECOND_NS
"""Time for which streams are not believed after whole answers have shown that fewer finish less."""


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
    compared: float = 0.0
    """Number in flight of before that fewer were compared with."""


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
    _until_ns: int = attrs.field(default=0, init=False)
    """When the probe is over at the latest."""
    _least: float = attrs.field(default=0.0, init=False)
    """The least in flight during the probe."""
    _most: float = attrs.field(default=0.0, init=False)
    """The most in flight of late."""
    _most_ns: int = attrs.field(default=0, init=False)
    """When that was."""
    _distrusted_ns: int = attrs.field(default=0, init=False)
    """Until then streams are not believed."""
    _falls: bool = attrs.field(default=False, init=False)
    """The last comparison has shown that fewer are served more."""

    @property
    def is_probing(self) -> bool:
        """True while fewer are probed."""
        return self._compared is not None

    @property
    def ends_ns(self) -> int | None:
        """When the probe is over, if nothing is told any more; None: there is none."""
        return min(self._until_ns, self._told_ns + SILENT_NS) if self.is_probing else None

    def is_over(self, now_ns: int) -> bool:
        """Return True if a probe has taken too long, or gets no reports any more."""
        ends_ns = self.ends_ns
        return ends_ns is not None and now_ns >= ends_ns

    def distrust(self, now_ns: int) -> None:
        """Note that fewer finish less, though streams have told otherwise: they are faster late in an answer, say."""
        self.stop(now_ns)
        self._distrusted_ns = now_ns + DISTRUST_NS

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
        if level >= self._most or now_ns - self._most_ns > LATE_NS:
            self._most, self._most_ns = level, now_ns
        if self._compared is not None:
            if level < self._least - 0.5:
                self._least, self._until_ns = level, now_ns + LASTS_NS
            return self._judge(level, self._compared, limit, now_ns) if level < limit + 0.5 else None
        if level < IDLE * self._most or now_ns < self._distrusted_ns:
            return None
        fewer = self.speeds.better(level, now_ns)
        if fewer is not None:
            most = max(low, min(round(fewer), round(level) - 1))
            if most < limit:
                return self._won(most, level, now_ns)
            return self._begin(fewer, limit, low, now_ns) if may_probe else None
        if may_probe and now_ns >= self._next_ns and self._is_untried(level, now_ns):
            return self._begin(level, limit, low, now_ns)
        return None

    def _is_untried(self, level: float, now_ns: int) -> bool:
        return self.speeds.knows(level, now_ns) and not self.speeds.knows_fewer(level, now_ns)

    def _begin(self, level: float, limit: int, low: int, now_ns: int) -> LimitMove | None:
        step = STEP_FAR_DOWN if self._falls else STEP_DOWN
        fewer = max(low, min(round(level) - 1, round(step * level)))
        if fewer >= min(limit, round(level)):
            return None
        self._compared, self._least, self._reports, self._until_ns = level, level, 0, now_ns + LASTS_NS
        return LimitMove(LimitStep.PROBE, fewer)

    def _judge(self, level: float, compared: float, limit: int, now_ns: int) -> LimitMove | None:
        self._reports += 1
        gain = self.speeds.gain(level, compared, now_ns)
        if gain is not None and gain.is_plain:
            return self._won(limit, compared, now_ns)
        if self._reports >= REPORTS_MAX or (gain is not None and gain.is_out):
            self.stop(now_ns)
            return LimitMove(LimitStep.BACK, 0)
        return None

    def _won(self, limit: int, compared: float, now_ns: int) -> LimitMove:
        self._compared, self._falls, self._most = None, True, float(limit)
        self._next_ns, self._rest_ns = now_ns, REST_NS
        return LimitMove(LimitStep.STAY, limit, compared)
