"""`hivemind-trio simulate`, in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from PIL import Image, ImageColor

from hivemind_trio.cli.main import main
from hivemind_trio.cli.progress import RunProgress
from hivemind_trio.cli.simulate import command
from hivemind_trio.sim import Ink
from tests.cli.conftest import Run

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_two_policies_are_compared_on_the_same_seeds(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "3", "--compare", "wide.hmp")
    same = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "3", "--compare", "team.hmp")

    assert result.exit_code == 0
    assert "difference" in result.stdout
    makespan = next(line for line in result.stdout.splitlines() if line.startswith("makespan  "))
    assert "-" in makespan, "with more room it is sooner over"
    metrics = same.stdout.split("\n\n")[2].splitlines()[1:]
    assert metrics
    assert all(line.endswith("none") for line in metrics), same.stdout
    assert "Nothing differs." in same.stdout
    assert "may be chance" not in same.stdout


def test_a_comparison_shows_both_policies_whole(run: Run, files: Path) -> None:
    (files / "poor.hmp").write_text(POLICY.replace("cost $20/day", "cost $0.01/day"))
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "3", "--compare", "poor.hmp")

    assert result.exit_code == 0
    first, second = result.stdout.split("\npoor.hmp:\n")
    for part in (first, second):
        assert "lane batch" in part
        assert "provider " in part
        assert "over time, seed 1" in part
    attempts = [
        int(next(line for line in part.splitlines() if line.startswith("anthropic ")).split()[1].partition(".")[0])
        for part in (first, second)
    ]
    assert attempts[0] >= 6 * 3 > attempts[1]
    assert "poor.hmp: 6 x rejected: budget" in second
    assert "team.hmp: Yes: all 6 agents get through on each of 3 seeds" in result.stdout
    assert "poor.hmp: No: 6 of 6 agents die, all of a budget that is used up; 6 on the worst seed." in result.stdout
    assert "With poor.hmp instead of team.hmp 6 more agents die;" in " ".join(result.stdout.split())


def test_where_each_policy_is_its_own_truth_a_comparison_says_so(run: Run, files: Path) -> None:
    (files / "more.hmp").write_text(POLICY.replace("6k/min", "7k/min"))
    args = ("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "2", "--compare")

    assert "as strict as each policy says" in " ".join(run(*args, "more.hmp").stdout.split())
    assert "as strict as each policy says" not in " ".join(run(*args, "wide.hmp").stdout.split())


def test_the_verdict_says_whether_everybody_gets_through_and_what_sets_the_pace(run: Run, files: Path) -> None:
    def verdict(*more: str) -> str:
        result = run("simulate", "team.hmp", "--scenario", "mine.toml", *more)
        return " ".join(result.stdout.split("\n\n")[1].split())

    said = verdict("--seeds", "2")
    assert said.startswith("Yes: all 6 agents get through on each of 2 seeds, in 1.")
    assert "least possible time, which the providers' caps on requests at once set" in said
    assert "Directly at the providers 3.50 would die." in said
    (files / "mine.toml").write_text(SCENARIO.replace("count = 6", 'count = 6\nsilence = "1s"'))
    assert verdict("--seeds", "1").startswith("No: 6 of 6 agents die, all of ")
    (files / "mine.toml").write_text('until = "1s"\n' + SCENARIO)
    assert "6 are unfinished at the time limit" in verdict("--seeds", "2")
    shown = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "2").stdout
    (row,) = [line for line in shown.splitlines() if line.startswith("agents unfinished")]
    assert row.split()[-1] == "6", "a mean, as everything beside it"


def test_limit_queue_and_what_is_in_flight_go_over_time_where_blocks_can_be_shown(run: Run, files: Path) -> None:
    args = ("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "1")
    text = run(*args).stdout

    lines = text[text.index("over time, seed 1") :].splitlines()[1:4]
    assert "limit" in lines[0]
    assert "█" in lines[0]
    assert lines[0].endswith("at most 3")
    assert "in flight" in lines[1]
    assert lines[1].endswith("at most 2")
    assert "waiting" in lines[2]
    assert "over time" not in run_in_ascii(*args)


def run_in_ascii(*args: str) -> str:
    """On a terminal that has no more letters."""
    return CliRunner(charset="ascii").invoke(main, list(args)).stdout


def test_on_a_narrow_terminal_nothing_is_wider_than_it(run: Run, files: Path) -> None:
    from hivemind_trio.cli.simulate.tables import as_text
    from hivemind_trio.policy import MemoryFiles, check
    from hivemind_trio.sim import parse_scenario, study

    program = check("team.hmp", MemoryFiles({"team.hmp": POLICY.encode()})).program
    assert program is not None
    scenario = parse_scenario(SCENARIO, name="mine")
    pairs = list(study(program, scenario, [1, 2]))

    for against in (None, ("another/policy/with/a/long/name.hmp", pairs)):
        text = as_text(scenario, "team.hmp", pairs, against, color=False, columns=100)
        assert max(map(len, text.splitlines())) <= 100, text


TESTS = """
test "a run" {
  load w { agent ci; arrive 30/min }
  run 1m seed 4
  expect w.failed == 0%
}
test "a call" { given { agent ci }; expect admitted }
"""


@pytest.mark.slow
def test_a_policy_s_simulated_test_is_run_at_length_with_its_own_seed(run: Run, files: Path) -> None:
    (files / "tested.hmp").write_text(POLICY + TESTS)
    result = run("simulate", "tested.hmp", "--test", "a run", "--seeds", "2", "--json")
    shown = run("simulate", "tested.hmp", "--test", "a run", "--seeds", "1")

    said = json.loads(result.stdout)
    assert (said["scenario"], said["seeds"]) == ("a run", [4, 5])
    assert said["proxy"][0]["loads"]["w"]["calls"] >= 15
    assert shown.stdout.startswith("a run: a test, tested.hmp:")
    assert json.loads(run("simulate", "tested.hmp", "--test", "a run", "--seed", "9", "--json").stdout)["seeds"][0] == 9


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("tested.hmp", "--test", "a rum"), "did you mean `a run`?"),
        (("tested.hmp", "--test", "a call"), "no simulated test of this name"),
        (("tested.hmp", "--test", "a run", "--scenario", "storm"), "remove --test"),
        (("--test", "a run"), "needs a policy file"),
        (("team.hmp", "--test", "a run"), "none has a `load`"),
    ],
    ids=str,
)
def test_a_test_that_cannot_be_simulated_is_told_of(run: Run, files: Path, args: tuple[str, ...], said: str) -> None:
    (files / "tested.hmp").write_text(POLICY + TESTS)
    result = run("simulate", *args)

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_comparison_in_json_has_the_differences_with_their_intervals(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "3", "--compare", "wide.hmp", "--json")

    changed = json.loads(result.stdout)["compare"]["difference"]["makespan"]
    assert changed["low"] <= changed["mean"] < 0
    assert changed["count"] == 3
    assert json.loads(result.stdout)["compare"]["difference"]["lane batch, wait p95"]["mean"] < 0


def test_a_picture_is_written(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "1", "--plot", "out.svg")

    assert result.exit_code == 0
    assert (files / "out.svg").read_text().startswith("<svg")


@pytest.mark.slow
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
    shaded = tuple(round(255 + 0.2 * (each - 255)) for each in ImageColor.getrgb(Ink.INFLIGHT.light))
    assert painted | {shaded} <= seen


@pytest.mark.parametrize("version", [None, "10.4.0"])
def test_a_png_without_a_pillow_that_can_is_refused_before_anything_runs(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    if version is None:
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    else:
        monkeypatch.setattr("PIL.__version__", version)
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--plot", "out.png")

    assert result.exit_code == 2
    assert "pip install 'pillow>=11'" in result.stderr
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
        (("empty.hmp",), 1, "provider anthropic"),
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
    class Impatient(RunProgress):
        def of(self, seed: int) -> None:
            if seed == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(command, "RunProgress", Impatient)
    result = run("simulate", "team.hmp", "--scenario", "mine.toml", "--seeds", "9")

    assert result.exit_code == 130
    assert "seeds 1 to 2" in result.stdout
    assert "interrupted after 2 of 9 seeds" in result.stderr


def test_a_scenario_s_words_neither_act_on_the_terminal_nor_break_a_drawing(run: Run, files: Path) -> None:
    (files / "\x1b[2J.toml").write_text(SCENARIO.replace("a few", "two\\nlines \\u001b[2J"))

    result = run("simulate", "team.hmp", "--scenario", "\x1b[2J.toml", "--seeds", "1", "--plot", "out.svg")

    assert result.stdout.startswith("␛[2J.toml: two lines ␛[2J\n")
    assert "\x1b" not in result.output
    assert ElementTree.parse(files / "out.svg").getroot().findtext("{*}title") == "␛[2J.toml, seed 1"
