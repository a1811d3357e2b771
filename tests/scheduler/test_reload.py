"""What a reload keeps: the language's table of changes and effects, as far as other files have not a row of it.

| thing | elsewhere |
|---|---|
| the bounds of AIMD, its epoch | `test_aimd` |
| caps | `test_scheduler`, `tests/runtime/test_load` |
| what waits and rests | `test_scheduler`, `test_retry`, `test_threads` |
| fallbacks | `test_fallback` |
| an agent's token | `tests/proxy/test_reload` |
| the listener's address | `tests/e2e/test_process` |
"""

from __future__ import annotations

from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Dimension, Outcome, QuotaReading, Reason, Request, Usage
from hivemind_trio.policy import Program, RateLimitSettings, Window
from hivemind_trio.scheduler import AttemptResult, Circuit
from hivemind_trio.scheduler.limits.rate_limiter import RateLimiter
from tests.support.ends import SUCCEEDED
from tests.support.policies import compiled
from tests.support.programs import SECOND_NS

from .driver import Driver

MINUTE_NS: Final = 60 * SECOND_NS
FAILED: Final = AttemptResult(outcome=Outcome.FAILED, status=500, committed=True)


def claude(settings: str, more: str = "") -> Program:
    return compiled(f'provider anthropic {{ base "http://127.0.0.1:9"; {settings} }}\n{more}')


def ask(driver: Driver, tokens_out: int = 10, claimed: str | None = None) -> int:
    request = Request(apis=(Api.ANTHROPIC,), model="claude-haiku-4-5", tokens_max_out=tokens_out, claimed=claimed)
    return driver.ask(request)


def took(tokens: int) -> AttemptResult:
    return attrs.evolve(SUCCEEDED, usage=Usage(input=0, output=tokens))


# ---- the circuit ----


def broken(of: int, over: str = "60s") -> Program:
    return claude(f"breaker trip 50% of {of} over {over} open 5s")


def test_a_breaker_s_threshold_counts_from_the_next_event_and_the_samples_stay() -> None:
    driver = Driver(broken(of=10))
    for _ in range(4):
        driver.end(ask(driver), FAILED)

    driver.load(broken(of=5))
    after_the_reload = driver.rest.pools["anthropic"].circuit
    driver.end(ask(driver), FAILED)

    assert after_the_reload is Circuit.CLOSED, "a reload is no event of the provider's"
    assert driver.rest.pools["anthropic"].circuit is Circuit.OPEN


def test_samples_that_the_new_window_does_not_hold_count_no_more() -> None:
    driver = Driver(broken(of=10))
    for _ in range(4):
        driver.end(ask(driver), FAILED)
    driver.now_ns = 20 * SECOND_NS

    driver.load(broken(of=10, over="10s"))
    driver.end(ask(driver), FAILED)

    assert driver.rest.pools["anthropic"].circuit is Circuit.CLOSED


# ---- rate limits ----


def quota(amount: int, window: Window) -> RateLimitSettings:
    return RateLimitSettings(
        dimension=Dimension.REQUESTS, amount=amount, window_ns=MINUTE_NS, headroom=0.0, window=window
    )


def at_once(bucket: RateLimiter, now_ns: int) -> int:
    """How much goes now."""
    return next((amount for amount in range(200, 0, -1) if goes(bucket, amount, now_ns)), 0)


def goes(bucket: RateLimiter, amount: int, now_ns: int) -> bool:
    return amount <= bucket.capacity and bucket.fits_ns(amount, now_ns) <= now_ns


LEVELS: Final = {
    "a bucket, raised": (Window.BUCKET, 120, 20),
    "a bucket, lowered": (Window.BUCKET, 30, 20),
    "a bucket, below its level": (Window.BUCKET, 10, 10),
    "a sliding window, raised": (Window.SLIDING, 120, 80),
    "a sliding window, lowered": (Window.SLIDING, 50, 10),
    "a sliding window, below what was taken": (Window.SLIDING, 30, 0),
    "a fixed window, raised": (Window.FIXED, 120, 80),
    "a fixed window, lowered": (Window.FIXED, 50, 10),
    "a fixed window, below what was taken": (Window.FIXED, 30, 0),
}
"""Of 60 per minute 40 are taken: kind, the new amount, what goes then."""


