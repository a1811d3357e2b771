"""`hivemind-trio jobs`: runs as those see them who did not start them."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Final

import attrs
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from hivemind_trio.cli.main import main
from hivemind_trio.jobs.display import print_continued
from hivemind_trio.jobs.job import JobState
from hivemind_trio.jobs.run_file import RunFile, RunSettings
from hivemind_trio.jobs.task import Task

SETTINGS: Final = RunSettings(
    agents=1,
    patience_s=60.0,
    max_wait_s=60.0,
    policy=None,
    proxy=None,
    adapter="",
    is_idempotent=False,
    output_bytes=1_000,
)
SESSION: Final = "11111111-1111-4111-8111-111111111111"
Jobs = Callable[..., Result]


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}")

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(main, ["jobs", *args], prog_name="hivemind-trio", catch_exceptions=False)

    return invoke


def begun(*, is_served: bool = False) -> RunFile:
    """A run with a job in each kind of state that matters, still open."""
    tasks = [
        Task(id="a", argv=("claude", "-p", "x")),
        Task(id="b", argv=("claude", "-p", "x"), cwd="pkg b"),
        Task(id="c", argv=("make",), cwd="/elsewhere"),
    ]
    file = RunFile.create("20261123-1-1", 1_000.0, "/work", attrs.evolve(SETTINGS, is_served=is_served), tasks)
    first, second, third = file.jobs
    first.state, first.session = JobState.RUNNING, "22222222-2222-4222-8222-222222222222"
    second.state, second.session, second.reason = JobState.STOPPED, SESSION, "budget of $2 is spent"
    third.state, third.reason = JobState.FAILED, "status 2"
    for job in file.jobs:
        file.save(job)
    return file


def test_there_may_be_no_run(jobs: Jobs) -> None:
    assert jobs().output == "no runs\n"
    ended = jobs("show", "last")
    assert ended.exit_code == 2
    assert "start one" in ended.output
    assert "there is no run `x`" in jobs("show", "x").output


def test_a_stopped_job_keeps_its_place_its_session_and_the_reason(jobs: Jobs) -> None:
    begun().close()
    shown = jobs("show", "last").output
    row = next(line for line in shown.splitlines() if line.startswith("b "))
    assert row.split("  ")[1:] == ["stopped", "/work/pkg b", SESSION, "budget of $2 is spent"] or all(
        one in row for one in ("stopped", "/work/pkg b", SESSION, "budget of $2 is spent")
    )
    assert f"cd '/work/pkg b' && claude --resume {SESSION}\n" in shown
    assert "jobs resume 20261123-1-1" in shown
    told = json.loads(jobs("show", "20261123-1-1", "--json").output)
    assert [(one["id"], one["state"], one["place"]) for one in told["jobs"]] == [
        ("a", "stopped", "/work"),
        ("b", "stopped", "/work/pkg b"),
        ("c", "failed", "/elsewhere"),
    ]
    assert told["jobs"][0]["reason"] == "the run was killed"
    assert told["resumable"] == 2


def test_a_run_in_progress_is_shown_as_it_is_and_not_to_be_resumed(jobs: Jobs) -> None:
    file = begun()
    told = json.loads(jobs("show", "last", "--json").output)
    assert told["in_progress"] is True
    assert told["jobs"][0]["state"] == "running"
    assert "go on with" not in jobs("show", "last").output
    assert "in progress: 1 running, 1 stopped, 1 failed" in jobs().output
    refused = jobs("resume", "last")
    assert refused.exit_code == 2
    file.close()
    listed = json.loads(jobs("--json").output)
    assert [(one["run"], one["resumable"], one["in_progress"]) for one in listed["runs"]] == [
        ("20261123-1-1", 2, False)
    ]


def test_a_continued_run_says_what_it_goes_on_with(jobs: Jobs) -> None:
    file = begun()
    said = Console(file=StringIO(), width=200, color_system=None)
    print_continued(said, file)
    file.close()
    assert isinstance(said.file, StringIO)
    assert said.file.getvalue().splitlines() == [
        "run 20261123-1-1 goes on with 2 of 3 jobs",
        "  a in /work/, session 22222222-2222-4222-8222-222222222222: the run was killed",
        f"  b in /work/pkg b, session {SESSION}: budget of $2 is spent",
    ]


def test_jobs_of_agents_are_gone_on_with_by_their_proxy_only(jobs: Jobs) -> None:
    begun(is_served=True).close()
    shown = jobs("show", "last").output
    refused = jobs("resume", "last")

    assert "they go on when `hivemind-trio serve` runs the policy again" in shown
    assert "jobs resume" not in shown
    assert refused.exit_code == 2
    assert json.loads(jobs("show", "last", "--json").output)["jobs"][1]["state"] == "stopped"


def test_a_damaged_run_hides_no_other(jobs: Jobs, tmp_path: Path) -> None:
    begun().close()
    damaged = tmp_path / "hivemind-trio" / "runs" / "20260101-1-1"
    damaged.mkdir()
    (damaged / "run.db").write_text("no database at all, and long enough to be read as one" * 20)
    shown = jobs().output
    assert "20261123-1-1" in shown
    assert "is damaged" in shown
