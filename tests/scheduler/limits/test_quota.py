"""Windows held against a list of everything that was ever taken."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, Reason, Request, Usage
from hivemind_trio.policy import Dimension, Program, RateLimitSettings, RetrySettings, Window
from hivemind_trio.scheduler import AttemptResult, Finish, Reject
from hivemind_trio.scheduler.limits.rate_limiter import RateLimiter
from hivemind_trio.scheduler.limits.rate_limits import CLAIM_AFTER_NS, CLAIM_WAITED_NS
from hivemind_trio.scheduler.structures.sliding_window import SLICES
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.programs import lane, provider, wish
from tests.support.programs import program as _program

S = 1_000_000_000
MINUTE = 60 * S


def quota(
    amount: int = 100,
    window_ns: int = MINUTE,
    *,
    dimension: Dimension = Dimension.INPUT,
    headroom: float | None = 0.0,
    window: Window = Window.LEARN,
) -> RateLimitSettings:
    return RateLimitSettings(dimension=dimension, amount=amount, window_ns=window_ns, headroom=headroom, window=window)


quotas = st.builds(
    quota,
    amount=st.integers(1, 200),
    window_ns=st.sampled_from([64, 640, 1_000, MINUTE]),
    headroom=st.sampled_from([0.0, 0.02, 0.5]),
    window=st.sampled_from(Window),
)


def in_any_window(taken: list[tuple[int, int]], window_ns: int) -> int:
    """The most within any half-open window."""
    return max((sum(amount for at, amount in taken if 0 <= at - begin < window_ns) for begin, _ in taken), default=0)


@given(quotas, st.lists(st.tuples(st.integers(0, 200), st.floats(0, 1), st.booleans()), max_size=60))
def test_no_window_of_any_phase_holds_more_than_the_capacity(
    limit: RateLimitSettings, steps: list[tuple[int, float, bool]]
) -> None:
    bucket = RateLimiter(limit)
    taken: list[tuple[int, int]] = []
    now_ns = 0
    for pause, share, waits in steps:
        now_ns += pause * limit.window_ns // 100
        amount = int(share * bucket.capacity)
        fits_ns = bucket.fits_ns(amount, now_ns)
        assert fits_ns >= now_ns
        if waits:
            now_ns = fits_ns
            assert bucket.fits_ns(amount, now_ns) == now_ns, "the time that it names is the time that it means"
        elif fits_ns > now_ns:
            continue
        bucket.take(amount, now_ns)
        taken.append((now_ns, amount))

    most = in_any_window(taken, limit.window_ns)
    # A bucket may be full when the window begins and earn as much again until it ends.
    assert most <= bucket.capacity * (2 if limit.window is Window.BUCKET else 1)


@given(quotas, st.integers(1, 50))
def test_what_waits_for_its_time_is_earned_at_the_limit_s_rate(limit: RateLimitSettings, calls: int) -> None:
    bucket = RateLimiter(limit)
    now_ns = 0
    for _ in range(calls):
        now_ns = bucket.fits_ns(1, now_ns)
        bucket.take(1, now_ns)

    # The margin of a slice for each window, and what integers round away.
    earned_ns = calls * limit.window_ns // bucket.capacity
    slack_ns = (earned_ns // limit.window_ns + 2) * (limit.window_ns // SLICES + 1) + calls
    assert now_ns <= earned_ns + slack_ns


def test_all_of_an_unrefused_window_may_go_at_once() -> None:
    bucket = RateLimiter(quota(120))

    for _ in range(120):
        assert bucket.fits_ns(1, 0) == 0
        bucket.take(1, 0)

    assert bucket.fits_ns(1, 0) >= MINUTE


def test_a_declared_bucket_may_be_spent_at_once() -> None:
    bucket = RateLimiter(quota(100, window=Window.BUCKET))

    for _ in range(100):
        assert bucket.fits_ns(1, 0) == 0
        bucket.take(1, 0)

    assert bucket.fits_ns(1, 0) == MINUTE // 100


def test_what_was_estimated_is_settled() -> None:
    bucket = RateLimiter(quota(100))
    bucket.take(90, 0)
    assert bucket.fits_ns(50, MINUTE // 2) > MINUTE // 2

    bucket.settle(90, 10, 0, MINUTE // 2)

    assert bucket.fits_ns(50, MINUTE // 2) == MINUTE // 2
    bucket.settle(10, 80, 0, MINUTE // 2)
    assert bucket.fits_ns(50, MINUTE // 2) > MINUTE // 2


def test_a_call_longer_than_the_window_gives_nothing_back_of_what_others_have_taken_since() -> None:
    bucket = RateLimiter(quota(100, window=Window.SLIDING))
    bucket.take(90, 0)
    bucket.take(90, 2 * MINUTE)

    bucket.settle(90, 10, 0, 2 * MINUTE + S)

    assert bucket.fits_ns(20, 2 * MINUTE + S) > 2 * MINUTE + S


def test_a_window_declared_meanwhile_gives_nothing_back_of_what_it_never_took() -> None:
    bucket = RateLimiter(quota(100, window=Window.SLIDING))
    bucket.take(90, 5 * S)

    bucket.settle(90, 10, S, 6 * S)

    assert bucket.fits_ns(20, 6 * S) > 6 * S


def test_a_bucket_that_was_full_meanwhile_is_no_fuller_for_what_was_not_taken_before() -> None:
    bucket = RateLimiter(quota(100, window=Window.BUCKET))
    bucket.take(50, 0)
    bucket.take(100, 40 * S)  # all of it: the first fifty have been earned

    bucket.settle(50, 0, 0, 41 * S)

    assert bucket.fits_ns(50, 41 * S) == 70 * S


# ---- in the scheduler ----


def limited(*, window: Window = Window.LEARN, **amounts: int) -> Program:
    """One provider with limits per minute on the models `opus*`, and none for the others."""
    limits = [quota(amount, dimension=Dimension(name), window=window) for name, amount in amounts.items()]
    base = provider("p", groups={"opus*": None, None: None})
    groups = tuple(attrs.evolve(each, quotas=tuple(limits) if each.glob else ()) for each in base.groups)
    return _program(providers=[attrs.evolve(base, groups=groups)])


def opus(tokens_in: int = 0, tokens_out: int = 1, **wishes: Any) -> Request:
    return attrs.evolve(wish(model="opus-1", **wishes), tokens_in=tokens_in, tokens_max_out=tokens_out)


def test_requests_go_at_the_rate_and_are_woken_for_it() -> None:
    driver = Driver(limited(requests=12, window=Window.BUCKET))
    for _ in range(11):
        driver.end(driver.ask(opus()))
    driver.granted.clear()

    first, second = driver.ask(opus()), driver.ask(opus())

    assert driver.granted == [first]
    assert driver.rest.waiting == 1
    wakeup_ns = driver.scheduler.wakeup_ns()
    assert wakeup_ns == MINUTE // 12
    driver.at(wakeup_ns - 1)
    assert driver.granted == [first]
    driver.at(wakeup_ns)
    assert driver.granted == [first, second]
    assert driver.grant(second).reason is Reason.LIMITS
    assert driver.scheduler.wakeup_ns() is None


def test_what_does_not_fit_is_passed_by_what_does_for_a_while() -> None:
    driver = Driver(limited(window=Window.BUCKET, input=600))
    driver.ask(opus(tokens_in=550))
    large = driver.ask(opus(tokens_in=400), "large")
    # A second's worth is 10.
    small = [driver.ask(opus(tokens_in=20), f"small {number}") for number in range(20)]

    assert driver.granted == [0, *small[:2]]
    for second in range(1, 20):
        driver.at(second * S)
    assert large not in driver.granted
    passed = len(driver.granted)
    assert passed > 10, "they go by, a call every other second"

    for second in range(20, 70):
        driver.at(second * S)
    assert driver.granted[passed:][:1] == [large], "and then they stop until it has gone"


def test_of_those_that_pass_the_smallest_goes_first_if_its_agent_can() -> None:
    driver = Driver(limited(window=Window.BUCKET, input=600))
    driver.ask(opus(tokens_in=570))
    driver.ask(opus(tokens_in=400), "large")
    middle, small = driver.ask(opus(tokens_in=25), "middle"), driver.ask(opus(tokens_in=5), "small")

    assert driver.granted == [0, middle, small]


def test_other_models_are_not_held_up() -> None:
    driver = Driver(limited(requests=1))
    driver.ask(opus())
    driver.ask(opus())

    other = driver.call(model="haiku-1")

    assert driver.granted == [0, other]


def test_a_call_that_no_window_holds_is_refused_at_once() -> None:
    driver = Driver(limited(input=100))

    call = driver.ask(opus(tokens_in=151))

    refusal = driver.refusal(call)
    assert isinstance(refusal, Reject)
    assert refusal.reason is Reason.OVER_LIMITS
    assert "about 151, more than the rate limit of 100 input tokens per minute of provider `p`" in refusal.message
    assert driver.rest.agents == 0


def test_a_call_that_may_be_larger_than_a_window_goes_when_it_is_empty() -> None:
    driver = Driver(limited(input=100))
    first = driver.ask(opus(tokens_in=10))
    doubtful = driver.ask(opus(tokens_in=150))
    assert driver.granted == [first]

    driver.end(first, SUCCEEDED)
    driver.at(driver.now_ns + 61_000_000_000)

    assert driver.granted == [first, doubtful]


@pytest.mark.parametrize("policy", [limited(input=100), limited(tokens=100)], ids=["input", "tokens"])
def test_one_that_is_refused_then_is_sent_no_more(policy: Program) -> None:
    driver = Driver(attrs.evolve(policy, retries={"default": RetrySettings()}))
    doubtful = driver.ask(opus(tokens_in=110, tokens_out=10))

    driver.end(doubtful, AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=1_000_000_000))

    assert isinstance(driver.answers[doubtful], Finish), "else it would be refused time and again, and nobody else go"


def test_a_call_that_is_counted_is_refused_by_its_count() -> None:
    driver = Driver(limited(input=100))

    call = driver.ask(attrs.evolve(opus(tokens_in=90), tokens_counted=101))

    assert driver.refusal(call).reason is Reason.OVER_LIMITS


def test_all_or_nothing_over_the_dimensions() -> None:
    driver = Driver(limited(requests=1_200, input=100))
    driver.ask(opus(tokens_in=100))
    blocked = driver.ask(opus(tokens_in=100))

    # What is blocked by its tokens has taken no request: those of another size still have them all.
    assert driver.rest.waiting == 1
    driver.cancel(blocked)
    assert driver.scheduler.wakeup_ns() is None


def test_usage_settles_the_estimate_and_teaches_the_next() -> None:
    driver = Driver(limited(input=100))
    first = driver.ask(opus(tokens_in=100))
    second = driver.ask(opus(tokens_in=80))
    assert driver.granted == [first]

    driver.end(first, attrs.evolve(SUCCEEDED, usage=Usage(input=10, output=1)))

    assert driver.granted == [first, second]


def test_what_never_reached_the_provider_is_given_back() -> None:
    driver = Driver(limited(input=100))
    first, second = driver.ask(opus(tokens_in=100)), driver.ask(opus(tokens_in=100))

    driver.end(first, AttemptResult(outcome=Outcome.UNREACHABLE, committed=True))

    assert driver.granted == [first, second]


def test_a_large_call_is_passed_for_a_while_and_then_goes_first() -> None:
    driver = Driver(limited(input=100, window=Window.BUCKET))
    driver.ask(opus(tokens_in=60))
    large = driver.ask(opus(tokens_in=100, lane="default"))
    passed = 0
    while large not in driver.granted:
        # One small call after the other, in the line of another agent and of higher priority.
        small = driver.ask(opus(tokens_in=1, priority=1), caller="y")
        if small in driver.granted:
            passed += 1
            driver.end(small)
        driver.now_ns += S // 2
        driver.at(driver.now_ns)
        assert driver.now_ns < CLAIM_AFTER_NS + 3 * MINUTE, "it starves"
    assert passed


def test_no_probe_passes_a_large_call_that_goes_next() -> None:
    driver = Driver(limited(input=100, window=Window.BUCKET))
    driver.end(driver.ask(opus(tokens_in=60)))
    large = driver.ask(opus(tokens_in=100))
    went, passed = len(driver.granted), []
    while large not in driver.granted:
        # Nothing else is in flight: each of these would go as a probe, and take what the large one waits for.
        driver.ask(opus(tokens_in=8), caller="y")
        driver.now_ns += S
        driver.at(driver.now_ns)
        for small in driver.granted[went:]:
            if small != large:
                passed.append(driver.now_ns)
                driver.end(small)
        went = len(driver.granted)
    assert passed
    assert max(passed) <= CLAIM_AFTER_NS


def test_many_large_calls_are_not_each_passed_anew() -> None:
    driver = Driver(limited(input=100, window=Window.BUCKET))
    driver.ask(opus(tokens_in=98), caller="before")
    large = [driver.ask(opus(tokens_in=40), caller=f"large {number}") for number in range(8)]
    rate = 98 / 60
    while not set(large) <= set(driver.granted):
        driver.ask(opus(tokens_in=1), caller="small")
        driver.now_ns += S // 2
        driver.at(driver.now_ns)
        assert driver.now_ns < CLAIM_WAITED_NS + (8 * 40 / rate + 20) * S, "the last of them is passed as often as all"


def test_what_a_large_call_held_up_goes_when_that_is_dropped_for_a_call_of_another_provider() -> None:
    limits = limited(input=100, window=Window.BUCKET)
    driver = Driver(
        _program(
            providers=[*limits.providers.values(), provider("q", limit=1)],
            lanes=[lane("sheds", queue=1, shed_oldest=True)],
        )
    )
    driver.ask(opus(tokens_in=90))
    driver.ask(opus(tokens_in=100, lane="sheds"), "large")
    driver.at(CLAIM_AFTER_NS)
    small = driver.ask(opus(tokens_in=30), "small")
    driver.call(provider="q")
    assert small not in driver.granted

    driver.call(provider="q", lane="sheds")

    assert small in driver.granted


def test_a_reload_mints_nothing() -> None:
    driver = Driver(limited(input=100))
    driver.ask(opus(tokens_in=100))
    driver.load(limited(input=120))

    driver.ask(opus(tokens_in=100))

    assert len(driver.granted) == 1
    assert driver.rest.waiting == 1


def test_a_smaller_window_refuses_who_waits_and_will_never_fit() -> None:
    driver = Driver(limited(input=100))
    driver.ask(opus(tokens_in=100))
    waiting = driver.ask(opus(tokens_in=100))

    driver.load(limited(input=49))

    assert driver.refusal(waiting).reason is Reason.OVER_LIMITS


def test_an_attempt_that_no_longer_fits_any_window_is_the_last() -> None:
    driver = Driver(attrs.evolve(limited(input=100), retries={"default": RetrySettings()}))
    call = driver.ask(opus(tokens_in=100))
    driver.load(attrs.evolve(limited(input=49), retries={"default": RetrySettings()}))

    driver.end(call, AttemptResult(outcome=Outcome.OVERLOADED, status=529))

    assert isinstance(driver.answers[call], Finish)
