"""Completion of an attempt: its cost, and whether the call is retried."""

from __future__ import annotations

from typing import Final

import attrs

from hivemind_trio.model import Outcome, Reason, Usage
from hivemind_trio.policy import Failure, RetrySettings
from hivemind_trio.scheduler.budgets.budgets import Amounts, amounts_of
from hivemind_trio.scheduler.calls.running_call import RunningCall
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.decisions import rejection
from hivemind_trio.scheduler.health.retry import pause_ns, turned_away, unwanted, wants_retry
from hivemind_trio.scheduler.limits.cost import NOTHING, Cost
from hivemind_trio.scheduler.limits.token_estimator import actual_cost, cost_of
from hivemind_trio.scheduler.protocol.attempt_result import BROKEN, HEALTHY, TOO_OFTEN, AttemptResult
from hivemind_trio.scheduler.protocol.circuit import Circuit
from hivemind_trio.scheduler.protocol.events import Finish, Reject, Unretried
from hivemind_trio.scheduler.state import SchedulerState

from .policy_decision import decide
from .routing import is_given_up, route

SECOND_NS: Final = 1_000_000_000
WORD_MAX_NS: Final = 20 * SECOND_NS
"""A provider's word on when a broken call may come back is obeyed up to this."""
SHORT_NS: Final = SECOND_NS
"""The same after a limit on concurrent requests: the limit itself holds the others back."""

GIVEN_UP: Final = frozenset({Failure.FIRST_BYTE, Failure.IDLE})
"""Ends of an attempt that made no progress for too long."""


def settle(books: SchedulerState, flight: RunningCall, ended: AttemptResult) -> None:
    """Charge its agent and the quotas what the attempt has really taken, as far as that is known."""
    place, pool, usage = flight.place, flight.place.pool, ended.usage
    quotas = place.quotas
    quotas.end(flight.call.id, books.now_ns)
    lasted_ns = books.now_ns - flight.granted_ns
    had = actual = NOTHING
    if quotas.has_limits:
        actual = _taken(flight, ended)
        # An agent is charged what it has had. What failed is charged to the quotas, for the provider may have counted
        # it; its agent has had a slot, and nothing else: were it more, whom a bad gateway has hit would wait a round
        # longer.
        had = actual if ended.committed or usage is not None else NOTHING
    elif usage is not None:
        pool.estimates.learn(place.request, pool.api, usage)
    place.share.settle(flight.share_ns, pool.share_ns(quotas, had, lasted_ns))
    if not ended.unsent:
        pool.on_lasted(lasted_ns)
    if usage is not None:
        tokens = (usage.input or 0) + usage.cache_write + usage.output
        books.jobs.on_ended(place.agent.key, flight.call.job, tokens, books.now_ns)
    if flight.call.job:
        _count_in_session(books, flight, ended)
    if pool.plans.known:
        weight = books.plan_weight(place.request, pool, usage) if usage is not None else 0.0
        account = books.account(flight.call, pool.name)
        pool.plans.on_ended(account, place.request.model, place.lane.name, flight.plan_weight, weight, books.now_ns)
        if ended.outcome is Outcome.TERMINAL and usage is None and not ended.committed:
            books.lacks_plan(flight.call, place)
    if quotas.has_limits and place.cost is not NOTHING:
        quotas.settle(place.cost, actual, flight.granted_ns, books.now_ns)
        if _has_failed(flight, ended):
            quotas.fail(place.cost, flight.granted_ns)


def spare(books: SchedulerState, flight: RunningCall, ended: AttemptResult, again: WaitingCall | None) -> None:
    """Give back what a failed attempt has taken of quotas that do not count it.

    While its call rests that is kept for it: else others take it, and the call waits for a whole window once more.
    """
    if not _has_failed(flight, ended):
        return
    if again is not None and not again.in_line:
        again.spared = flight.place, flight.granted_ns
    else:
        flight.place.quotas.spare(flight.place.cost, flight.granted_ns, books.now_ns)


def _has_failed(flight: RunningCall, ended: AttemptResult) -> bool:
    """Return True if the provider broke down over the attempt, and may have counted it."""
    charged = flight.place.cost is not NOTHING and not ended.unsent and not turned_away(ended)
    return charged and ended.usage is None and ended.outcome in BROKEN and ended.outcome is not Outcome.UNREACHABLE


