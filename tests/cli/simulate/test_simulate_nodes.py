"""`hivemind-trio simulate --nodes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

from .test_simulate import POLICY, SCENARIO


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "team.hmp").write_text(POLICY)
    (folder / "mine.toml").write_text(SCENARIO.replace("count = 6", "count = 12"))
    return folder


def test_nodes_share_the_limits_and_one_of_them_is_killed(run: Run, files: Path) -> None:
    once = ("simulate", "team.hmp", "--seeds", "1", "--audit")
    asked = (*once, "--scenario", "mine.toml", "--nodes", "3", "--die", "2@4s")
    shown, whole = run(*asked), run(*asked, "--store-away", "6s..8s", "--cut", "1@9s..10s", "--json")

    assert shown.exit_code == whole.exit_code == 0, shown.output + whole.output
    assert "node-2" in shown.stdout
    assert "killed at 4 s" in shown.stdout
    assert "operations a call" in shown.stdout
    figures = json.loads(whole.stdout)["proxy"][0]
    assert [node["died_ns"] for node in figures["nodes"]["nodes"]] == [None, 4_000_000_000, None]
    assert sum(node["calls"] for node in figures["nodes"]["nodes"]) == figures["calls"]
    assert figures["upstreams"]["anthropic"]["inflight_max"] <= 3


def test_a_test_of_the_policy_has_its_nodes_and_their_faults(run: Run, files: Path) -> None:
    test = 'test "t" { load w { arrive 60/min }; fault node 1 from 3s to 5s; run 20s nodes 2; expect w.failed < 50% }\n'
    (files / "team.hmp").write_text(POLICY + test)

    shown = run("simulate", "team.hmp", "--test", "t", "--seeds", "1")
    other = run("simulate", "team.hmp", "--test", "t", "--seeds", "1", "--nodes", "3", "--die", "3@2s..4s")

    assert "killed at 3 s, back at 5 s" in shown.stdout, shown.output
    assert "node-3" not in shown.stdout
    assert "killed at 2 s, back at 4 s" in other.stdout, other.output


def test_times_for_which_a_node_is_down_are_joined_where_they_overlap(run: Run, files: Path) -> None:
    once = ("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "1", "--nodes", "3")
    shown = run(*once, "--die", "2@1s..3s", "--die", "2@2s..5s", "--die", "3@1s..4s", "--die", "3@2s")

    nodes = {line.split()[0]: line for line in shown.stdout.splitlines() if line.startswith("node-")}
    assert "killed at 1 s, back at 5 s" in nodes["node-2"], shown.output
    assert "killed at 1 s" in nodes["node-3"]
    assert "back" not in nodes["node-3"]


def test_a_time_at_which_every_node_is_down_is_survived(run: Run, files: Path) -> None:
    faults = "fault node 1 from 1s to 4s; fault node 2 from 2s to 5s"
    test = f'test "t" {{ load w {{ arrive 60/min }}; {faults}; run 20s nodes 2; expect w.failed < 50% }}\n'
    (files / "team.hmp").write_text(POLICY + test)

    shown = run("simulate", "team.hmp", "--test", "t", "--seeds", "1")
    assert "killed at 2 s, back at 5 s" in shown.stdout, shown.output


def test_a_fault_after_the_end_of_every_run_is_told(run: Run, files: Path) -> None:
    once = ("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "1", "--nodes", "2")
    shown = run(*once, "--die", "2@9h", "--store-away", "1s..2s", "--cut", "1@8h..10h")

    assert shown.exit_code == 0
    assert "without effect: `--die` of 32400 s, `--cut` of 28800 s; the longest run ends after" in shown.stderr
    assert "without effect" not in run(*once, "--die", "2@2s").stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--die", "2@90s"), "add `--nodes 4`"),
        (("--store-away", "1s..2s"), "--store-away needs --nodes"),
        (("--nodes", "2", "--die", "3@90s"), "nodes are 1 to 2"),
        (("--nodes", "2", "--die", "1@1s", "--die", "2@1s"), "at most 1 of them die"),
        (("--nodes", "2", "--die", "90s"), "for example `--die 2@90s`"),
        (("--nodes", "2", "--cut", "1@9s"), "`60s..100s`"),
        (("--nodes", "2", "--store-away", "9s..1s"), "ends before it begins"),
        (("--nodes", "2", "--store-away", "9..10"), "a number and a unit"),
        (("--nodes", "2", "--die", "2@9s..1s"), "ends before it begins"),
    ],
)
def test_wrong_options_about_nodes_are_told_with_what_to_write(
    run: Run, files: Path, options: tuple[str, ...], says: str
) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", *options)

    assert result.exit_code == 2
    assert says in result.output
