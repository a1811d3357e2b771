"""Dispatch of waiting calls to the providers that have room, and rejection of those whose deadline has come."""

from __future__ import annotations

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


def dispatch(
    books: SchedulerState, pools: Iterable[ProviderQueue], freed: AgentState | None, commands: list[Command]
) -> None:
    """Grant until nothing fits. `freed`: the agent that has just come down from its cap."""
    pools = with_siblings(books, pools)
    moved: set[int] = set()
    while True:
        turn = None
        for pool in pools:
            there = pool.next(books.now_ns)
            # One agent may be next at several providers and have room for one call only.
            if there is not None and (turn is None or there.waiter.seq < turn.waiter.seq):
                turn = there
        if turn is None:
            waiter = drawn(books, pools, moved)
            if waiter is None:
                return
            moved.add(waiter.call.id)
            draw(books, waiter, commands)
            continue
        waiter = books.room.waiters[turn.waiter.call.id]
        place = waiter.place
        reason = waited_for(waiter, freed, books.now_ns)
        place.pool.take_turn(turn)
        books.room.leave(waiter)
        place.pool.pace.on_turn(books.now_ns, place.pool.waiting)
        place.lane.turns.on_turn(books.now_ns, place.lane.waiting)
        commands.append(grant(books, waiter, reason))


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
        message = rejection.too_late(waiter, books.waited_ns(waiter))
        commands.append(rejection.reject(books, waiter, Reason.DEADLINE, message, books.retry_after_ns(waiter)))
    return gone