@pytest.mark.parametrize(("kind", "amount", "left"), LEVELS.values(), ids=LEVELS)
def test_a_bucket_keeps_its_level_or_is_full_and_a_window_what_was_taken_of_it(
    kind: Window, amount: int, left: int
) -> None:
    bucket = RateLimiter(quota(60, kind))
    if kind is Window.FIXED:
        reading = QuotaReading(dimension=Dimension.REQUESTS, remaining=60, resets_ns=MINUTE_NS - SECOND_NS)
        bucket.on_headers(reading, 0, 0, 0, 0)
    bucket.take(40, 0)
    assert at_once(bucket, 0) == 20

    for _ in range(2):
        bucket.load(quota(amount, kind), 0, declared=True)
        assert at_once(bucket, 0) == left


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 60)),
            st.tuples(st.just("wait"), st.integers(1, 40)),
            st.tuples(st.just("load"), st.sampled_from([7, 25, 60, 110])),
        ),
        max_size=40,
    )
)
def test_a_bucket_is_never_fuller_than_a_bucket_would_be(steps: list[tuple[str, int]]) -> None:
    """Held against the level itself: it is earned at the rate in force, and a reload adds nothing to it."""
    bucket = RateLimiter(quota(60, Window.BUCKET))
    capacity = level = 60.0
    now_ns = 0
    for what, number in steps:
        match what:
            case "take" if number := min(number, at_once(bucket, now_ns)):
                assert number <= level + 1e-6
                bucket.take(number, now_ns)
                level -= number
            case "wait":
                now_ns += number * SECOND_NS // 7
                level = min(capacity, level + capacity * number / 420)
            case "load":
                bucket.load(quota(number, Window.BUCKET), now_ns, declared=True)
                capacity = float(number)
                level = min(level, capacity)
        # Nor emptier, but for what is rounded at each reload.
        assert at_once(bucket, now_ns) >= int(level) - sum(step[0] == "load" for step in steps) - 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 60)),
            st.tuples(st.just("wait"), st.integers(1, 40)),
            st.tuples(st.just("load"), st.sampled_from([7, 25, 60, 110])),
        ),
        max_size=40,
    ),
    st.sampled_from([Window.LEARN, Window.SLIDING]),
)
def test_no_window_holds_more_than_the_policy_of_now_allows(steps: list[tuple[str, int]], kind: Window) -> None:
    bucket = RateLimiter(quota(60, kind))
    taken: list[tuple[int, int]] = []
    now_ns, capacity = 0, 60
    for what, number in steps:
        match what:
            case "take" if goes(bucket, number, now_ns):
                bucket.take(number, now_ns)
                taken.append((now_ns, number))
                assert sum(amount for at_ns, amount in taken if now_ns - at_ns < MINUTE_NS) <= capacity
            case "wait":
                now_ns += number * SECOND_NS
            case "load":
                capacity = number
                bucket.load(quota(number, kind), now_ns, declared=True)