def _count_in_session(books: SchedulerState, flight: RunningCall, ended: AttemptResult) -> None:
    """Take note of tokens and cost in the session of a call; what was served without usage counts as estimated."""
    request, usage, served = flight.place.request, ended.usage, ended.outcome in HEALTHY
    if usage is None and not served:
        return
    if usage is None or usage.input is None:
        likely = flight.place.pool.estimates.likely(request)
        usage = likely if usage is None else attrs.evolve(usage, input=likely.input)
    price = books.program.price(request.model, flight.place.pool.name)
    cost = price.cost_of(usage) if price is not None else 0
    books.sessions.on_ended(flight.call, flight.treatment, request.model, usage, cost, books.now_ns, served=served)


def settle_agent(flight: RunningCall, ended: AttemptResult) -> None:
    """Count in the limits of its agent what a call that is over has taken; what is unknown stays as estimated."""
    windows = flight.place.agent.windows
    if flight.started is None or windows is None:
        return
    (started_ns, estimated), usage = flight.started, ended.usage
    if usage is not None:
        actual = actual_cost(flight.place.pool.api, estimated, usage)
    else:
        actual = estimated if ended.outcome in HEALTHY else cost_of(0, 0)
    windows.settle(estimated, actual, started_ns)
    flight.place.agent.change()


def _taken(flight: RunningCall, ended: AttemptResult) -> Cost:
    """Return the cost that the provider counts; the estimate where it is unknown."""
    place, pool = flight.place, flight.place.pool
    if ended.usage is not None:
        return pool.estimates.settled(place.request, pool.api, place.cost, ended.usage)
    if ended.outcome is Outcome.UNREACHABLE or ended.unsent:
        return NOTHING
    # Most providers count the request that they refuse, and none its tokens.
    return cost_of(0, 0) if turned_away(ended) else place.cost


def spent(books: SchedulerState, flight: RunningCall, ended: AttemptResult) -> Amounts | None:
    """Return the cost of the call; None: none that is known."""
    estimates, request = flight.place.pool.estimates, flight.place.request
    likely = estimates.likely(request)
    usage = ended.usage
    if usage is None:
        if ended.outcome in HEALTHY:
            usage = likely  # it was answered, and did not say
        elif turned_away(ended) or not ended.status:
            return None
        else:
            usage = Usage(input=0)  # it was asked, and answered with an error
    elif usage.input is None:
        usage = attrs.evolve(usage, input=likely.input)
    return amounts_of(usage, books.program.price(request.model, flight.place.pool.name))


def again(books: SchedulerState, flight: RunningCall, ended: AttemptResult) -> WaitingCall | None:
    """Return the call on its way to another attempt, by the policy of now; None: there is to be none."""
    retry = books.retry(flight.treatment, flight.place.pool)
    uncounted = flight.uncounted + (not _counts(flight, ended))
    # Without money nothing is of use here, whatever the class says; elsewhere it may be.
    listed = wants_retry(retry, ended, flight.attempt - uncounted)
    poor = ended.outcome is Outcome.TERMINAL and not ended.committed and flight.attempt - uncounted < retry.attempts
    if books.draining or not (listed or poor or ended.unsent):
        if ended.outcome not in HEALTHY and not books.draining:
            flight.unretried = unwanted(retry, ended, flight.attempt - uncounted)
        return None
    call = attrs.evolve(flight.call, request=attrs.evolve(flight.call.request, attempt=flight.attempt + 1))
    # A call that was refused for going too often waits for its turn; what is down may be up elsewhere.
    failed = flight.place.pool if ended.outcome in BROKEN else None
    treatment = route(books, call, decide(books, call), failed)
    if rejection.reject_on_arrival(call, treatment, books.program, draining=False, waited_ns=0) is not None:
        return None
    place = books.place(call, treatment)
    waiter = books.waiter(call, treatment, place, flight.arrived_ns, flight.seq, Reason.RETRY)
    waiter.since_ns, waiter.waited_ns = books.now_ns, flight.waited_ns
    waiter.attempts, waiter.uncounted = flight.attempt, uncounted
    waiter.given_up = flight.given_up + (ended.failure in GIVEN_UP)
    waiter.claim, waiter.started = flight.claim, flight.started
    if ended.retry_after_ns and not _has_other_key(ended, flight, waiter):
        waiter.asked = flight.place.pool, books.now_ns + min(ended.retry_after_ns, WORD_MAX_NS)
    due_ns = None
    if place.pool.health.spent.shut(books.billing_key(call, treatment), books.now_ns):
        books.forget(place.agent)
        return None
    # One of which more is estimated than a window has went when it was empty: the provider has decided.
    had_all = ended.outcome in TOO_OFTEN and place.pool is flight.place.pool and place.quotas.exceeded_by(place.cost)
    if not is_given_up(books, place.pool) and place.too_large() is None and not had_all:
        due_ns = _due_ns(books, retry, ended, flight, waiter)
    if due_ns is None:
        books.forget(place.agent)
        return None
    waiter.due_ns = due_ns
    waiter.rests_until_ns = due_ns if due_ns > books.now_ns else None
    if ended.outcome in TOO_OFTEN and place.pool is flight.place.pool:
        place.quotas.claim(waiter, books.now_ns)
    if ended.retry_after_ns and failed is place.pool and due_ns > books.now_ns:
        unasked = attrs.evolve(ended, retry_after_ns=None)
        waiter.unasked_due_ns = min(due_ns, _paused_until_ns(books, retry, unasked, flight, waiter))
    return waiter


