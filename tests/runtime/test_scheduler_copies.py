"""A copy of a scheduler goes on as the scheduler itself: the machines of its room hold for a chain of copies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis.stateful import rule

from hivemind_trio.model import Outcome
from hivemind_trio.runtime import SchedulerCopies
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, CallId, Scheduler
from tests.scheduler.driver import Driver
from tests.scheduler.machines.test_failures_machine import FailuresMachine
from tests.scheduler.machines.test_scheduler_machine import SchedulerMachine
from tests.support.policies import compiled
from tests.support.programs import wish

POLICY = """
provider p { api anthropic; base "http://127.0.0.1:1"; key env(K); concurrency 2; limits { requests 60/min } }
budget day { requests 100/day }
"""


def copied(scheduler: Scheduler) -> Scheduler:
    return SchedulerCopies.of(scheduler, scheduler.state.turns).copy()


class CopiedSchedulerMachine(SchedulerMachine):
    @rule()
    def go_on_with_a_copy(self) -> None:
        self.scheduler = copied(self.scheduler)


class CopiedFailuresMachine(FailuresMachine):
    @rule()
    def go_on_with_a_copy(self) -> None:
        self.scheduler = copied(self.scheduler)


TestCopiedScheduler: Any = pytest.mark.slow(CopiedSchedulerMachine.TestCase)
TestCopiedFailures: Any = pytest.mark.slow(CopiedFailuresMachine.TestCase)


def test_a_copy_and_its_original_do_not_see_each_other() -> None:
    driver = Driver(compiled(POLICY))
    for number in range(8):
        driver.ask(wish(), f"agent-{number % 3}")
    before = driver.scheduler.snapshot()
    copies = SchedulerCopies.of(driver.scheduler, driver.scheduler.state.turns)
    first, second = copies.copy(), copies.copy()

    done = AttemptEnded(CallId(0), AttemptResult(outcome=Outcome.SUCCEEDED))
    assert first.handle(done, 5) == second.handle(done, 5)
    assert driver.scheduler.snapshot() == before
    assert first.snapshot().waiting == before.waiting - 1
    assert first.state.program is driver.scheduler.state.program
