"""The runner, with processes that are scripts, in a time that jumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from hivemind_trio.jobs.adapters import CONTINUE
from hivemind_trio.jobs.ending import LastCall
from hivemind_trio.jobs.gate import Hold, Signals
from hivemind_trio.jobs.job import Job, JobState
from hivemind_trio.jobs.job_proxy import JobUsage
from hivemind_trio.jobs.output import BoundedFile
from hivemind_trio.jobs.run_file import RunFile, RunFileError, RunSettings, read_run, runs
from hivemind_trio.jobs.runner import Runner
from hivemind_trio.jobs.task import Task

SETTINGS: Final = RunSettings(
    agents=3,
    patience_s=60.0,
    max_wait_s=86_400.0,
    policy=None,
    proxy=None,
    adapter="",
    is_idempotent=False,
    output_bytes=1_000_000,
)
_names = count()


@attrs.define
class Try:
    """One process: how long it runs, its status, what it prints, and the limit that it meets."""

    seconds: float = 5.0
    status: int = 0
    prints: str = ""
    opens_after_s: float | None = None
    cost_microusd: int = 0
    lingers: float = 0.0
    """Seconds after what it prints."""


@attrs.define(eq=False)
class Scripts:
    """A proxy and processes by script; asserts what holds whatever happens."""

    tries: dict[str, list[Try]]
    agents: int = 3
    alive: dict[str, float] = attrs.field(factory=dict)
    starts: list[tuple[float, str, tuple[str, ...]]] = attrs.field(factory=list)
    usages: dict[str, JobUsage] = attrs.field(factory=dict)
    told: Signals = attrs.field(factory=Signals)
    called: Callable[[str], None] = lambda _: None
    url: str = "http://127.0.0.1:1"

    def usage(self, job: str) -> JobUsage:
        return self.usages.setdefault(job, JobUsage())

    def signals(self) -> Signals:
        return self.told

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        out: BoundedFile,
        err: BoundedFile,
        on_started: Callable[[int], None],
    ) -> int:
        name = environment["HIVEMIND_JOB"]
        assert environment["ANTHROPIC_BASE_URL"] == f"{self.url}/@{name}"
        now_s = trio.current_time()
        assert name not in self.alive
        assert not self.starts or now_s - self.starts[-1][0] >= 1.0
        self.alive[name] = now_s
        assert len(self.alive) <= self.agents
        self.starts.append((now_s, name, tuple(argv)))
        on_started(0)
        one = self.tries[name].pop(0) if self.tries.get(name) else Try()
        try:
            await trio.sleep(one.seconds)
            usage = self.usage(name)
            usage.calls += 1
            usage.cost_microusd += one.cost_microusd
            usage.last = LastCall(status=200, reason="none", was_rejected=False)
            if one.opens_after_s is not None:
                opens_s = trio.current_time() + one.opens_after_s
                usage.last = usage.limit = LastCall(
                    status=429, reason="provider-spent", was_rejected=True, opens_s=opens_s
                )
            if one.cost_microusd:
                self.called(name)
                await trio.sleep(1.0)
            out.write(one.prints.encode())
            await trio.sleep(one.lingers)
        finally:
            del self.alive[name]
        return one.status


class Nobody:
    def __init__(self) -> None:
        self.seen: list[tuple[str, JobState]] = []
        self.held: list[str] = []

    def changed(self, job: Job) -> None:
        self.seen.append((job.id, job.state))

    def holds(self, hold: Hold | None) -> None:
        if hold is not None:
            self.held.append(hold.reason)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}")
    return tmp_path


def claude(name: str, **more: Any) -> Task:
    return Task(id=name, argv=("claude", "-p", "fix it"), prompt=2, **more)


def file_of(tasks: list[Task], settings: RunSettings = SETTINGS, began_s: float = 0.0) -> RunFile:
    return RunFile.create(f"run-{next(_names)}", began_s, "/", settings, tasks)


def runner_of(file: RunFile, scripts: Scripts) -> Runner:
    made = Runner(file, scripts, Nobody(), dict, trio.current_time, Random(1), scripts.spawn)
    scripts.called = made.called
    return made


async def run(tasks: list[Task], scripts: Scripts, settings: RunSettings = SETTINGS) -> RunFile:
    file = file_of(tasks, settings, trio.current_time())
    await runner_of(file, scripts).run()
    file.close()
    return file


def states(file: RunFile) -> dict[str, JobState]:
    return {job.id: job.state for job in file.jobs}


async def test_a_limit_parks_a_job_until_it_opens(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({"a": [Try(status=1, opens_after_s=3_600.0)]})
    file = await run([claude("a")], scripts)
    assert states(file) == {"a": JobState.DONE}
    [(first_s, _, begun), (second_s, _, resumed)] = scripts.starts
    assert second_s - first_s >= 3_605.0
    assert second_s - first_s < 3_610.0
    session = begun[begun.index("--session-id") + 1]
    assert resumed == ("claude", "-p", "--resume", session, CONTINUE)
    assert file.jobs[0].parked_s >= 3_600.0


async def test_while_a_limit_is_closed_no_other_job_tries_it(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({"a": [Try(seconds=0.5, status=1, opens_after_s=600.0)]})
    file = await run([claude(name) for name in "abcd"], scripts)
    assert set(states(file).values()) == {JobState.DONE}
    assert not [name for at_s, name, _ in scripts.starts if scripts.starts[0][0] + 1 < at_s < 600]


async def test_a_session_that_is_printed_is_known_at_once(home: Path, autojump_clock: MockClock) -> None:
    session = "01a2087a-21be-7a00-b517-ea513f7ecd6b"
    scripts = Scripts({"a": [Try(prints=f'{{"thread_id":"{session}"}}', seconds=1, lingers=50)]})
    file = file_of([Task(id="a", argv=("codex", "exec", "fix it"), prompt=2)], began_s=trio.current_time())
    with trio.move_on_after(10):
        await runner_of(file, scripts).run()
    assert [job.session for job in read_run(file.name)[3]] == [session]
    file.close()


async def test_a_crash_is_resumed_three_times_and_then_fails(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({"a": [Try(status=-9)] * 3, "b": [Try(status=-9)] * 9})
    file = await run([claude("a"), claude("b")], scripts)
    assert states(file) == {"a": JobState.DONE, "b": JobState.FAILED}
    assert [name for _, name, _ in scripts.starts].count("b") == 4


async def test_a_command_without_sessions_is_started_anew_only_if_told(home: Path, autojump_clock: MockClock) -> None:
    task = Task(id="a", argv=("./agent.sh",))
    file = await run([task], Scripts({"a": [Try(status=-9)]}))
    assert states(file) == {"a": JobState.FAILED}
    assert "--idempotent" in file.jobs[0].reason
    file = await run([task], Scripts({"a": [Try(status=-9)]}), attrs.evolve(SETTINGS, is_idempotent=True))
    assert states(file) == {"a": JobState.DONE}


async def test_what_comes_after_a_failed_job_is_blocked(home: Path, autojump_clock: MockClock) -> None:
    tasks = [claude("a"), claude("b", after=("a",)), claude("c", after=("b",)), claude("d")]
    file = await run(tasks, Scripts({"a": [Try(status=2, prints="boom")]}))
    assert states(file) == {"a": JobState.FAILED, "b": JobState.BLOCKED, "c": JobState.BLOCKED, "d": JobState.DONE}
    assert "boom" in file.jobs[0].reason
    assert "`a`" in file.jobs[1].reason


async def test_a_higher_priority_starts_first(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({})
    await run([claude("a"), claude("b", priority=5), claude("c", priority=1)], scripts)
    assert [name for _, name, _ in scripts.starts] == ["b", "c", "a"]


async def test_a_spent_budget_stops_a_job_so_that_it_can_be_resumed(home: Path, autojump_clock: MockClock) -> None:
    file = await run([claude("a", budget_microusd=2_000_000)], Scripts({"a": [Try(cost_microusd=2_500_000)]}))
    assert states(file) == {"a": JobState.STOPPED}
    assert "$2.00" in file.jobs[0].reason
    assert file.jobs[0].session


async def test_a_deadline_stops_a_job_wherever_it_is(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({"a": [Try(seconds=500)], "b": [Try(status=1, opens_after_s=900.0)]})
    tasks = [claude("a", deadline_s=60.0), claude("b", deadline_s=60.0)]
    file = await run(tasks, scripts)
    assert set(states(file).values()) == {JobState.STOPPED}
    assert trio.current_time() < 70


async def test_a_window_beyond_the_longest_wait_is_left_for_another_day(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({"a": [Try(status=1, opens_after_s=7 * 86_400.0)]})
    file = await run([claude("a")], scripts)
    assert states(file) == {"a": JobState.STOPPED}
    assert "--max-wait" in file.jobs[0].reason


async def test_waits_of_calls_hold_the_start_of_further_jobs(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({}, told=Signals(longest_wait_s=100.0, wait_reason="limits"))
    await run([claude("a"), claude("b")], scripts)
    [(first_s, *_), (second_s, *_)] = scripts.starts
    assert second_s - first_s >= 5.0  # not before the one that runs has ended


async def test_after_a_first_interrupt_what_runs_ends_and_nothing_starts(home: Path, autojump_clock: MockClock) -> None:
    file = file_of([claude("a"), claude("b")], attrs.evolve(SETTINGS, agents=1), trio.current_time())
    runner = runner_of(file, Scripts({}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.run)
        await trio.sleep(1)
        runner.stop_starting("interrupted")
    assert states(file) == {"a": JobState.DONE, "b": JobState.WAITING}
    file.close()


async def test_a_stopped_run_goes_on_in_the_same_sessions(home: Path, autojump_clock: MockClock) -> None:
    file = file_of([claude("a"), claude("b")], attrs.evolve(SETTINGS, agents=1), trio.current_time())
    scripts = Scripts({"a": [Try(seconds=100)]})
    runner = runner_of(file, scripts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.run)
        await trio.sleep(10)
        runner.stop_all("the run was stopped")
    assert states(file) == {"a": JobState.STOPPED, "b": JobState.WAITING}
    file.close()
    again = RunFile.open(file.name)
    assert again.jobs[0].session == file.jobs[0].session
    await runner_of(again, scripts).run()
    assert set(states(again).values()) == {JobState.DONE}
    assert again.jobs[0].session in scripts.starts[1][2]
    again.close()


async def test_a_killed_run_goes_on_where_it_was(home: Path, autojump_clock: MockClock) -> None:
    file = file_of([claude("a"), claude("b"), claude("c", after=("a",))], began_s=trio.current_time())
    scripts = Scripts({"a": [Try(seconds=2)], "b": [Try(seconds=500)]})
    with trio.move_on_after(20):
        await runner_of(file, scripts).run()
    seen = {job.id: job.state for job in read_run(file.name)[3]}
    assert seen == {"a": JobState.DONE, "b": JobState.RUNNING, "c": JobState.DONE}
    file.close()
    again = RunFile.open(file.name)
    await runner_of(again, Scripts({})).run()
    assert set(states(again).values()) == {JobState.DONE}
    assert [job.starts for job in again.jobs] == [1, 2, 1]
    again.close()


async def test_a_job_whose_tokens_are_spent_is_stopped(home: Path, autojump_clock: MockClock) -> None:
    scripts = Scripts({"a": [Try(cost_microusd=1)], "b": [Try(cost_microusd=1)]})
    scripts.usages = {name: JobUsage(input=60, output=40) for name in "ab"}
    file = await run([claude("a", budget_tokens=100), claude("b", budget_tokens=101)], scripts)

    assert states(file) == {"a": JobState.STOPPED, "b": JobState.DONE}
    assert file.jobs[0].reason == "its budget of 100 tokens is spent"

    again = RunFile.open(file.name)
    more = Scripts({"a": [Try(cost_microusd=1)]})
    await runner_of(again, more).run()
    again.close()
    assert states(again) == {"a": JobState.DONE, "b": JobState.DONE}


def test_one_process_at_a_time_has_a_run(home: Path) -> None:
    file = file_of([claude("a")])
    with pytest.raises(RunFileError, match="in progress"):
        RunFile.open(file.name)
    file.close()
    RunFile.open(file.name).close()
    assert runs()[0] == file.name
    with pytest.raises(RunFileError, match="there is no run `x`"):
        RunFile.open("x")


tries = st.builds(
    Try,
    seconds=st.floats(0.1, 100),
    status=st.sampled_from([0, 1, 2, -9]),
    opens_after_s=st.none() | st.floats(1, 5_000),
)


@settings(max_examples=settings().max_examples // 4)
@given(st.data())
def test_whatever_happens_every_job_ends_in_one_session(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The assertions of `Scripts` hold, too: at most three alive, one process for a job, starts a second apart."""
    size = data.draw(st.integers(1, 6))
    tasks = []
    for number in range(size):
        after = data.draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        tasks.append(claude(f"j{number}", after=tuple(f"j{one}" for one in sorted(after))))
    scripts = Scripts({f"j{number}": data.draw(st.lists(tries, max_size=6)) for number in range(size)})

    async def body() -> None:
        file = await run(tasks, scripts)
        for job in file.jobs:
            assert job.state in (JobState.DONE, JobState.FAILED, JobState.BLOCKED)
            before = [file.jobs[int(name[1:])] for name in job.task.after]
            if job.state is JobState.BLOCKED:
                assert any(one.state in (JobState.FAILED, JobState.BLOCKED) for one in before)
            else:
                assert all(one.state is JobState.DONE for one in before)
                mine = [argv for _, name, argv in scripts.starts if name == job.id]
                assert all(job.session in argv for argv in mine)
                assert ["--session-id" in argv for argv in mine] == [True] + [False] * (len(mine) - 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", f"{tmp_path_factory.mktemp('state')}")
        trio.run(body, clock=MockClock(autojump_threshold=0))
