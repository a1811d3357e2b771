"""Estimates of starts: those of a scheduler whose future is known, and what holds for every estimate."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Request
from hivemind_trio.runtime import SchedulerCopies
from hivemind_trio.scheduler import Call, CallArrived, CallId, PolicyLoaded
from hivemind_trio.scheduler.scheduler import SLICE
from hivemind_trio.sim import ExpectedAgent, Future, Habits, StartEstimate, Starts, foresee
from hivemind_trio.sim.forecast.calibration import SHARPEST_NS
from hivemind_trio.sim.forecast.starts import MIDDLE
from tests.scheduler.driver import Driver
from tests.support.policies import compiled

from .habits import habits

SECOND_NS = 1_000_000_000

CAP = 'provider p {{ api anthropic; base "http://127.0.0.1:1"; key env(K); concurrency {cap} {more} }}\n'


def busy(policy: str, calls: int) -> Driver:
    driver = Driver(compiled(policy))
    for number in range(calls):
        driver.ask(Request(apis=(Api.ANTHROPIC,), model="claude-sonnet-4-5", path="/v1/messages"), f"old-{number}")
    return driver


def waiting(driver: Driver) -> list[CallId]:
    return list(driver.scheduler.state.room.waiters)


def certain(ns: int) -> StartEstimate:
    """Return the estimate of a start that is the same in all futures."""
    return StartEstimate(ns, ns + SHARPEST_NS)


def starts(driver: Driver, seen: Habits, most: int = 20) -> Starts:
    return foresee(SchedulerCopies.of(driver.scheduler, driver.scheduler.state.turns).copy, seen, (), most=most)


def test_calls_start_as_answers_end() -> None:
    driver = busy(CAP.format(cap=2, more=""), 5)
    driver.at(4 * SECOND_NS)
    found = starts(driver, habits(10))
    calls = waiting(driver)

    at = [6 * SECOND_NS, 6 * SECOND_NS, 16 * SECOND_NS]
    assert [found.of(call) for call in calls] == [certain(ns) for ns in at]
    assert found.first(calls) == certain(at[0])
    assert found.last(calls) == certain(at[2])
    later = CallId(99)  # it has come since
    assert found.last([*calls, later]) == found.last(calls)
    assert found.of(later) == found.first([later]) == StartEstimate(None, None)


def test_starts_are_foreseen_between_two_slices_of_a_reload() -> None:
    driver = busy(CAP.format(cap=2, more=""), SLICE + 9)
    driver.scheduler.handle(PolicyLoaded(compiled(CAP.format(cap=3, more=""))), driver.now_ns)
    late = Call(id=CallId(999), request=Request(apis=(Api.ANTHROPIC,), path="/v1/messages"), caller="late")
    driver.scheduler.handle(CallArrived(late), driver.now_ns)
    books = driver.scheduler.state
    assert books.unsettled, "some wait for the policy to decide them"
    assert books.latecomers

    found = starts(driver, habits(10))

    assert all(found.of(call).p50_ns is not None for call in books.waiters)


def test_a_call_that_will_be_rejected_has_no_start() -> None:
    driver = busy(CAP.format(cap=1, more="") + "lane default { deadline 15s }", 4)
    found = starts(driver, habits(10))
    calls = waiting(driver)

    assert [found.of(call).p50_ns for call in calls] == [10 * SECOND_NS, None, None]
    assert found.first(calls).p50_ns == found.last(calls).p50_ns == 10 * SECOND_NS
    assert found.last(calls[1:]) == StartEstimate(None, None)


def test_whoever_is_sent_away_before_leaves_the_line_to_the_others() -> None:
    """One at a time, 10 s each: of four that wait, two are held for 15 s only."""
    driver = Driver(compiled(CAP.format(cap=1, more="")))
    for number, held_s in enumerate((60, 60, 15, 15, 60)):
        request = Request(apis=(Api.ANTHROPIC,), model="claude-sonnet-4-5", path="/v1/messages")
        call = Call(id=CallId(number), request=request, caller=f"c-{number}", held_ns=held_s * SECOND_NS)
        driver.scheduler.handle(CallArrived(call), driver.now_ns)
    found = starts(driver, habits(10))

    # Half of a wait of 15 s is over before the first answer ends, so one of those two goes first.
    assert [found.of(CallId(number)).p50_ns for number in range(1, 5)] == [
        20 * SECOND_NS,
        10 * SECOND_NS,
        None,
        30 * SECOND_NS,
    ]


def test_an_estimate_is_of_the_futures_in_which_the_call_starts() -> None:
    call = CallId(1)
    found = Starts([{call: None}, {call: None}, {call: 5}, {call: 7}, {call: 9}], {call: "p"})

    assert found.raw(call) == StartEstimate(7, 9)
    assert found.raw(call, 8) == StartEstimate(9, 9), "it has not started for 8"
    assert found.raw(call, 10) == StartEstimate(None, None)
    assert Starts([{call: 5}, {}, {}], {call: "p"}).raw(call) == StartEstimate(None, None)


def test_a_group_that_still_waits_starts_after_now() -> None:
    """An estimate is kept for seconds: what it foresaw for before now has not come to pass."""
    calls = [CallId(1), CallId(2)]
    found = Starts([{calls[0]: 2, calls[1]: 9}, {calls[0]: 3, calls[1]: 11}], dict.fromkeys(calls, "p"))

    assert (found.first(calls).p50_ns, found.first(calls, 5).p50_ns) == (2, 9)
    assert found.last(calls, 10) == certain(11)
    assert found.first(calls, 12) == StartEstimate(None, None)


def test_all_futures_together_have_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = busy(CAP.format(cap=1, more=""), 9)
    assert len(starts(driver, habits(10), most=20).futures) == 20
    monkeypatch.setattr("hivemind_trio.sim.forecast.starts.ALL_EVENTS_MAX", 30)

    assert 1 < len(starts(driver, habits(10), most=20).futures) < 6


def test_no_more_futures_than_the_time_allows() -> None:
    driver = busy(CAP.format(cap=1, more=""), 2)
    asked = iter([True, True, False])
    copies = SchedulerCopies.of(driver.scheduler, driver.scheduler.state.turns)

    assert len(foresee(copies.copy, habits(10), (), most=50, goes_on=lambda: next(asked)).futures) == 3


def test_a_future_without_waiting_calls_ends_at_once() -> None:
    driver = busy(CAP.format(cap=1, more=""), 1)
    future = Future(SchedulerCopies.of(driver.scheduler, driver.scheduler.state.turns).copy(), habits(10), Random(1))
    other = future.expect(
        ExpectedAgent(call=Call(id=CallId(0), request=Request(apis=(Api.ANTHROPIC,)), caller="x")), asked=False
    )
    assert future.starts(60 * SECOND_NS, 1_000) == {}
    assert other.first_start_ns is None


@given(
    cap=st.integers(1, 4),
    calls=st.integers(0, 12),
    times_s=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    age_s=st.integers(0, 30),
    gaps_s=st.lists(st.integers(0, 20), max_size=3).map(tuple),
)
def test_estimates_are_ordered_and_as_late_as_the_work_before_them(
    cap: int, calls: int, times_s: list[int], age_s: int, gaps_s: tuple[int, ...]
) -> None:
    """Every call starts, the bound is not before the middle, a group's first not after its members' and its last not
    before them; and with a fixed number of slots the n-th cannot start before the slots have been free n times.
    """
    driver = busy(CAP.format(cap=cap, more=""), calls)
    driver.at(age_s * SECOND_NS)
    found, ids = starts(driver, habits(*times_s, gaps_s=gaps_s), 7), waiting(driver)
    first, last = found.first(ids), found.last(ids)
    for each in found.futures:
        assert set(each) == set(ids)
        turns = sorted(at for at in each.values() if at is not None)
        for number in range(cap, len(turns)):
            assert turns[number] >= turns[number - cap] + min(times_s) * SECOND_NS
    for one in map(found.of, ids):
        assert one.p50_ns is not None
        assert one.p90_ns is not None
        assert first.p50_ns is not None
        assert first.p90_ns is not None
        assert last.p50_ns is not None
        assert last.p90_ns is not None
        assert 0 <= one.p50_ns <= one.p90_ns
        assert first.p50_ns <= one.p50_ns <= last.p50_ns
        assert first.p90_ns <= one.p90_ns <= last.p90_ns


@given(st.lists(st.none() | st.integers(0, 100), min_size=1, max_size=40))
def test_so_many_of_the_futures_are_within_the_estimate(seen: list[int | None]) -> None:
    call = CallId(1)
    found = Starts([{} if at is None else {call: at} for at in seen], {call: "p"}).of(call)
    for bound, part in ((found.p50_ns, MIDDLE), (found.p90_ns, 0.9)):
        within = sum(at is not None and (bound is None or at <= bound) for at in seen)
        if bound is not None:
            assert within >= part * len(seen)
        else:
            assert sum(at is None for at in seen) >= (1 - part) * len(seen) - 1
