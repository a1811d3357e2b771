"""Starts of the calls that wait, in several futures of a live scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.scheduler import CallId, Scheduler

from .calibration import StartEstimate, bounded
from .future import ExpectedAgent, Future
from .habits import Habits, Luck
from .newcomers import newcomers

HORIZON_NS: Final = 1_800 * 1_000_000_000
EVENTS_MAX: Final = 5_000
"""Events of one future."""
ALL_EVENTS_MAX: Final = 12_000
"""Events of all futures of one estimate, which are about half a second of computing: after so many there is no other
future."""


@final
@attrs.frozen
class Starts:
    """Starts of the calls that wait, by future. A call that a future lacks does not start within the horizon there."""

    futures: Sequence[Mapping[CallId, int | None]]
    """From now; at least one. None: it is rejected, or has waited for as long as it is held."""
    providers: Mapping[CallId, str]
    """Calls that waited, and for which provider. Any other is left out of groups: it has come since."""
    factors: Mapping[str, float] = attrs.field(factory=dict)
    """Provider -> by how much its calls' bounds are multiplied."""

    def raw(self, call_id: CallId, passed_ns: int = 0) -> StartEstimate:
        """Return the start of one call as the futures have it.

        Args:
            passed_ns: Time since the estimate, in which the call has not started.
        """
        return _estimate([start for one in self._still([call_id], passed_ns) for start in one])

    def of(self, call_id: CallId, passed_ns: int = 0) -> StartEstimate:
        """Return the start of one call."""
        return bounded(self.raw(call_id, passed_ns), self._factor(call_id))

    def first(self, calls: Sequence[CallId], passed_ns: int = 0) -> StartEstimate:
        """Return when the first of them starts."""
        calls = [one for one in calls if one in self.providers]
        found = [_known(several) for several in self._still(calls, passed_ns)]
        factor = min(map(self._factor, calls), default=1.0)
        return bounded(_estimate([min(several, default=None) for several in found]), factor)

    def last(self, calls: Sequence[CallId], passed_ns: int = 0) -> StartEstimate:
        """Return when all of them have started."""
        calls = [one for one in calls if one in self.providers]
        found = [_known(several) for several in self._still(calls, passed_ns)]
        factor = max(map(self._factor, calls), default=1.0)
        return bounded(_estimate([max(several, default=None) for several in found]), factor)

    def _still(self, calls: Sequence[CallId], passed_ns: int) -> Iterator[list[int | None]]:
        """Yield the starts of calls by future, without those that have not come to pass."""
        for starts in self.futures:
            found = [starts.get(call_id, NEVER) for call_id in calls]
            yield [start for start in found if start is None or start >= passed_ns]

    def _factor(self, call_id: CallId) -> float:
        return self.factors.get(self.providers.get(call_id, ""), 1.0)


MIDDLE: Final = 0.4
"""Part of the futures before which half of the starts come, as those fleets of `bench/forecast.py` show that are not
held out: calls of a future are refused as often as calls were, and a scheduler learns to avoid that."""
NEVER: Final = 1 << 62
"""Later than the horizon."""


def _known(starts: Sequence[int | None]) -> list[int]:
    """Return the starts of those that are not rejected or sent away."""
    return [start for start in starts if start is not None]


def _estimate(starts: list[int | None]) -> StartEstimate:
    """Return quantiles over the futures in which there is a start; one that is not seen is later than all others.

    Of n futures and the real one each is as likely to be the latest, so the bound is that of n + 1. Half of the starts
    come earlier than half of the futures (`MIDDLE`).
    """
    known = sorted(start for start in starts if start is not None)
    if not known:
        return StartEstimate(None, None)
    ranks = ceil(MIDDLE * len(known)) - 1, min(ceil(0.9 * (len(known) + 1)), len(known)) - 1
    return StartEstimate(*(known[rank] if known[rank] < NEVER else None for rank in ranks))


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
    agents, futures, providers, events = tuple(others), [], dict[CallId, str](), 0
    for seed in range(most):
        scheduler = copy()
        waiters = scheduler.state.waiters
        providers = {call_id: one.treatment.provider or "" for call_id, one in waiters.items()}
        # Chance is to be repeatable, and not the same at every estimate: its errors would never cancel out.
        name = f"starts/{scheduler.state.now_ns}"
        luck = Luck.of(seed, Random(name))  # noqa: S311 - to be repeatable
        future = Future(scheduler, habits, Random(f"{name}/{seed}"), luck)  # noqa: S311 - to be repeatable
        for other in (*agents, *newcomers(habits.first_calls, HORIZON_NS, future.random)):
            future.expect(other, asked=False)
        futures.append(future.starts(HORIZON_NS, EVENTS_MAX))
        events += future.events
        if events >= ALL_EVENTS_MAX or not goes_on():
            break
    return Starts(futures, providers)
