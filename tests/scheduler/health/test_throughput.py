"""Hill climb on throughput: where the limit goes after a cohort at it."""

from __future__ import annotations

from math import log
from random import Random
from statistics import fmean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.scheduler.health.throughput_search import (
    STAY_NS,
    STAY_SHARE,
    STEP_DOWN,
    STEP_FAR_DOWN,
    Moments,
    ThroughputSearch,
)
from tests.support.programs import SECOND_NS


class Climb:
    """A search and the limit that it is obeyed with; answers at a limit take what the test says."""

    def __init__(self, limit: int) -> None:
        self.search = ThroughputSearch()
        self.limit = limit
        self.now_ns = SECOND_NS
        self.search.moved(self.now_ns)

    def cohort(self, lasts_s: float, random: Random | None = None, most: int = 1_000) -> int | None:
        """Successes at this limit until the search wants another one. Return it, and go there."""
        began_ns = self.now_ns
        for number in range(most):
            lasted_s = lasts_s * (random.uniform(0.9, 1.1) if random is not None else 1.0)
            # As many are in flight as the limit allows, each begun a little later than the one before.
            granted_ns = began_ns + int(number * lasts_s / self.limit * SECOND_NS)
            self.now_ns = max(self.now_ns, granted_ns + int(lasted_s * SECOND_NS))
            to = self.search.on_success(self.limit, 100, granted_ns=granted_ns, now_ns=self.now_ns)
            if to is not None:
                self.limit = to
                self.search.moved(self.now_ns)
                return to
        return None


def test_the_first_comparison_is_with_twice_as_many() -> None:
    climb = Climb(10)

    assert climb.cohort(1.0) == 20
    assert not climb.search.is_down


def test_where_more_finish_no_more_fewer_are_tried() -> None:
    climb = Climb(10)
    climb.cohort(1.0)

    assert climb.cohort(2.0) == int(10 * STEP_DOWN)
    assert climb.search.is_down


def test_where_more_finish_plainly_less_the_step_down_is_larger() -> None:
    climb = Climb(10)
    climb.cohort(1.0)

    assert climb.cohort(4.0) == int(10 * STEP_FAR_DOWN)


def knee(limit: int) -> float:
    """Return the duration at a provider that serves ten at once, and all the slower the more there are."""
    return max(1.0, (limit / 10) ** 2)


def test_trials_of_other_limits_become_rare_where_they_do_not_help() -> None:
    climb = Climb(10)
    away, times = 0.0, []
    while climb.now_ns < 3_600 * SECOND_NS:
        limit, began_ns = climb.limit, climb.now_ns
        climb.cohort(knee(limit), most=40)
        if limit != 10:
            away += (climb.now_ns - began_ns) / SECOND_NS
            times.append(began_ns)

    assert len(times) <= 16, "each trial costs throughput, and the tenth has told no more than the first"
    assert away <= 0.1 * 3_600


def test_a_trial_is_not_repeated_within_a_multiple_of_what_it_took() -> None:
    climb = Climb(10)
    climb.cohort(100.0)
    began_ns = climb.now_ns
    climb.cohort(400.0)

    assert climb.search.stays_until_ns >= climb.now_ns + STAY_SHARE * (climb.now_ns - began_ns) > climb.now_ns + STAY_NS


def test_once_the_same_limit_finishes_more_others_are_tried_again_soon() -> None:
    climb = Climb(10)
    while climb.now_ns < 3_600 * SECOND_NS:
        climb.cohort(knee(climb.limit), most=40)
    climb.search.stays_until_ns = climb.now_ns + 10 * STAY_NS
    climb.limit = 10
    climb.search.reset(climb.now_ns)

    climb.cohort(0.5, most=8)

    assert climb.search.stays_until_ns <= climb.now_ns + STAY_NS


def test_where_fewer_do_as_well_the_limit_goes_on_down() -> None:
    climb = Climb(10)
    climb.cohort(1.0)
    climb.cohort(2.0)

    assert climb.cohort(0.7) == round(7 * STEP_DOWN)


def test_where_fewer_finish_plainly_more_the_next_step_down_is_larger() -> None:
    climb = Climb(10)
    climb.cohort(1.0)
    climb.cohort(2.0)

    assert climb.cohort(0.3) == round(7 * STEP_FAR_DOWN)


