"""Admission control: a call that arrives is rejected, granted at once, or queued."""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Decision, Reason, Verdict
from hivemind_trio.scheduler.budgets.budgets import InsufficientBudget
from hivemind_trio.scheduler.calls.placement import Placement
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.protocol.events import Command, Grant, Reject
from hivemind_trio.scheduler.state import SchedulerState

from . import rejection
from .dispatch import dispatch, expire
from .grant import grant
from .policy_decision import hold
from .routing import route

TIMED: Final = frozenset({Reason.LIMITS, Reason.PROVIDER_QUOTA, Reason.GROWTH, Reason.MODEL_RESIDENT} | rejection.PLANS)
"""Reasons to wait that time alone may end."""


def admit(books: SchedulerState, call: Call, treatment: Decision, commands: list[Command]) -> None:
    """Reject a call, grant it, or queue it."""
    if books.detours or call.priority is not None:
        treatment = route(books, call, treatment)
    reject = rejection.reject_on_arrival(call, treatment, books.program, draining=books.draining, waited_ns=0)
    if reject is not None:
        commands.append(reject)
        return
    if not call.needs_slot:
        commands.append(Grant(call_id=call.id, treatment=treatment, permit=None, waited_ns=0, reason=Reason.NONE))
        return

    place = books.place(call, treatment)
    if place.pool.residents.enabled:
        place.pool.look(books.now_ns)
    blocked = _blocked(books, call, treatment, place)
    if isinstance(blocked, Reject):
        commands.append(blocked)
        books.forget(place.agent)
        return
    call, seq = books.assign_sequence(call)
    waiter = books.waiter(call, treatment, place, books.now_ns, seq, blocked)
    _enter(books, waiter, blocked, commands)
    spent = place.pool.health.spent
    if spent.known and (call.id in books.inflight or call.id in books.room):
        spent.ask(books.billing_key(call, treatment), books.now_ns)


def _blocked(books: SchedulerState, call: Call, treatment: Decision, place: Placement) -> Reject | Reason:
    """Return why the call cannot be dispatched now, `NONE`: it can; or its rejection, if it is not to wait for that."""
    over = place.too_large() if place.quotas.has_limits else None
    if over is not None:
        return rejection.too_large(call, treatment, over, place.cost)
    beyond = place.agent.windows.too_large(place.start_cost) if place.agent.windows is not None else None
    if beyond is not None:
        return rejection.over_agent_limit(call, treatment, beyond, place)
    if treatment.verdict is Verdict.HOLD:
        return Reason.HELD
    blocked = place.blocked(books.now_ns)
    if blocked is Reason.BREAKER_OPEN and books.refuses_while_open(place.pool):
        return rejection.circuit_open(books, call, treatment, place.pool, 0)
    spent = place.pool.health.spent
    if spent.known and spent.shut(books.billing_key(call, treatment), books.now_ns):
        books.lacks_plan(call, place)
        return rejection.billing_exhausted(books, call, treatment, place.pool, 0)
    return blocked


def _enter(books: SchedulerState, waiter: WaitingCall, blocked: Reason, commands: list[Command]) -> None:
    """Claim budgets, then grant or queue; or reject for a budget, or for a wait beyond the client's patience."""
    place = waiter.place
    if blocked is Reason.HELD:
        _hold(books, waiter, commands)
        return
    short = books.claim(waiter) if waiter.treatment.budgets else None
    if isinstance(short, InsufficientBudget) and short.denies(books.now_ns):
        words = rejection.insufficient_budget(short, books.now_ns)
        _turn_down(books, waiter, rejection.reject(books, waiter, Reason.BUDGET, *words), 0, commands)
    elif short is None and place.prompts is not None and _follows(books, waiter):
        _put_in_line(books, waiter, commands)
    elif short is None and blocked is Reason.NONE:
        place.pool.take_at_once(waiter, place.lane)
        commands.append(grant(books, waiter, Reason.NONE))
    elif short is None and (wait_ns := books.expected_wait_beyond_patience_ns(waiter)) is not None:
        _turn_down(books, waiter, *_beyond_patience(books, waiter, wait_ns), commands)
    else:
        _put_in_line(books, waiter, commands)
        if blocked in TIMED or place.pool.opens_ns is not None or place.pool.is_account:
            dispatch(books, [place.pool], None, commands)  # which says when there will be room


