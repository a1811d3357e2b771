"""A call that is tried again: when, how often, and what it holds meanwhile, which is nothing."""

from __future__ import annotations

import pytest

from hivemind_trio.core import Ended, Grant, Settle
from hivemind_trio.model import Outcome, Reason, Request, Treatment
from hivemind_trio.policy import Breaker, Failure, Jitter, Retry, WhileOpen
from tests.support.ends import IGNORED, SUCCEEDED
from tests.support.programs import NO_RETRY, SECOND_NS, agent, lane, program, provider, treatment

from .driver import Driver

EXACTLY = Retry(first_ns=SECOND_NS, last_ns=8 * SECOND_NS, jitter=Jitter.NONE)
"""Back-offs of 1, 2, 4 and then 8 seconds."""

BROKEN = Ended(outcome=Outcome.FAILED, status=500)
"""Perhaps executed."""
BUSY = Ended(outcome=Outcome.OVERLOADED, status=529)
"""Turned away at the door."""


def told(retry_after_ns: int, outcome: Outcome = Outcome.BURST, status: int = 429) -> Ended:
    """The provider says when to come back."""
    return Ended(outcome=outcome, status=status, retry_after_ns=retry_after_ns)


def due_ns(driver: Driver) -> int:
    wakeup_ns = driver.scheduler.wakeup_ns()
    assert wakeup_ns is not None
    return wakeup_ns


def try_again(driver: Driver, call: int, ended: Ended) -> int:
    """End an attempt and let time pass until the next begins; return how long that was."""
    began_ns = driver.now_ns
    assert driver.end(call, ended) == []
    driver.at(due_ns(driver))
    assert driver.granted[-1] == call
    return driver.now_ns - began_ns


def failing_over(request: Request) -> Treatment:
    """The first attempt goes to `p`, every other to `q`."""
    return treatment(provider="p" if request.attempt == 1 else "q")


# ---- when it is due ----


def test_a_retry_that_is_due_at_once_begins_at_once_though_it_goes_to_another_provider() -> None:
    driver = Driver(program(providers=[provider("p"), provider("q")], retries=[EXACTLY], decide=failing_over))
    call = driver.call()

    assert driver.end(call, told(0)) == [call]
    assert driver.grant(call).treatment.provider == "q"
