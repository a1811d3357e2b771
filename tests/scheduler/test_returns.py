"""A client that comes back with a call that was refused or given up stands where it stood."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import CircuitBreakerSettings, WhileOpen
from hivemind_trio.scheduler import AttemptResult, Reject
from hivemind_trio.scheduler.calls.kept_places import KEPT_MAX, KEPT_NS, KeptPositions
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS, lane, program, provider, treatment, wish

from .driver import Driver

OVERLOADED = AttemptResult(outcome=Outcome.OVERLOADED, status=529)


def one_slot(**settings: Any) -> Driver:
    """A provider with one slot, which is taken by call 0."""
    driver = Driver(program(providers=[provider(limit=1)], lanes=[lane(**settings)]))
    driver.call()
    return driver


def ask(driver: Driver, again: str, caller: str = "x", **wishes: Any) -> int:
    return driver.ask(wish(**wishes), caller, again=again)


def served(driver: Driver, *calls: int) -> list[int]:
    """In which order these calls are granted, one after the other."""
    for _ in calls:
        driver.end(driver.granted[-1])
    return driver.granted[-len(calls) :]


def test_who_gave_up_stands_before_those_who_came_after() -> None:
    driver = one_slot()
    early = ask(driver, "a")
    driver.now_ns = SECOND_NS
    late = ask(driver, "b")
    driver.cancel(early)
    driver.now_ns = 2 * SECOND_NS

    back = ask(driver, "a")

    assert served(driver, late, back) == [back, late]


def test_a_place_is_kept_for_the_same_call_alone() -> None:
    driver = one_slot()
    early = ask(driver, "a")
    late = ask(driver, "b")
    driver.cancel(early)

    another, nameless = ask(driver, "c"), ask(driver, "")

    assert served(driver, late, another, nameless) == [late, another, nameless]


def test_calls_that_nothing_tells_apart_keep_no_place() -> None:
    driver = one_slot()
    early, late = ask(driver, ""), ask(driver, "b")
    driver.cancel(early)

    back = ask(driver, "")

    assert served(driver, late, back) == [late, back]


def test_a_place_is_given_back_once() -> None:
    driver = one_slot()
    early, late = ask(driver, "a"), ask(driver, "b")
    driver.cancel(early)

    back, twin = ask(driver, "a"), ask(driver, "a")

    assert served(driver, late, back, twin) == [back, late, twin]


def test_it_may_come_back_more_than_once() -> None:
    driver = one_slot()
    early, late = ask(driver, "a"), ask(driver, "b")
    driver.cancel(early)
    driver.cancel(ask(driver, "a"))

    back = ask(driver, "a")

    assert served(driver, late, back) == [back, late]


def test_who_was_answered_has_no_place_any_more() -> None:
    driver = one_slot()
    first, second = ask(driver, "a"), ask(driver, "b")
    driver.end(0)
    driver.end(first, SUCCEEDED)

    third = ask(driver, "c")
    back = ask(driver, "a")

    assert driver.granted[-1] == second
    assert served(driver, third, back) == [third, back]


@pytest.mark.parametrize("committed", [False, True], ids=["told", "broken off"])
def test_who_was_told_of_a_failure_comes_back_to_its_place(committed: bool) -> None:
    driver = one_slot()
    first, second, third = ask(driver, "a"), ask(driver, "b"), ask(driver, "c")
    driver.end(0)
    driver.end(first, attrs.evolve(OVERLOADED, committed=committed))

    back = ask(driver, "a")

    assert driver.granted[-1] == second
    assert served(driver, third, back) == [back, third]


def test_a_full_queue_is_no_reason_to_lose_one_s_place() -> None:
    driver = one_slot(queue=2)
    first, second = ask(driver, "a"), ask(driver, "b")
    turned_away = ask(driver, "c")
    assert driver.refusal(turned_away).reason is Reason.QUEUE_FULL
    driver.end(0)
    assert driver.granted[-1] == first
    late = ask(driver, "d")
    driver.cancel(second)

    back = ask(driver, "c")

    assert served(driver, late, back) == [back, late]


@pytest.mark.parametrize(
    "trouble",
    [AttemptResult(outcome=Outcome.OVERLOADED, status=529), AttemptResult(outcome=Outcome.TERMINAL, status=402)],
    ids=["its circuit is open", "its account is empty"],
)
def test_to_be_turned_away_for_the_provider_s_trouble_is_no_reason_either(trouble: AttemptResult) -> None:
    down = provider(limit=1, breaker=CircuitBreakerSettings(of=1, probes=1), while_open=WhileOpen.REFUSE)
    driver = Driver(program(providers=[down]))
    running, early, late = driver.call(), ask(driver, "a"), ask(driver, "b")
    driver.cancel(early)
    driver.end(running, trouble)
    assert isinstance(driver.answers[late], Reject)
    assert isinstance(driver.answers[ask(driver, "a")], Reject)
    driver.now_ns = 60 * SECOND_NS
    probe, younger = driver.call(), ask(driver, "c")
    if younger in driver.answers:  # while it is found out whether there is more, the others are turned away
        driver.end(probe)
        probe, younger = driver.call(), ask(driver, "c")

    back = ask(driver, "a")

    driver.end(probe)
    assert driver.granted[-1] == back


def test_who_was_dropped_for_its_deadline_has_another_and_its_old_place() -> None:
    driver = one_slot(deadline_ns=10 * SECOND_NS)
    driver.now_ns = SECOND_NS
    early = ask(driver, "a")
    driver.now_ns = 9 * SECOND_NS
    late = ask(driver, "b")
    driver.at(11 * SECOND_NS)
    assert driver.refusal(early).reason is Reason.DEADLINE

    back = ask(driver, "a")

    assert driver.scheduler.wakeup_ns() == 19 * SECOND_NS
    assert served(driver, late, back) == [back, late]


def test_age_counts_less_than_priority_as_ever() -> None:
    driver = one_slot()
    early, high = ask(driver, "a"), ask(driver, "b", priority=5)
    driver.cancel(early)

    back = ask(driver, "a")

    assert served(driver, high, back) == [high, back]


def test_a_place_survives_a_new_policy_while_it_waits_and_while_it_does_not() -> None:
    driver = one_slot()
    early = ask(driver, "a")
    driver.now_ns = SECOND_NS
    late = ask(driver, "b")
    driver.cancel(early)
    policy = program(providers=[provider(limit=1)], decide=lambda _: treatment(), hash="another")
    driver.load(policy)

    back = ask(driver, "a")
    driver.load(attrs.evolve(policy, hash="a third"))

    assert served(driver, late, back) == [back, late]


def test_a_place_is_kept_for_minutes() -> None:
    returns = KeptPositions()
    for again in "ab":
        returns.keep(again, 5, 1, SECOND_NS)

    assert returns.take("a", SECOND_NS + KEPT_NS - 1) is not None
    assert returns.take("b", SECOND_NS + KEPT_NS) is None


def test_no_more_places_are_kept_than_there_is_room_for() -> None:
    returns = KeptPositions()
    for number in range(KEPT_MAX + 3):
        returns.keep(f"{number}", 0, number, number)

    assert len(returns) == KEPT_MAX
    assert returns.take("2", KEPT_MAX) is None
    assert returns.take("3", KEPT_MAX) is not None


def test_places_that_nobody_came_back_to_are_given_up() -> None:
    returns = KeptPositions()
    for number in range(100):
        returns.keep(f"{number}", 0, number, number)

    returns.keep("last", 0, 100, 98 + KEPT_NS)

    assert len(returns) == 2
