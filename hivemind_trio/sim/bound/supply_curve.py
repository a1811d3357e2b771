"""When a provider can have let in so much at the earliest: what a lower bound on time is made of.

All functions here may say a time that is too early, and never one that is too late.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import final

import attrs

from hivemind_trio.sim.provider.profile import SECOND_NS, Acceleration, Neighbour
from hivemind_trio.sim.provider.token_bucket import Counting, Quota

Span = tuple[int, int]
"""From and to, in ns; the end is no part of it."""


@final
@attrs.define(eq=False)
class DemandCurve:
    """Demand curve: amounts that can have been requested by a time, if nothing ever waits."""

    _at_ns: list[int]
    _total: list[int]
    """Asked for by then, what comes at that moment included."""

    @classmethod
    def of(cls, asked: Sequence[tuple[int, int]]) -> DemandCurve:
        """Return the curve of pairs of time and amount."""
        ordered = sorted(asked)
        return cls([at_ns for at_ns, _ in ordered], list(accumulate(amount for _, amount in ordered)))

    @property
    def points(self) -> Sequence[Span]:
        """Times at which something is asked for, and what had been asked for before."""
        return list(zip(self._at_ns, [0, *self._total], strict=False))

    def when_ns(self, amount: int) -> int:
        """When so much has been asked for; 0 for nothing, and for more than ever will be."""
        if amount <= 0:
            return 0
        place = bisect_left(self._total, amount)
        return self._at_ns[place] if place < len(self._at_ns) else 0

    def by(self, end_ns: int) -> int:
        """Return the amount before `end_ns`."""
        place = bisect_left(self._at_ns, end_ns)
        return self._total[place - 1] if place else 0


@final
@attrs.define(eq=False)
class Supply:
    """One quota."""

    quota: Quota
    asked: DemandCurve
    neighbours: Sequence[Neighbour] = ()
    _least_ns: list[int] = attrs.field(init=False, factory=list)
    """Times at which a bucket, in the order of `asked.points`, would have been empty by earlier demand, had it been
    full at that moment;

    the latest so far. To earn an amount takes that long in addition.
    """

    def __attrs_post_init__(self) -> None:
        if self.quota.counting is Counting.BUCKET:
            latest_ns = -1 << 62
            for at_ns, before in self.asked.points:
                latest_ns = max(latest_ns, at_ns - self._earning_ns(before))
                self._least_ns.append(latest_ns)

    def let_in_ns(self, amount: int, late: int = 0, more: Sequence[int] = ()) -> int:
        """When the last of `amount` can be let in.

        Args:
            late: So much of it need not be there by then: answers under way are counted as they are generated.
            more: Of each window but the last in turn, what may be taken beyond it.
        """
        asked_ns, needed = self.asked.when_ns(amount), amount - late
        if needed <= 0:
            return asked_ns
        match self.quota.counting:
            case Counting.BUCKET:
                return max(asked_ns, self._earned_ns(needed))
            case Counting.FIXED:
                return max(asked_ns, self._turned_ns(needed, more))
            case Counting.SLIDING:
                return max(asked_ns, self._slid_ns(needed, more))

    def _earning_ns(self, amount: int) -> int:
        return amount * self.quota.window_ns // self.quota.limit

    def _earned_ns(self, needed: int) -> int:
        """Return the time at which so much can have been let in.

        By any time, no more is let in than was asked for before an earlier time, a full bucket, and what has been
        refilled since.
        """
        beyond = needed - self.quota.capacity
        if beyond <= 0:
            return 0
        place = bisect_left(self.asked._total, needed)
        points = self._least_ns[: place + 1]
        since_ns = points[-1] + self._earning_ns(beyond) if points else 0
        return max(since_ns, self._shared_ns(beyond))

    def _shared_ns(self, amount: int) -> int:
        """Return the time to earn so much from the beginning, beside neighbours who take whole units."""
        now_ns, left_ns = 0, float(self._earning_ns(amount - len(self.neighbours)))
        for each in sorted(self.neighbours, key=lambda one: one.from_ns):
            before_ns = each.from_ns - now_ns
            if before_ns < 0 or left_ns <= before_ns:
                continue
            left_ns -= before_ns
            within_ns = (each.to_ns - each.from_ns) * (1 - each.share)
            if left_ns <= within_ns:
                return each.from_ns + int(left_ns / (1 - each.share))
            left_ns, now_ns = left_ns - within_ns, each.to_ns
        return now_ns + int(left_ns)

    def _turned_ns(self, needed: int, more: Sequence[int]) -> int:
        window_ns, limit = self.quota.window_ns, self.quota.limit
        begins_ns, let_in = 0, 0
        ends_ns = window_ns - self.quota.phase_ns
        for number in range(needed // limit + 2):
            if number and not more and not self.quota.lazy:
                # What nobody could ask for in a window is lost with it; a lazy one waits for who asks.
                let_in = min(let_in, self.asked.by(begins_ns))
            if let_in + limit >= needed:
                break
            let_in += limit + (more[number] if number < len(more) else 0)
            begins_ns, ends_ns = ends_ns, ends_ns + window_ns
        return begins_ns

    def _slid_ns(self, needed: int, more: Sequence[int]) -> int:
        window_ns, limit = self.quota.window_ns, self.quota.limit
        latest_ns, number, left = 0, 0, needed
        while left > 0:
            # As much as this was let in so many windows before the last of it.
            since_ns = self.asked.when_ns(left) if not more else 0
            latest_ns = max(latest_ns, number * window_ns + since_ns)
            left -= limit + (more[number] if number < len(more) else 0)
            number += 1
        return latest_ns


@final
@attrs.define(eq=False)
class SlotSupply:
    """So many requests at once, of agents that start by and by."""

    spans: list[tuple[int, int, int]]
    """From, to, and how many slots can be in use; the last of them does not end."""
    lumps: list[tuple[int, int]]
    """When the provider goes away, and what slot time those that are in flight then may still use."""
    _begun_ns: list[int] = attrs.field(init=False, factory=list)
    """Slot time that can have been used when each span begins, and next, when it ends."""
    _done_ns: list[int] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        lumps = dict(self.lumps)
        done_ns = 0
        for from_ns, to_ns, busy in self.spans:
            done_ns += lumps.get(from_ns, 0)
            self._begun_ns.append(done_ns)
            done_ns += busy * (to_ns - from_ns)
            self._done_ns.append(done_ns)

    @classmethod
    def of(cls, starts_ns: Sequence[int], slots: int, away: Sequence[Span], latencies_ns: Sequence[int]) -> SlotSupply:
        """One slot more is in use from each start on, until all of them are."""
        ramp_ns = sorted(starts_ns)[:slots]
        marks = sorted({*ramp_ns, *(at_ns for span in away for at_ns in span if at_ns > ramp_ns[0])})
        spans: list[tuple[int, int, int]] = []
        for from_ns, to_ns in zip(marks, [*marks[1:], 1 << 62], strict=True):
            gone = any(begin_ns <= from_ns < end_ns for begin_ns, end_ns in away)
            busy = 0 if gone else bisect_right(ramp_ns, from_ns)
            spans.append((from_ns, to_ns, busy))
        longest = sorted(latencies_ns, reverse=True)[:slots]
        lumps = [
            (begin_ns, sum(min(each, end_ns - begin_ns) for each in longest))
            for begin_ns, end_ns in away
            if begin_ns > ramp_ns[0]
        ]
        return cls(spans, lumps)

    def done_ns(self, work_ns: int) -> int:
        """When so much slot time can have been used."""
        place = bisect_left(self._done_ns, work_ns)
        assert place < len(self.spans), "the last span has no end"
        from_ns, _, busy = self.spans[place]
        left_ns = work_ns - self._begun_ns[place]
        return from_ns if left_ns <= 0 else from_ns + left_ns // busy


def ramped_ns(acceleration: Acceleration, amount: int, first_ns: int) -> list[int]:
    """When each of so many requests can be let in by a guard against sudden growth, in steps of a second."""
    over_s = acceleration.over_ns / SECOND_NS
    decay, usual = math.exp(-1 / over_s), 0.0
    gain = 1 - acceleration.factor / over_s
    found: list[int] = []
    at_ns = first_ns
    while len(found) < amount:
        # In a second no more than the factor of what is usual at the end of it, itself included, and one.
        grown = math.ceil((acceleration.factor * usual + 1) / gain) - 1 if gain > 0 else amount
        count = min(amount - len(found), max(acceleration.floor, grown))
        found += [at_ns] * count
        usual = usual * decay + count / over_s
        at_ns += SECOND_NS
    return found


def opened_ns(at_ns: int, away: Sequence[Span]) -> int:
    """Return the same, or when the provider is back. `away` is ordered."""
    for from_ns, to_ns in away:
        if from_ns <= at_ns < to_ns:
            at_ns = to_ns
    return at_ns
