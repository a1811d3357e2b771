"""Speed of streams by the number in flight: whether fewer at once are served more in all, told within seconds.

Whole answers tell it only when they end (`throughput_search.py`, `load_curve.py`), which may be as late as a small
fleet is. Streams tell it while they run. A server that shares its capacity makes each of `n` streams slower by `n` at
most; one that makes them slower by more loses output to the crowd (memory, cache, preemption), and fewer finish more.
So the speed times the number in flight is compared between numbers. Where calls queue at the provider without
streaming, the product grows with them, which says nothing against them.

Speeds are compared as logarithms, and each stream with itself: models differ in speed, prompts in the bytes of a token,
and a provider is faster at one time than at another, whoever uses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf, log, log2, sqrt
from typing import Final, NamedTuple, final

import attrs

from hivemind_trio.scheduler.protocol.call import CallId

SECOND_NS: Final = 1_000_000_000

STEPS: Final = 4
"""Groups of numbers for each factor of two."""
KEPT_NS: Final = 120 * SECOND_NS
BRIEF_NS: Final = SECOND_NS // 4
GAP_NS: Final = 3 * SECOND_NS
"""Least and longest time in which what a stream received is a measure of its speed."""
FEW: Final = 4
FEW_REPORTS: Final = 2
"""Speeds, and reports, without which a number says nothing."""
SURE: Final = 3.0
"""Standard errors by which fewer have to be served more."""
LEAST: Final = 0.1
EXCESS: Final = 0.25
"""Logarithm of the gain without which nothing is changed, and the same as a share of that by which there are fewer."""
NOISE: Final = 0.1
"""Deviation between calls, and between reports, that is assumed before it is measured."""
NOISE_WEIGHT: Final = 4
"""Degrees of freedom that the assumption counts as."""
RECENT: Final = 8
"""Reports of one call at one number that count: its latest, for a stream may be slow first and fast later."""
STREAMS_MAX: Final = 64
"""Streams that are measured at the same time."""
CALLS_MAX: Final = 128
REPORTS_MAX: Final = 128
"""Calls and reports that are kept of one number."""
ALIKE: Final = 2
"""Reports that count as one: a provider that is slow now is slow a second later, whoever makes it so."""


@final
@attrs.define(eq=False)
class _CallSpeed:
    """Speed of one call at about one number in flight."""

    reports: int = 0
    mean: float = 0.0
    """Mean logarithm of its speed of late."""
    latest_ns: int = 0

    def add(self, speed: float, now_ns: int) -> float:
        """Take in the logarithm of a speed. Return how far it is from the mean."""
        self.reports, self.latest_ns = min(RECENT, self.reports + 1), now_ns
        self.mean += (speed - self.mean) / self.reports
        return speed - self.mean


@final
@attrs.define(eq=False)
class _Crowd:
    """Reports of about one number in flight."""

    calls: dict[CallId, _CallSpeed] = attrs.field(factory=dict)
    """The one that was told of last is the last."""
    reports: deque[tuple[int, float, float]] = attrs.field(factory=lambda: deque(maxlen=REPORTS_MAX))
    """Time, number in flight, and mean logarithm of the speeds over those that were usual at this number."""

    @property
    def level(self) -> float:
        """Mean number in flight."""
        return sum(level for _, level, _ in self.reports) / len(self.reports)

    def forget(self, since_ns: int) -> None:
        """Drop what is older."""
        while self.reports and self.reports[0][0] < since_ns:
            self.reports.popleft()
        while self.calls and (len(self.calls) > CALLS_MAX or next(iter(self.calls.values())).latest_ns < since_ns):
            del self.calls[next(iter(self.calls))]

    def add(self, speeds: Sequence[tuple[CallId, float, float]], now_ns: int) -> None:
        """Take in a report: calls, numbers in flight, and logarithms of speeds."""
        off = 0.0
        for call_id, _, speed in speeds:
            one = self.calls[call_id] = self.calls.pop(call_id, _CallSpeed())
            off += one.add(speed, now_ns)
        level = sum(level for _, level, _ in speeds) / len(speeds)
        self.reports.append((now_ns, level, off / len(speeds)))

    @property
    def known(self) -> bool:
        """True if it says something."""
        if len(self.reports) < FEW_REPORTS:
            return False
        return len(self.calls) >= FEW or sum(one.reports for one in self.calls.values()) >= FEW


class Gain(NamedTuple):
    """Logarithm of a throughput over another, its standard error, and how much is asked for."""

    gain: float
    error: float
    asked: float

    @property
    def is_plain(self) -> bool:
        """True if it is plainly more, and by enough."""
        return self.gain > max(self.asked, SURE * self.error)

    @property
    def is_out(self) -> bool:
        """True if it is plainly not enough."""
        return self.gain + SURE * self.error < self.asked


@final
@attrs.define(eq=False)
class StreamSpeed:
    """Told of what streams received; a level is the mean number in flight meanwhile, streaming or not."""

    _crowds: dict[int, _Crowd] = attrs.field(factory=dict, init=False)
    _since: dict[CallId, tuple[int, float]] = attrs.field(factory=dict, init=False)
    """Time at which each stream began or was last told of, and the integral of the number in flight up to then."""

    def begun(self, call_id: CallId, area: float, now_ns: int) -> None:
        """Note the first content of an answer. Beyond `STREAMS_MAX` at once it is not measured.

        Args:
            area: Integral of the number in flight up to now, in attempts times nanoseconds.
        """
        if len(self._since) < STREAMS_MAX:
            self._since[call_id] = now_ns, area

    def ended(self, call_id: CallId) -> None:
        """Note the end of an attempt. Unknown ids are ignored."""
        self._since.pop(call_id, None)

    def add(self, received: Mapping[CallId, int], area: float, now_ns: int) -> float | None:
        """Take in a report. Return the level that most of it is about; None: it tells no speed.

        Args:
            received: Bytes of each call that received any since the last report.
            area: As in `begun`.
        """
        speeds: dict[int, list[tuple[CallId, float, float]]] = {}
        for call_id, amount in received.items():
            since = self._since.get(call_id)
            if since is None or amount <= 0 or now_ns - since[0] < BRIEF_NS:
                continue
            self._since[call_id] = now_ns, area
            lasted_ns = now_ns - since[0]
            if lasted_ns <= GAP_NS:
                level = max(1.0, (area - since[1]) / lasted_ns)
                speeds.setdefault(_place(level), []).append((call_id, level, log(amount / lasted_ns)))
        for place, some in speeds.items():
            crowd = self._crowds.setdefault(place, _Crowd())
            crowd.forget(now_ns - KEPT_NS)
            crowd.add(some, now_ns)
        if not speeds:
            return None
        most = max(speeds.values(), key=len)
        return sum(level for _, level, _ in most) / len(most)

    def knows(self, level: float, now_ns: int) -> bool:
        """Return True if enough is known of about this level."""
        return self._known(_place(level), now_ns) is not None

    def knows_fewer(self, level: float, now_ns: int) -> bool:
        """Return True if enough is known of any lower level."""
        return any(place < _place(level) and self._known(place, now_ns) for place in self._crowds)

    def better(self, level: float, now_ns: int) -> float | None:
        """Return the best of the lower levels that are plainly served more; None: there is none."""
        here = _place(level)
        mine = self._known(here, now_ns)
        best, most = None, 0.0
        for place in [place for place in self._crowds if place < here] if mine is not None else ():
            its = self._known(place, now_ns)
            if its is None or mine is None:
                continue
            gain = _gain(its, mine)
            if gain.is_plain and gain.gain > most:
                best, most = its.level, gain.gain
        return best

    def gain(self, level: float, other: float, now_ns: int) -> Gain | None:
        """Return what is gained by this level over the other; None: too little is known of one of them."""
        its, mine = self._known(_place(level), now_ns), self._known(_place(other), now_ns)
        return None if its is None or mine is None else _gain(its, mine)

    def _known(self, place: int, now_ns: int) -> _Crowd | None:
        crowd = self._crowds.get(place)
        if crowd is None:
            return None
        crowd.forget(now_ns - KEPT_NS)
        return crowd if crowd.known else None


def _place(level: float) -> int:
    return round(STEPS * log2(max(1.0, level)))


def _gain(its: _Crowd, mine: _Crowd) -> Gain:
    both = its.calls.keys() & mine.calls.keys()
    if not both:
        return Gain(0.0, inf, LEAST)
    weights, weighted = 0.0, 0.0
    gains = []
    for call_id in both:
        one, other = its.calls[call_id], mine.calls[call_id]
        weight = 1 / (1 / one.reports + 1 / other.reports)
        gains.append((weight, one.mean - other.mean))
        weights, weighted = weights + weight, weighted + weight * (one.mean - other.mean)
    mean = weighted / weights
    squares = sum(weight * (one - mean) ** 2 for weight, one in gains)
    calls = (squares + NOISE_WEIGHT * NOISE**2) / (len(gains) - 1 + NOISE_WEIGHT) / weights
    swings = sum(off**2 for crowd in (its, mine) for _, _, off in crowd.reports)
    reports = (swings + NOISE_WEIGHT * NOISE**2) / (len(its.reports) + len(mine.reports) + NOISE_WEIGHT)
    reports *= ALIKE / len(its.reports) + ALIKE / len(mine.reports)
    fewer = log(its.level / mine.level)
    return Gain(fewer + mean, sqrt(calls + reports), max(LEAST, -EXCESS * fewer))