def test_a_reload_mints_no_retries() -> None:
    never_trips, mad = (
        "breaker trip 100% of 1000 over 1ms",
        "retry default { attempts 9; backoff 1ms..1ms; ratio 0% }\n",
    )
    policy = claude(never_trips, mad)
    broken = AttemptResult(outcome=Outcome.FAILED, status=500)

    def tried_again(driver: Driver) -> int:
        """Tries within a tenth of a second."""
        call = ask(driver)
        driver.end(call, broken)
        again = 0
        for _ in range(10):
            driver.at(driver.now_ns + SECOND_NS // 100)
            if driver.granted[-1] == call and driver.rest.inflight:
                again += 1
                driver.end(call, broken)
        return again

    driver = Driver(policy)
    before = [tried_again(driver), tried_again(driver)]
    assert before == [8, 2], "ten of them are saved up"

    driver.load(policy)
    driver.load(claude(f"{never_trips}; concurrency 99", mad))

    assert tried_again(driver) == 0


# ---- budgets ----

IDENTITIES: Final = {
    "the amount": ("output 100/hour", "output 90/hour", True),
    "the window": ("output 100/hour", "output 90/day", False),
    "how it turns": ("output 100/hour", "output 90/hour; window sliding", False),
    "the measure": ("output 100/hour", "tokens 90/hour", False),
}


@pytest.mark.parametrize(("before", "after", "kept"), IDENTITIES.values(), ids=IDENTITIES)
def test_what_was_spent_stays_spent_if_only_this_changes(before: str, after: str, kept: bool) -> None:
    driver = Driver(claude("", f"budget b {{ {before} }}"))
    driver.end(ask(driver, 100), took(100))

    driver.load(claude("", f"budget b {{ {after} }}"))
    call = ask(driver)

    if kept:
        assert driver.refusal(call).reason is Reason.BUDGET
    else:
        assert call in driver.granted


def test_another_per_is_another_budget() -> None:
    driver = Driver(claude("", "budget b { output 100/hour }\nagent a { }\n"))
    driver.end(ask(driver, 100, "a"), took(100))

    driver.load(claude("", "budget b per agent { output 100/hour }\nagent a { }\n"))
    assert ask(driver, 10, "a") in driver.granted

    driver.load(claude("", "budget b { output 100/hour }\nagent a { }\n"))
    assert ask(driver, 10, "a") in driver.granted, "it was gone for a while, and with it what was spent of it"


def test_a_step_that_has_been_passed_already_holds_for_the_next_call() -> None:
    lanes = "lane slow { }\n"
    driver = Driver(claude("", f"{lanes}budget b {{ output 100/hour; at 90% {{ lane slow }} }}"))
    driver.end(ask(driver, 50), took(50))
    assert driver.grant(ask(driver)).treatment.lane == "default"

    driver.load(claude("", f"{lanes}budget b {{ output 100/hour; at 40% {{ lane slow }} }}"))

    assert driver.grant(ask(driver)).treatment.lane == "slow"


# ---- lanes and providers ----


def test_a_lane_that_is_removed_leaves_its_calls_their_age_and_their_deadline() -> None:
    rule = "rule r {{ lane {lane}; deadline 30s }}\n"
    driver = Driver(claude("concurrency 1", "lane gone { }\n" + rule.format(lane="gone")))
    running, waiting = ask(driver), ask(driver)
    driver.now_ns = 10 * SECOND_NS
    later = ask(driver)

    driver.load(claude("concurrency 1", "lane other { }\n" + rule.format(lane="other")))

    assert driver.rest.lanes_waiting == {"other": 2, "default": 0}
    assert driver.rest.pools["anthropic"].lanes_inflight == {"other": 0, "default": 0, "gone": 1}
    assert driver.scheduler.wakeup_ns() == 30 * SECOND_NS
    assert driver.end(running) == [waiting]
    assert driver.grant(waiting).waited_ns == 10 * SECOND_NS
    assert "gone" not in driver.rest.pools["anthropic"].lanes_inflight
    driver.at(40 * SECOND_NS)
    assert driver.refusal(later).reason is Reason.DEADLINE


def test_a_provider_that_is_removed_gives_no_more_attempts_and_lets_the_last_end() -> None:
    other = 'provider other { api anthropic; base "http://127.0.0.1:8"; concurrency 1 }\n'
    driver = Driver(claude("concurrency 1; fallback other", other))
    running, waiting = ask(driver), ask(driver)

    driver.load(compiled(other))

    assert driver.grant(waiting).treatment.provider == "other"
    assert driver.rest.pools["anthropic"].inflight == 1
    assert driver.rest.pools["anthropic"].limit == 0
    driver.end(running)
    assert set(driver.rest.pools) == {"other"}


def test_what_is_at_its_highest_goes_no_higher_though_less_is_allowed() -> None:
    driver = Driver(claude("concurrency 2..8 start 8"))
    running = [ask(driver) for _ in range(8)]
    waiting = ask(driver)

    driver.load(claude("concurrency 2..4 start 4"))

    for call in running[:4]:
        assert driver.end(call, took(1)) == []
    assert driver.rest.pools["anthropic"].inflight == 4
    assert driver.end(running[4], took(1)) == [waiting]