def test_the_number_between_two_that_were_tried_is_tried_as_well() -> None:
    climb = Climb(4)
    climb.cohort(1.0)

    assert climb.cohort(2.0) == 3, "of eight and four"


def test_a_trial_of_more_is_smaller_each_time_that_it_did_not_help() -> None:
    climb, raised = Climb(20), []
    while climb.now_ns < 3_600 * SECOND_NS:
        limit = climb.limit
        if (to := climb.cohort(max(1.0, (limit / 20) ** 2), most=40)) is not None and to > max(limit, 20):
            raised.append(to)

    assert raised[:4] == [40, 30, 25, 25]


def test_where_fewer_finish_less_the_best_limit_comes_back() -> None:
    climb = Climb(10)
    climb.cohort(1.0)
    climb.cohort(2.0)

    assert climb.cohort(1.0) == 10


def test_growth_stops_where_throughput_does() -> None:
    climb = Climb(10)
    assert climb.cohort(1.0) == 20

    # Twice as many take twice as long.
    climb.cohort(2.0)

    assert climb.limit < 10
    assert climb.search.stays_until_ns >= climb.now_ns + STAY_NS - 1


def test_what_began_before_the_limit_was_changed_says_nothing_of_it() -> None:
    climb = Climb(10)

    for _ in range(100):
        assert climb.search.on_success(10, 1, granted_ns=climb.now_ns - 1, now_ns=climb.now_ns + SECOND_NS) is None


