"""A quota that a provider says is used up: whom it holds up, and until when."""

from __future__ import annotations

from hivemind_trio.core import Ended
from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import Program
from tests.support.programs import SECOND_NS, program, provider

from .driver import Driver


def two_groups() -> Program:
    return program(providers=[provider("p", groups={"opus*": None})])


def used_up(seconds: int | None) -> Ended:
    """For so long, as the provider says."""
    return Ended(
        outcome=Outcome.QUOTA,
        status=429,
        retry_after_ns=None if seconds is None else seconds * SECOND_NS,
        committed=True,
    )


def test_calls_of_the_same_limits_group_wait_until_it_is_whole_again() -> None:
    driver = Driver(two_groups())
    driver.end(driver.call(model="opus-1"), used_up(30))

    waiting = driver.call(model="opus-2")

    assert driver.scheduler.wakeup_ns() == 30 * SECOND_NS
    driver.at(30 * SECOND_NS - 1)
    assert waiting not in driver.answers
    driver.at(30 * SECOND_NS)
    assert driver.grant(waiting).reason is Reason.PROVIDER_QUOTA


def test_calls_of_another_group_are_held_up_by_nothing() -> None:
    driver = Driver(two_groups())
    driver.end(driver.call(model="opus-1"), used_up(30))

    assert driver.grant(driver.call(model="haiku-1"))


def test_a_later_word_does_not_cut_it_short() -> None:
    driver = Driver(two_groups())
    first, second, third = driver.calls(3, model="opus-1")
    for call, seconds in ((first, 30), (second, 1), (third, None)):
        driver.end(call, used_up(seconds))

    waiting = driver.call(model="opus-1")
    driver.at(SECOND_NS)

    assert waiting not in driver.answers
    assert driver.scheduler.wakeup_ns() == 30 * SECOND_NS


def test_it_is_known_through_a_reload() -> None:
    driver = Driver(two_groups())
    driver.end(driver.call(model="opus-1"), used_up(30))

    driver.load(two_groups())
    waiting = driver.call(model="opus-1")

    assert waiting not in driver.answers
    driver.at(30 * SECOND_NS)
    assert driver.grant(waiting)


def refuse(driver: Driver, seconds: int = 1) -> int:
    """A call goes and is refused; when the next may go, in seconds from then."""
    driver.end(driver.call(model="opus-1"), used_up(seconds))
    since_ns = driver.now_ns
    while (waiting := driver.call(model="opus-1")) not in driver.answers:
        driver.cancel(waiting)
        driver.now_ns += SECOND_NS
    driver.end(waiting, Ended(outcome=Outcome.IGNORED, committed=True))
    return (driver.now_ns - since_ns) // SECOND_NS


def test_a_word_that_was_waited_for_in_vain_is_doubled_up_to_a_minute() -> None:
    driver = Driver(two_groups())

    assert [refuse(driver) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert refuse(driver, 90) == 90


def test_the_first_success_makes_it_good_again() -> None:
    driver = Driver(two_groups())
    assert [refuse(driver) for _ in range(3)] == [1, 2, 4]

    driver.end(driver.call(model="opus-1"))

    assert refuse(driver) == 1


def test_what_was_refused_together_is_one_word() -> None:
    driver = Driver(two_groups())
    for call in driver.calls(5, model="opus-1"):
        driver.end(call, used_up(3))

    driver.call(model="opus-1")

    assert driver.scheduler.wakeup_ns() == 3 * SECOND_NS


def test_a_provider_that_does_not_say_how_long_holds_nobody_up() -> None:
    driver = Driver(two_groups())

    driver.end(driver.call(model="opus-1"), used_up(None))

    assert driver.grant(driver.call(model="opus-1"))
