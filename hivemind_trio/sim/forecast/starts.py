"""Starts of the calls that wait, in several futures of a live scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from math import ceil
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.scheduler import CallId, Scheduler

from .future import ExpectedAgent, Future, Habits

HORIZON_NS: Final = 1_800 * 1_000_000_000
EVENTS_MAX: Final = 5_000
"""Events of one future; a few tenths of a second of computing."""


@final
@attrs.frozen
class StartEstimate:
    """Estimate of one start, from now; None: not within the horizon, or the call would be rejected."""

    p50_ns: int | None
    p90_ns: int | None


@final
@attrs.frozen
class Starts:
    """Starts of the calls that wait, by future. A call without a start does not start within the horizon."""

    futures: Sequence[Mapping[CallId, int]]
    """From now; at least one."""
    asked: Set[CallId]
    """Calls that waited. Any other is left out of groups: it has come since."""

    def of(self, call_id: CallId) -> StartEstimate:
        """Return the start of one call."""
        return _estimate([starts.get(call_id) for starts in self.futures])

    def first(self, calls: Sequence[CallId]) -> StartEstimate:
        """Return when the first of them starts."""
        calls = [one for one in calls if one in self.asked]
        found = [[starts[one] for one in calls if one in starts] for starts in self.futures]
        return _estimate([min(several, default=None) for several in found])

    def last(self, calls: Sequence[CallId]) -> StartEstimate:
        """Return when all of them have started."""
        calls = [one for one in calls if one in self.asked]
        return _estimate(
            [
                max((starts[one] for one in calls), default=None) if all(one in starts for one in calls) else None
                for starts in self.futures
            ]
        )


def _estimate(starts: list[int | None]) -> StartEstimate:
    """Return quantiles; a start that is not seen is later than all others.

    Of n futures and the real one each is as likely to be the latest, so the bound is that of n + 1.
    """
    known = sorted(start for start in starts if start is not None)
    ranks = len(starts) // 2, min(ceil(0.9 * (len(starts) + 1)), len(starts)) - 1
    return StartEstimate(*(known[rank] if rank < len(known) else None for rank in ranks))


def foresee(
    copy: Callable[[], Scheduler],
    habits: Habits,
    others: Iterable[ExpectedAgent],
    *,
    most: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> Starts:
    """Run futures until every call that waits has started.

    Args:
        copy: Makes a copy of the scheduler, for each future.
        habits: Conduct of everybody.
        others: Agents that have no call now.
        most: Number of futures.
        goes_on: Asked after each future; False: those so far must do.
    """
    agents, futures, asked = tuple(others), [], frozenset[CallId]()
    for seed in range(most):
        scheduler = copy()
        asked = frozenset(scheduler.state.room.waiters)
        future = Future(scheduler, habits, Random(f"starts/{seed}"))  # noqa: S311 - to be repeatable
        for other in agents:
            future.expect(other, asked=False)
        futures.append(future.starts(HORIZON_NS, EVENTS_MAX))
        if not goes_on():
            break
    return Starts(futures, asked)
