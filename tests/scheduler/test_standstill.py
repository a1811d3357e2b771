"""No standstill: a call that waits in line is granted within seconds, whatever refusals and forecasts say."""

from __future__ import annotations

import attrs
import pytest

from hivemind_trio.model import Decision, Dimension, Outcome, Reason, Request
from hivemind_trio.policy import DEFAULT_RETRY, AimdSettings, Program, RateLimitSettings, RetrySettings, Window
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallId,
    Command,
    Finish,
    Grant,
    PolicyLoaded,
    Scheduler,
    Standstill,
    TimePassed,
)
from hivemind_trio.scheduler.limits.cost import NOTHING
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.limits.token_estimator import cost_of
from tests.support.programs import SECOND_NS, program, provider, wish

AT_ONCE = RetrySettings(name=DEFAULT_RETRY, first_ns=0, last_ns=0)


def call(number: int) -> Call:
    return Call(id=CallId(number), request=wish(provider="p"), caller="x")


def granted(commands: list[Command]) -> list[tuple[int, str]]:
    return [
        (int(each.call_id), each.permit.provider)
        for each in commands
        if isinstance(each, Grant) and each.permit is not None
    ]


def test_a_retry_that_is_due_at_once_elsewhere_begins_at_once() -> None:
    base = program(providers=[provider("p"), provider("q")], retries=[AT_ONCE])

    def decide(request: Request) -> Decision:
        there = "p" if request.attempt == 1 else "q"
        return base.decide(attrs.evolve(request, headers={**request.headers, "x-provider": there}))

    scheduler = Scheduler(attrs.evolve(base, decide=decide))
    scheduler.handle(CallArrived(call(1)), 0)

    commands = scheduler.handle(AttemptEnded(CallId(1), AttemptResult(outcome=Outcome.FAILED, status=500)), 0)

    assert granted(commands) == [(1, "q")]


def test_a_reload_that_raises_the_lower_bound_raises_a_cap_below_it() -> None:
    def with_low(low: int) -> Program:
        return program(providers=[provider("p", limit=8, aimd=AimdSettings(low=low, start=4))])

    scheduler = Scheduler(with_low(1))
    for number in range(4):
        scheduler.handle(CallArrived(call(number)), 0)
    for number in range(2):
        scheduler.handle(
            AttemptEnded(CallId(number), AttemptResult(outcome=Outcome.CONCURRENCY, status=429, committed=True)), 1
        )
    assert scheduler.snapshot().pools["p"].limit == 2

    scheduler.handle(PolicyLoaded(with_low(3)), 2)

    assert scheduler.snapshot().pools["p"].limit == 3


def test_a_probe_keeps_to_a_declared_quota_and_to_its_headroom() -> None:
    quotas, minute_ns = RateLimits(), 60 * SECOND_NS
    declared = RateLimitSettings(
        dimension=Dimension.REQUESTS, amount=2, window_ns=minute_ns, headroom=0.5, window=Window.SLIDING
    )
    quotas.load((declared,), 0)
    quotas.take(CallId(1), cost_of(0, 0), SECOND_NS)
    quotas.refuse(CallId(1), (), None, 2 * SECOND_NS)
    quotas.end(CallId(1), 2 * SECOND_NS)

    assert quotas.opens_ns(cost_of(0, 0), 3 * SECOND_NS) >= SECOND_NS + minute_ns


def refused(after_ns: int | None) -> AttemptResult:
    return AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=after_ns)


