"""An attempt begins: what it takes, what it had waited for, and what the driver is told."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Decision, Reason
from hivemind_trio.scheduler.budgets.budgets import NO_CLAIM
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.protocol.events import Grant, Permit
from hivemind_trio.scheduler.queueing.agent import AgentState
from hivemind_trio.scheduler.state import SchedulerState

from .account_choice import session_of
from .rejection import wait_of


def grant(books: SchedulerState, waiter: WaitingCall, reason: Reason, *, beyond: bool = False) -> Grant:
    """Take what the call needs everywhere; there is room, in lane and agent too unless it goes `beyond`.

    It is in no line any more.
    """
    now_ns, flight = books.now_ns, books.flight(waiter)
    call, place, treatment = flight.call, flight.place, flight.treatment
    lane, health = place.lane, place.pool.health
    declared, name = place.agent.key
    place.take(call.id, now_ns, beyond=beyond)
    place.agent.granted_ns = now_ns
    place.share.begin(flight.share_ns)
    if waiter.thread or lane.thread_served:
        lane.on_granted(waiter.thread, now_ns)
    if place.prompts is not None and (prefixes := place.prefixes) is not None:
        prefixes.on_granted(call.prefix, call.id, now_ns)
    books.inflight[call.id] = flight
    if place.pool.plans.known:
        expected = books.plan_weight(place.request, place.pool, place.pool.estimates.likely(place.request))
        flight.plan_weight = place.pool.plans.on_granted(
            books.account(call, place.pool.name), place.request.model, expected
        )
    if place.pool.provider is not None and place.pool.provider.account_of:
        books.homes.served(place.pool.provider.account_of, session_of(call), treatment.sender or "", now_ns)
    if flight.attempt == 1 and not health.retries.full:
        health.retries.deposit(books.retry(treatment, place.pool).ratio, now_ns)
    if health.on_granted(call.id, place.pool.slots.held, now_ns):
        flight.is_probe = True
        place.pool.apply()
    flight.is_probe |= place.quotas.gate.is_probe(call.id)
    return Grant(
        call_id=call.id,
        treatment=treatment,
        permit=Permit(
            call_id=call.id,
            provider=place.pool.name,
            group=treatment.group,
            lane=place.lane.name,
            agent=name,
            declared=declared,
            beyond=beyond,
        ),
        waited_ns=flight.waited_ns,
        reason=reason,
        attempt=flight.attempt,
        timeouts=place.pool.bounds(place.request, flight.given_up, flight.swap_ns),
        claims=() if flight.claim is NO_CLAIM else flight.claim.book(),
    )


@final
@attrs.frozen(kw_only=True)
class Waiting:
    """A call in the queue, as it stands at a moment."""

    treatment: Decision
    reason: Reason
    """The limit that it lacks, as far as that is known without following every waiter."""
    words: str
    """Reason in words: why it waited."""
    waited_ns: int


def waiting(books: SchedulerState, waiter: WaitingCall, now_ns: int) -> Waiting:
    """Return how a queued call stands."""
    waited_ns = waiter.waited_ns + now_ns - waiter.since_ns
    reason = waited_for(books, waiter, None, now_ns)
    return Waiting(
        treatment=waiter.treatment, reason=reason, words=wait_of(waiter, reason, now_ns), waited_ns=waited_ns
    )


def waited_for(books: SchedulerState, waiter: WaitingCall, freed: AgentState | None, now_ns: int) -> Reason:
    """Return the limit that blocked the call last, as far as known without tracking every waiter.

    `PAUSED` if an operator held it back for the longer part of its wait; `AGENT_CONCURRENCY` if it is its agent's slot
    that has just come back; `TURN` if its provider was full when it arrived and has since let a later call go before
    it; a hold, a budget or its write to disk only if it has waited for that longer than in the line afterwards; else
    what it lacked when it arrived, or when the last policy was loaded.
    """
    place = waiter.place
    paused_ns = books.pauses.length_ns(books.pausable(waiter), waiter.since_ns, now_ns)
    if 2 * paused_ns >= now_ns - waiter.since_ns and (paused_ns or waiter.blocked is Reason.PAUSED):
        return Reason.PAUSED
    if place.agent is freed:
        return Reason.AGENT_CONCURRENCY
    if waiter.attempts:
        return Reason.RETRY
    claimed_ns = waiter.claimed_ns
    in_line_longer = claimed_ns is not None and now_ns - claimed_ns > claimed_ns - waiter.since_ns
    if waiter.blocked is Reason.HELD and waiter.released_ns is not None:
        in_line_longer = now_ns - waiter.released_ns > waiter.released_ns - waiter.since_ns
    if waiter.blocked in (Reason.PROVIDER_CONCURRENCY, Reason.AGENT_CONCURRENCY, Reason.PAUSED) or (
        waiter.blocked in (Reason.BUDGET, Reason.STORE_WRITE, Reason.HELD) and in_line_longer
    ):
        # An agent that has had room since it arrived: then it was the provider's room that was missing.
        return Reason.TURN if place.pool.granted_seq > waiter.seq else Reason.PROVIDER_CONCURRENCY
    return waiter.blocked
