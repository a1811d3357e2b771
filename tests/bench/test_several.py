"""The bench of several nodes still runs, and its own arithmetic is right. What it measures is not looked at."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import httpx2
import pytest

from bench import several
from bench.several import (
    Arrival,
    Kept,
    Outcome,
    Provider,
    Served,
    SlotTime,
    arrivals,
    fullest_window,
    ideal_waits,
    unused,
)
from tests.support.redis import needs_redis


def test_the_ideal_scheduler_is_one_queue_before_all_slots() -> None:
    calls = [Arrival(0.0, 0, 4.0), Arrival(1.0, 1, 1.0), Arrival(1.0, 0, 3.0), Arrival(1.5, 0, 1.0)]

    assert ideal_waits(calls, 2) == [0.0, 0.0, 1.0, 2.5]
    assert ideal_waits(calls, 4) == [0.0] * 4


def test_a_slot_is_unused_while_a_call_waits() -> None:
    alone = (0.0, 0.0, 4.0)
    waits, late = (1.0, 3.0, 5.0), (2.0, 5.0, 6.0)

    assert unused([alone], 2, 0.0 - 1) == 0
    assert unused([alone, waits], 1, 0.0) == 0
    assert unused([alone, waits], 2, 0.0) == pytest.approx(2 / (2 * 3))
    assert unused([alone, waits, late], 3, 0.0) == pytest.approx((2 + 1 + 2) / (3 * 5))
    assert unused([alone, waits, late], 3, 2.5) == pytest.approx((1 + 2) / (3 * 2.5))


def test_a_window_begins_anywhere() -> None:
    assert fullest_window([0.0, 9.0, 10.0, 11.0, 19.5], 10) == 3
    assert fullest_window([], 10) == 0


def test_most_calls_arrive_at_a_node_that_moves() -> None:
    calls = arrivals(Random(1), 4, 20.0, 50.0, 0.3)

    for hot in range(4):
        nodes = [call.node for call in calls if 5 * hot <= call.at_s < 5 * (hot + 1)]
        assert nodes.count(hot) > len(nodes) / 2
        assert set(nodes) == {0, 1, 2, 3}


def test_unfairness_is_the_time_that_nodes_lack_of_what_their_calls_are_due() -> None:
    tally = SlotTime(2)
    tally.begin(10.0)
    tally.calls, tally.held = [6, 2], [3, 1]
    tally.note(11.5)
    assert tally.seconds == [([3.0, 1.0], [3.0, 1.0]), ([1.5, 0.5], [1.5, 0.5])]
    tally.held = [2, 2]
    tally.note(14.0)
    assert tally.unfairness(0, 1) == pytest.approx([0.0, 0.125, 0.25])
    assert tally.unfairness(2, 1) == [0.25]


def test_a_run_that_was_kept_is_not_made_again(tmp_path: Path) -> None:
    made = []

    def make() -> Outcome:
        made.append(1)
        return Outcome(
            calls=2, failed=0, waits=[0.5], ideal=[0.25], unused=0.125, peak=8, operations=0.75, starts_s=[1.0, 2.5]
        )

    kept = Kept(tmp_path / "runs")
    first = kept.run("slots, seed 7", Outcome, make)
    assert Kept(tmp_path / "runs").run("slots, seed 7", Outcome, make) == first == make()
    assert len(made) == 2
    kept.run("slots, seed 8", Outcome, make)
    Kept().run("slots, seed 7", Outcome, make)
    assert len(made) == 4


async def test_calls_are_one_agents_so_that_the_proxies_too_serve_them_in_order_of_arrival() -> None:
    said = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        said.append((request.url.port, request.headers["x-hivemind-agent"], json.loads(request.content)["messages"]))
        return httpx2.Response(200)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        there = Served(provider=Provider(1), ports=[2, 3], store=4, client=client)
        assert await there.call(1, 7, 0.3)
        assert await there.call(0, 8, 0.25, "agent-1")

    contents = [(port, agent, messages[0]["content"]) for port, agent, messages in said]
    assert contents == [(3, "bench", "7-300"), (2, "agent-1", "8-250")]


@pytest.mark.slow
@needs_redis
def test_the_bench_runs_small(tmp_path: Path) -> None:
    data = tmp_path / "several.json"

    several.main(["--smoke", "--json", str(data)])

    slots, many, fairness, windows = json.loads(data.read_text())["tables"]
    assert [row["who"] for row in slots["rows"]] == ["one proxy", "2 nodes"]
    for table in (slots, many, fairness):
        assert table["rows"][0]["failed"] == 0
        assert table["rows"][0]["operations"] > 0
    assert 0 <= fairness["rows"][0]["mean"] < 1
    assert windows["rows"][0]["most"] > 0
