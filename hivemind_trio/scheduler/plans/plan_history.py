"""Use of an account's plan by lane and hour, of the last four weeks, and what it says of the hours to come.

People work at the same hours of the week, so the hours until a reset are expected to be as those of the weeks before:
as the one of them with most use, for too little that is kept locks people out, and too much is released in time. Until
a week has been watched, each hour may be as the busiest so far: on a weekend nothing is known of Monday.

Not everybody has habits. So each hour that is over is held against what was expected of it then, and the most by which
use has exceeded that is kept on top, of the last three weeks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Final, final

import attrs

from hivemind_trio.model.plan import DAY_NS, HOUR_NS
from hivemind_trio.policy import Renames

WEEK_NS: Final = 7 * DAY_NS
WEEK_H: Final = 7 * 24
WEEKS: Final = 4
HOURS: Final = WEEKS * 7 * 24

MARGIN: Final = 1.5
"""Times as much as in the weeks before may be wanted."""

DEVIATIONS: Final = 3.0
"""Standard deviations of the number of calls that are kept on top."""

CALLS_LEAST: Final = 2
"""Calls for which there is room while lanes are in use."""

SIZE_WEIGHT: Final = 0.1
"""Weight of a new call in the mean size."""


PASTS_MAX: Final = 16
"""Sets of lanes for which sums are kept; policies have one for each reserve."""


@final
@attrs.frozen
class _Past:
    """Use of some lanes up to an hour."""

    hour: int
    sums: list[float]
    """Weight before each hour of the four weeks up to that one."""
    busiest: float
    """Weight of the hour in which they used most."""
    busy: list[int] = attrs.field(factory=list)
    """Hours of `sums` in which they used any: the worst stretch begins with one of them."""
    errors: list[float] = attrs.field(factory=list)
    """Number of hours -> most that was used in them beyond what was expected; as far as it was asked for."""


@final
@attrs.define(eq=False)
class PlanHistory:
    """Weight of calls, by lane and hour since the engine began."""

    since_ns: int
    """Since when it has been watched."""
    hours: dict[str, dict[int, float]] = attrs.field(factory=dict, init=False)
    sizes: dict[str, float] = attrs.field(factory=dict, init=False)
    """Lane -> mean weight of a call."""
    _pasts: dict[tuple[str, ...], _Past] = attrs.field(factory=dict, init=False)

    def add(self, lane: str, weight: float, now_ns: int) -> None:
        """Count a call that has ended."""
        hour = now_ns // HOUR_NS
        hours = self.hours.setdefault(lane, {})
        if hour not in hours:
            for old in [each for each in hours if each < hour - HOURS]:
                del hours[old]
        hours[hour] = hours.get(hour, 0.0) + weight
        size = self.sizes.get(lane)
        self.sizes[lane] = weight if size is None else size + SIZE_WEIGHT * (weight - size)

    def lack(self, lane: str, weight: float, now_ns: int) -> None:
        """Count a call that was wanted, and refused for a used-up plan: what people lacked they want the next time.

        Clients may send it again and again, so an hour becomes no busier by it than the busiest one was by use.
        """
        hour = now_ns // HOUR_NS
        hours = self.hours.get(lane, {})
        busiest = max((used for then, used in hours.items() if then < hour), default=0.0)
        missing = min(weight, busiest - hours.get(hour, 0.0))
        if missing > 0:
            hours[hour] = hours.get(hour, 0.0) + missing

    def knows(self, lanes: tuple[str, ...], now_ns: int) -> bool:
        """Return True if any use of lanes has been seen, or none in a whole week."""
        return self.watched(now_ns) or any(self.hours.get(lane) for lane in lanes)

    def watched(self, now_ns: int) -> bool:
        """Return True if a whole week has been watched."""
        return now_ns - self.since_ns >= WEEK_NS

    def expected(self, lanes: tuple[str, ...], now_ns: int, from_ns: int, until_ns: int) -> float:
        """Return the weight that lanes may want between two times.

        It is never more from a later time on. `from_ns` is now, or up to a week later.
        """
        left_ns = max(0, until_ns - from_ns)
        lately = self._lately(lanes, now_ns)
        if self.watched(now_ns):
            # What goes on now goes on for an hour, whatever they did before.
            before = self._as_before(lanes, now_ns, from_ns, until_ns)
            wanted = max(before, lately * min(left_ns, HOUR_NS) / HOUR_NS)
        else:
            # Hours of which nothing is known may all be as the busiest so far.
            wanted = max(self._past(lanes, now_ns).busiest, lately) * left_ns / HOUR_NS
        size = max((self.sizes.get(lane, 0.0) for lane in lanes), default=0.0)
        return _with_margin(wanted, size) + self._beyond(lanes, size, now_ns, left_ns)

    def _beyond(self, lanes: tuple[str, ...], size: float, now_ns: int, left_ns: int) -> float:
        """Return the most by which use has exceeded what the weeks before let expect of as many hours.

        So it is with those who have no habits, and with those who have just changed theirs.
        """
        past, ahead = self._past(lanes, now_ns), min(-(-left_ns // HOUR_NS), WEEK_H)
        sums, last = past.sums, len(past.sums) - 1
        first = max(0, last - (now_ns - self.since_ns) // HOUR_NS)
        while len(past.errors) <= ahead:
            length, worst = len(past.errors), past.errors[-1] if past.errors else 0.0
            for at in past.busy:
                if at < first + WEEK_H or at + length > last:
                    continue
                used = sums[at + length] - sums[at]
                if used > worst:
                    before = max(sums[then + length] - sums[then] for then in range(at - WEEK_H, first - 1, -WEEK_H))
                    worst = max(worst, used - _with_margin(before, size))
            past.errors.append(worst)
        return past.errors[ahead]

    def _as_before(self, lanes: tuple[str, ...], now_ns: int, from_ns: int, until_ns: int) -> float:
        """Return the most that lanes took in the same hours of one of the weeks before."""
        found = 0.0
        for back in range(1, WEEKS + 1):
            then_ns = now_ns - back * WEEK_NS
            if then_ns < self.since_ns:
                break

            def by(ahead_ns: int, then_ns: int = then_ns) -> float:
                """Return what is taken until a time from now, if that week comes again and again."""
                weeks, rest_ns = divmod(ahead_ns, WEEK_NS)
                taken = self._between(lanes, then_ns, then_ns + rest_ns, now_ns)
                return taken + weeks * self._between(lanes, then_ns, then_ns + WEEK_NS, now_ns) if weeks else taken

            found = max(found, by(until_ns - now_ns) - by(from_ns - now_ns))
        return found

    def _lately(self, lanes: tuple[str, ...], now_ns: int) -> float:
        """Return the weight of the last hour; of less than an hour, as much as that comes to in one."""
        hour, over_ns = divmod(now_ns, HOUR_NS)
        hours = [self.hours.get(lane, {}) for lane in lanes]
        weight = sum(each.get(hour, 0.0) + (1 - over_ns / HOUR_NS) * each.get(hour - 1, 0.0) for each in hours)
        return weight * HOUR_NS / min(HOUR_NS, max(now_ns - self.since_ns, HOUR_NS // 6))

    def _between(self, lanes: tuple[str, ...], from_ns: int, to_ns: int, now_ns: int) -> float:
        now, sums = now_ns // HOUR_NS, self._past(lanes, now_ns).sums

        def before(at_ns: int) -> float:
            hour, over_ns = divmod(at_ns, HOUR_NS)
            place = min(max(0, hour - now + HOURS + 1), len(sums) - 1)
            if place + 1 == len(sums):
                return sums[place]
            return sums[place] + (sums[place + 1] - sums[place]) * over_ns / HOUR_NS

        return before(to_ns) - before(from_ns)

    def _past(self, lanes: tuple[str, ...], now_ns: int) -> _Past:
        """Return what lanes did in the four weeks up to the current hour."""
        now = now_ns // HOUR_NS
        kept = self._pasts.get(lanes)
        if kept is None or kept.hour != now:
            if len(self._pasts) >= PASTS_MAX:
                self._pasts.clear()
            by_hour = [self.hours.get(lane, {}) for lane in lanes]
            weights = [sum(each.get(hour, 0.0) for each in by_hour) for hour in range(now - HOURS - 1, now)]
            kept = self._pasts[lanes] = _Past(
                now,
                list(accumulate(weights, initial=0.0)),
                max(weights),
                [at for at, weight in enumerate(weights) if weight],
            )
        return kept

    def rename(self, renames: Renames) -> None:
        """Take the new names of a policy."""
        self.hours = renames.rekeyed("lane", self.hours)
        self.sizes = renames.rekeyed("lane", self.sizes)
        self._pasts.clear()

    def ages(self, now_ns: int) -> dict[str, tuple[tuple[int, int], ...]]:
        """Return (hours ago, weight) by lane, to be kept."""
        now = now_ns // HOUR_NS
        return {
            lane: tuple((now - hour, round(weight)) for hour, weight in sorted(hours.items()))
            for lane, hours in self.hours.items()
        }

    def restore(
        self, ages: Mapping[str, tuple[tuple[int, int], ...]], sizes: Mapping[str, float], age_ns: int, now_ns: int
    ) -> None:
        """Begin with what an earlier process has seen, which ended `age_ns` ago."""
        now = (now_ns - age_ns) // HOUR_NS
        self.hours = {
            lane: {now - ago: float(weight) for ago, weight in hours if ago <= HOURS} for lane, hours in ages.items()
        }
        self.sizes = dict(sizes)


def _with_margin(wanted: float, size: float) -> float:
    """Return the weight to keep where so much is expected, of calls of a size."""
    wanted *= MARGIN
    return wanted + DEVIATIONS * float((wanted * size) ** 0.5) + CALLS_LEAST * size if wanted else 0.0
