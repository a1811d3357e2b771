"""`hivemind-trio run` as a process, with agents that are processes and a provider whose plan window closes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio

from bench.plan_provider import PlanProvider, serving
from tests.e2e.process import PATIENCE_S, environment

RUN: Final = [sys.executable, "-m", "hivemind_trio", "run"]
FAKE: Final = Path(__file__).with_name("fake_claude.py")


@attrs.frozen
class Bench:
    """A folder with a policy, the agent, its sessions and the state of runs."""

    folder: Path
    provider: PlanProvider

    @property
    def sessions(self) -> Path:
        return self.folder / "sessions"

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        own = {"PATH": path, "FAKE_SESSIONS": f"{self.sessions}", "XDG_STATE_HOME": f"{self.folder / 'state'}"}
        return environment(**own, **more)

    async def start(self, *arguments: str, **more: str) -> trio.Process:
        return await trio.lowlevel.open_process(
            [*RUN, *arguments],
            cwd=self.folder,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    async def run(self, *arguments: str, stdin: bytes = b"", **more: str) -> tuple[int, str, str]:
        with trio.fail_after(2 * PATIENCE_S):
            ended = await trio.run_process(
                [*RUN, *arguments],
                cwd=self.folder,
                env=self.environment(**more),
                stdin=stdin,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        return ended.returncode, ended.stdout.decode(), ended.stderr.decode()

    def told(self) -> list[list[dict[str, Any]]]:
        """What each session was told and answered."""
        return [[json.loads(line) for line in one.read_text().splitlines()] for one in self.sessions.iterdir()]

    async def answered(self, calls: int) -> None:
        """Wait until the sessions hold so many answers. The agents are other processes: only their files tell."""
        while sum("answer" in line for session in self.told() for line in session) < calls:  # noqa: ASYNC110 - other processes write the file
            await trio.sleep(0.05)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    for name in ("bin", "sessions"):
        (tmp_path / name).mkdir()
    script = tmp_path / "bin" / "claude"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    script.chmod(0o755)
    provider = PlanProvider()
    with serving(provider) as url:
        policy = f'hmp 1\nprovider anthropic {{ base "{url}"; concurrency 2..8 }}\n'
        (tmp_path / "team.hmp").write_text(policy)
        yield Bench(tmp_path, provider)


POLICY: Final = ("--policy", "team.hmp")
CLAUDE: Final = ("--", "claude", "-p", "fix {}", "--output-format", "json")


async def test_every_job_is_done_in_one_session_though_the_window_closes(bench: Bench) -> None:
    bench.provider.closed = (1.5, 5.0)
    status, out, err = await bench.run(*POLICY, "-n", "3", "--json", *CLAUDE, ":::", *"abcd")

    assert status == 0, err
    told = json.loads(out)
    assert told["counts"] == {"done": 4}
    assert bench.provider.refused >= 1
    assert sum(job["starts"] for job in told["jobs"]) > 4  # some were resumed
    assert {f"{job['session']}.jsonl" for job in told["jobs"]} == {one.name for one in bench.sessions.iterdir()}
    assert all(sum("answer" in line for line in session) == 2 for session in bench.told())
    assert all(job["calls"] >= 2 and job["tokens"] == 2_010 for job in told["jobs"])


async def test_a_killed_run_is_continued_and_what_it_left_behind_ends(bench: Bench) -> None:
    process = await bench.start(*POLICY, "-n", "2", *CLAUDE, ":::", *"ab", FAKE_PAUSE_S="60", FAKE_TURNS="2")
    with trio.fail_after(PATIENCE_S):
        await bench.answered(2)
    # The agents are asleep between two turns.
    process.kill()
    await process.wait()
    status, out, err = await bench.run("--continue", "last", "--json", FAKE_PAUSE_S="0")

    assert status == 0, err
    told = json.loads(out)
    assert [job["state"] for job in told["jobs"]] == ["done", "done"]
    assert [job["starts"] for job in told["jobs"]] == [2, 2]
    assert len(bench.told()) == 2
    for session in bench.told():
        assert next(line for line in session if "prompt" in line)["prompt"].startswith("fix ")
        assert len([line for line in session if "prompt" in line]) == 2
        assert len([line for line in session if "answer" in line]) == 2


async def test_interrupts_let_jobs_end_and_then_stop_them(bench: Bench) -> None:
    process = await bench.start(*POLICY, "-n", "1", *CLAUDE, ":::", *"ab", FAKE_PAUSE_S="60")
    with trio.fail_after(PATIENCE_S):
        await bench.answered(1)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = b""
        while b"no further job starts" not in said:
            said += await process.stderr.receive_some()
        process.send_signal(signal.SIGINT)
        while piece := await process.stderr.receive_some():
            said += piece
        assert await process.wait() == 130
    text = said.decode()
    assert "1 waiting" in text
    assert "1 stopped" in text
    assert "hivemind-trio run --continue" in text


async def test_tasks_come_from_standard_input_and_wait_for_each_other(bench: Bench) -> None:
    tasks = b'{"id": "a", "title": "one"}\n{"id": "b", "title": "two", "after": "a"}\n'
    status, _, err = await bench.run(
        *POLICY, "--from", "-", "--", "claude", "-p", "fix {title}", "--output-format", "json", stdin=tasks
    )

    assert status == 0, err
    lines = [line.split(maxsplit=1)[1] for line in err.splitlines() if " a " in line or " b " in line]
    assert lines[:4] == ["a started", "a done", "b started", "b done"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--", "claude", "-p", "x"), "standard input: no task"),
        (("--from", "no-such-file"), "no-such-file: No such file"),
        (("--continue", "last"), "there is no run to continue"),
        (("--continue", "x", "--", "claude"), "--continue takes no command"),
        (("--policy", "none.hmp", "--", "claude", ":::", "a"), "none.hmp"),
        (("--patience", "long", "--", "claude", ":::", "a"), "--patience: no duration"),
    ],
)
async def test_wrong_usage_says_what_to_write(bench: Bench, arguments: tuple[str, ...], says: str) -> None:
    status, _, err = await bench.run(*arguments)

    assert status == 2
    assert says in err
    assert not list((bench.folder / "state").glob("hivemind-trio/runs/*/run.db"))
