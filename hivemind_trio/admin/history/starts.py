"""The last estimate of the starts of calls that wait, and how far off those before it were."""

from __future__ import annotations

from typing import Final, final

import attrs
import trio

from hivemind_trio.scheduler import CallId
from hivemind_trio.sim import Calibration, StartEstimate, Starts

SECOND_NS: Final = 1_000_000_000
REST: Final = 20
"""An estimate is as old as this many times what it cost before there is another: 5 % of a processor at most."""


@final
@attrs.frozen(kw_only=True)
class DatedStarts:
    """An estimate, and when it was made."""

    taken_ns: int
    """Since the engine began."""
    cost_ns: int = 0
    """Processor time that it took."""
    starts: Starts | None = None
    """None: there are too many calls, or none waits."""

    def fresh(self, now_ns: int) -> bool:
        """Return True while it is not to be made again."""
        return now_ns - self.taken_ns < max(SECOND_NS, REST * self.cost_ns)

    def of(self, call_id: CallId, now_ns: int) -> StartEstimate:
        """Return the start of one call that still waits, from the time of the estimate."""
        if self.starts is None:
            return StartEstimate(None, None)
        return self.starts.of(call_id, now_ns - self.taken_ns)


@final
@attrs.define(eq=False)
class StartsKeeper:
    """Keeps the last estimate, since many ask for the same."""

    last: DatedStarts | None = None
    calibration: Calibration = attrs.field(factory=Calibration)
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    """Held by the one who makes the next."""
