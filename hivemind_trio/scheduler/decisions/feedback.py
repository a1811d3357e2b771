"""Feedback of an attempt: evidence about its provider, and the calls that move because of it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from hivemind_trio.model import Outcome, PlanReading
from hivemind_trio.scheduler.calls.running_call import RunningCall
from hivemind_trio.scheduler.health.aimd import REFUSING
from hivemind_trio.scheduler.protocol.attempt_result import HEALTHY, TOO_OFTEN, AttemptResult
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.protocol.events import Command, LimitChanged
from hivemind_trio.scheduler.protocol.plan import PlanChanged
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState

from .requeue import move_to_fallback, reject_all, reject_unfunded
from .routing import calls_to_move, is_given_up


def learn(
    books: SchedulerState, flight: RunningCall, ended: AttemptResult, commands: list[Command]
) -> dict[str, ProviderQueue]:
    """Take note of it. Return the providers that calls have moved to."""
    pool, health = flight.place.pool, flight.place.pool.health
    circuit, limit = health.breaker.circuit, health.limit
    if ended.outcome in TOO_OFTEN:
        flight.place.quotas.refuse(
            flight.call.id, ended.used_up, ended.retry_after_ns, books.now_ns, by_reset=ended.by_reset
        )
    elif ended.outcome in HEALTHY:
        flight.place.quotas.accept(flight.call.id, books.now_ns)
    request = flight.place.request
    if flight.swap_ns:
        ended = _warm(ended)
    health.progress.on_ended(request, ended, begun=flight.begun)
    if health.degraded is not None:
        ended = health.judged(ended, request)
    flight.excused = health.excuses(flight.call.id)
    flight.beyond = ended.outcome is Outcome.OVERLOADED and health.serves_others(flight.call.id)
    news = health.on_ended(
        flight.call.id,
        ended,
        granted_ns=flight.granted_ns,
        now_ns=books.now_ns,
        inflight=pool.slots.held,
        limit_is_binding=pool.limit_is_binding,
    )
    if health.shared is not None and ended.outcome in REFUSING:
        health.shared.link.keep(pool.slots.held - 1, books.now_ns)
        news = True
    if news:
        pool.apply()
    moved: dict[str, ProviderQueue] = {}
    if health.limit != limit or health.breaker.circuit is not circuit:
        commands.append(adapted(pool, ended.outcome))
        moved |= give_up(books, pool, commands)
    if ended.outcome is Outcome.SUCCEEDED and pool.short_of_retries:
        moved |= books.lend_retry(flight)
    if (health.spent.known or ended.outcome is Outcome.TERMINAL) and health.spent.on_ended(
        billing_key := books.billing_key(flight.call, flight.treatment),
        ended.outcome,
        granted_ns=flight.granted_ns,
        now_ns=books.now_ns,
        retry_after_ns=ended.retry_after_ns,
    ):
        return moved | reject_unfunded(books, pool, billing_key, commands)
    if health.breaker.circuit is not circuit:
        moved |= move_to_fallback(books, calls_to_move(books, pool), commands)
    return moved


def read_plan(books: SchedulerState, flight: RunningCall, reading: PlanReading, commands: list[Command]) -> bool:
    """Take note of the plan that an answer's head tells of, for the account that its call was sent with.

    Return True if anything was news.
    """
    pool = flight.place.pool
    account = books.account(flight.call, pool.name)
    changed = pool.plans.on_read(account, reading, books.now_ns)
    if changed is not None:
        windows, crossed = changed
        commands.append(
            PlanChanged(
                call_id=flight.call.id,
                provider=pool.name,
                account=account,
                windows=windows,
                overage=reading.overage,
                crossed=crossed,
            )
        )
    return changed is not None


def accepted(books: SchedulerState, flight: RunningCall, commands: list[Command]) -> dict[str, ProviderQueue] | None:
    """Take note that an answer has begun well. Return the providers that calls have moved to; None: nothing changed."""
    pool, health = flight.place.pool, flight.place.pool.health
    circuit, limit = health.breaker.circuit, health.limit
    if not flight.begun and not flight.swap_ns:
        # Now, and not at the end: the next attempts are bounded by it, and some of them may hang.
        flight.begun = True
        health.progress.on_begun(flight.place.request, books.now_ns - flight.granted_ns)
    woken = books.disprove(flight) if pool.asked_to_wait else {}
    binds = pool.limit_is_binding
    if not health.on_good(flight.call.id, books.now_ns, inflight=pool.slots.held, limit_is_binding=binds):
        return woken or None
    pool.apply()
    if health.limit != limit or health.breaker.circuit is not circuit:
        commands.append(adapted(pool, Outcome.SUCCEEDED))
    if health.breaker.circuit is circuit:
        return woken
    return woken | move_to_fallback(books, calls_to_move(books, pool), commands)


def receive(books: SchedulerState, received: Mapping[CallId, int], commands: list[Command]) -> list[ProviderQueue]:
    """Take note of what streams have received. Return the providers whose limit has changed."""
    told: dict[str, dict[CallId, int]] = {}
    for call_id, amount in received.items():
        if (flight := books.inflight.get(call_id)) is not None:
            told.setdefault(flight.place.pool.name, {})[call_id] = amount
    changed = []
    for name, amounts in told.items():
        pool = books.pools[name]
        limit = pool.health.limit
        if not pool.health.on_received(amounts, books.now_ns, inflight=pool.slots.held):
            continue
        pool.apply()
        if pool.health.limit != limit:
            commands.append(adapted(pool, Outcome.SUCCEEDED))
            changed.append(pool)
    return changed


def give_up(books: SchedulerState, pool: ProviderQueue, commands: list[Command]) -> dict[str, ProviderQueue]:
    """Move or reject the calls of a provider that is given up. Return the providers that calls have moved to."""
    if not is_given_up(books, pool):
        return {}
    moved = move_to_fallback(books, calls_to_move(books, pool), commands)
    reject_all(books, pool, commands)
    return moved


def adapted(pool: ProviderQueue, because: Outcome | None) -> LimitChanged:
    """Return the command that tells of the provider's new limit."""
    circuit = pool.health.breaker.circuit
    return LimitChanged(provider=pool.name, limit=pool.trusted, circuit=circuit, because=because)


def _warm(ended: AttemptResult) -> AttemptResult:
    """Return the result without its first-byte time if the model was loaded first, which is not usual."""
    outcome = Outcome.SUCCEEDED if ended.outcome is Outcome.SLOW else ended.outcome
    return attrs.evolve(ended, outcome=outcome, first_byte_ns=None)
