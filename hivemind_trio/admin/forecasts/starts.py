"""Start of every call that waits, estimated in copies of the live scheduler (`hivemind_trio.sim.foresee`).

Nothing is computed unless somebody asks, in a thread, and for at most 5 % of a processor.
"""

from __future__ import annotations

from time import thread_time_ns
from typing import Final

from hivemind_trio.admin.history import DatedStarts
from hivemind_trio.admin.operated import Operated
from hivemind_trio.admin.problems import OperationFailed
from hivemind_trio.admin.views import StartView
from hivemind_trio.scheduler import CallId
from hivemind_trio.sim import StartEstimate, foresee

from .habits import between_calls, habits_of
from .turns import LIVE_MAX, in_turn

FUTURES: Final = 24
CPU_NS: Final = 400_000_000
"""After so much there is no further future."""


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
    habits, _ = habits_of(proxy)
    others, copies = between_calls(proxy, habits), proxy.engine.copies()
    taken_ns = thread_time_ns() - began_ns

    def compute() -> DatedStarts:
        began_ns = thread_time_ns()
        starts = foresee(
            copies.copy, habits, others, most=FUTURES, goes_on=lambda: thread_time_ns() - began_ns < CPU_NS
        )
        return DatedStarts(taken_ns=now_ns, cost_ns=taken_ns + thread_time_ns() - began_ns, starts=starts)

    return await in_turn(compute)


def start_view(proxy: Operated, known: DatedStarts, estimate: StartEstimate) -> StartView:
    """Return an estimate as times of day."""
    p50_ns, p90_ns = (None if ns is None else known.taken_ns + ns for ns in (estimate.p50_ns, estimate.p90_ns))
    return StartView(p50_at=proxy.at(p50_ns), p90_at=proxy.at(p90_ns))


def first_and_last(proxy: Operated, known: DatedStarts, calls: list[CallId]) -> tuple[StartView, StartView]:
    """Return when the first of some calls starts, and when all have started."""
    unknown = StartView(p50_at=None, p90_at=None)
    if known.starts is None or not calls:
        return unknown, unknown
    first, last = known.starts.first(calls), known.starts.last(calls)
    return start_view(proxy, known, first), start_view(proxy, known, last)
