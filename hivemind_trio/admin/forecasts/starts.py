"""Start of every call that waits, estimated in copies of the live scheduler (`hivemind_trio.sim.foresee`).

They are computed when somebody asks, in a thread, and for at most 5 % of a processor. For at most 1 % they are computed
unasked while calls wait, so that it is known how far off they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import thread_time_ns
from typing import Final, Self, final

import attrs
import trio

from hivemind_trio.admin.history import Conduct, DatedStarts
from hivemind_trio.admin.operated import SECOND_NS, Operated
from hivemind_trio.admin.problems import OperationFailed
from hivemind_trio.admin.views import StartView
from hivemind_trio.runtime import SchedulerCopies
from hivemind_trio.scheduler import CallId
from hivemind_trio.sim import (
    Calibration,
    ExpectedAgent,
    Habits,
    JudgedStart,
    StartEstimate,
    Starts,
    foresee,
)

from .habits import between_calls, habits_of
from .turns import LIVE_MAX, in_turn

FUTURES: Final = 24
CPU_NS: Final = 400_000_000
"""After so much there is no further future."""


APART_S: Final = 15.0
"""Time between estimates that nobody has asked for."""
REST: Final = 100
"""The last one is as old as this many times what it cost."""


async def keep_calibrated(proxy: Operated) -> None:
    """Take estimates that nobody has asked for, for ever."""
    while True:
        await trio.sleep(APART_S)
        last = proxy.starts.last
        if last is None or proxy.engine.now_ns() - last.taken_ns >= max(APART_S * SECOND_NS, REST * last.cost_ns):
            await starts_of(proxy)


async def starts_of(proxy: Operated) -> DatedStarts:
    """Return the estimated starts of the calls that wait: the last estimate, or a new one if it is old."""
    keeper = proxy.starts
    async with keeper.lock:
        now_ns, snapshot = proxy.engine.now_ns(), proxy.engine.snapshot()
        if not snapshot.waiting or snapshot.waiting + snapshot.inflight > LIVE_MAX:
            return DatedStarts(taken_ns=now_ns)
        if keeper.last is None or not keeper.last.fresh(now_ns):
            try:
                keeper.last = await _estimated(proxy, now_ns)
            except OperationFailed:  # too many forecasts are asked for: nobody is told when, but what waits is shown
                return DatedStarts(taken_ns=now_ns)
        return keeper.last


async def _estimated(proxy: Operated, now_ns: int) -> DatedStarts:
    began_ns = thread_time_ns()
    foresight = Foresight.of(proxy.engine.copies(), proxy.conduct, proxy.starts.calibration, now_ns)
    taken_ns = thread_time_ns() - began_ns

    starts, cost_ns = await in_turn(foresight.look_briefly)
    foresight.judge(starts)
    return DatedStarts(taken_ns=now_ns, cost_ns=taken_ns + cost_ns, starts=starts)


@final
@attrs.frozen(kw_only=True)
class Foresight:
    """All that an estimate is made of, as of one moment."""

    copies: SchedulerCopies
    habits: Habits
    others: tuple[ExpectedAgent, ...]
    judged: Sequence[JudgedStart]
    """Estimates that are held against what comes."""
    factors: Mapping[str, float]
    """Calibration of bounds by provider."""

    @classmethod
    def of(cls, copies: SchedulerCopies, conduct: Conduct, calibration: Calibration, now_ns: int) -> Self:
        """Take what is known."""
        habits = habits_of(conduct, now_ns)
        waiting = copies.waiting
        return cls(
            copies=copies,
            habits=habits,
            others=between_calls(conduct, habits, now_ns),
            judged=calibration.watch(waiting, now_ns),
            factors={provider: calibration.factor(provider, now_ns) for provider in sorted(set(waiting.values()))},
        )

    def look(self, goes_on: Callable[[], bool] = lambda: True) -> Starts:
        """Run futures. May be called in any thread."""
        starts = foresee(self.copies.copy, self.habits, self.others, most=FUTURES, goes_on=goes_on)
        return attrs.evolve(starts, factors=self.factors)

    def look_briefly(self) -> tuple[Starts, int]:
        """Run futures for a while; return also the processor time that it took."""
        began_ns = thread_time_ns()
        starts = self.look(lambda: thread_time_ns() - began_ns < CPU_NS)
        return starts, thread_time_ns() - began_ns

    def judge(self, starts: Starts) -> None:
        """Have estimates held against what comes."""
        for one in self.judged:
            one.raw = starts.raw(one.call_id)


def start_of(proxy: Operated, known: DatedStarts, call_id: CallId | None) -> StartView:
    """Return the start of a call that still waits; None: of none."""
    if call_id is None:
        return StartView(p50_at=None, p90_at=None)
    return _view(proxy, known, known.of(call_id, proxy.engine.now_ns()))


def _view(proxy: Operated, known: DatedStarts, estimate: StartEstimate) -> StartView:
    """Return an estimate as times of day."""
    p50_ns, p90_ns = (None if ns is None else known.taken_ns + ns for ns in (estimate.p50_ns, estimate.p90_ns))
    return StartView(p50_at=proxy.at(p50_ns), p90_at=proxy.at(p90_ns))


def first_and_last(proxy: Operated, known: DatedStarts, calls: list[CallId]) -> tuple[StartView, StartView]:
    """Return when the first of some calls starts, and when all have started."""
    unknown = StartView(p50_at=None, p90_at=None)
    if known.starts is None or not calls:
        return unknown, unknown
    passed_ns = proxy.engine.now_ns() - known.taken_ns
    first, last = known.starts.first(calls, passed_ns), known.starts.last(calls, passed_ns)
    return _view(proxy, known, first), _view(proxy, known, last)
