"""Lanes that always could go are served by weight, whatever else happens around them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.driver import Driver
from tests.scheduler.models.fairness import check_shares
from tests.support.programs import lane, program, provider

ROUNDS = 40

weights = st.lists(st.integers(1, 8), min_size=2, max_size=4)


def backlogged(driver: Driver, names: list[str], calls: int) -> None:
    """Let that many calls of each lane arrive, in turn."""
    for _ in range(calls):
        for name in names:
            driver.call(lane=name)


def lane_of(driver: Driver, call_id: int) -> str:
    permit = driver.grant(call_id).permit
    assert permit is not None
    return permit.lane


@pytest.mark.slow
@given(weights=weights, limit=st.integers(1, 4), alone=st.integers(0, 20), data=st.data())
def test_backlogged_lanes_are_served_in_proportion_to_their_weights(
    weights: list[int], limit: int, alone: int, data: st.DataObject
) -> None:
    weight = {f"lane {index}": each for index, each in enumerate(weights)}
    policy = program(
        providers=[provider("p", limit=limit)], lanes=[lane(name, weight=each) for name, each in weight.items()]
    )
    driver = Driver(policy)
    first = next(iter(weight))
    # What a lane was served while it was alone is its luck, and no debt.
    running = [driver.call(lane=first) for _ in range(limit)]
    backlogged(driver, [first], alone)
    for _ in range(alone):
        running += driver.end(running.pop(0))
    backlogged(driver, list(weight), ROUNDS)

    served = []
    for _ in range(ROUNDS):
        (granted,) = driver.end(running.pop(data.draw(st.integers(0, limit - 1))))
        running.append(granted)
        served.append(lane_of(driver, granted))

    check_shares(served, weight)


@pytest.mark.slow
@given(weight=st.integers(1, 8), blocked=st.integers(1, 30))
def test_a_lane_that_a_cap_held_back_is_owed_nothing(weight: int, blocked: int) -> None:
    policy = program(
        providers=[provider("p", limit=2, groups={"opus*": 1})], lanes=[lane("a"), lane("b", weight=weight)]
    )
    driver = Driver(policy)
    driver.call(lane="a", model="opus-1")
    driver.calls(2, lane="b", model="opus-1")  # cannot go while that one is in flight
    running = driver.call(lane="a")
    driver.calls(blocked + ROUNDS, lane="a")
    for _ in range(blocked):
        (running,) = driver.end(running)
    driver.calls(ROUNDS, lane="b")

    served = []
    for _ in range(ROUNDS):
        (running,) = driver.end(running)
        served.append(lane_of(driver, running))

    check_shares(served, {"a": 1, "b": weight})
