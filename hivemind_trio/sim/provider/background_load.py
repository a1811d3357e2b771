"""Background load on a provider's quotas, and its guard against sudden growth."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import final

import attrs

from .profile import SECOND_NS, Acceleration, Neighbour
from .windows import WindowMeter


@final
@attrs.define(eq=False)
class Neighbours:
    """They take their share evenly. It is taken when somebody looks, which nobody can tell from all the time."""

    neighbours: Sequence[Neighbour]
    _meters: Sequence[WindowMeter]
    _taken: dict[int, int] = attrs.field(init=False, factory=dict)
    """Place of a meter -> units taken since the beginning."""

    def take(self, now_ns: int) -> None:
        """Take what is due by now."""
        for place, counted in enumerate(self._meters):
            quota = counted.quota
            due = sum(
                int(each.share * quota.limit * max(0, min(now_ns, each.to_ns) - each.from_ns) / quota.window_ns)
                for each in self.neighbours
            )
            more = due - self._taken.get(place, 0)
            if more > 0:
                # They are let in like everybody else: never to more than there is, and the rest comes again.
                more = min(more, counted.reading(now_ns).remaining)
                counted.take(more, now_ns)
                self._taken[place] = self._taken.get(place, 0) + more


@final
@attrs.define(eq=False)
class Guard:
    """Lets in so many per second as have been usual of late, and a bit."""

    acceleration: Acceleration
    _usual: float = attrs.field(init=False, default=0.0)
    """Admissions per second."""
    _at_ns: int = attrs.field(init=False, default=0)
    _latest: deque[int] = attrs.field(init=False, factory=deque)
    """Admissions of the last second."""

    def lets_in(self, now_ns: int) -> bool:
        """Return True if one more request is no sudden growth, and count it then."""
        while self._latest and self._latest[0] <= now_ns - SECOND_NS:
            self._latest.popleft()
        self._usual *= math.exp((self._at_ns - now_ns) / self.acceleration.over_ns)
        self._at_ns = now_ns
        if len(self._latest) >= max(self.acceleration.floor, self.acceleration.factor * self._usual):
            return False
        self._latest.append(now_ns)
        self._usual += SECOND_NS / self.acceleration.over_ns
        return True
