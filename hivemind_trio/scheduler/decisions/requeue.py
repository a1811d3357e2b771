"""Requeue of waiting calls after a change of policy, circuit, account or budget.

Each is classified anew, and keeps its age. Nobody is granted anything here: what is returned says at which providers
somebody may be able to go now.
"""

from __future__ import annotations

from itertools import islice

from hivemind_trio.model import Decision, Reason, Verdict
from hivemind_trio.scheduler.budgets.budgets import InsufficientBudget
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.decisions import rejection
from hivemind_trio.scheduler.health.billing import SpentKey
from hivemind_trio.scheduler.protocol.events import Command
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState

from .policy_decision import at_time, decide, hold
from .routing import route


def reclassify(
    books: SchedulerState, waiter: WaitingCall, treatment: Decision, commands: list[Command]
) -> WaitingCall | None:
    """Classify a call anew that waits and has been taken out of the room; None: it is refused now."""
    treatment = route(books, waiter.call, treatment)
    waited_ns = books.waited_ns(waiter)
    reject = rejection.reject_on_arrival(
        waiter.call, treatment, books.program, draining=books.draining, waited_ns=waited_ns
    )
    if reject is not None:
        commands.append(reject)
        books.forget(waiter.place.agent)
        return None
    place = books.place(waiter.call, treatment)
    over = place.too_large() if place.quotas.has_limits else None
    if over is not None:
        commands.append(rejection.too_large(waiter.call, treatment, over, place.cost, waited_ns))
        books.forget(place.agent)
        return None
    beyond = place.agent.windows.too_large(place.start_cost) if place.agent.windows is not None else None
    if beyond is not None:
        commands.append(rejection.over_agent_limit(waiter.call, treatment, beyond, place, waited_ns))
        books.forget(place.agent)
        return None
    # What has begun is not held any more: it waits for another attempt.
    is_held = treatment.verdict is Verdict.HOLD and not waiter.attempts
    if not is_held and place.pool.health.spent.shut(books.billing_key(waiter.call, treatment), books.now_ns):
        commands.append(rejection.billing_exhausted(books, waiter.call, treatment, place.pool, waited_ns))
        books.forget(place.agent)
        return None
    blocked = place.blocked(books.now_ns)
    if blocked is Reason.NONE:  # it will go now, unless another does: what it waited for was before
        blocked = waiter.blocked
    anew = books.waiter(waiter.call, treatment, place, waiter.arrived_ns, waiter.seq, blocked)
    anew.since_ns, anew.waited_ns, anew.attempts = waiter.since_ns, waiter.waited_ns, waiter.attempts
    anew.uncounted, anew.asked, anew.due_ns = waiter.uncounted, waiter.asked, waiter.due_ns
    anew.unasked_due_ns, anew.unbudgeted_due_ns = waiter.unasked_due_ns, waiter.unbudgeted_due_ns
    anew.given_up = waiter.given_up
    anew.ledger_until_ns, anew.claimed_ns = waiter.ledger_until_ns, waiter.claimed_ns
    anew.started, anew.held_by, anew.spared = waiter.started, waiter.held_by, waiter.spared
    anew.released_ns = books.now_ns if waiter.is_held else waiter.released_ns
    if is_held:
        hold(books, anew)
        books.room.enter(anew)
        return anew
    short = books.claim(anew)
    if short is None:
        anew.rests_until_ns = waiter.rests_until_ns
        if waiter.is_held:
            anew.rests_until_ns = None
        if waiter.held_in is not None:  # it rested for its budget's sake
            anew.claimed_ns = books.now_ns
            anew.rests_until_ns = waiter.due_ns if (waiter.due_ns or 0) > books.now_ns else None
        if (stays_away_ns := waiter.stays_away_ns(place.pool)) > books.now_ns:
            anew.rests_until_ns = max(anew.rests_until_ns or 0, stays_away_ns)
    elif isinstance(short, InsufficientBudget) and short.denies(books.now_ns):
        commands.append(
            rejection.reject(books, anew, Reason.BUDGET, *rejection.insufficient_budget(short, books.now_ns))
        )
        books.forget(place.agent)
        return None
    books.room.enter(anew)
    return anew


