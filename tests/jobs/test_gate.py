"""The start gate."""

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.jobs.gate import SPACING_S, Signals, StartGate


def gate(agents: int = 3) -> StartGate:
    return StartGate(agents, 60.0, Random(1))


@given(st.lists(st.floats(0, 5), max_size=50))
def test_no_two_jobs_start_within_a_second(gaps: list[float]) -> None:
    one, now_s, starts = gate(agents=100), 100.0, list[float]()
    for gap_s in gaps:
        now_s += gap_s
        if one.ask(now_s, 0, Signals()) is None:
            one.started(now_s)
            starts.append(now_s)
    assert all(later - earlier >= SPACING_S for earlier, later in pairwise(starts))


def test_a_hold_says_when_to_ask_again_and_then_lets_pass() -> None:
    one = gate()
    assert one.ask(10.0, 0, Signals()) is None
    one.started(10.0)
    hold = one.ask(10.2, 1, Signals())
    assert hold is not None
    assert hold.until_s is not None
    assert one.ask(hold.until_s, 1, Signals()) is None


def test_no_more_than_the_agents_are_alive() -> None:
    assert gate().ask(10.0, 2, Signals()) is None
    assert gate().ask(10.0, 3, Signals()) is not None


def test_waits_of_calls_hold_starts_while_somebody_runs() -> None:
    waits = Signals(longest_wait_s=61.0, wait_reason="provider-concurrency")
    hold = gate().ask(10.0, 1, waits)
    assert hold is not None
    assert "provider-concurrency" in hold.reason
    assert gate().ask(10.0, 0, waits) is None
    assert gate().ask(10.0, 1, Signals(longest_wait_s=59.0)) is None


def test_a_closed_limit_holds_starts_until_it_opens() -> None:
    hold = gate().ask(10.0, 0, Signals(opens_s=400.0))
    assert hold is not None
    assert hold.until_s == 400.0
    assert gate().ask(400.0, 0, Signals(opens_s=400.0)) is None


def test_a_budget_with_room_for_two_jobs_runs_two() -> None:
    assert gate().ask(10.0, 1, Signals(room=2)) is None
    assert gate().ask(10.0, 2, Signals(room=2)) is not None
    assert gate().ask(10.0, 0, Signals(room=0)) is not None
