"""Answers that look well and are worth nothing: what the circuit, the limit and the books make of them."""

from __future__ import annotations

import pytest

from hivemind_trio.model import Api, Outcome, Request, Usage
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, CallId, Circuit, LimitChanged, PolicyLoaded
from tests.support.policies import compiled

from .driver import Driver

EMPTY = AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True, usage=Usage(input=9))
GOOD = AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True, usage=Usage(input=9, output=7))

ASKED = Request(apis=(Api.OPENAI,), model="gpt-5", tokens_in=9, tokens_max_out=10)

SETTINGS = 'api openai; base "http://127.0.0.1:9"; concurrency 1..8 start 2; breaker trip 100% of 4 over 30s'


def guarded(condition: str) -> Program:
    return compiled(f"provider p {{ {SETTINGS}; {condition} }}")


NOTHING_OUT = guarded("degraded when tokens.out == 0")


def circuit(driver: Driver) -> Circuit:
    return driver.rest.pools["p"].circuit


def ends(driver: Driver, *all_ended: AttemptResult) -> None:
    for ended in all_ended:
        driver.end(driver.ask(ASKED), ended)


def test_they_open_the_circuit_as_failures_do_and_it_is_said_why() -> None:
    driver = Driver(NOTHING_OUT)
    ends(driver, EMPTY, EMPTY, EMPTY)
    last = CallId(driver.ask(ASKED))

    told = [one for one in driver.post(AttemptEnded(last, EMPTY)) if isinstance(one, LimitChanged)]

    assert [(one.circuit, one.because) for one in told] == [(Circuit.OPEN, Outcome.DEGRADED)]


def test_whatever_the_answers_are_without_a_condition_all_is_well() -> None:
    driver = Driver(guarded(""))

    ends(driver, *[EMPTY] * 8)

    assert circuit(driver) is Circuit.CLOSED


def test_good_answers_are_left_alone() -> None:
    driver = Driver(NOTHING_OUT)

    ends(driver, *[GOOD, GOOD, EMPTY] * 8)

    assert circuit(driver) is Circuit.CLOSED


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.SLOW])
def test_one_that_came_late_is_no_better(outcome: Outcome) -> None:
    driver = Driver(NOTHING_OUT)

    ends(driver, *[AttemptResult(outcome=outcome, status=201, committed=True, usage=Usage(input=9))] * 4)

    assert circuit(driver) is Circuit.OPEN


@pytest.mark.parametrize(
    "ended",
    [
        AttemptResult(outcome=Outcome.IGNORED, status=200, committed=True, usage=Usage(input=9)),
        AttemptResult(outcome=Outcome.SUCCEEDED, status=304, committed=True, usage=Usage(input=9)),
        AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True),
    ],
    ids=["the agent hung up", "not modified", "of unknown tokens"],
)
def test_what_is_no_finished_answer_or_none_that_can_be_judged_is_not_asked(ended: AttemptResult) -> None:
    driver = Driver(NOTHING_OUT)

    ends(driver, *[ended] * 8)

    assert circuit(driver) is Circuit.CLOSED


def test_the_limit_neither_grows_by_them_nor_gives_way() -> None:
    driver = Driver(NOTHING_OUT)

    ids = [driver.ask(ASKED), driver.ask(ASKED)]
    for call_id in ids:
        driver.end(call_id, EMPTY)

    assert driver.rest.pools["p"].limit == 2


def test_it_asks_for_the_model_that_was_sent() -> None:
    text = f"""
    provider p {{ {SETTINGS}; degraded when model == "small" }}
    rule cheap {{ model "small" }}
    """
    driver = Driver(compiled(text))

    ends(driver, *[GOOD] * 4)

    assert circuit(driver) is Circuit.OPEN


def test_a_new_policy_s_condition_holds_from_the_next_answer_on() -> None:
    driver = Driver(guarded(""))
    ends(driver, EMPTY, EMPTY)
    driver.post(PolicyLoaded(NOTHING_OUT))
    ends(driver, EMPTY)
    assert circuit(driver) is Circuit.CLOSED

    driver.post(PolicyLoaded(guarded("")))
    ends(driver, EMPTY)
    assert circuit(driver) is Circuit.CLOSED
    driver.post(PolicyLoaded(NOTHING_OUT))
    ends(driver, *[EMPTY] * 4)

    assert circuit(driver) is Circuit.OPEN


def test_its_tokens_are_charged_for_all_that() -> None:
    text = f"provider p {{ {SETTINGS}; degraded when tokens.out == 0 }}\nbudget b {{ input 100/day }}"
    driver = Driver(compiled(text))

    ends(driver, AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True, usage=Usage(input=200)))
    late = driver.ask(ASKED)

    assert late not in driver.granted
