"""A quota that a provider says is used up: whom it holds up, and until when."""

from __future__ import annotations

import pytest

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import CircuitBreakerSettings, Program, RetrySettings
from hivemind_trio.scheduler import AttemptResult, CallId, Circuit, Finish, Grant, ResponseStarted
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, program, provider


def two_groups() -> Program:
    return program(providers=[provider("p", groups={"opus*": None})])


def used_up(seconds: int | None, outcome: Outcome = Outcome.QUOTA) -> AttemptResult:
    """For so long, as the provider says."""
    return AttemptResult(
        outcome=outcome, status=429, retry_after_ns=None if seconds is None else seconds * SECOND_NS, committed=True
    )


def woken(driver: Driver, until: int) -> None:
    """Let time pass as its alarms say until a call is granted."""
    while until not in driver.answers:
        wakeup_ns = driver.scheduler.wakeup_ns()
        assert wakeup_ns is not None
        assert wakeup_ns > driver.now_ns, "no busy loop"
        driver.at(wakeup_ns)


def test_calls_of_the_same_limits_group_wait_until_it_is_whole_again() -> None:
    driver = Driver(two_groups())
    driver.end(driver.call(model="opus-1"), used_up(20))

    waiting = driver.call(model="opus-2")

    assert driver.scheduler.wakeup_ns() == 20 * SECOND_NS
    driver.at(20 * SECOND_NS - 1)
    assert waiting not in driver.answers
    driver.at(20 * SECOND_NS)
    assert driver.grant(waiting).reason is Reason.PROVIDER_QUOTA


def test_calls_of_another_group_are_held_up_by_nothing() -> None:
    driver = Driver(two_groups())
    driver.end(driver.call(model="opus-1"), used_up(20))

    assert driver.grant(driver.call(model="haiku-1"))


@pytest.mark.parametrize("outcome", [Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST])
def test_a_refusal_is_about_its_model_alone(outcome: Outcome) -> None:
    driver = Driver(program())
    driver.end(driver.call(model="opus-1"), used_up(20, outcome))

    assert driver.grant(driver.call(model="opus-2"))
    assert driver.call(model="opus-1") not in driver.answers


def test_a_later_word_does_not_cut_it_short() -> None:
    driver = Driver(two_groups())
    first, second, third = driver.calls(3, model="opus-1")
    for call, seconds in ((first, 20), (second, 1), (third, None)):
        driver.end(call, used_up(seconds))

    waiting = driver.call(model="opus-1")
    driver.at(SECOND_NS)

    assert waiting not in driver.answers
    assert driver.scheduler.wakeup_ns() == 20 * SECOND_NS


def test_it_is_known_through_a_reload() -> None:
    driver = Driver(two_groups())
    driver.end(driver.call(model="opus-1"), used_up(20))

    driver.load(two_groups())
    waiting = driver.call(model="opus-1")

    assert waiting not in driver.answers
    driver.at(20 * SECOND_NS)
    assert driver.grant(waiting)


def test_a_word_that_was_waited_for_is_not_doubled_by_the_next() -> None:
    driver = Driver(two_groups())

    for _ in range(8):
        driver.end(driver.call(model="opus-1") if not driver.granted else driver.granted[-1], used_up(10))
        refused_ns = driver.now_ns
        woken(driver, driver.call(model="opus-1"))
        assert driver.now_ns == refused_ns + 10 * SECOND_NS


def test_what_was_refused_together_is_one_word() -> None:
    driver = Driver(two_groups())
    for call in driver.calls(5, model="opus-1"):
        driver.end(call, used_up(8))

    driver.call(model="opus-1")

    assert driver.scheduler.wakeup_ns() == 8 * SECOND_NS


def test_a_lying_retry_after_is_found_out_by_one_call() -> None:
    driver = Driver(two_groups())
    driver.end(driver.call(model="opus-1"), used_up(3_000))
    probe, *others = driver.calls(4, model="opus-1")

    woken(driver, probe)
    assert driver.now_ns == 300 * SECOND_NS
    assert not set(others) & set(driver.answers)
    driver.post(ResponseStarted(CallId(probe), (), good=True))

    assert set(others) & set(driver.answers), "its answer is enough, its end is not waited for"


