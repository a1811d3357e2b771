"""What code, bytes and kernels take, where a world is told."""

from __future__ import annotations

import pytest

from hivemind_trio.sim import Amount, Effort, Efforts, Figures, Traits, Way, World
from tests.sim.worlds import MS, fleet, one_provider, scenario

PLAIN = one_provider("concurrency 50")
STEADY = Traits(latency_mean_ns=100 * MS, latency_sigma_ns=0, tokens_out_sigma=0)
OTHERS = Efforts(others=Effort(call_ns=4 * MS))


def run(agents: int, efforts: Efforts | None, way: Way, *, turns: int = 1, stream: float = 0.0) -> Figures:
    world = scenario(fleet(agents, turns, stream=stream, think_ns=Amount(0)), traits=STEADY)
    return World(PLAIN, world, 7, way, audit=True, efforts=efforts).run()


@pytest.mark.parametrize("way", Way)
def test_efforts_of_nothing_change_nothing(way: Way) -> None:
    assert run(5, Efforts(), way, turns=3, stream=0.5) == run(5, None, way, turns=3, stream=0.5)


@pytest.mark.parametrize(
    ("way", "efforts", "took_ms"),
    [
        (Way.DIRECT, OTHERS, 104),
        (Way.PROXY, OTHERS, 104),
        (Way.DIRECT, Efforts(proxy=Effort(call_ns=3 * MS)), 100),
        (Way.PROXY, Efforts(proxy=Effort(call_ns=3 * MS)), 103),
        (Way.PROXY, Efforts(proxy=Effort(call_ns=3 * MS, first_ns=MS), others=Effort(call_ns=4 * MS)), 108),
        (Way.PROXY, Efforts(wire_ns=8 * MS), 108),
    ],
    ids=["direct", "through us", "not ours", "ours", "connecting", "wire"],
)
def test_a_lone_call_takes_what_everybody_works_for_it(way: Way, efforts: Efforts, took_ms: int) -> None:
    assert run(1, efforts, way).turn.max == took_ms * MS


@pytest.mark.parametrize("way", Way)
def test_who_come_at_once_wait_for_one_another(way: Way) -> None:
    """The machine works on one thing at a time, four times a millisecond for each."""
    figures = run(20, OTHERS, way)

    # All leave before the first arrives, and from its answer on there are two times twenty things to do.
    assert figures.turn.max == (20 + 1 + 100 + 40) * MS
    assert figures.turn.p50 > 120 * MS


def test_a_first_request_alone_opens_a_connection() -> None:
    efforts = Efforts(others=Effort(first_ns=5 * MS))

    assert run(1, efforts, Way.DIRECT, turns=3).makespan_ns == (3 * 100 + 5) * MS


def test_streams_are_in_the_way_of_others_and_not_of_themselves() -> None:
    efforts = Efforts(proxy=Effort(event_ns=4 * MS, call_ns=3 * MS))

    alone, together = (run(agents, efforts, Way.PROXY, stream=1.0) for agents in (1, 6))

    assert alone.turn.max < 120 * MS
    assert together.turn.max > 6 * 15 * 3 * MS