@pytest.mark.parametrize("filled_s", [0.0, 1.5])
def test_a_higher_limit_is_given_up_once_its_own_attempts_have_had_their_time(filled_s: float) -> None:
    climb = Climb(10)
    assert climb.cohort(1.0) == 20
    moved_ns = climb.now_ns
    filled_ns = moved_ns + int(filled_s * SECOND_NS)
    for _ in range(9):
        climb.search.on_granted(20, moved_ns)
    climb.search.on_granted(20, filled_ns)  # now they are half of the limit; until then others were in flight

    def ends_at(now_ns: int) -> int | None:
        """An attempt ends that began before, so that it is no evidence in itself."""
        return climb.search.on_success(20, 100, granted_ns=moved_ns - 1, now_ns=now_ns)

    # At the throughput from before all twenty would have ended in two seconds.
    assert ends_at(filled_ns + 2 * SECOND_NS - SECOND_NS // 100) is None
    assert ends_at(filled_ns + 2 * SECOND_NS + SECOND_NS // 100) == int(10 * STEP_DOWN)


def test_a_higher_limit_of_which_few_attempts_were_granted_is_not_given_up() -> None:
    climb = Climb(10)
    assert climb.cohort(1.0) == 20
    for _ in range(9):
        climb.search.on_granted(20, climb.now_ns)

    late_ns = climb.now_ns + 60 * SECOND_NS

    assert climb.search.on_success(20, 100, granted_ns=climb.now_ns - 1, now_ns=late_ns) is None


def test_a_higher_limit_is_not_given_up_for_a_few_long_answers() -> None:
    climb = Climb(10)
    for lasted_s in (1.0, 1.0, 16.0, 1.0, 1.0, 16.0, 1.0, 16.0):
        granted_ns, climb.now_ns = climb.now_ns, climb.now_ns + int(lasted_s * SECOND_NS)
        to = climb.search.on_success(10, 100, granted_ns=granted_ns, now_ns=climb.now_ns)
    assert to == 20
    climb.search.moved(climb.now_ns)
    moved_ns = climb.now_ns
    for _ in range(20):
        climb.search.on_granted(20, moved_ns)

    # Most of them take a second and some take long: twice the usual time says nothing about those.
    found = [
        climb.search.on_success(20, 100, granted_ns=moved_ns - 1, now_ns=moved_ns + number * SECOND_NS)
        for number in (1, 2, 3, 7)
    ]

    assert found == [None] * 4


class Lengths:
    """Answers of lengths that differ by a factor of ten and more, at a provider that takes a time for each token."""

    def __init__(self, limit: int, seed: int) -> None:
        self.climb, self.random = Climb(limit), Random(seed)

    def cohort(self, slowdown: float, most: int = 200) -> int | None:
        """Like `Climb.cohort`."""
        climb, began_ns = self.climb, self.climb.now_ns
        for number in range(most):
            tokens = round(self.random.lognormvariate(5, 1))
            lasted_ns = int((0.5 + 0.02 * tokens) * slowdown * SECOND_NS)
            granted_ns = began_ns + int(number / climb.limit * 3 * SECOND_NS)
            climb.now_ns = max(climb.now_ns, granted_ns + lasted_ns)
            to = climb.search.on_success(climb.limit, tokens, granted_ns=climb.now_ns - lasted_ns, now_ns=climb.now_ns)
            if to is not None:
                climb.limit = to
                climb.search.moved(climb.now_ns)
                return to
        return None


@pytest.mark.parametrize("seed", range(8))
def test_lengths_of_answers_do_not_pass_for_slowness(seed: int) -> None:
    helped = Lengths(10, seed)
    assert helped.cohort(1.0) == 20
    assert helped.cohort(1.4) == 40, "twice as many take less than half as long again"
    assert helped.climb.search.best == 20


@pytest.mark.parametrize("seed", range(8))
def test_slowness_does_not_pass_for_lengths_of_answers(seed: int) -> None:
    useless = Lengths(10, seed)
    assert useless.cohort(1.0) == 20
    step = useless.cohort(1.95)

    assert step == int(10 * STEP_DOWN), "twice as many take twice as long"


def test_a_limit_a_little_higher_is_the_best_if_it_plainly_finishes_more() -> None:
    climb = Climb(10)
    climb.cohort(1.0, Random(1))
    climb.limit = 12
    climb.search.moved(climb.now_ns)

    assert climb.cohort(0.9, Random(2)) == 24
    assert climb.search.best == 12


def test_a_limit_a_little_higher_is_taken_back_if_it_finishes_less() -> None:
    climb = Climb(10)
    climb.cohort(1.0, Random(1))
    climb.limit = 12
    climb.search.moved(climb.now_ns)

    assert climb.cohort(1.6, Random(2)) in (int(10 * STEP_DOWN), int(10 * STEP_FAR_DOWN))


def test_the_best_limit_is_measured_by_all_of_its_cohorts() -> None:
    climb = Climb(10)
    climb.cohort(1.0)
    climb.search.stays_until_ns = 1 << 62
    climb.limit = 10
    climb.search.moved(climb.now_ns)
    climb.cohort(1.1, most=16)  # as fast as before, as far as anybody can tell

    best = climb.search.best_cohort
    assert best is not None
    assert 1.02 * SECOND_NS < best.usual_ns < 1.08 * SECOND_NS


def test_a_limit_that_does_not_bind_is_not_measured() -> None:
    climb = Climb(10)
    for _ in range(100):
        granted_ns = climb.now_ns
        climb.now_ns += SECOND_NS
        climb.search.rests()
        assert climb.search.on_success(10, 1, granted_ns=granted_ns, now_ns=climb.now_ns) is None


@pytest.mark.slow
@given(st.integers(2, 40), st.integers(0, 999))
def test_where_latency_is_flat_the_limit_climbs(limit: int, seed: int) -> None:
    climb, random = Climb(limit), Random(seed)

    seen = [climb.cohort(1.0, random) for _ in range(12)]

    assert max(each or 0 for each in seen) >= 4 * limit


@pytest.mark.slow
@given(st.integers(6, 30), st.integers(0, 999))
def test_where_all_is_taken_the_limit_does_not_climb(limit: int, seed: int) -> None:
    """Latency in proportion to the limit: throughput is the same at any."""
    climb, random = Climb(limit), Random(seed)

    for _ in range(12):
        climb.cohort(climb.limit / 4, random, most=60)

    assert climb.limit <= limit


@given(st.lists(st.integers(1, 10**12), min_size=2, max_size=50))
def test_moments_are_those_of_the_logarithms(values: list[int]) -> None:
    moments = Moments()
    for value in values:
        moments.add(value)

    logs = [log(value) for value in values]
    assert moments.mean == pytest.approx(fmean(logs))
    assert moments.error == pytest.approx(variance(logs) / len(logs), abs=1e-9)
