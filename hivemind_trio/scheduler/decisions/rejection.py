"""Rejections: reason, message and `retry-after` of a call that is not served."""

from __future__ import annotations

from hivemind_trio.model import Decision, Reason, Request, Verdict
from hivemind_trio.policy import Program, RateLimitSettings
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.limits.budgets import InsufficientBudget
from hivemind_trio.scheduler.limits.cost import Cost
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.protocol.events import Refuse
from hivemind_trio.scheduler.queueing.drain_rate import RETRY_MAX_NS, RETRY_MIN_NS
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState

DRAINING_RETRY_NS = 1_000_000_000
"""A restart takes about that long, and nobody here knows better."""

PATH_SHOWN_MAX = 200

DRAINING = "the proxy is about to stop and takes no new calls"


def outright(call: Call, treatment: Decision, program: Program, *, draining: bool, waited_ns: int) -> Refuse | None:
    """Return the rejection that no wait would avoid; None: there is none."""
    retry_after_ns = None
    if draining:
        reason, message, retry_after_ns = Reason.DRAINING, DRAINING, DRAINING_RETRY_NS
    elif program.rejects_as_unknown(treatment.agent):
        reason, message = Reason.UNKNOWN_AGENT, "the policy serves declared agents only, and this is none"
    elif treatment.verdict is Verdict.DENY:
        reason, message = Reason.DENIED, treatment.message or "the policy denies this call"
    elif treatment.provider is None:
        reason, message = Reason.NO_PROVIDER, _unserved(call.request, program)
    else:
        return None
    return Refuse(
        call_id=call.id,
        treatment=treatment,
        reason=reason,
        waited_ns=waited_ns,
        message=message,
        retry_after_ns=retry_after_ns,
    )


def _unserved(request: Request, program: Program) -> str:
    """Why no provider takes it: there is none, none speaks what the path is of, or none serves the model."""
    spoken = {provider.api for provider in program.providers.values()}
    path = request.path[:PATH_SHOWN_MAX]
    if not spoken:
        return "the policy has no provider"
    if not request.apis:
        return f"`{path}` is a path of no API that is known here"
    if spoken.isdisjoint(request.apis):
        return f"`{path}` is a path of the API `{request.apis[0]}`, which no provider in the policy speaks"
    what = f"model `{request.model}`" if request.model else "this path"
    return f"no provider in the policy serves {what}"


def of(books: SchedulerState, waiter: WaitingCall, reason: Reason, message: str, retry_after_ns: int) -> Refuse:
    """Return the rejection of a queued call."""
    return Refuse(
        call_id=waiter.call.id,
        treatment=waiter.treatment,
        reason=reason,
        waited_ns=books.waited_ns(waiter),
        message=message,
        retry_after_ns=retry_after_ns,
    )


def too_large(call: Call, treatment: Decision, quota: RateLimitSettings, cost: Cost, waited_ns: int = 0) -> Refuse:
    return Refuse(
        call_id=call.id,
        treatment=treatment,
        reason=Reason.OVER_LIMITS,
        waited_ns=waited_ns,
        message=f"it needs about {cost[quota.dimension]:,} of provider `{treatment.provider}`'s limit of {quota}",
        retry_after_ns=None,
    )


def left_alone_there(
    books: SchedulerState, call: Call, treatment: Decision, pool: ProviderQueue, waited_ns: int
) -> Refuse:
    """Return the rejection of a call whose provider has an open circuit."""
    opens_ns = pool.health.breaker.opens_ns
    wait_ns = max(opens_ns - books.now_ns, 0) if opens_ns is not None else 0
    return Refuse(
        call_id=call.id,
        treatment=treatment,
        reason=Reason.BREAKER_OPEN,
        waited_ns=waited_ns,
        message=f"provider `{pool.name}` has failed too often and is left alone for a while",
        retry_after_ns=min(max(wait_ns, RETRY_MIN_NS), RETRY_MAX_NS),
    )


def spent_there(books: SchedulerState, call: Call, treatment: Decision, pool: ProviderQueue, waited_ns: int) -> Refuse:
    """Return the rejection of a call whose account at the provider is used up."""
    renewed_ns = pool.health.spent.renewed_ns(books.pays_with(call, treatment), books.now_ns)
    return Refuse(
        call_id=call.id,
        treatment=treatment,
        reason=Reason.PROVIDER_SPENT,
        waited_ns=waited_ns,
        message=_nothing_left(pool.name, renewed_ns),
        retry_after_ns=renewed_ns,
    )


def spent(short: InsufficientBudget, now_ns: int) -> tuple[str, int]:
    """Return message and end of a budget that is used up."""
    wait_ns = max(0, short.account.opens_ns(short.step.share, now_ns) - now_ns)
    allowance = short.account.allowance
    return f"{short.step.deny} ({allowance.shown()}); there is room again in {duration(wait_ns)}", wait_ns


def _nothing_left(provider: str, renewed_ns: int | None) -> str:
    """Return the message about an account that is used up."""
    when = f", and that there is more in {duration(renewed_ns)}" if renewed_ns is not None else ""
    return f"provider `{provider}` says that the account's money or plan is used up{when}"


def duration(time_ns: int) -> str:
    """`2 h 5 min`, for people."""
    seconds = -(-time_ns // 1_000_000_000)
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    named = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(named[:2]) or "a moment"


def impatient(wait_ns: int) -> str:
    return f"its turn would not come for about {duration(wait_ns)}, and its client does not wait that long"


def shed(full: str) -> str:
    return f"{full}, so the one that had waited longest was dropped"


def too_late(waiter: WaitingCall, waited_ns: int) -> str:
    return f"waited {waited_ns / 1e9:.3g} s, as long as its deadline allows, because {_because(waiter)}"


def _because(waiter: WaitingCall) -> str:
    place, lane = waiter.place, waiter.treatment.lane
    pool, agent, models = place.pool, place.agent, waiter.treatment.group or "*"
    match waiter.blocked:
        case Reason.LIMITS_CONCURRENCY:
            cap = place.group.slots.limit
            return f"provider `{pool.name}` was at its cap of {cap} in flight for models like `{models}`"
        case Reason.LANE_MAX:
            return f"lane `{lane}` was at its cap of {place.lane.slots.limit} in flight at provider `{pool.name}`"
        case Reason.LANE_RESERVE:
            return f"the free slots of provider `{pool.name}` were reserved for other lanes than `{lane}`"
        case Reason.MODEL_RESIDENT:
            return f"provider `{pool.name}` had other models in memory, and calls of them"
        case Reason.BUDGET:
            return "a budget was used up, or claimed by calls on their way"
        case Reason.LIMITS:
            return f"the limits of provider `{pool.name}` for models like `{models}` were used up"
        case Reason.GROWTH:
            return f"provider `{pool.name}` had refused calls for their rate, so dispatch was paced"
        case Reason.PROMPT_CACHE:
            return "another call was having its prompt read, so that it need not be read twice"
        case Reason.BREAKER_OPEN:
            return f"provider `{pool.name}` had failed too often and was left alone"
        case Reason.PROVIDER_QUOTA:
            return f"provider `{pool.name}` had said that a quota was used up"
        case Reason.RETRY:
            return f"attempts at provider `{pool.name}` had failed, and the next was not due yet"
        case Reason.AGENT_CONCURRENCY:
            return f"agent `{agent.name}` was at its cap of {agent.slots.limit} in flight"
        case _:
            return f"provider `{pool.name}` was at its cap of {pool.slots.limit} in flight"