def move_to_fallback(
    books: SchedulerState, waiters: list[WaitingCall], commands: list[Command]
) -> dict[str, ProviderQueue]:
    """Have them wait where they would be sent if they came now, if that is elsewhere. Return where."""
    there = {}
    for waiter in waiters:
        treatment, pool = decide(books, waiter.call), waiter.place.pool
        elsewhere = route(books, waiter.call, treatment)
        has_key = elsewhere.account == waiter.treatment.account or not pool.health.spent.shut(
            books.billing_key(waiter.call, waiter.treatment), books.now_ns
        )
        if elsewhere.provider == pool.name and has_key:
            continue
        books.room.leave(waiter)
        books.unclaim(waiter)
        anew = reclassify(books, waiter, treatment, commands)
        if anew is not None:
            there[anew.place.pool.name] = anew.place.pool
    return there


def settle(books: SchedulerState, most: int, commands: list[Command]) -> int:
    """Have a new policy decide calls that wait, in order of arrival, as many as `most`. Return how many it was."""
    calls = list(islice(books.unsettled.values(), most))
    for waiter in calls:
        del books.unsettled[waiter.call.id]
        if waiter.is_held:
            waiter.call = at_time(books, waiter.call, books.now_ns)
        reclassify(books, waiter, decide(books, waiter.call), commands)
    return len(calls)


def decide_held_again(
    books: SchedulerState, most: int, commands: list[Command]
) -> tuple[int, dict[str, ProviderQueue]]:
    """Ask the rules again about held calls for which they may have changed, as of now, as many as `most`.

    Return how many it was, and the providers where some have joined the line.
    """
    pools = {}
    asked = list(islice(books.asked_anew, most))
    for call_id in asked:
        del books.asked_anew[call_id]
        waiter = books.room.held.get(call_id)
        if waiter is None:
            continue  # it has gone meanwhile
        books.room.leave(waiter)
        waiter.call = at_time(books, waiter.call, books.now_ns)
        anew = reclassify(books, waiter, decide(books, waiter.call), commands)
        if anew is not None and not anew.is_held:
            pools[anew.place.pool.name] = anew.place.pool
    return len(asked), pools


def draw(books: SchedulerState, waiter: WaitingCall, commands: list[Command]) -> None:
    """Have a call wait at the account of its provider that has room for it."""
    books.room.leave(waiter)
    books.unclaim(waiter)
    reclassify(books, waiter, decide(books, waiter.call), commands)


def reject_unfunded(
    books: SchedulerState, pool: ProviderQueue, billing_key: SpentKey, commands: list[Command]
) -> dict[str, ProviderQueue]:
    """Move calls that cannot be served here, and return the queues where they wait instead."""
    poor = [
        waiter
        for waiter in books.room
        if waiter.place.pool is pool and books.billing_key(waiter.call, waiter.treatment) == billing_key
    ]
    there = move_to_fallback(books, poor, commands)
    for waiter in poor:
        if books.room.get(waiter.call.id) is waiter:
            books.leave(waiter)
            waited_ns = books.waited_ns(waiter)
            commands.append(rejection.billing_exhausted(books, waiter.call, waiter.treatment, pool, waited_ns))
    return there


def reject_all(books: SchedulerState, pool: ProviderQueue, commands: list[Command]) -> None:
    """Reject calls of a provider whose circuit is open, if the policy rejects rather than holds."""
    for waiter in [waiter for waiter in books.room if waiter.place.pool is pool]:
        books.leave(waiter)
        commands.append(rejection.circuit_open(books, waiter.call, waiter.treatment, pool, books.waited_ns(waiter)))


def release_budget_waiters(
    books: SchedulerState, most: int, commands: list[Command]
) -> tuple[int, dict[str, ProviderQueue]]:
    """Admit held calls where budgets may have room, in order, until one must wait on or it was `most`.

    Return how many it was, and their providers.
    """
    pools: dict[str, ProviderQueue] = {}
    tried = 0
    while books.budgets_released and tried < most:
        account = next(iter(books.budgets_released))
        del books.budgets_released[account]
        while (held := account.held.first) is not None:
            if tried >= most:
                books.budgets_released[account] = None
                break
            tried += 1
            waiter = books.room.waiters[held.call.id]
            books.room.leave(waiter)
            treatment = decide(books, waiter.call)
            anew = reclassify(books, waiter, treatment, commands)
            # One that is behind another now, for what is spent has changed its priority, lets that one be asked.
            if anew is not None and anew.held_in is account and account.held.first is anew:
                break
            if anew is not None:
                pools[anew.place.pool.name] = anew.place.pool
    return tried, pools
