"""Calls and accounts as operators see them. It reads, and nothing that it calls moves a clock or a window."""

from __future__ import annotations

from hivemind_trio.model import Reason
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.protocol.occupancy import AccountSnapshot, CallInFlight, Occupancy, QueuedCall
from hivemind_trio.scheduler.state import SchedulerState

from .admission import TIMED
from .grant import waited_for
from .routing import let_through


def occupancy(books: SchedulerState, now_ns: int) -> Occupancy:
    """Return every call that waits or is in flight. O(calls log calls)."""
    return Occupancy(
        waiting=tuple(_queued(books, waiter, now_ns) for waiter in (*books.room, *books.unsettled.values())),
        inflight=tuple(
            CallInFlight(
                call_id=call_id,
                decision=flight.treatment,
                caller=flight.call.caller,
                model=flight.call.request.model,
                arrived_ns=flight.arrived_ns,
                granted_ns=flight.granted_ns,
                waited_ns=flight.waited_ns,
                attempt=flight.attempt,
            )
            for call_id, flight in books.inflight.items()
        ),
    )


def _queued(books: SchedulerState, waiter: WaitingCall, now_ns: int) -> QueuedCall:
    reason = _reason(books, waiter, now_ns)
    is_let_through = waiter.call.id in books.let_through
    return QueuedCall(
        call_id=waiter.call.id,
        decision=let_through(waiter.treatment) if is_let_through else waiter.treatment,
        let_through=is_let_through,
        caller=waiter.call.caller,
        model=waiter.call.request.model,
        reason=reason,
        arrived_ns=waiter.arrived_ns,
        waited_ns=waiter.waited_ns + now_ns - waiter.since_ns,
        attempts=waiter.attempts,
        not_before_ns=_not_before_ns(waiter, reason),
        deadline_ns=waiter.deadline_ns,
    )


def _reason(books: SchedulerState, waiter: WaitingCall, now_ns: int) -> Reason:
    """Return the limit that blocks it now: a pause, or of a call in line the slot that it lacks, if it lacks one."""
    place = waiter.place
    if Reason.PAUSED in (place.pool.slots.closed, place.lane.slots.closed, place.agent.slots.closed):
        return Reason.PAUSED  # whatever else it lacks, only an operator can end that
    lacks = place.lacks() if waiter.in_line else Reason.NONE
    return waited_for(books, waiter, None, now_ns) if lacks is Reason.NONE else lacks


def _not_before_ns(waiter: WaitingCall, reason: Reason) -> int | None:
    """Return when it may start at the earliest; None: other calls decide that."""
    if waiter.is_held:
        return waiter.held_until_ns
    if waiter.rests_until_ns is not None:
        return waiter.rests_until_ns
    pool = waiter.place.pool
    if reason is Reason.BREAKER_OPEN:
        return pool.health.breaker.opens_ns
    if reason is Reason.AGENT_LIMIT:
        return waiter.place.agent.opens_ns
    return pool.opens_ns if reason in TIMED else None


def accounts(books: SchedulerState, now_ns: int) -> tuple[AccountSnapshot, ...]:
    """Return every account of every budget that a call has counted in."""
    return tuple(
        AccountSnapshot(
            key=account.key,
            allowance=account.allowance,
            spent=account.seen(now_ns),
            claimed=account.claimed,
            held=len(account.held),
        )
        for account in books.budgets.accounts.values()
    )
