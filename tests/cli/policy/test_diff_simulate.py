"""`hivemind-trio diff --simulate`: what a change does to a fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hivemind_trio.cli.progress import RunProgress
from hivemind_trio.cli.simulate import policy_effect
from hivemind_trio.sim import METRICS
from tests.cli.conftest import Run
from tests.host.test_git import commit, git

POLICY = """
provider anthropic { key env(K); concurrency 3; serves ["claude-*"]; limits { requests 6k/min } }
lane batch { max 1 }
team product { weight 1 }
agent ci { team product; lane batch }
budget all { cost $20/day }
"""
SCENARIO = """
about = "a | few"
[[agents]]
count = 6
turns = 3
think = "100ms"
[[upstream]]
concurrency = 3
latency = "1s..3s"
"""
SIMULATED = ("--simulate", "--scenario", "mine.toml", "--seeds", "3")


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "old.hmp").write_text(POLICY)
    (folder / "new.hmp").write_text(POLICY.replace("max 1", "max 3"))
    (folder / "mine.toml").write_text(SCENARIO)
    return folder


def named(report: dict[str, Any]) -> dict[str, Any]:
    return {metric["name"]: metric for metric in report["simulation"]["metrics"]}


@pytest.mark.usefixtures("files")
def test_the_effect_is_told_below_the_changes(run: Run) -> None:
    changes = run("diff", "old.hmp", "new.hmp").stdout
    result = run("diff", "old.hmp", "new.hmp", *SIMULATED)

    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert result.stdout.startswith(changes + "\nsimulated: mine.toml, seeds 1 to 3 (a | few)\n\n")
    rows = {line.split("  ")[0]: line for line in result.stdout.removeprefix(changes).splitlines()}
    assert rows["dead agents"].split()[2:] == ["0", "0", "none"]
    for row in ("429s met", "spend", "makespan", "lane batch, wait p95", "team product, spend", "budget all, spend"):
        assert row in rows
    assert " s to -" in rows["lane batch, wait p95"], "with more room everybody waits less, and for certain"
    assert "\x1b" not in result.output


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_it_is_what_simulate_says_of_the_two(run: Run) -> None:
    said = named(json.loads(run("diff", "old.hmp", "new.hmp", *SIMULATED, "--format", "json").stdout))
    args = ("simulate", "old.hmp", "--compare", "new.hmp", *SIMULATED[1:], "--json")
    expected = json.loads(run(*args).stdout)

    assert {metric.name for metric in METRICS} < set(said)
    for metric in METRICS:
        assert said[metric.name]["before"] == expected["metrics"]["proxy"][metric.name]
        assert said[metric.name]["after"] == expected["compare"]["metrics"][metric.name]
        assert said[metric.name]["difference"] == expected["compare"]["difference"][metric.name]
    assert said["makespan"]["difference"]["high"] < 0


@pytest.mark.usefixtures("files")
def test_for_a_pull_request_it_is_one_more_table(run: Run) -> None:
    changes = run("diff", "old.hmp", "new.hmp", "--format", "markdown").stdout
    said = run("diff", "old.hmp", "new.hmp", *SIMULATED, "--format", "markdown").stdout

    assert said.startswith(f"{changes}\nSimulated: mine.toml, seeds 1 to 3 (a \\| few):\n\n| | before | after |")
    table = [line for line in said.removeprefix(changes).splitlines() if line.startswith("|")]
    assert len(table) > len(METRICS)
    assert {line.count("|") for line in table} == {6}


@pytest.mark.usefixtures("files")
def test_for_machines_all_else_is_as_without(run: Run) -> None:
    plain = json.loads(run("diff", "old.hmp", "new.hmp", "--format", "json").stdout)
    report = json.loads(run("diff", "old.hmp", "new.hmp", *SIMULATED, "--format", "json").stdout)

    assert (report["simulation"]["scenario"], report["simulation"]["seeds"]) == ("mine.toml", [1, 2, 3])
    assert {name: value for name, value in report.items() if name != "simulation"} == plain


def test_the_old_policy_may_be_what_git_has(run: Run, files: Path) -> None:
    git(files, "init", "-q")
    commit(files, {"team.hmp": POLICY})
    (files / "team.hmp").write_text(POLICY.replace("max 1", "max 3"))

    result = run("diff", "--git", "HEAD", "team.hmp", *SIMULATED, "--exit-code", "--format", "json")

    assert result.exit_code == 1, result.output
    assert named(json.loads(result.stdout)) == named(
        json.loads(run("diff", "old.hmp", "new.hmp", *SIMULATED, "--format", "json").stdout)
    )


def test_a_policy_that_git_does_not_have_yet_is_compared_with_nothing(run: Run, files: Path) -> None:
    git(files, "init", "-q")
    commit(files, {})
    (files / "first.hmp").write_text(POLICY)

    result = run("diff", "--git", "HEAD", "first.hmp", *SIMULATED, "--format", "json")

    assert (result.exit_code, json.loads(result.stdout)["simulation"]) == (0, None)
    assert "`hivemind-trio simulate first.hmp`" in result.stderr


@pytest.mark.slow
def test_limits_that_are_taken_at_their_word_are_said_to_be(run: Run, files: Path) -> None:
    (files / "declared.toml").write_text(SCENARIO.replace("concurrency = 3", "as-declared = true"))
    (files / "wide.hmp").write_text(POLICY.replace("concurrency 3", "concurrency 30"))

    def said(new: str, scenario: str, format_: str) -> bool:
        args = ("--simulate", "--scenario", scenario, "--seeds", "1", "--format", format_)
        return "as strict as each policy says" in run("diff", "old.hmp", new, *args).stdout

    for format_ in ("text", "markdown"):
        assert said("wide.hmp", "declared.toml", format_)
        assert not said("wide.hmp", "mine.toml", format_)
        assert not said("new.hmp", "declared.toml", format_), "the limits are the same in both"


def test_an_agent_that_is_added_does_not_change_who_calls(run: Run, files: Path) -> None:
    """Callers are a policy's agents in turn: with one more there, each would be somebody else."""
    (files / "more.hmp").write_text(POLICY + "agent late { lane batch }\n")

    metrics = named(json.loads(run("diff", "old.hmp", "more.hmp", *SIMULATED, "--format", "json").stdout))

    assert metrics["lane default, wait p95"]["before"]["count"] == 3, "who is late is nobody yet"
    assert metrics["lane default, wait p95"]["after"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scenario", "fleet"], "hivemind-trio diff OLD NEW --simulate"),
        (["--seeds", "3"], "hivemind-trio diff OLD NEW --simulate"),
        (["--simulate", "--scenario", "replay-12"], "did you mean `replay-11`"),
        (["--simulate", "--scenario", "provider.toml"], "upstream[1].provider: no provider is `opena*`; there is `ant"),
        (["--simulate", "--scenario", "agent.toml"], "agents `agent`: no agent is `cii`; there is `ci`"),
        (["--simulate", "--scenario", "model.toml"], "agents `agent`: no provider serves `gpt-4.1`; served is `claud"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told_with_what_there_is(run: Run, files: Path, words: list[str], said: str) -> None:
    (files / "provider.toml").write_text(SCENARIO.replace("[[upstream]]", '[[upstream]]\nprovider = "opena*"'))
    (files / "agent.toml").write_text(SCENARIO.replace("count = 6", 'count = 6\nas = ["cii", "ci"]'))
    (files / "model.toml").write_text(SCENARIO.replace("count = 6", 'count = 6\nmodel = ["gpt-4.1", "claude-x"]'))

    result = run("diff", "old.hmp", "new.hmp", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    if words[-1].endswith(".toml"):
        assert "does not match either policy" in result.stderr
        assert said in run("simulate", "old.hmp", *words[1:]).stderr


def test_what_only_one_of_the_two_has_fits(run: Run, files: Path) -> None:
    (files / "bare.hmp").write_text("provider anthropic { key env(K); concurrency 3 }\n")
    (files / "agent.toml").write_text(SCENARIO.replace("count = 6", 'count = 6\nas = ["ci"]\nmodel = "claude-x"'))

    result = run("diff", "old.hmp", "bare.hmp", "--simulate", "--scenario", "agent.toml", "--seeds", "2")

    assert result.exit_code == 0, result.output
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("lane batch, wait p95")]
    assert row.split()[-2:] == ["-", "-"], "there is no such lane any more, which is not work left undone"


@pytest.mark.usefixtures("files")
def test_progress_is_for_terminals(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hivemind_trio.sim.run.world.TOLD_EVERY", 1)

    assert run("diff", "old.hmp", "new.hmp", *SIMULATED).stderr == ""
    monkeypatch.setattr("hivemind_trio.cli.progress.on_terminal", lambda: True)
    shown = run("diff", "old.hmp", "new.hmp", *SIMULATED).stderr
    assert "seed 1 of 3: 0 of 6 agents" in shown
    assert shown.endswith("\r\x1b[K"), "nothing of it stays"


@pytest.mark.usefixtures("files")
def test_who_has_had_enough_is_told_what_there_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(RunProgress):
        def of(self, seed: int) -> None:
            if seed == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(policy_effect, "RunProgress", Impatient)
    result = run("diff", "old.hmp", "new.hmp", "--simulate", "--scenario", "mine.toml", "--seeds", "9")

    assert result.exit_code == 130
    assert "seeds 1 to 2" in result.stdout
    assert "interrupted after 2 of 9 seeds" in result.stderr
