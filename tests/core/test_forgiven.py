"""What a failed attempt had taken of a fixed window: whether the provider has counted it, answers show."""

from __future__ import annotations

from itertools import count

import attrs
import pytest

from hivemind_trio.core import AnswerBegan, CallId, Ended
from hivemind_trio.model import Dimension, Outcome, Reading
from hivemind_trio.policy import Group, Jitter, Quota, Retry, Window
from tests.support.programs import SECOND_NS, program, provider

from .driver import Driver

MINUTE = 60 * SECOND_NS
ENDS_NS = MINUTE + SECOND_NS // 2
"""What the answers tell; not in whole seconds, so it is taken at its word."""
BROKEN = Ended(outcome=Outcome.FAILED, status=502)


class Window5:
    """A provider that allows five requests a minute, in windows the first of which is over at `ENDS_NS`; one slot."""

    def __init__(self, *, counts_failures: bool) -> None:
        five = Quota(dimension=Dimension.REQUESTS, amount=5, window_ns=MINUTE, headroom=0.0, window=Window.FIXED)
        declared = attrs.evolve(provider("p", limit=1), groups=(Group(glob=None, concurrency=None, quotas=(five,)),))
        retry = Retry(attempts=9, first_ns=SECOND_NS, last_ns=SECOND_NS, jitter=Jitter.NONE, ratio=1.0)
        self.driver = Driver(program(providers=[declared], retries=[retry]))
        self.counts_failures = counts_failures
        self.used = 0
        self.ends_ns = ENDS_NS
        self.names = count()

    def call(self) -> int:
        return self.driver.call(f"{next(self.names)}")

    def serve(self, call: int) -> None:
        """It is answered."""
        self.used += 1
        self.answer(call, self.used)
        self.driver.end(call)

    def answer(self, call: int, used: int) -> None:
        resets_ns = self.ends_ns - self.driver.now_ns
        left = Reading(dimension=Dimension.REQUESTS, limit=5, remaining=5 - used, resets_ns=resets_ns)
        self.driver.post(AnswerBegan(CallId(call), (left,)))

    def fail(self, call: int) -> None:
        self.used += self.counts_failures
        self.driver.end(call, BROKEN)

    def granted(self, call: int) -> int:
        return self.driver.granted.count(call)

    def turn(self) -> None:
        """The window is over, and the next one begins."""
        self.driver.at(self.ends_ns)
        self.used, self.ends_ns = 0, self.ends_ns + MINUTE

    def wait(self) -> None:
        """Until a retry is due."""
        self.driver.at(self.driver.now_ns + SECOND_NS)


def shown(*, counts_failures: bool) -> Window5:
    """Two of five are left, and an answer behind a failed attempt has shown whether that was counted."""
    window = Window5(counts_failures=counts_failures)
    window.serve(window.call())
    failed = window.call()
    window.fail(failed)
    window.wait()
    window.serve(failed)
    while window.used < 3:
        window.serve(window.call())
    return window


def test_what_was_shown_not_to_be_counted_costs_nothing_of_the_window() -> None:
    window = shown(counts_failures=False)
    window.serve(window.call())
    last, behind = window.call(), window.call()

    window.fail(last)  # nobody is left to be answered in this window
    window.wait()

    assert window.granted(last) == 2
    window.serve(last)
    assert not window.granted(behind)
    assert window.used == 5


def test_what_is_not_counted_is_kept_for_the_call_that_failed_until_it_is_gone() -> None:
    window = shown(counts_failures=False)
    window.serve(window.call())
    last, behind = window.call(), window.call()

    window.fail(last)

    assert not window.granted(behind), "the slot is free, and the last of the window is not"
    window.driver.cancel(last)
    assert window.granted(behind) == 1, "nobody comes back for it"


def test_what_is_counted_stays_taken() -> None:
    window = shown(counts_failures=True)
    window.serve(window.call())
    last = window.call()

    window.fail(last)
    window.wait()

    assert window.used == 5
    assert window.granted(last) == 1
    window.driver.at(ENDS_NS)
    assert window.granted(last) == 2


def test_until_an_answer_shows_it_what_failed_is_taken_to_be_counted() -> None:
    window = Window5(counts_failures=False)
    for _ in range(4):
        window.serve(window.call())
    last = window.call()

    window.fail(last)
    window.wait()

    assert window.granted(last) == 1


def test_an_answer_that_knows_less_left_contradicts_it() -> None:
    window = shown(counts_failures=False)
    failed = window.call()
    window.fail(failed)
    window.wait()
    window.used += 1  # it was counted after all, or others were here
    window.serve(failed)
    window.turn()
    for _ in range(4):
        window.serve(window.call())
    last = window.call()

    window.fail(last)
    window.wait()

    assert window.granted(last) == 1


@pytest.mark.parametrize("outcome", [Outcome.QUOTA, Outcome.CONCURRENCY])
def test_a_refusal_is_no_failure(outcome: Outcome) -> None:
    window = shown(counts_failures=False)
    window.serve(window.call())
    last = window.call()

    window.driver.end(last, Ended(outcome=outcome, status=429, retry_after_ns=SECOND_NS))
    window.driver.at(10 * SECOND_NS)

    assert window.granted(last) == 1


def test_an_answer_that_breaks_off_was_counted() -> None:
    window = shown(counts_failures=False)
    window.serve(window.call())
    last = window.call()

    window.driver.end(last, Ended(outcome=Outcome.FAILED, status=200, committed=True))

    assert not window.granted(window.call())
