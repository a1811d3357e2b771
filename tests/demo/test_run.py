"""The demo, small: the same fleet dies without the proxy and lives behind it."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout

import attrs
import pytest
import trio

from hivemind_trio.demo import command as demo
from hivemind_trio.demo.display import JsonShow, TextShow
from hivemind_trio.demo.incident import MS, TRAITS, Incident, IncidentFigures
from hivemind_trio.host import DiskFiles
from hivemind_trio.policy import check

SMALL = Incident(
    seed=7,
    turns=2,
    start_max_ns=150 * MS,
    think_ns=(1 * MS, 20 * MS),
    traits=attrs.evolve(TRAITS, latency_mean_ns=50 * MS, latency_sigma_ns=10 * MS, latency_min_ns=10 * MS),
)


@pytest.fixture(scope="module")
def told() -> tuple[IncidentFigures, IncidentFigures, str]:
    """What came of both fleets, and what was shown without a terminal."""
    with redirect_stdout(io.StringIO()) as out:
        direct, proxied = trio.run(demo.compare, SMALL, TextShow(color=False))
    return direct, proxied, out.getvalue()


@pytest.mark.slow
def test_without_the_proxy_agents_die_each_of_one_failure_and_of_more_than_one_kind(
    told: tuple[IncidentFigures, IncidentFigures, str],
) -> None:
    direct, _, _ = told

    # Eleven agents that start within 150 ms on five slots of 50 ms: some must die of the sixth call. The seed has a
    # 502 and a reset for two others.
    assert direct.dead == sum(direct.met.values()) > direct.overloads == direct.met["529"] > 0
    # Milliseconds decide which agent meets which; an agent that has died meets neither.
    assert {"502", "reset"} & direct.met.keys()
    assert direct.turns_done < direct.turns
    assert TRAITS.concurrency == 5
    assert direct.inflight_max > 5


@pytest.mark.slow
def test_nobody_dies_behind_the_proxy(told: tuple[IncidentFigures, IncidentFigures, str]) -> None:
    _, proxied, _ = told

    assert proxied.dead == proxied.overloads == proxied.tokens_wasted == 0
    assert proxied.turns_done == proxied.turns == 22
    assert proxied.inflight_max <= 5
    # The provider failed all the same, and every failure was one more attempt.
    assert {"502", "reset"} <= proxied.met.keys()
    assert proxied.attempts == 22 + sum(proxied.met.values())
    assert proxied.bound_binds == "requests"


@pytest.mark.slow
def test_the_story_is_told_in_plain_lines_and_a_table_that_says_what_failed(
    told: tuple[IncidentFigures, IncidentFigures, str],
) -> None:
    direct, proxied, out = told
    # A console that is no terminal is eighty columns wide, and wraps.
    lines = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
    table = {cells[0].strip(): (cells[1].strip(), cells[2].strip()) for cells in lines}

    assert "\x1b" not in out
    assert "529 overloaded_error" in out
    assert "Scaled down" in out
    assert table["dead agents"] == (f"{direct.dead} of 11", "0 of 11")
    for row, kind in {
        "met 529, over 5 at once": "529",
        "met 429, over 150 requests a minute": "429 requests",
        "met 502, bad gateway": "502",
        "met connection reset at once": "reset",
    }.items():
        assert table[row] == (str(direct.met.get(kind, 0)), str(proxied.met.get(kind, 0)))
    assert "No agent died behind the proxy" in out


@pytest.mark.slow
def test_the_figures_are_json(
    told: tuple[IncidentFigures, IncidentFigures, str], capsys: pytest.CaptureFixture[str]
) -> None:
    direct, proxied, _ = told
    JsonShow().end(SMALL, direct, proxied)

    said = json.loads(capsys.readouterr().out)

    assert said["proxy"]["dead"] == 0
    assert said["direct"]["dead"] == direct.dead
    assert said["direct"]["met"] == direct.met
    assert said["proxy"]["over_bound"] >= 1
    assert said["direct"]["over_bound"] is None
    assert said["scenario"]["traits"]["requests"]["limit"] == 150


def test_the_shipped_policy_knows_what_its_provider_bears_and_has_all_of_it_in_force() -> None:
    checked = check(str(demo.shipped_policies() / "demo.hmp"), DiskFiles())

    assert checked.diagnostics == ()
    assert checked.program is not None
    (provider,) = checked.program.providers.values()
    (group,) = provider.groups
    (quota,) = group.quotas
    assert TRAITS.requests is not None
    assert (provider.limit, quota.amount) == (TRAITS.concurrency, TRAITS.requests.limit)
    assert (provider.aimd is not None, provider.retry) == (True, "patient")
    assert {429, 502, 529} <= checked.program.retries["patient"].statuses


def test_the_work_is_the_same_either_way_and_on_every_run() -> None:
    assert SMALL.jobs() == SMALL.jobs()
    assert SMALL.bound == SMALL.bound
    assert SMALL.jobs() != attrs.evolve(SMALL, seed=8).jobs()


def test_the_exit_status_says_whether_an_agent_died_behind_the_proxy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = IncidentFigures(
        agents=11, dead=0, turns=33, turns_done=33, tokens_spent=1, tokens_wasted=0, seconds=1.0, bound_seconds=1.0,
        bound_binds="concurrency", inflight_max=5, overloads=0, attempts=33, met={},
    )  # fmt: skip

    async def came_to(dead: int) -> tuple[IncidentFigures, IncidentFigures]:
        return attrs.evolve(figures, dead=6), attrs.evolve(figures, dead=dead)

    statuses = []
    for dead in (0, 1):
        monkeypatch.setattr(demo, "compare", lambda _scenario, _show, dead=dead: came_to(dead))
        statuses.append(demo.run(quick=True, as_json=True))

    assert statuses == [0, 1]