def test_a_provider_that_does_not_say_how_long_is_tried_again_soon() -> None:
    driver = Driver(two_groups())
    for _ in range(20):
        driver.end(driver.call(model="opus-1"))
    driver.end(driver.call(model="opus-1"), used_up(None))

    woken(driver, driver.call(model="opus-1"))

    assert driver.now_ns <= 5 * SECOND_NS
    assert driver.grant(driver.granted[-1]).reason is Reason.GROWTH


@pytest.mark.parametrize("outcome", [Outcome.OVERLOADED, Outcome.CONCURRENCY, Outcome.FAILED, Outcome.SUCCEEDED])
def test_other_ends_hold_nobody_back(outcome: Outcome) -> None:
    driver = Driver(program(providers=[provider("p", limit=100)]))
    driver.end(driver.call(), AttemptResult(outcome=outcome, status=429, retry_after_ns=9 * SECOND_NS, committed=True))

    assert len(driver.calls(20)) == sum(call in driver.answers for call in range(1, 21))


def test_those_who_wait_for_the_rate_are_woken_in_turn_and_told_why() -> None:
    driver = Driver(program(providers=[provider("p", limit=100)]))
    for second in range(10):
        driver.now_ns = second * SECOND_NS
        for call in driver.calls(3):
            driver.end(call)
    driver.end(driver.call(), AttemptResult(outcome=Outcome.BURST, status=429, committed=True))
    calls = driver.calls(10)

    waiting = [call for call in calls if call not in driver.answers]
    assert len(waiting) >= 9
    while waiting:
        wakeup_ns = driver.scheduler.wakeup_ns()
        assert wakeup_ns is not None
        assert wakeup_ns > driver.now_ns, "no busy loop"
        granted = [each for each in driver.at(wakeup_ns) if isinstance(each, Grant)]
        assert [each.call_id for each in granted] == waiting[: len(granted)]
        assert {each.reason for each in granted} <= {Reason.GROWTH}
        waiting = waiting[len(granted) :]
    assert 12 * SECOND_NS <= driver.now_ns <= 15 * SECOND_NS


# ---- a refusal for going too often is no attempt ----


def test_a_refused_probe_is_no_attempt() -> None:
    driver = Driver(program(retries=[RetrySettings(attempts=2)]))
    call = driver.call()

    for _ in range(10):
        driver.end(call, AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=30 * SECOND_NS))
        assert not isinstance(driver.answers[call], Finish)
        refused_ns, driver.answers = driver.now_ns, {}
        woken(driver, call)
        assert driver.now_ns - refused_ns <= 30 * SECOND_NS

    driver.end(call, AttemptResult(outcome=Outcome.FAILED, status=500))
    assert isinstance(driver.answers[call], Grant), "the first that counts"
    driver.answers = {}
    woken(driver, call)
    driver.end(call, AttemptResult(outcome=Outcome.FAILED, status=500))
    assert isinstance(driver.answers[call], Finish)


def test_a_refused_probe_of_an_open_circuit_is_no_attempt() -> None:
    breaker = CircuitBreakerSettings(trip=1.0, of=2, probes=1)
    driver = Driver(program(providers=[provider("p", breaker=breaker)], retries=[RetrySettings(attempts=2)]))
    for other in driver.calls(2):
        driver.end(other, AttemptResult(outcome=Outcome.FAILED, status=500, committed=True))
    call = driver.call()
    assert call not in driver.answers

    for _ in range(10):
        woken(driver, call)
        assert driver.rest.pools["p"].circuit is Circuit.HALF_OPEN
        driver.answers = {}
        driver.end(call, AttemptResult(outcome=Outcome.OVERLOADED, status=529))

    assert driver.rest.waiting == 1
    woken(driver, call)
    assert isinstance(driver.answers[call], Grant)


def test_a_call_refused_for_going_too_often_keeps_its_place_in_the_line() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], retries=[RetrySettings(attempts=2)]))
    first, second, third = driver.calls(3)

    driver.end(first, AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=10 * SECOND_NS))
    driver.at(10 * SECOND_NS)

    assert driver.granted == [first, first]
    driver.end(first)
    woken(driver, second)
    driver.end(second)
    woken(driver, third)
    assert driver.granted == [first, first, second, third]
