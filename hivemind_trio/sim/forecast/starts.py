"""Starts of the calls that wait, in several futures of a live scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import ceil, inf
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.scheduler import CallId, Scheduler

from .calibration import Factors, StartEstimate
from .future import ExpectedAgent, Future
from .habits import Habits
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
    factors: Mapping[str, Factors] = attrs.field(factory=dict)
    """Provider -> calibration of its calls' estimates."""

    def raw(self, call_id: CallId) -> StartEstimate:
        """Return the start of one call as the futures have it."""
        return _estimate([starts.get(call_id, NEVER) for starts in self.futures])

    def of(self, call_id: CallId) -> StartEstimate:
        """Return the start of one call."""
        return self._factors(call_id).of(self.raw(call_id))

    def first(self, calls: Sequence[CallId]) -> StartEstimate:
        """Return when the first of them starts."""
        calls = [one for one in calls if one in self.providers]
        found = [_known(calls, starts) for starts in self.futures]
        factors = reduce(Factors.least, map(self._factors, calls), UNBOUNDED)
        return factors.of(_estimate([min(several, default=None) for several in found]))

    def last(self, calls: Sequence[CallId]) -> StartEstimate:
        """Return when all of them have started."""
        calls = [one for one in calls if one in self.providers]
        factors = reduce(Factors.most, map(self._factors, calls), Factors(0.0, 0.0))
        found = [_known(calls, starts) for starts in self.futures]
        return factors.of(_estimate([max(several, default=None) for several in found]))

    def _factors(self, call_id: CallId) -> Factors:
        return self.factors.get(self.providers.get(call_id, ""), UNCHANGED)


UNCHANGED: Final = Factors()
UNBOUNDED: Final = Factors(inf, inf)


NEVER: Final = 1 << 62
"""Later than the horizon."""


def _known(calls: Sequence[CallId], starts: Mapping[CallId, int | None]) -> list[int]:
    """Return the starts of those that are not rejected or sent away."""
    return [start for one in calls if (start := starts.get(one, NEVER)) is not None]


def _estimate(starts: list[int | None]) -> StartEstimate:
    """Return quantiles over the futures in which there is a start; one that is not seen is later than all others.

    Of n futures and the real one each is as likely to be the latest, so the bound is that of n + 1.
    """
    known = sorted(start for start in starts if start is not None)
    if not known:
        return StartEstimate(None, None)
    ranks = len(known) // 2, min(ceil(0.9 * (len(known) + 1)), len(known)) - 1
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
        future = Future(scheduler, habits, Random(f"starts/{seed}"))  # noqa: S311 - to be repeatable
        for other in (*agents, *newcomers(habits.first_calls, HORIZON_NS, future.random)):
            future.expect(other, asked=False)
        futures.append(future.starts(HORIZON_NS, EVENTS_MAX))
        events += future.events
        if events >= ALL_EVENTS_MAX or not goes_on():
            break
    return Starts(futures, providers)
