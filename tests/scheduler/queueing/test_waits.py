"""Nobody waits for ever: under a flood of higher priority, and behind calls that are small enough to pass."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import Dimension, Objective, RateLimitSettings, Window
from hivemind_trio.scheduler import REMAINING
from hivemind_trio.scheduler.calls.waiting_call import PATIENCE_NS
from hivemind_trio.scheduler.limits.rate_limits import CLAIM_AFTER_NS
from hivemind_trio.scheduler.queueing.lane import OVERDUE_ONE_IN
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, agent, lane, program, provider, team, wish


@pytest.mark.slow
@settings(max_examples=12)
@given(
    limit=st.integers(1, 3),
    weights=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    before=st.integers(0, 3),
    objective=st.sampled_from(Objective),
    flood=st.lists(st.sampled_from(["mate", "stranger", "other lane"]), min_size=1, max_size=3),
)
def test_a_flood_of_higher_priority_delays_and_does_not_stop(
    limit: int, weights: tuple[int, int], before: int, objective: Objective, flood: list[str]
) -> None:
    driver = Driver(
        program(
            providers=[provider(limit=limit)],
            lanes=[
                lane("a", weight=weights[0], objective=objective),
                lane("b", weight=weights[1], objective=objective),
            ],
            agents=[agent("victim", team="t"), agent("mate", team="t", weight=3), agent("stranger", weight=9)],
            teams=[team("t")],
        )
    )
    driver.calls(limit, "first", lane="b")
    for _ in range(before):
        driver.call("victim", agent="victim", lane="a")
    victim = driver.call("victim", agent="victim", lane="a")

    seconds = 0
    while victim not in driver.granted:
        seconds += 1
        # One call ends in each second, and as many and more come that go before it.
        for who in [*flood, *flood]:
            driver.call(agent=who, lane="b" if who == "other lane" else "a", priority=9)
        driver.now_ns += SECOND_NS
        driver.end(driver.granted[-limit])
        turns = -(-sum(weights) // weights[0])
        assert seconds <= PATIENCE_NS // SECOND_NS + OVERDUE_ONE_IN * (before + 2) * turns + limit, "it starves"


@pytest.mark.slow
@settings(max_examples=12)
@given(
    window=st.sampled_from(Window),
    window_s=st.sampled_from([10, 60]),
    size=st.integers(20, 100),
    small=st.integers(1, 9),
    every_ms=st.sampled_from([50, 300, 1_000]),
)
def test_who_is_passed_loses_twenty_seconds_and_what_it_takes_to_earn_its_own(
    window: Window, window_s: int, size: int, small: int, every_ms: int
) -> None:
    limit = RateLimitSettings(
        dimension=Dimension.INPUT, amount=100, window_ns=window_s * SECOND_NS, headroom=0.0, window=window
    )
    base = provider(groups={None: None})
    driver = Driver(program(providers=[attrs.evolve(base, groups=(attrs.evolve(base.groups[0], quotas=(limit,)),))]))
    for _ in range(100 // small):
        driver.ask(attrs.evolve(wish(), tokens_in=small, tokens_max_out=1), "y")
    large = driver.ask(attrs.evolve(wish(), tokens_in=size, tokens_max_out=1), "x")

    while large not in driver.granted:
        driver.now_ns += every_ms * 10**6
        driver.ask(attrs.evolve(wish(), tokens_in=small, tokens_max_out=1), "y" if driver.now_ns % 3 else "z")
        # What was taken before it became the next to go has to age out, and then it goes.
        assert driver.now_ns <= CLAIM_AFTER_NS + (2 * window_s + 5) * SECOND_NS, "it is passed for ever"


@settings(max_examples=20)
@given(
    others=st.integers(2, 12),
    held_s=st.integers(60, 255),
    tries=st.integers(0, 10),
    deadline_s=st.none() | st.integers(60, 255),
)
def test_who_has_few_calls_left_is_served_before_its_client_is_sent_away(
    others: int, held_s: int, tries: int, deadline_s: int | None
) -> None:
    driver = Driver(program(providers=[provider(limit=1, objective=Objective.MAKESPAN)]))
    driver.now_ns = began_ns = SECOND_NS
    held_ns = held_s * SECOND_NS
    of = {}

    def ask(who: str, left: int, **more: Any) -> int:
        request = wish(**more)
        said = attrs.evolve(request, headers={**request.headers, REMAINING: str(left)})
        call = driver.ask(said, who, held_ns=held_ns, patience_ns=held_ns * (1 + tries))
        of[call] = who
        return call

    for number in range(others):
        ask(f"long {number}", 99)
    deadline_ns = None if deadline_s is None else deadline_s * SECOND_NS
    last = ask("last", 1, deadline_ns=deadline_ns)

    while last not in driver.granted:
        driver.now_ns += SECOND_NS
        ended = driver.granted[-1]
        driver.end(ended)
        ask(of[ended], 99)
    # Half of the wait, in which the others go first, and then those that came before it.
    assert driver.now_ns - began_ns <= min(held_ns, deadline_ns or held_ns) // 2 + (others + 1) * SECOND_NS


def test_who_was_sent_away_and_comes_back_goes_before_those_who_came_meanwhile() -> None:
    driver = Driver(program(providers=[provider(limit=1, objective=Objective.MAKESPAN)]))
    held_ns = 60 * SECOND_NS
    driver.now_ns = SECOND_NS
    running = driver.call("first")
    early = driver.ask(wish(), "early", again="e", held_ns=held_ns)
    driver.now_ns += 20 * SECOND_NS
    for number in range(3):
        driver.ask(wish(), f"meanwhile {number}", held_ns=held_ns)
    driver.now_ns += 40 * SECOND_NS
    driver.cancel(early)
    driver.now_ns += 10 * SECOND_NS
    back = driver.ask(wish(), "early", again="e", held_ns=held_ns)

    assert driver.end(running) == [back]
