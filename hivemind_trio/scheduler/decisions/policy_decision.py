"""Decision of the policy about a call as its plan, its session and the clock stand, and calls that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import attrs

from hivemind_trio.model import Decision, PlanSpan, Reason, Verdict
from hivemind_trio.policy import EDGES_MAX, at_moment
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.calls.wall_clock import TOLD_EVERY_NS
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState


def decide(books: SchedulerState, call: Call, at_ns: int | None = None) -> Decision:
    """Return the decision of the policy about a call, before budgets and the health of providers change it.

    Args:
        at_ns: When the plan is looked at; None: now.
    """
    program, request = books.program, call.request
    at_ns = books.now_ns if at_ns is None else at_ns
    if program.reads_sessions:
        request = books.sessions.facts(call, books.now_ns)
    if not program.reads_plans:
        return program.decide(request)
    # The plan is that of the provider without any rule: a rule may send the call elsewhere because of it.
    accounts = _plan_pools(books, call)
    if len(accounts) != 1:
        return program.decide(request)  # several keys have no plan
    (pool,) = accounts
    plan = pool.plans.standing(books.account(call, pool.name), request.model, at_ns)
    return program.decide(
        attrs.evolve(
            request,
            plan_session=plan.used(PlanSpan.SESSION),
            plan_week=plan.used(PlanSpan.WEEK),
            plan_month=plan.used(PlanSpan.MONTH),
            plan_overage=plan.overage,
        )
    )


def at_time(books: SchedulerState, call: Call, time_ns: int) -> Call:
    """Return a call as it would be if it came at another time."""
    moment = books.clock.at(time_ns) if books.program.clock_edges else None
    return call if moment is None else attrs.evolve(call, request=at_moment(call.request, moment))


def hold(books: SchedulerState, waiter: WaitingCall) -> None:
    """Have a call wait in no line, until the rules are asked again."""
    waiter.is_held, waiter.released_ns, waiter.blocked = True, None, Reason.HELD
    waiter.held_by = waiter.treatment.decided["verdict"].name
    waiter.plan_read = _plan_read(books, waiter.call)
    waiter.held_until_ns, again_ns = _held_until_ns(books, waiter.call)
    # At a time of day clocks may have been set meanwhile.
    waiter.rests_until_ns = None if again_ns is None else min(again_ns, books.now_ns + TOLD_EVERY_NS)


def ask_rules_anew(books: SchedulerState, provider: str, account: str) -> None:
    """Have the rules asked again about calls that they hold for a plan of which there is news."""
    for call_id, waiter in books.room.held.items():
        if waiter.plan_read == (provider, account):
            books.asked_anew[call_id] = None


def _plan_read(books: SchedulerState, call: Call) -> tuple[str, str] | None:
    """Return the provider and account whose plan the rules read for a call; None: of none."""
    pools = _plan_pools(books, call) if books.program.reads_plans else ()
    return (pools[0].name, books.account(call, pools[0].name)) if len(pools) == 1 else None


def _plan_pools(books: SchedulerState, call: Call) -> tuple[ProviderQueue, ...]:
    """Return the accounts of the provider where a call would go before any rule."""
    return books.accounts.get(books.program.route(call.request.apis, call.request.model) or "", ())


def _held_until_ns(books: SchedulerState, call: Call) -> tuple[int | None, int | None]:
    """Return when a held call is held no more, and when that may be: by the clock, and by the resets of its plan.

    None: no time is known.
    """
    edges = islice(books.clock.edges(books.program.clock_edges, books.now_ns), EDGES_MAX)
    times = sorted({*edges, *_plan_resets(books, call)})
    for time_ns in times:
        if decide(books, at_time(books, call, time_ns), time_ns).verdict is not Verdict.HOLD:
            return time_ns, times[0]
    return None, times[0] if times else None


def _plan_resets(books: SchedulerState, call: Call) -> Iterator[int]:
    """Yield when windows of the plan that rules read for a call begin anew."""
    if not books.program.reads_plans:
        return
    for pool in _plan_pools(books, call):
        for window in pool.plans.windows(books.account(call, pool.name), call.request.model):
            if window.resets_ns is not None and window.resets_ns > books.now_ns:
                yield window.resets_ns
