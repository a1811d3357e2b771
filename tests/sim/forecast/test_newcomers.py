"""Agents that are expected because others have come: their number, their times, and none after a silence."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from hivemind_trio.model import Api, Request
from hivemind_trio.scheduler import Call, CallId
from hivemind_trio.sim import ExpectedAgent, FirstCall
from hivemind_trio.sim.forecast.newcomers import NEWCOMERS_MAX, newcomers

SECOND_NS = 1_000_000_000
HORIZON_NS = 1_800 * SECOND_NS


def seen(*ages_s: float) -> list[FirstCall]:
    request = Request(apis=(Api.ANTHROPIC,), model="claude-sonnet-4-5", path="/v1/messages")
    return [
        FirstCall(round(age_s * SECOND_NS), Call(id=CallId(number), request=request, caller=f"agent-{number}"))
        for number, age_s in enumerate(ages_s)
    ]


def futures(calls: list[FirstCall], number: int = 400, horizon_ns: int = HORIZON_NS) -> list[list[ExpectedAgent]]:
    return [list(newcomers(calls, horizon_ns, Random(seed))) for seed in range(number)]


@pytest.mark.parametrize("calls", [[], seen(30), seen(0, 0)])
def test_too_few_agents_foretell_nobody(calls: list[FirstCall]) -> None:
    assert not any(futures(calls, 20))


def test_agents_that_come_evenly_go_on_to_come_at_their_rate() -> None:
    found = futures(seen(*range(100, 0, -1)))
    within = [sum(one.first_ns <= 20 * SECOND_NS for one in several) for several in found]

    # One a second, and one process in six of 100 s ends within the next 20.
    assert 16 <= fmean(within) <= 20
    assert fmean(bool(several) for several in found) > 0.95
    # A burst goes on for as long again with even odds.
    longer = fmean(bool(several) and several[-1].first_ns > 100 * SECOND_NS for several in found)
    assert 0.4 <= longer <= 0.6


def test_a_burst_that_is_long_over_foretells_nobody() -> None:
    assert not any(futures(seen(*(100 - number / 5 for number in range(50)))))


def test_a_silence_that_is_short_beside_the_arrivals_tells_little() -> None:
    found = futures(seen(100, 75, 50, 25))

    assert 0.5 <= fmean(bool(several) for several in found) <= 0.9


def test_newcomers_are_others_than_those_that_came_and_are_bounded() -> None:
    calls = seen(*(number / 1_000 for number in range(200, 0, -1)))
    found = futures(calls, 50)
    names = [one.call.caller for several in found for one in several]

    assert max(map(len, found)) <= NEWCOMERS_MAX
    assert names
    assert not {one.call.caller for one in calls} & set(names)
    assert all(len({one.call.caller for one in several}) == len(several) for several in found)
    assert all(one.first_ns <= SECOND_NS for several in futures(calls, 50, SECOND_NS) for one in several)