@pytest.mark.parametrize(
    ("after_s", "probe_s"),
    [(None, 5), (5, 5), (20, 20), (30, 5), (300, 5), (3_600, 300)],
    ids=["no word", "short", "20 s", "longer", "long", "an hour"],
)
def test_a_probe_goes_within_twenty_seconds_unless_the_reset_is_far_away(after_s: int | None, probe_s: int) -> None:
    patient = attrs.evolve(AT_ONCE, honor_max_ns=10_000 * SECOND_NS)
    scheduler = Scheduler(program(providers=[provider("p")], retries=[patient]))
    scheduler.handle(CallArrived(call(1)), 0)
    scheduler.handle(AttemptEnded(CallId(1), refused(None if after_s is None else after_s * SECOND_NS)), 0)

    stands = scheduler.snapshot().pools["p"].stands
    reason = Reason.PROVIDER_QUOTA if after_s else Reason.GROWTH
    wakeup_ns = scheduler.wakeup_ns()
    assert wakeup_ns is not None
    assert stands == Standstill(since_ns=0, reason=reason, until_ns=wakeup_ns)
    assert wakeup_ns <= probe_s * SECOND_NS
    assert after_s is None or wakeup_ns == probe_s * SECOND_NS
    assert granted(scheduler.handle(TimePassed(), wakeup_ns)) == [(1, "p")]

    after = scheduler.snapshot().pools["p"]
    assert (after.stands, after.stood_ns) == (None, wakeup_ns)


def test_refusals_for_going_too_often_use_up_no_attempts() -> None:
    scheduler = Scheduler(program(providers=[provider("p")], retries=[attrs.evolve(AT_ONCE, attempts=2)]))
    scheduler.handle(CallArrived(call(1)), 0)
    now_ns = 0

    def ends(ended: AttemptResult) -> bool:
        """True if the call is over; else its next attempt begins."""
        nonlocal now_ns
        settled = Finish(CallId(1)) in scheduler.handle(AttemptEnded(CallId(1), ended), now_ns)
        while not settled and not scheduler.snapshot().inflight:
            now_ns = scheduler.wakeup_ns() or 0
            scheduler.handle(TimePassed(), now_ns)
        return settled

    failed = AttemptResult(outcome=Outcome.FAILED, status=500)
    assert [ends(refused(None)) for _ in range(20)] == [False] * 20
    assert [ends(failed), ends(failed)] == [False, True]


@pytest.mark.parametrize(
    ("outcome", "after_s", "at_most"),
    [(Outcome.OVERLOADED, None, 60), (Outcome.CONCURRENCY, None, 60), (Outcome.OVERLOADED, 10, 14)],
)
def test_a_call_at_a_cap_is_not_sent_again_and_again_because_its_gate_is_shut(
    outcome: Outcome, after_s: int | None, at_most: int
) -> None:
    """The gate lets it go as a probe, and the cap sends it back at once."""
    after_ns = None if after_s is None else after_s * SECOND_NS
    retry = RetrySettings(name=DEFAULT_RETRY, attempts=1_000)
    scheduler = Scheduler(program(providers=[provider("p")], retries=[retry]))
    for number in range(2):
        scheduler.handle(CallArrived(call(number)), 0)
    for number in range(2):  # a rate is learned, and it is low
        scheduler.handle(AttemptEnded(CallId(number), refused(SECOND_NS)), 0)

    granted_at_ns, now_ns = [], 0
    while now_ns < 60 * SECOND_NS:
        now_ns = scheduler.wakeup_ns() or 0
        commands = scheduler.handle(TimePassed(), now_ns)
        while there := granted(commands):
            granted_at_ns.append(now_ns)
            ended = AttemptResult(outcome=outcome, status=529, retry_after_ns=after_ns)
            commands = [each for one, _ in there for each in scheduler.handle(AttemptEnded(CallId(one), ended), now_ns)]

    assert 2 <= len(granted_at_ns) <= at_most  # two calls, with back-offs of 5 s at most, or as it was told


def test_a_learned_rate_is_raised_until_nothing_is_paced() -> None:
    quotas, now_ns = RateLimits(), 0
    for number in range(4):
        quotas.take(CallId(number), NOTHING, now_ns)
    quotas.refuse(CallId(3), (), None, now_ns)
    for number in range(3):
        quotas.accept(CallId(number), now_ns)
    for number in range(4):
        quotas.end(CallId(number), now_ns)

    number = 3
    while quotas.snapshot(now_ns).rate_per_s is not None:
        number += 1
        assert now_ns < 300 * SECOND_NS
        now_ns = quotas.opens_ns(NOTHING, now_ns)
        quotas.take(CallId(number), NOTHING, now_ns)
        quotas.accept(CallId(number), now_ns)
        quotas.end(CallId(number), now_ns)

    assert number > 20
