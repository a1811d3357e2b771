"""Throughput by the number of attempts in flight, from whatever numbers there have been.

`throughput_search.py` measures a limit while it binds. Often none does: a fleet is smaller than the limit, or rate
limits keep fewer in flight. Their number varies all the same, as agents begin, think and end, and the durations of
answers at each number tell whether fewer at once finish more. That is a reason to try fewer, and no proof: a provider
that is slow for another reason has more in flight, too.

By Little's law throughput is the number in flight over the duration. Durations are divided by what the lengths of the
answers explain and compared as logarithms, with one variance for all numbers (a one-way analysis of variance).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import log, log2, sqrt
from typing import Final, NamedTuple, final

import attrs

from .answer_duration import AnswerDuration

SECOND_NS: Final = 1_000_000_000

STEPS: Final = 2
"""Groups of numbers for each factor of two."""
KEPT: Final = 32
"""Answers that are kept of a group."""
KEPT_NS: Final = 600 * SECOND_NS
FEW: Final = 4
"""Answers without which a group says nothing, and between two comparisons."""
SURE: Final = 3.0
"""Standard errors by which fewer have to finish more."""
UNTRIED_MIN: Final = 10
UNTRIED_ROUNDS: Final = 3
"""Answers at a number, at least and as a multiple of it, after which fewer are tried of which nothing is known."""
STEP_DOWN: Final = 0.7


class _TimedAnswer(NamedTuple):
    ended_ns: int
    level: float
    tokens: int
    lasted_ns: int


class _Throughput(NamedTuple):
    """Logarithm of the throughput at about one number in flight."""

    level: float
    known: int
    mean: float
    squares: float
    """Sum of the squared deviations from the mean."""


@final
@attrs.define(eq=False)
class LoadCurve:
    """Told of the number in flight at each event, and of successes. A level is the mean number in flight."""

    _area: float = attrs.field(default=0.0, init=False)
    """Integral of the number in flight over time, in attempts times nanoseconds."""
    at_ns: int = attrs.field(default=0, init=False)
    """Time of the last event."""
    _groups: dict[int, deque[_TimedAnswer]] = attrs.field(factory=dict, init=False)
    """The latest answers by the logarithm of their level."""
    _unseen: int = attrs.field(default=0, init=False)
    """Answers since the last comparison."""

    def advance(self, inflight: int, now_ns: int) -> float:
        """Return the integral up to now, given the number in flight since the last event."""
        if now_ns > self.at_ns:
            self._area += inflight * (now_ns - self.at_ns)
            self.at_ns = now_ns
        return self._area

    def add(self, level: float, tokens: int, lasted_ns: int, now_ns: int) -> None:
        """Take in a success.

        Args:
            level: While it ran, itself included.
            tokens: Output; 0: not known.
        """
        group = self._groups.setdefault(_group(level), deque(maxlen=KEPT))
        group.append(_TimedAnswer(now_ns, level, tokens, max(1, lasted_ns)))
        self._unseen += 1

    def answers(self, level: float, now_ns: int) -> Iterable[tuple[int, int]]:
        """Return the tokens and durations of the answers at about this level."""
        return [(one.tokens, one.lasted_ns) for one in self._known(_group(level), now_ns)]

    def better(self, level: float, now_ns: int) -> float | None:
        """Return a lower level that has plainly finished more; None: there is none."""
        if self._unseen < FEW or len(self._groups) < 2:
            return None
        here = _group(level)
        known = {place: some for place in self._groups if place <= here and (some := self._known(place, now_ns))}
        if here not in known or len(known) < 2:
            return None
        self._unseen = 0
        usual = AnswerDuration()
        for one in known[here]:
            usual.add(one.tokens, one.lasted_ns)
        fit = usual.fit()
        found = {place: _throughput(some, fit) for place, some in known.items()}
        free = sum(one.known for one in found.values()) - len(found) - 1
        variance = sum(one.squares for one in found.values()) / free
        mine = found[here]
        best = max(found.values(), key=lambda one: one.mean)
        error = sqrt(variance * (1 / mine.known + 1 / best.known))
        return best.level if best.mean - mine.mean > SURE * error else None

    def finishes_less(self, level: float, other: float, now_ns: int) -> bool:
        """Return True if a level has plainly finished less than the other."""
        some = {place: self._known(place, now_ns) for place in (_group(level), _group(other))}
        mine, its = some[_group(level)], some[_group(other)]
        if len(some) < 2 or not mine or not its:
            return False
        usual = AnswerDuration()
        for one in its:
            usual.add(one.tokens, one.lasted_ns)
        fit = usual.fit()
        low, high = _throughput(mine, fit), _throughput(its, fit)
        variance = (low.squares + high.squares) / max(1, low.known + high.known - 3)
        return high.mean - low.mean > SURE * sqrt(variance * (1 / low.known + 1 / high.known))

    def untried(self, level: float, now_ns: int) -> float | None:
        """Return a lower level to try, as many have answered at this one and few at any lower; None: there is none."""
        here = _group(level)
        enough = min(KEPT, max(UNTRIED_MIN, UNTRIED_ROUNDS * level))
        if len(self._known(here, now_ns)) < enough or any(
            self._known(place, now_ns) for place in self._groups if place < here
        ):
            return None
        return STEP_DOWN * level

    def _known(self, place: int, now_ns: int) -> list[_TimedAnswer]:
        since_ns = now_ns - KEPT_NS
        some = [one for one in self._groups.get(place, ()) if one.ended_ns >= since_ns]
        return some if len(some) >= FEW else []


def _group(level: float) -> int:
    return round(STEPS * log2(max(1.0, level)))


def _throughput(some: list[_TimedAnswer], fit: tuple[float, float]) -> _Throughput:
    fixed, per_token = fit
    values = [log(one.level / one.lasted_ns * max(1.0, fixed + per_token * one.tokens)) for one in some]
    mean = sum(values) / len(values)
    level = sum(one.level for one in some) / len(some)
    return _Throughput(level, len(values), mean, sum((value - mean) ** 2 for value in values))
