"""`hivemind-trio simulate`, in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageColor

from hivemind_trio.cli import _pictures, _simulate
from hivemind_trio.sim import Ink

from .conftest import Run

POLICY = """
provider anthropic { key env(K); concurrency 3; limits { requests 6k/min } }
lane batch { max 2 }
team product { weight 1 }
agent ci { team product; lane batch }
budget all { cost $20/day }
"""
SCENARIO = """
about = "a few"
[[agents]]
count = 6
turns = 3
think = "100ms"
[[upstream]]
as-declared = true
latency = "1s..3s"
fail = { "502" = "10%" }
"""


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "team.hmp").write_text(POLICY)
    (folder / "wide.hmp").write_text(POLICY.replace("max 2", "max 3"))
    (folder / "mine.toml").write_text(SCENARIO)
    return folder


def test_it_says_what_a_policy_makes_of_a_fleet_beside_what_happens_without(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "2", "--audit")

    assert result.exit_code == 0, result.output
    said = {line.split("  ")[0]: line for line in result.stdout.splitlines()}
    assert said["dead agents"].endswith("0 of 6")
    assert "through the proxy" in result.stdout
    for row in ("makespan / bound", "lane batch", "team product", "budget all", "anthropic", "wasted tokens", "spend"):
        assert row in said, result.stdout
    assert "529 overloaded_error" in result.stdout
    assert "\x1b" not in result.output


def test_the_same_seeds_say_the_same_and_json_has_every_run(run: Run, files: Path) -> None:
    args = ("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "2", "--seed", "5", "--json")
    first, second = run(*args), run(*args)

    assert first.stdout == second.stdout
    said: dict[str, Any] = json.loads(first.stdout)
    assert said["format_version"] == 1
    assert said["seeds"] == [5, 6]
    assert [each["way"] for each in said["proxy"]] == ["proxy", "proxy"]
    assert said["proxy"][0]["turns_done"] == 18
    assert said["metrics"]["proxy"]["dead agents"] == {"mean": 0, "low": 0, "high": 0, "count": 2}
    assert {"at_ns", "anthropic"} == set(said["proxy"][0]["samples"][0])


def test_two_policies_are_compared_on_the_same_seeds(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "3", "--compare", "wide.hmp")
    same = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "3", "--compare", "team.hmp")

    assert result.exit_code == 0
    assert "difference" in result.stdout
    makespan = next(line for line in result.stdout.splitlines() if line.startswith("makespan  "))
    assert "-" in makespan, "with more room it is sooner over"
    metrics = same.stdout.split("\n\n")[1].splitlines()[1:]
    assert all(line.endswith("none") for line in metrics), same.stdout


def test_a_comparison_in_json_has_the_differences_with_their_intervals(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "3", "--compare", "wide.hmp", "--json")

    changed = json.loads(result.stdout)["compare"]["difference"]["makespan"]
    assert changed["low"] <= changed["mean"] < 0
    assert changed["count"] == 3


def test_a_picture_is_written(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "1", "--plot", "out.svg")

    assert result.exit_code == 0
    assert (files / "out.svg").read_text().startswith("<svg")


def test_a_picture_may_be_a_png_with_everything_in_it(run: Run, files: Path) -> None:
    args = ("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "1", "--compare", "wide.hmp")
    result = run(*args, "--plot", "Out.PNG")

    assert result.exit_code == 0, result.output
    with Image.open(files / "Out.PNG") as image:
        image.load()
        assert image.format == "PNG"
        assert image.width == 1920
        seen = {color for _, color in image.getcolors(image.width * image.height) or ()}
    painted = {ImageColor.getrgb(ink.light) for ink in (Ink.GROUND, Ink.TEXT, Ink.LIMIT, Ink.INFLIGHT, Ink.GRID)}
    assert painted <= seen


def test_a_png_without_pillow_is_refused_before_anything_runs(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pictures.util, "find_spec", lambda _name: None)
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--plot", "out.png")

    assert result.exit_code == 2
    assert "pip install 'hivemind-trio[png]'" in result.stderr
    assert not result.stdout


def test_scenarios_that_ship_are_named_and_run_with_a_policy_of_their_own(run: Run, folder: Path) -> None:
    listed = run("simulate", "--list")

    assert listed.exit_code == 0
    assert listed.stdout == run("simulate", "--scenario", "list").stdout
    names = [line.split("  ")[0] for line in listed.stdout.splitlines()]
    assert {"fleet", "micro-5", "replay-11", "replay-11-resets", "stress", "agentrm-faulty", "storm"} <= set(names)
    assert run("simulate", "--scenario", "micro-5", "--seeds", "1").exit_code == 0


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("team.hmp", "--scenario", "replay-12"), 2, "did you mean `replay-11`"),
        (("--scenario", "fleet"), 2, "simulate team.hmp --scenario fleet"),
        (("nowhere.hmp",), 2, "nowhere.hmp"),
        (("bad.hmp",), 1, "HM203"),
        (("empty.hmp",), 2, "provider anthropic"),
        (("team.hmp", "--scenario", "bad.toml"), 2, "bad.toml:2: agents[1].think: a duration needs a unit"),
        (("team.hmp", "--compare", "bad.hmp"), 1, "HM203"),
        (("team.hmp", "--plot", "out.pdf"), 2, "--plot out.svg"),
        (("team.hmp", "--plot", "no/out.svg"), 2, "there is no folder no"),
        (("team.hmp", "--plot", "folder.svg"), 2, "this is a folder"),
        (("team.hmp", "--seeds", "0"), 2, "--seeds"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_told_with_what_to_write_instead(
    run: Run, files: Path, args: tuple[str, ...], code: int, said: str
) -> None:
    (files / "bad.hmp").write_text("provider anthropic { timeout connect 5 }\n")
    (files / "empty.hmp").write_text("hmp 1\n")
    (files / "folder.svg").mkdir()
    (files / "bad.toml").write_text("[[agents]]\nthink = 5\n")

    result = run("simulate", *args)

    assert result.exit_code == code, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_who_has_had_enough_is_told_what_there_is(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(_simulate.Progress):
        def of(self, seed: int) -> None:
            if seed == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(_simulate, "Progress", Impatient)
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "9")

    assert result.exit_code == 130
    assert "seeds 1 to 2" in result.stdout
    assert "interrupted after 2 of 9 seeds" in result.stderr
