"""Dispatch of waiting calls to the providers that have room, and rejection of those whose deadline has come."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hivemind_trio.model import Reason, rejection_text
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.protocol.events import Command
from hivemind_trio.scheduler.queueing.agent import AgentState
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState

from . import rejection
from .account_choice import drawn, with_siblings
from .grant import grant, waited_for
from .requeue import draw
from .routing import let_through


def dispatch(
    books: SchedulerState,
    pools: Iterable[ProviderQueue],
    freed: AgentState | None,
    commands: list[Command],
    most: float = math.inf,
) -> bool:
    """Grant until nothing fits, or until it was `most`; return True if more may fit.

    Args:
        freed: The agent that has just come down from its cap.
    """
    if books.settling:
        return False  # a call that is not decided yet may come before all of these
    pools = with_siblings(books, pools)
    moved: set[int] = set()
    most += len(commands)
    while len(commands) < most:
        if books.let_through and (waiter := _let_through(books, pools)) is not None:
            commands.append(_granted_beyond(books, waiter, freed))
            continue
        turn = None
        for pool in pools:
            there = pool.next(books.now_ns)
            # One agent may be next at several providers and have room for one call only.
            if there is not None and (turn is None or there.waiter.seq < turn.waiter.seq):
                turn = there
        if turn is None:
            waiter = drawn(books, pools, moved)
            if waiter is None:
                if books.let_through:
                    _wake_for_let_through(books, pools)
                return False
            moved.add(waiter.call.id)
            draw(books, waiter, commands)
            continue
        waiter = books.room.waiters[turn.waiter.call.id]
        place = waiter.place
        reason = waited_for(books, waiter, freed, books.now_ns)
        place.pool.take_turn(turn)
        books.room.leave(waiter)
        place.pool.pace.on_turn(books.now_ns, place.pool.waiting)
        place.lane.turns.on_turn(books.now_ns, place.lane.waiting)
        commands.append(grant(books, waiter, reason))
    return True


def _let_through(books: SchedulerState, pools: Iterable[ProviderQueue]) -> WaitingCall | None:
    """Return the first call that an operator lets through and that its provider has room for."""
    for waiter in _beyond(books, pools):
        opens_ns = waiter.place.opens_beyond_ns(books.now_ns)
        if opens_ns is not None and opens_ns <= books.now_ns:
            return waiter
    return None


def _beyond(books: SchedulerState, pools: Iterable[ProviderQueue]) -> list[WaitingCall]:
    """Return the calls in line that an operator lets through at these providers; those that are gone are forgotten."""
    for call_id in [one for one in books.let_through if one not in books.room.waiters]:
        del books.let_through[call_id]
    there = set(map(id, pools))
    waiters = (books.room.waiters[call_id] for call_id in books.let_through)
    return [waiter for waiter in waiters if waiter.in_line and id(waiter.place.pool) in there]


def _granted_beyond(books: SchedulerState, waiter: WaitingCall, freed: AgentState | None) -> Command:
    """Grant a call that an operator lets through. Its lane and agent are charged as for any other."""
    del books.let_through[waiter.call.id]
    place = waiter.place
    reason = waited_for(books, waiter, freed, books.now_ns)
    waiter.treatment = let_through(waiter.treatment)
    books.room.leave(waiter)
    place.pool.take_at_once(waiter, place.lane)
    place.pool.pace.on_turn(books.now_ns, place.pool.waiting)
    place.lane.turns.on_turn(books.now_ns, place.lane.waiting)
    return grant(books, waiter, reason, beyond=True)


def _wake_for_let_through(books: SchedulerState, pools: Iterable[ProviderQueue]) -> None:
    """Have the providers looked at again when their rate limits let such a call go."""
    for waiter in _beyond(books, pools):
        pool, opens_ns = waiter.place.pool, waiter.place.opens_beyond_ns(books.now_ns)
        if opens_ns is not None:
            pool.opens_ns = opens_ns if pool.opens_ns is None else min(pool.opens_ns, opens_ns)


def expire(books: SchedulerState, commands: list[Command]) -> list[WaitingCall]:
    """Reject the calls whose deadline has come, and return them."""
    gone = []
    while (waiter := books.room.expired(books.now_ns)) is not None:
        gone.append(waiter)
        books.leave(waiter)
        if waiter.blocked is Reason.STORE_WRITE and waiter.deadline_ns == waiter.ledger_until_ns:
            message = rejection_text(Reason.STORE_UNAVAILABLE)
            commands.append(
                rejection.reject(books, waiter, Reason.STORE_UNAVAILABLE, message, rejection.LEDGER_RETRY_NS)
            )
            continue
        message = rejection.too_late(waiter, books.waited_ns(waiter), books.now_ns)
        commands.append(rejection.reject(books, waiter, Reason.DEADLINE, message, books.retry_after_ns(waiter)))
    return gone
