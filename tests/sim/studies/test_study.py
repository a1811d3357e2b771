"""What is said of many runs: means, intervals, differences."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import METRICS, Estimate, Spread, Traits, Way, difference, estimate, study
from tests.sim.worlds import fleet, one_provider, scenario

PROGRAM = one_provider("concurrency 3")
WORLD = scenario(fleet(6, 4), traits=Traits(concurrency=3))


def test_an_interval_holds_the_truth_in_nineteen_studies_of_twenty() -> None:
    chance = Random(1)
    held = 0
    for _ in range(2_000):
        found = estimate([chance.gauss(5, 2) for _ in range(5)])
        assert found is not None
        held += found.low <= 5 <= found.high

    assert held / 2_000 == pytest.approx(0.95, abs=0.015)


def test_what_one_seed_says_has_no_width_and_nothing_says_nothing() -> None:
    assert estimate([3.0]) == Estimate(3.0, 3.0, 3.0, 1)
    assert estimate([None, None]) is None
    assert estimate([None, 2.0, 4.0]) == estimate([2.0, 4.0])


@given(before=st.lists(st.floats(0, 1e6), min_size=2, max_size=30), more=st.floats(-100, 100))
@settings(max_examples=60)
def test_a_change_that_is_the_same_on_every_seed_is_certain_however_much_seeds_differ(
    before: list[float], more: float
) -> None:
    found = difference(before, [value + more for value in before])

    assert found is not None
    assert found.mean == pytest.approx(more, abs=1e-6)
    assert found.high - found.low == pytest.approx(0, abs=1e-6)


def test_a_study_runs_each_seed_both_ways_and_a_seed_is_the_same_in_any_study() -> None:
    pairs = list(study(PROGRAM, WORLD, [3, 4]))

    assert [(pair.seed, pair.direct.way, pair.proxy.way) for pair in pairs] == [
        (3, Way.DIRECT, Way.PROXY),
        (4, Way.DIRECT, Way.PROXY),
    ]
    assert pairs[1] == next(study(PROGRAM, WORLD, [4]))
    assert all(metric.of(pairs[0].proxy) is not None for metric in METRICS)


@pytest.mark.slow
def test_who_looks_is_told_of_progress() -> None:
    told: list[tuple[int, int, int]] = []
    busy = scenario(fleet(20, 60), traits=Traits(concurrency=3))
    list(study(PROGRAM, busy, [1], told=lambda *said: told.append(said)))

    assert told
    assert all(0 <= ended <= agents == 20 for _, ended, agents in told)


def test_percentiles_are_of_the_nearest_rank() -> None:
    spread = Spread.of(range(1, 21))

    assert (spread.count, spread.mean, spread.p50, spread.p95, spread.p99, spread.max) == (20, 10, 10, 19, 20, 20)
    assert Spread.of([]) == Spread()
    assert Spread.of([7]).p50 == Spread.of([7]).p99 == 7