def _hold(books: SchedulerState, waiter: WaitingCall, commands: list[Command]) -> None:
    """Have the call wait until no rule holds it; or send its client away until then, with its place kept."""
    hold(books, waiter)
    patience_ns = waiter.call.patience_ns if books.parts.patience else None
    wait_ns = None if waiter.held_until_ns is None else waiter.held_until_ns - books.now_ns
    if patience_ns is None or wait_ns is None or wait_ns <= patience_ns:
        _put_in_line(books, waiter, commands)
        return
    message = rejection.held(waiter, wait_ns)
    commands.append(rejection.reject(books, waiter, Reason.HELD, message, wait_ns))
    books.keep_position(waiter, waiter.held_until_ns or 0)
    books.forget(waiter.place.agent)


def _beyond_patience(books: SchedulerState, waiter: WaitingCall, wait_ns: int) -> tuple[Reject, int]:
    """Return the rejection of a call that would wait longer than its client does, and when it may come back.

    When a plan opens is known if the provider has told a reset, and not before then is it worth a retry; of a queue
    it is an estimate.
    """
    plan = waiter.place.plan
    opens_ns = plan.opens_ns(books.now_ns) if plan is not None else 0
    if plan is not None and opens_ns - books.now_ns > (waiter.call.patience_ns or 0):
        closed, plan_ns = plan.reason(books.now_ns), opens_ns - books.now_ns
        if closed is Reason.PLAN_USED_UP:
            books.lacks_plan(waiter.call, waiter.place)
        if plan.is_told(books.now_ns):
            return rejection.plan_keeps(books, waiter, closed, plan_ns), opens_ns
        message = rejection.plan_ends_unknown(books, waiter, closed, plan_ns)
    else:
        message = rejection.wait_exceeds_patience(books, waiter, wait_ns)
    return rejection.reject(books, waiter, Reason.CLIENT_PATIENCE, message, books.retry_after_ns(waiter, wait_ns)), 0


def _turn_down(
    books: SchedulerState, waiter: WaitingCall, reject: Reject, from_ns: int, commands: list[Command]
) -> None:
    """Reject a call that has a number already; its client may come back with it, maybe not before `from_ns`."""
    commands.append(reject)
    books.keep_position(waiter, from_ns)
    if reject.reason is not Reason.BUDGET:  # then it has claimed nothing
        books.unclaim(waiter)
    books.forget(waiter.place.agent)


def _follows(books: SchedulerState, waiter: WaitingCall) -> bool:
    """Put the call behind another that has the same prompt read; return True if it must wait."""
    prefixes = waiter.place.prefixes
    rests_until_ns = prefixes.follow(waiter, books.now_ns) if prefixes is not None else None
    if rests_until_ns is None:
        return False
    waiter.rests_until_ns, waiter.blocked = rests_until_ns, Reason.PROMPT_CACHE
    return True


def _put_in_line(books: SchedulerState, waiter: WaitingCall, commands: list[Command]) -> None:
    """Queue the call if the bounds of the queues allow; otherwise reject the oldest call of its lane, or itself."""
    lane = books.program.lanes[waiter.treatment.lane]
    oldest = None
    full = books.room.full_for(waiter.place)
    if full is None:
        full = books.room.full_lane(lane, books.program.server.max_waiting)
        if full is not None and lane.shed_oldest:
            oldest = books.room.oldest(lane.name)
    if full is not None and oldest is None:
        reject = rejection.reject(books, waiter, Reason.QUEUE_FULL, full, books.retry_after_ns(waiter))
        _turn_down(books, waiter, reject, 0, commands)
        return

    books.room.enter(waiter)
    if full is not None and oldest is not None:
        # Only now: it may be the last call of the same agent, which would be forgotten.
        books.leave(oldest)
        commands.append(
            rejection.reject(books, oldest, Reason.SHED_OLDEST, rejection.shed(full), books.retry_after_ns(oldest))
        )
        if oldest.place.pool.holds:
            # It may have been the large one behind which smaller ones stood, at another provider.
            dispatch(books, [oldest.place.pool], None, commands)
    if waiter.deadline_ns is not None:
        expire(books, commands)  # it may have no patience at all
