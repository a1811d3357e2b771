"""Rejections: reason, message and `retry-after` of a call that is not served."""

from __future__ import annotations

from hivemind_trio.model import WAITS, Decision, Reason, Request, Verdict, rejection_text, wait_text
from hivemind_trio.policy import Program, RateLimitSettings
from hivemind_trio.scheduler.budgets.budgets import InsufficientBudget
from hivemind_trio.scheduler.calls.placement import Placement
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.limits.cost import Cost
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.protocol.events import Reject
from hivemind_trio.scheduler.queueing.drain_rate import RETRY_MAX_NS, RETRY_MIN_NS
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState

DRAINING_RETRY_NS = 1_000_000_000
"""A restart takes about that long, and nobody here knows better."""

LEDGER_RETRY_NS = 10_000_000_000
"""Time after which a disk may have room again; nobody here knows better."""

PATH_SHOWN_MAX = 200

PLANS = frozenset({Reason.PLAN_RESERVE, Reason.PLAN_PACE, Reason.PLAN_USED_UP})
"""Reasons of waits whose end is known."""


def reject_on_arrival(
    call: Call, treatment: Decision, program: Program, *, draining: bool, waited_ns: int
) -> Reject | None:
    """Return the rejection that no wait would avoid; None: there is none."""
    retry_after_ns = None
    if draining:
        reason, message, retry_after_ns = Reason.DRAINING, rejection_text(Reason.DRAINING), DRAINING_RETRY_NS
    elif program.rejects_as_unknown(treatment.agent):
        reason, message = Reason.UNKNOWN_AGENT, rejection_text(Reason.UNKNOWN_AGENT)
    elif treatment.verdict is Verdict.DENY:
        reason, message = Reason.DENIED, _denied(treatment.message)
    elif treatment.provider is None:
        reason, message = Reason.NO_PROVIDER, _unserved(call.request, program)
    else:
        return None
    return Reject(
        call_id=call.id,
        treatment=treatment,
        reason=reason,
        waited_ns=waited_ns,
        message=message,
        retry_after_ns=retry_after_ns,
    )


def _denied(words: str) -> str:
    """Return the message of a denial, with the author's words if there are any."""
    return rejection_text(Reason.DENIED, "rule", message=words) if words else rejection_text(Reason.DENIED)


def _unserved(request: Request, program: Program) -> str:
    """Return why no provider serves it."""
    spoken = {provider.api for provider in program.providers.values()}
    path = request.path[:PATH_SHOWN_MAX]
    if not spoken:
        return rejection_text(Reason.NO_PROVIDER, "empty")
    if not request.apis:
        return rejection_text(Reason.NO_PROVIDER, "path", path=path)
    if spoken.isdisjoint(request.apis):
        return rejection_text(Reason.NO_PROVIDER, "dialect", api=request.apis[0], path=path)
    if request.model:
        return rejection_text(Reason.NO_PROVIDER, "model", model=request.model)
    return rejection_text(Reason.NO_PROVIDER, "default", path=path)


def reject(books: SchedulerState, waiter: WaitingCall, reason: Reason, message: str, retry_after_ns: int) -> Reject:
    """Return the rejection of a queued call."""
    return Reject(
        call_id=waiter.call.id,
        treatment=waiter.treatment,
        reason=reason,
        waited_ns=books.waited_ns(waiter),
        message=message,
        retry_after_ns=retry_after_ns,
    )


def too_large(call: Call, treatment: Decision, quota: RateLimitSettings, cost: Cost, waited_ns: int = 0) -> Reject:
    """Return the rejection of a call that exceeds a whole window of a rate limit."""
    amount, provider = cost[quota.dimension], treatment.provider
    return Reject(
        call_id=call.id,
        treatment=treatment,
        reason=Reason.OVER_LIMITS,
        waited_ns=waited_ns,
        message=rejection_text(Reason.OVER_LIMITS, amount=amount, provider=provider, limit=quota),
        retry_after_ns=None,
    )


def over_agent_limit(
    call: Call, treatment: Decision, limit: RateLimitSettings, place: Placement, waited_ns: int = 0
) -> Reject:
    """Return the rejection of a call that exceeds a whole window of its agent."""
    amount, agent = place.start_cost[limit.dimension], place.agent.name
    return Reject(
        call_id=call.id,
        treatment=treatment,
        reason=Reason.OVER_LIMITS,
        waited_ns=waited_ns,
        message=rejection_text(Reason.OVER_LIMITS, "agent", amount=amount, agent=agent, limit=limit),
        retry_after_ns=None,
    )


def circuit_open(books: SchedulerState, call: Call, treatment: Decision, pool: ProviderQueue, waited_ns: int) -> Reject:
    """Return the rejection of a call whose provider has an open circuit."""
    opens_ns = pool.health.breaker.opens_ns
    wait_ns = max(opens_ns - books.now_ns, 0) if opens_ns is not None else 0
    return Reject(
        call_id=call.id,
        treatment=treatment,
        reason=Reason.BREAKER_OPEN,
        waited_ns=waited_ns,
        message=rejection_text(Reason.BREAKER_OPEN, provider=pool.name),
        retry_after_ns=min(max(wait_ns, RETRY_MIN_NS), RETRY_MAX_NS),
    )


