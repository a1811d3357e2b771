"""Money or plan that is used up: nobody waits for it, and it is asked for again with one call at a time."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from hivemind_trio.model import Outcome, Reason, SecretRef, SecretSource
from hivemind_trio.policy import RetrySettings
from hivemind_trio.scheduler import AttemptResult, Finish, Grant, Reject
from hivemind_trio.scheduler.health.billing import FIRST_NS, KNOWN_MAX, LAST_NS, TRY_NS, BillingExhausted
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS, program, provider, wish

USED_UP = AttemptResult(outcome=Outcome.TERMINAL, status=402, final=True)
KEY = SecretRef(SecretSource.ENV, "KEY")
DAY_NS = 86_400 * SECOND_NS


def with_a_key(**settings: Any) -> Driver:
    """A provider that the policy has a key for: all agents pay with it."""
    return Driver(program(providers=[provider(keys=[KEY], **settings)]))


def refused(driver: Driver, call: int) -> bool:
    answer = driver.answers.get(call)
    return isinstance(answer, Reject) and answer.reason is Reason.PROVIDER_SPENT


def test_who_finds_out_has_the_provider_s_answer_and_the_next_is_refused_at_once() -> None:
    driver = with_a_key()
    first = driver.call()

    driver.end(first, USED_UP)
    second = driver.call()

    assert isinstance(driver.answers[first], Finish)
    refusal = driver.refusal(second)
    assert (refusal.reason, refusal.retry_after_ns, refusal.waited_ns) == (Reason.PROVIDER_SPENT, None, 0)
    assert "`p`" in refusal.message
    assert (driver.rest.waiting, driver.rest.inflight, driver.rest.agents) == (0, 0, 0)


def test_those_who_wait_for_it_are_sent_home() -> None:
    driver = with_a_key(limit=1)
    running, *waiting = driver.calls(4)
    other = driver.call(model="haiku-9")
    driver.now_ns = 5 * SECOND_NS

    driver.end(running, USED_UP)

    assert all(refused(driver, call) for call in waiting)
    assert driver.refusal(waiting[0]).waited_ns == 5 * SECOND_NS
    assert isinstance(driver.answers[other], Grant)


def test_those_who_rest_before_another_attempt_are_sent_home() -> None:
    driver = Driver(program(providers=[provider(keys=[KEY])], retries=[RetrySettings(attempts=9)]))
    resting, running = driver.calls(2)
    driver.end(resting, AttemptResult(outcome=Outcome.OVERLOADED, status=529, retry_after_ns=9 * SECOND_NS))

    driver.end(running, USED_UP)

    assert refused(driver, resting)


def test_nobody_is_tried_again_where_nothing_is_left() -> None:
    driver = Driver(program(providers=[provider(keys=[KEY])], retries=[RetrySettings(attempts=9)]))
    failing, running = driver.calls(2)
    driver.end(running, USED_UP)

    driver.end(failing, AttemptResult(outcome=Outcome.OVERLOADED, status=529))

    assert isinstance(driver.answers[failing], Finish)
    assert (driver.rest.waiting, driver.rest.agents) == (0, 0)


def test_when_there_is_more_is_told() -> None:
    driver = with_a_key()
    driver.end(driver.call(), attrs.evolve(USED_UP, retry_after_ns=3 * 3_600 * SECOND_NS))
    driver.now_ns = 10 * SECOND_NS

    refusal = driver.refusal(driver.call())

    assert refusal.retry_after_ns == (3 * 3_600 - 10) * SECOND_NS
    assert "2 h 59 min" in refusal.message


@pytest.mark.parametrize("renewed_ns", [None, DAY_NS], ids=["no word", "tomorrow"])
def test_after_a_while_one_call_asks_again_and_the_others_go_on_being_refused(renewed_ns: int | None) -> None:
    driver = with_a_key()
    driver.end(driver.call(), attrs.evolve(USED_UP, retry_after_ns=renewed_ns))

    driver.at(FIRST_NS - 1)
    assert refused(driver, driver.call())
    driver.at(FIRST_NS)
    asking, *others = driver.calls(3)
    assert isinstance(driver.answers[asking], Grant)
    assert all(refused(driver, call) for call in others)

    driver.end(asking, SUCCEEDED)
    assert all(isinstance(driver.answers[call], Grant) for call in driver.calls(3))


def test_a_provider_that_says_it_is_over_soon_is_asked_then() -> None:
    driver = with_a_key()
    driver.end(driver.call(), attrs.evolve(USED_UP, retry_after_ns=5 * SECOND_NS))

    driver.at(5 * SECOND_NS)

    assert isinstance(driver.answers[driver.call()], Grant)


def test_one_that_asks_and_is_never_answered_is_followed_by_another() -> None:
    driver = with_a_key()
    driver.end(driver.call(), USED_UP)
    driver.at(FIRST_NS)
    driver.call()

    driver.at(FIRST_NS + TRY_NS - 1)
    assert refused(driver, driver.call())
    driver.at(FIRST_NS + TRY_NS)
    assert isinstance(driver.answers[driver.call()], Grant)


def test_it_is_asked_for_less_and_less_often_and_at_least_every_few_minutes() -> None:
    driver = with_a_key()
    pauses = []
    driver.end(driver.call(), USED_UP)
    for _ in range(7):
        began_ns = driver.now_ns
        while refused(driver, call := driver.call()):
            driver.now_ns += 5 * SECOND_NS
        pauses.append(driver.now_ns - began_ns)
        driver.now_ns += 1
        driver.end(call, USED_UP)

    doubled = [FIRST_NS * 2**step for step in range(7)]
    assert pauses == [min(pause, LAST_NS) for pause in doubled]


def test_what_was_in_flight_together_tells_one_piece_of_news() -> None:
    driver = with_a_key()
    running = driver.calls(5)
    driver.now_ns = SECOND_NS
    for call in running:
        driver.end(call, USED_UP)

    driver.at(SECOND_NS + FIRST_NS)

    assert isinstance(driver.answers[driver.call()], Grant)


def test_another_model_has_a_quota_of_its_own() -> None:
    driver = with_a_key()
    driver.end(driver.call(model="gemini-pro"), USED_UP)

    assert refused(driver, driver.call(model="gemini-pro"))
    assert isinstance(driver.answers[driver.call(model="gemini-flash")], Grant)


def test_an_agent_that_pays_by_itself_is_no_reason_to_refuse_another() -> None:
    driver = Driver(program())
    driver.end(driver.ask(wish(), credential="poor"), USED_UP)

    assert refused(driver, driver.ask(wish(), credential="poor"))
    assert isinstance(driver.answers[driver.ask(wish(), credential="rich")], Grant)


def test_agents_that_pay_with_the_policy_s_key_are_refused_together() -> None:
    driver = with_a_key()
    driver.end(driver.ask(wish(), credential="one"), USED_UP)

    assert refused(driver, driver.ask(wish(), credential="another"))


def test_a_new_policy_asks_at_once() -> None:
    driver = with_a_key()
    driver.end(driver.call(), USED_UP)

    driver.load(program(providers=[provider(keys=[KEY])], hash="another"))

    assert isinstance(driver.answers[driver.call()], Grant)


def test_money_is_no_sign_of_ill_health() -> None:
    driver = with_a_key(limit=4)
    for number in range(20):
        driver.end(driver.call(model=f"m{number}"), USED_UP)

    pool = driver.rest.pools["p"]
    assert (pool.limit, pool.circuit.value) == (4, "closed")


@pytest.mark.slow
def test_no_more_is_remembered_than_there_is_room_for() -> None:
    spent = BillingExhausted()
    for number in range(KNOWN_MAX + 3):
        spent.on_ended(("", f"m{number}"), Outcome.TERMINAL, granted_ns=0, now_ns=0, retry_after_ns=None)

    assert len(spent) == KNOWN_MAX
    assert not spent.shut(("", "m2"), 0)
    assert spent.shut(("", "m3"), 0)


def test_to_come_back_at_once_is_no_answer() -> None:
    driver = Driver(program(retries=[RetrySettings(attempts=1)]))
    driver.end(driver.call(), AttemptResult(outcome=Outcome.TERMINAL, status=402, retry_after_ns=0))

    assert driver.refusal(driver.call()).reason is Reason.PROVIDER_SPENT


def test_a_call_that_is_turned_away_for_another_reason_has_not_asked() -> None:
    driver = with_a_key(limit=1, queue=0)
    driver.end(driver.call(), USED_UP)
    driver.now_ns = FIRST_NS
    other = driver.call(model="haiku-9")
    assert driver.refusal(driver.call()).reason is Reason.QUEUE_FULL
    driver.end(other)

    assert isinstance(driver.answers[driver.call()], Grant)
