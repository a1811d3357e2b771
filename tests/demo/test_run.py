"""The demo, small: the same fleet dies without the proxy and lives behind it."""

from __future__ import annotations

import json

import attrs
import pytest
import trio

from hivemind_trio.demo import _run as demo
from hivemind_trio.demo._scenario import MS, TRAITS, Scenario
from hivemind_trio.demo._show import JsonShow, TextShow

SMALL = Scenario(
    seed=7,
    turns=3,
    start_max_ns=150 * MS,
    think_ns=(1 * MS, 20 * MS),
    traits=attrs.evolve(TRAITS, latency_mean_ns=50 * MS, latency_sigma_ns=10 * MS, latency_min_ns=10 * MS),
)


def test_nobody_dies_behind_the_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    direct, proxied = trio.run(demo.compare, SMALL, JsonShow())

    # Eleven agents that start within 150 ms on five slots of 50 ms: some must die of the sixth call.
    assert direct.dead > 0
    assert direct.overloads == direct.dead
    assert direct.turns_done < direct.turns
    assert direct.inflight_max > TRAITS.concurrency == 5

    assert proxied.dead == proxied.overloads == proxied.tokens_wasted == 0
    assert proxied.turns_done == proxied.turns == proxied.attempts == 33
    assert proxied.inflight_max <= 5

    said = json.loads(capsys.readouterr().out)
    assert said["proxy"]["dead"] == 0
    assert said["direct"]["dead"] == direct.dead
    assert said["proxy"]["over_bound"] >= 1
    assert said["direct"]["over_bound"] is None


def test_the_work_is_the_same_either_way_and_on_every_run() -> None:
    assert SMALL.jobs() == SMALL.jobs()
    assert SMALL.bound == SMALL.bound
    assert SMALL.jobs() != attrs.evolve(SMALL, seed=8).jobs()


def test_without_a_terminal_it_tells_the_story_in_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    trio.run(demo.compare, SMALL, TextShow(color=False))

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "529 overloaded_error" in out
    assert "Scaled down" in out
    assert "0 of 11" in out
    assert "No agent died behind the proxy" in out


def test_the_exit_status_says_whether_an_agent_died_behind_the_proxy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = demo.Figures(
        agents=11, dead=0, turns=33, turns_done=33, tokens_spent=1, tokens_wasted=0, seconds=1.0, bound_seconds=1.0,
        bound_binds="concurrency", inflight_max=5, overloads=0, attempts=33,
    )  # fmt: skip

    async def came_to(dead: int) -> tuple[demo.Figures, demo.Figures]:
        return attrs.evolve(figures, dead=6), attrs.evolve(figures, dead=dead)

    statuses = []
    for dead in (0, 1):
        monkeypatch.setattr(demo, "compare", lambda _scenario, _show, dead=dead: came_to(dead))
        statuses.append(demo.run(quick=True, as_json=True))

    assert statuses == [0, 1]