def over(books: SchedulerState, flight: RunningCall, ended: AttemptResult) -> Finish | Reject:
    """Return the end of a call that has no further attempt: the last one's, or a rejection if that was never sent."""
    if ended.unsent:
        call = attrs.evolve(flight.call, request=attrs.evolve(flight.call.request, attempt=flight.attempt))
        treatment = route(books, call, decide(books, call))
        reject = rejection.reject_on_arrival(
            call, treatment, books.program, draining=books.draining, waited_ns=flight.waited_ns
        )
        if reject is not None:
            return reject
    return Finish(flight.call.id, flight.unretried)


def _has_other_key(ended: AttemptResult, flight: RunningCall, again: WaitingCall) -> bool:
    """Return True if the money of one key is used up, and the next attempt has another key of the same pool."""
    return ended.outcome is Outcome.TERMINAL and again.treatment.account != flight.treatment.account


def _counts(flight: RunningCall, ended: AttemptResult) -> bool:
    """Return True if the attempt counts against the retry class: the provider did something for it, or should have.

    A probe does not, for the scheduler sent it to find out. Nor does a refusal for going too often or for too
    many at once: it is followed by a wait, and the wait has its own bounds.
    """
    if (
        ended.unsent
        or flight.beyond
        or (flight.is_probe and (turned_away(ended) or (flight.excused and ended.outcome in BROKEN)))
    ):
        return False
    return ended.outcome not in TOO_OFTEN and ended.outcome is not Outcome.CONCURRENCY


def _due_ns(
    books: SchedulerState, retry: RetrySettings, ended: AttemptResult, flight: RunningCall, again: WaitingCall
) -> int | None:
    """Return when its next attempt may begin; None: there is no retry left for it, or it would come too late."""
    due_ns = books.now_ns if ended.unsent else _paused_until_ns(books, retry, ended, flight, again)
    if again.deadline_ns is not None and due_ns >= again.deadline_ns:
        flight.unretried = Unretried.DEADLINE
        return None
    # What was turned away at the door cost the provider nothing, and is held back by what says when: its word, the
    # circuit, AIMD. A fleet that was turned away together must not use up the retries of those that were broken.
    health = flight.place.pool.health
    if ended.unsent or turned_away(ended) or health.breaker.circuit is not Circuit.CLOSED:
        return due_ns
    # A mistake in the policy is told at once; what its provider has failed waits.
    waits = ended.outcome in BROKEN
    there_ns = health.retries.take(books.now_ns, deadline_ns=again.deadline_ns, waits=waits, headed=ended.headed)
    if there_ns is None:
        flight.unretried = Unretried.BUDGET
        return None
    if there_ns > due_ns:
        again.unbudgeted_due_ns = due_ns
    return max(due_ns, there_ns)


def _paused_until_ns(
    books: SchedulerState, retry: RetrySettings, ended: AttemptResult, flight: RunningCall, again: WaitingCall
) -> int:
    """Return the end of the pause before its next attempt."""
    due_ns = books.now_ns
    if _has_other_key(ended, flight, again):
        return due_ns
    if again.place.pool is flight.place.pool and flight.excused is None and ended.outcome not in TOO_OFTEN:
        # Otherwise the circuit, or its gate, says when: the call keeps its place at the head of the line.
        at_a_cap = flight.beyond or ended.outcome is Outcome.CONCURRENCY
        attempts = flight.attempt if at_a_cap else max(1, flight.attempt - again.uncounted)
        pause = pause_ns(retry, ended, attempts, books.random)
        if ended.retry_after_ns is not None:
            pause = min(pause, WORD_MAX_NS)
        said = ended.retry_after_ns is not None
        due_ns += min(pause, SHORT_NS) if said and ended.outcome is Outcome.CONCURRENCY else pause
    health = flight.place.pool.health
    if flight.excused is not None and again.place.pool is flight.place.pool and health.breaker.opens_ns is not None:
        due_ns = max(due_ns, health.breaker.opens_ns + 1)  # another call that waits is the next probe
    return due_ns
