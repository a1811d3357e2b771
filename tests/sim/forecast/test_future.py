"""The future of a live scheduler: what its copy decides, with agents that go on as they have done lately."""

from __future__ import annotations

from random import Random

from hivemind_trio.model import Api, Reason, Request
from hivemind_trio.runtime import SchedulerCopies
from hivemind_trio.scheduler import Call, CallArrived, CallId, LedgerOpened, Scheduler
from hivemind_trio.sim import AgentCourse, ExpectedAgent, Future
from tests.scheduler.driver import Driver
from tests.support.policies import compiled

from .habits import habits

SECOND_NS = 1_000_000_000
HORIZON_NS = 600 * SECOND_NS

PROVIDER = 'provider p {{ api anthropic; base "http://127.0.0.1:1"; key env(K); concurrency {cap} {more} }}\n'


def request(tokens: int = 1_000, model: str = "claude-sonnet-4-5") -> Request:
    return Request(apis=(Api.ANTHROPIC,), model=model, path="/v1/messages", tokens_in=tokens)


def future(scheduler: Scheduler, *gaps_s: int) -> Future:
    copy = SchedulerCopies.of(scheduler, scheduler.state.turns).copy()
    return Future(copy, habits(10, gaps_s=gaps_s), Random(1))


def newcomers(ahead: Future, number: int, calls: int = 1) -> list[AgentCourse]:
    return [
        ahead.expect(ExpectedAgent(call=Call(id=CallId(0), request=request(), caller=f"new-{one}"), calls=calls))
        for one in range(number)
    ]


def starts_s(courses: list[AgentCourse]) -> list[float | None]:
    return [None if one.first_start_ns is None else one.first_start_ns / SECOND_NS for one in courses]


def busy(policy: str, calls: int) -> Driver:
    driver = Driver(compiled(policy))
    for number in range(calls):
        driver.ask(request(), f"old-{number}")
    return driver


def test_newcomers_wait_behind_the_calls_that_wait_already() -> None:
    driver = busy(PROVIDER.format(cap=2, more=""), 3)
    driver.at(4 * SECOND_NS)
    ahead = future(driver.scheduler)
    courses = newcomers(ahead, 3)

    assert ahead.run(HORIZON_NS, 1_000)
    # Two end 6 s from now: the one that waits goes first, then the newcomers as slots come free.
    assert starts_s(courses) == [6.0, 16.0, 16.0]
    assert courses[0].ended_ns == 16 * SECOND_NS
    assert ahead.blocks(courses[2]) is Reason.PROVIDER_CONCURRENCY


def test_agents_that_call_now_call_again() -> None:
    driver = busy(PROVIDER.format(cap=1, more=""), 1)
    alone, beside = future(driver.scheduler), future(driver.scheduler, 0)
    done, fair = newcomers(alone, 1, calls=3), newcomers(beside, 1, calls=3)
    alone.run(HORIZON_NS, 1_000)
    beside.run(HORIZON_NS, 1_000)

    assert done[0].ended_ns == 40 * SECOND_NS
    assert fair[0].ended_ns == 60 * SECOND_NS  # the other one has every second turn
    assert fair[0].longest_wait_ns == 10 * SECOND_NS


def test_a_rate_limit_bounds_newcomers() -> None:
    driver = Driver(compiled(PROVIDER.format(cap=50, more="; limits { requests 4/min; window sliding }")))
    ahead = future(driver.scheduler)
    courses = newcomers(ahead, 6)
    ahead.run(HORIZON_NS, 1_000)

    starts = starts_s(courses)
    assert sum(start is not None and start < 60 for start in starts) == 4
    assert all(start is not None and start >= 60 for start in starts[4:])
    assert ahead.blocks(courses[5]) is Reason.LIMITS


def test_a_budget_kept_by_a_ledger_draws_credit_in_the_future_too() -> None:
    driver = Driver(compiled(PROVIDER.format(cap=9, more="") + "budget few { requests 3/day; at 100% { hold } }"))
    driver.post(LedgerOpened(()))
    ahead = future(driver.scheduler)
    courses = newcomers(ahead, 5)
    ahead.run(HORIZON_NS, 1_000)

    assert starts_s(courses) == [0.0, 0.0, 0.0, None, None]
    assert ahead.blocks(courses[4]) is Reason.BUDGET


def test_a_rejection_ends_a_course() -> None:
    driver = Driver(compiled(PROVIDER.format(cap=9, more="") + 'rule no when tokens.in > 10 { deny "too much" }'))
    ahead = future(driver.scheduler)
    (course,) = newcomers(ahead, 1)
    ahead.run(HORIZON_NS, 1_000)

    assert course.rejection is not None
    assert course.rejection.reason is Reason.DENIED
    assert "too much" in course.rejection.message
    assert course.ended_ns is None


def test_the_scheduler_itself_is_not_touched() -> None:
    driver = busy(PROVIDER.format(cap=1, more=""), 3)
    before = driver.scheduler.snapshot(), driver.scheduler.wakeup_ns()
    ahead = future(driver.scheduler, 1)
    newcomers(ahead, 4, calls=5)
    ahead.run(HORIZON_NS, 1_000)

    assert (driver.scheduler.snapshot(), driver.scheduler.wakeup_ns()) == before
    assert driver.scheduler.handle(CallArrived(Call(id=CallId(90), request=request(), caller="x")), 1) == []


def test_too_many_events_end_a_future() -> None:
    driver = busy(PROVIDER.format(cap=1, more=""), 3)
    ahead = future(driver.scheduler, 1)
    courses = newcomers(ahead, 50, calls=5)

    assert not ahead.run(HORIZON_NS, 40)
    assert starts_s(courses)[-1] is None
