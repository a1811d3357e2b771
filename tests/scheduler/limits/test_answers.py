"""What an answer's head says of quotas, in the scheduler: whom it holds up, and for how long."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from hivemind_trio.model import Dimension, Outcome, QuotaReading, Reason
from hivemind_trio.policy import LimitGroupSettings, Program, RateLimitSettings, Window
from hivemind_trio.scheduler import AttemptResult, CallId, ResponseStarted
from hivemind_trio.scheduler.limits.limit_group import MODELS_MAX
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, program, provider

MINUTE = 60 * SECOND_NS


def policy(*quotas: RateLimitSettings, learns: bool = True, glob: str | None = None) -> Program:
    groups = (LimitGroupSettings(glob=glob, concurrency=None, quotas=quotas),) if quotas else ()
    return program(providers=[attrs.evolve(provider("p"), groups=groups, learns=learns)])


def requests(amount: int, window: Window = Window.BUCKET) -> RateLimitSettings:
    return RateLimitSettings(dimension=Dimension.REQUESTS, amount=amount, window_ns=MINUTE, headroom=0.0, window=window)


def left(remaining: int, limit: int = 60, resets_s: int | None = None) -> QuotaReading:
    resets_ns = None if resets_s is None else resets_s * SECOND_NS
    return QuotaReading(dimension=Dimension.REQUESTS, limit=limit, remaining=remaining, resets_ns=resets_ns)


def hear(driver: Driver, call_id: int, *readings: QuotaReading) -> list[Any]:
    return driver.post(ResponseStarted(CallId(call_id), readings))


def refused(*used_up: Dimension, seconds: int | None = None) -> AttemptResult:
    wait_ns = None if seconds is None else seconds * SECOND_NS
    return AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=wait_ns, used_up=used_up, committed=True)


def test_without_limits_what_headers_tell_of_is_kept() -> None:
    driver = Driver(policy())
    hear(driver, driver.call(), left(0, resets_s=30))

    waiting = driver.call()

    assert waiting not in driver.answers
    # A bucket of sixty, half a second for each: all of it takes 30 s.
    assert driver.scheduler.wakeup_ns() == SECOND_NS // 2
    driver.at(SECOND_NS // 2)
    assert driver.grant(waiting).reason is Reason.LIMITS


def test_headers_that_are_ignored_hold_nobody_up() -> None:
    driver = Driver(policy(learns=False))
    hear(driver, driver.call(), left(0, resets_s=30))

    assert driver.grant(driver.call())


def test_ignored_from_now_on_what_they_told_is_forgotten() -> None:
    driver = Driver(policy())
    hear(driver, driver.call(), left(0, resets_s=30))
    waiting = driver.call()

    driver.load(policy(learns=False))

    assert driver.grant(waiting)


def test_ignored_from_now_on_the_declared_limit_holds_alone() -> None:
    driver = Driver(policy(requests(60, Window.SLIDING)))
    hear(driver, driver.call(), left(2, limit=40))
    driver.calls(59)
    assert len(driver.granted) == 3

    driver.load(policy(requests(60, Window.SLIDING), learns=False))

    assert len(driver.granted) == 60


def test_what_was_learned_comes_through_a_reload() -> None:
    driver = Driver(policy())
    first = driver.call()
    hear(driver, first, left(0, resets_s=30))
    driver.end(first)

    driver.load(policy())

    assert driver.call() not in driver.answers


def test_each_model_has_its_own() -> None:
    driver = Driver(policy())
    hear(driver, driver.call(model="opus"), left(0, resets_s=30))

    waiting = driver.call(model="opus")

    assert driver.grant(driver.call(model="haiku"))
    assert waiting not in driver.answers


def test_one_model_that_waits_does_not_stand_before_another() -> None:
    driver = Driver(program(providers=[provider("p", limit=2)]))
    first, second = driver.call(model="opus"), driver.call(model="haiku")
    blocked = driver.call(model="opus", priority=9)
    free = driver.call(model="haiku")
    hear(driver, first, left(0, resets_s=30))

    driver.end(second)

    assert driver.granted == [first, second, free]
    assert blocked not in driver.answers


def test_models_without_end_share_one() -> None:
    driver = Driver(policy())
    for number in range(MODELS_MAX):
        driver.end(driver.call(model=f"m{number}"))
    hear(driver, driver.call(model="one more"), left(0, resets_s=30))

    assert driver.call(model="and another") not in driver.answers
    assert driver.grant(driver.call(model="m0"))


def test_a_block_s_models_are_counted_as_one() -> None:
    driver = Driver(policy(requests(60), glob="opus*"))
    hear(driver, driver.call(model="opus-1"), left(0, resets_s=30))

    assert driver.call(model="opus-2") not in driver.answers
    assert driver.grant(driver.call(model="haiku"))


@pytest.mark.parametrize(("told", "most"), [(1_000, 60), (60, 60), (40, 40)], ids=["higher", "the same", "lower"])
@pytest.mark.parametrize("window", [Window.SLIDING, Window.BUCKET])
def test_of_the_declared_limit_and_the_provider_s_the_lower_holds(window: Window, told: int, most: int) -> None:
    driver = Driver(policy(requests(60, window)))
    first, *_ = driver.calls(30)

    hear(driver, first, left(told - 1, limit=told))
    driver.calls(50)

    # A bucket of which no more than 59 were ever left may be one less deep.
    assert most - 1 <= len(driver.granted) <= most


def test_more_that_is_left_lets_who_waits_go() -> None:
    driver = Driver(policy(requests(60)))
    first, second = driver.calls(2)
    hear(driver, first, left(1))
    waiting = driver.call()
    assert waiting not in driver.answers

    driver.now_ns = SECOND_NS // 2
    hear(driver, second, left(58))

    assert driver.grant(waiting).reason is Reason.LIMITS


@pytest.mark.parametrize("of", ["nobody", "an attempt that has ended", "a call that waits", "a call without a slot"])
def test_an_answer_to_whom_nothing_is_in_flight_for_says_nothing(of: str) -> None:
    driver = Driver(policy(requests(1)))
    ended = driver.call()
    driver.end(ended)
    calls = {
        "nobody": 99,
        "an attempt that has ended": ended,
        "a call that waits": driver.call(),
        "a call without a slot": driver.call(needs_slot=False),
    }

    assert hear(driver, calls[of], left(60)) == []


def test_what_has_ended_is_not_remembered() -> None:
    driver = Driver(policy(requests(60)))
    for call in driver.calls(5):
        driver.end(call)

    (group,) = driver.scheduler.state.pools["p"].groups.values()
    assert not group.quotas("any").inflight


def test_a_refusal_spaces_the_quota_that_it_names_and_no_other() -> None:
    tokens = RateLimitSettings(dimension=Dimension.INPUT, amount=1_000, window_ns=MINUTE)
    driver = Driver(policy(requests(600, Window.LEARN), tokens))
    driver.end(driver.call(), refused(Dimension.INPUT))

    of_requests, of_input = driver.scheduler.state.pools["p"].group(None).quotas("any").buckets.values()

    assert driver.rest.pools["p"].limit == 1_000, "concurrency has no part in it"
    assert of_requests.accepted is None
    assert of_input.accepted is not None


def test_of_a_refusal_that_names_nothing_the_headers_tell_what_was_short() -> None:
    tokens = RateLimitSettings(dimension=Dimension.INPUT, amount=1_000, window_ns=MINUTE)
    driver = Driver(policy(requests(600, Window.LEARN), tokens))
    call = driver.call()
    hear(driver, call, left(0, 600), QuotaReading(dimension=Dimension.INPUT, limit=1_000, remaining=900))

    driver.end(call, refused(seconds=90))

    driver.call()
    of_requests, of_input = driver.scheduler.state.pools["p"].group(None).quotas("any").buckets.values()
    assert of_requests.accepted is not None
    assert of_input.accepted is None
    assert driver.rest.waiting == 1
    assert driver.scheduler.wakeup_ns() == 5 * SECOND_NS, "a word of more than 20 s is probed"


def test_a_quota_that_nobody_knows_holds_up_its_model() -> None:
    driver = Driver(policy())
    driver.end(driver.call(model="opus"), refused(Dimension.TOKENS, seconds=20))

    waiting = driver.call(model="opus")

    assert driver.grant(driver.call(model="haiku"))
    assert waiting not in driver.answers
    assert driver.scheduler.wakeup_ns() == 20 * SECOND_NS