def billing_exhausted(
    books: SchedulerState, call: Call, treatment: Decision, pool: ProviderQueue, waited_ns: int
) -> Reject:
    """Return the rejection of a call whose account at the provider is used up."""
    renewed_ns = pool.health.spent.renewed_ns(books.billing_key(call, treatment), books.now_ns)
    return Reject(
        call_id=call.id,
        treatment=treatment,
        reason=Reason.PROVIDER_SPENT,
        waited_ns=waited_ns,
        message=_exhausted(treatment.sender or pool.name, renewed_ns),
        retry_after_ns=renewed_ns,
    )


def plan_keeps(books: SchedulerState, waiter: WaitingCall, reason: Reason, wait_ns: int) -> Reject:
    """Return the rejection of a call that would wait too long for a plan, with the time when it may go.

    One whose plan is used up is rejected as if its provider had refused it.
    """
    pool, lane = waiter.place.pool, waiter.treatment.lane
    if reason is Reason.PLAN_USED_UP:
        return reject(books, waiter, Reason.PROVIDER_SPENT, _exhausted(pool.name, wait_ns), wait_ns)
    message = rejection_text(reason, provider=pool.name, lane=lane, wait=duration(wait_ns))
    return reject(books, waiter, reason, message, wait_ns)


def plan_ends_unknown(books: SchedulerState, waiter: WaitingCall, reason: Reason, wait_ns: int) -> str:
    """Return the message for a call that waits for a window whose reset its provider has not told."""
    longest, why = duration(waiter.call.patience_ns or 0), wait_of(waiter, reason, books.now_ns)
    return rejection_text(Reason.CLIENT_PATIENCE, "plan", wait=duration(wait_ns), longest=longest, why=why)


def insufficient_budget(short: InsufficientBudget, now_ns: int) -> tuple[str, int]:
    """Return message and end of a budget that is used up."""
    wait_ns = max(0, short.account.opens_ns(short.step.share, now_ns) - now_ns)
    message, allowance = short.step.deny, short.account.allowance.shown()
    return rejection_text(Reason.BUDGET, message=message, allowance=allowance, resets=duration(wait_ns)), wait_ns


def _exhausted(provider: str, renewed_ns: int | None) -> str:
    """Return the message about an account whose credit or plan is exhausted."""
    if renewed_ns is None:
        return rejection_text(Reason.PROVIDER_SPENT, provider=provider)
    return rejection_text(Reason.PROVIDER_SPENT, "resets", provider=provider, resets=duration(renewed_ns))


def duration(time_ns: int) -> str:
    """`2 h 5 min`, for people."""
    seconds = -(-time_ns // 1_000_000_000)
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    named = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(named[:2]) or "a moment"


def wait_exceeds_patience(books: SchedulerState, waiter: WaitingCall, wait_ns: int) -> str:
    """Return the message for a wait that is longer than the client can be held, with its reason."""
    longest, why = duration(waiter.call.patience_ns or 0), wait_of(waiter, waiter.blocked, books.now_ns)
    return rejection_text(Reason.CLIENT_PATIENCE, wait=duration(wait_ns), longest=longest, why=why)


def held(waiter: WaitingCall, wait_ns: int) -> str:
    """Return the message for a hold longer than the timeout of the client."""
    return rejection_text(Reason.HELD, message=waiter.treatment.message, wait=duration(wait_ns))


def shed(full: str) -> str:
    """Return the message for a call that a full queue dropped."""
    return rejection_text(Reason.SHED_OLDEST, full=full)


def too_late(waiter: WaitingCall, waited_ns: int, now_ns: int) -> str:
    """Return the message for a deadline that expired in the queue."""
    waited = f"{waited_ns / 1e9:.3g} s"
    return rejection_text(Reason.DEADLINE, waited=waited, wait=wait_of(waiter, waiter.blocked, now_ns))


def wait_of(waiter: WaitingCall, reason: Reason, now_ns: int) -> str:
    """Return why a call waited, in words; with the time when it can go, where a plan or a rule says it."""
    place = waiter.place
    reason = reason if reason in WAITS else Reason.PROVIDER_CONCURRENCY
    limits = {
        Reason.LIMITS_CONCURRENCY: place.group.slots.limit,
        Reason.LANE_MAX: place.lane.slots.limit,
        Reason.AGENT_CONCURRENCY: place.agent.slots.limit,
    }
    opens_ns, then = None, "it can start"
    if reason is Reason.HELD:
        opens_ns = waiter.held_until_ns
    elif reason in PLANS and place.plan is not None:
        opens_ns = place.plan.opens_ns(now_ns)
        if not place.plan.is_told(now_ns):
            then = "the provider does not say when the plan is renewed, and is asked again"
    until = f"; {then} in {duration(opens_ns - now_ns)}" if opens_ns is not None and opens_ns > now_ns else ""
    text = wait_text(
        reason,
        provider=place.pool.name,
        models=waiter.treatment.group or "*",
        lane=waiter.treatment.lane,
        agent=place.agent.name,
        limit=limits.get(reason, place.pool.slots.limit),
        rule=waiter.held_by,
    )
    return text + until
