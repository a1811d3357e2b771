"""Conduct of providers: durations are not deceived by what has not ended, and failures come in rows."""

from __future__ import annotations

from random import Random

import pytest

from hivemind_trio.sim import Habits
from hivemind_trio.sim.forecast.habits import SERVED as SERVED_AS_USUAL
from hivemind_trio.sim.forecast.habits import Attempts, Durations

from .habits import REFUSED, SECOND_NS, SERVED, seen


def test_attempts_in_flight_count_as_longer_than_their_age() -> None:
    """Half of the attempts take 1 s and half 20 s; after 2 s only the short ones have ended."""
    short, under_way = [seen(1) for _ in range(10)], [seen(2, None) for _ in range(10)]
    random = Random(1)
    durations = Durations.of([*short, *under_way])
    drawn = [durations.draw(random)[0] for _ in range(2_000)]

    assert sum(one == SECOND_NS for one in drawn) / len(drawn) == pytest.approx(0.5, abs=0.05)
    assert all(one == SECOND_NS or one > 2 * SECOND_NS for one in drawn)


@pytest.mark.parametrize(("age_s", "lasts_s"), [(0, 15), (14, 15), (20, 26)])
def test_before_any_has_ended_attempts_last_as_long_as_usual(age_s: int, lasts_s: int) -> None:
    """Those in flight for a moment say nothing about how long one takes."""
    durations = Durations.of([seen(0.1, None), seen(2, None)])

    assert durations.draw(Random(1), age_s * SECOND_NS) == (lasts_s * SECOND_NS, SERVED_AS_USUAL)


@pytest.mark.parametrize("age_s", [0, 3, 9, 50])
def test_what_has_taken_some_time_takes_longer(age_s: int) -> None:
    durations = Durations.of([seen(time) for time in range(1, 11)])

    assert all(durations.draw(Random(seed), age_s * SECOND_NS)[0] > age_s * SECOND_NS for seed in range(50))


def test_an_attempt_after_a_failure_is_drawn_from_those_that_came_after_one() -> None:
    """Nine in ten are served; but of those after a refusal nine in ten are refused."""
    calm = [seen(10) for _ in range(180)]
    storm = [seen(0.1, REFUSED if number % 10 else SERVED, after_failure=True) for number in range(20)]
    random = Random(1)

    def refused_after(failed: bool) -> float:
        found = 0
        for _ in range(500):
            attempts = Attempts.of([*storm, *calm])
            attempts.ended(1, REFUSED if failed else SERVED)
            found += attempts.draw(random)[1] is REFUSED
        return found / 500

    assert refused_after(failed=True) > 0.8
    assert refused_after(failed=False) < 0.05


def test_a_slow_answer_that_began_before_a_refusal_does_not_end_the_row() -> None:
    attempts = Attempts.of([seen(5, REFUSED, after_failure=True) for _ in range(50)] + [seen(5) for _ in range(50)])
    attempts.ended(20, REFUSED)
    attempts.ended(10, SERVED)

    assert sum(attempts.draw(Random(seed))[1] is REFUSED for seed in range(100)) > 90


def test_futures_look_back_over_different_spans() -> None:
    """A provider that was slow for long and is quick now may stay quick, or not."""
    habits = Habits(attempts={"p": [seen(60) for _ in range(200)] + [seen(1) for _ in range(30)]}, gaps_ns=[])
    medians = set()
    for seed in range(30):
        random = Random(seed)
        attempts = habits.drawn(random)["p"]
        drawn = sorted(attempts.draw(random)[0] for _ in range(99))
        medians.add(drawn[49] // SECOND_NS)

    assert medians == {1, 60}


def test_nobody_calls_again_who_has_left() -> None:
    gone = Habits(attempts={}, gaps_ns=[5], leaving=1.0)

    assert gone.gap_ns(Random(1), stays=False) is None
    assert gone.gap_ns(Random(1), stays=True) == 5
    assert Habits(attempts={}, gaps_ns=[]).gap_ns(Random(1), stays=True) == 0
