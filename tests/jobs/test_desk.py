"""Jobs of agents in a proxy: what the policy allows, in a time that jumps and with processes that are scripts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.admin import JobRefused, WantedTask
from hivemind_trio.jobs.output import BoundedFile
from hivemind_trio.jobs.run_file import RunFile, RunSettings
from hivemind_trio.jobs.submitted import desk as desk_module
from hivemind_trio.jobs.submitted.desk import NOT_ALLOWED, ServeJobs
from hivemind_trio.model import Reason, SecretRef, SecretSource, Usage
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve import ProxyServer
from tests.support.policies import compiled

POLICY = """
provider anthropic {{ key env(PROVIDER_KEY) }}
agent lead {{ token [env(OLD_TOKEN), env(LEAD_TOKEN)] }}
agent other {{ token env(OTHER_TOKEN) }}
jobs {{ {} }}
"""
JOBS = 'allow [lead, other]; commands ["claude -p *", "make *"]; capacity 2; queue 5'
SECRETS = {
    SecretRef(SecretSource.ENV, name): value
    for name, value in {"PROVIDER_KEY": "sk-provider", "LEAD_TOKEN": "t-lead", "OTHER_TOKEN": "t-other"}.items()
}


@attrs.define(eq=False)
class Processes:
    """Processes that take a time and succeed; tells what they were given."""

    seconds: float = 5.0
    alive: int = 0
    alive_max: int = 0
    started: list[tuple[tuple[str, ...], Mapping[str, str]]] = attrs.field(factory=list)

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
        self.started.append((tuple(argv), environment))
        self.alive += 1
        self.alive_max = max(self.alive, self.alive_max)
        on_started(0)
        try:
            await trio.sleep(self.seconds)
            out.write(b"made it\n")
        finally:
            self.alive -= 1
        return 0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}")
    return tmp_path


def desk_of(
    nursery: trio.Nursery,
    processes: Processes,
    jobs: str = JOBS,
    *,
    secrets: Mapping[SecretRef, str] = SECRETS,
) -> ServeJobs:
    pools: dict[str, Any] = {}
    state = SimpleNamespace(waiters={}, budgets=SimpleNamespace(accounts={}))
    engine = SimpleNamespace(
        program=compiled(POLICY.format(jobs)),
        now_ns=lambda: 0,
        snapshot=lambda: SimpleNamespace(pools=pools),
        scheduler=SimpleNamespace(state=state),
    )
    house = cast(ProxyServer, SimpleNamespace(engine=engine, url="http://127.0.0.1:1"))
    environment = {
        "HOME": "/home/x",
        "PROVIDER_KEY": "sk-provider",
        "EXTRA_KEY": "sk-extra",
        "LEAD_TOKEN": "t-lead",
        "HIVEMIND_ADMIN_TOKEN": "t-admin",
        "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat",
    }
    made = ServeJobs(
        house, "serve-team", lambda: secrets, trio.current_time, environment, "/", nursery, processes.spawn
    )
    made.go_on()
    return made


def use(desk: ServeJobs, jobs: str) -> None:
    engine: Any = desk.house.engine
    engine.program = compiled(POLICY.format(jobs))
    desk.load(engine.program)


def make(target: str, **more: Any) -> WantedTask:
    return WantedTask(command=["make", target], **more)


def kept(home: Path) -> list[str]:
    return sorted(one.name for one in home.rglob("*.out"))


def call_of(agent: str, job: str) -> CallRecord:
    usage = Usage(input=8, output=4)
    return CallRecord(
        id="x-1", agent=agent, claimed=job, status=200, rejected=False, reason=Reason.NONE, model="m", usage=usage
    )


def states(desk: ServeJobs) -> dict[str, str]:
    return {job.id: job.state for job in desk.show().jobs}


async def test_a_job_does_not_see_a_secret_that_a_reload_has_taken_out_of_the_policy(
    autojump_clock: MockClock,
) -> None:
    processes, secrets = Processes(), dict(SECRETS)
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, processes, secrets=secrets)
        extra = SecretRef(SecretSource.ENV, "EXTRA_KEY")
        secrets[extra] = "sk-extra"
        use(desk, JOBS)  # two reloads, and no job starts between them
        del secrets[extra]
        use(desk, JOBS)
        desk.submit("lead", [make("a")])
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    ((_, environment),) = processes.started
    assert environment["HOME"] == "/home/x"
    assert "EXTRA_KEY" not in environment


async def test_jobs_start_within_the_capacity_with_the_token_of_their_agent_and_no_other_secret(
    autojump_clock: MockClock,
) -> None:
    processes = Processes()
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, processes)
        assert desk.submit("lead", [make("a"), make("b"), make("c")]) == ["job-1", "job-2", "job-3"]
        assert desk.submit("other", [WantedTask(command="claude -p 'fix {it}'")]) == ["job-4"]
        await trio.sleep(60)
        view = desk.show("job-4").jobs[0]
        nursery.cancel_scope.cancel()

    assert states(desk) == dict.fromkeys(["job-1", "job-2", "job-3", "job-4"], "done")
    assert processes.alive_max == 2
    lead, claude = processes.started[0], processes.started[3]
    assert lead[0] == ("make", "a")
    assert claude[0][-2:] == ("-p", "fix {it}")
    assert view.output == "made it"
    for (_, environment), token in ((lead, "t-lead"), (claude, "t-other")):
        assert environment["ANTHROPIC_API_KEY"] == environment["OPENAI_API_KEY"] == token
        assert environment["HOME"] == "/home/x"
        assert not {"PROVIDER_KEY", "LEAD_TOKEN", "HIVEMIND_ADMIN_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"} & {*environment}
        assert "sk-provider" not in environment.values()


async def test_a_waiting_job_that_the_policy_allows_no_longer_never_starts(autojump_clock: MockClock) -> None:
    processes = Processes()
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, processes, JOBS.replace("capacity 2", "capacity 1"))
        desk.submit("lead", [make("a"), make("b"), WantedTask(command=["claude", "-p", "x"])])
        desk.submit("other", [make("c")])
        await trio.sleep(2)
        use(desk, 'allow lead; commands ["claude -p *"]; capacity 1')
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert states(desk) == {"job-1": "done", "job-2": "failed", "job-3": "done", "job-4": "failed"}
    reasons = {job.id: job.reason for job in desk.show().jobs}
    assert "does not allow the command `make b`" in reasons["job-2"]
    assert "agent `other` may submit no jobs" in reasons["job-4"]
    assert [argv[0] for argv, _ in processes.started] == ["make", "claude"]


async def test_without_allow_jobs_in_progress_end_and_none_starts_until_it_is_back(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes(), JOBS.replace("capacity 2", "capacity 1"))
        desk.submit("lead", [make("a"), make("b")])
        await trio.sleep(2)
        use(desk, 'commands ["make *"]')
        await trio.sleep(60)
        between = states(desk)
        assert desk.runner is not None
        why = desk.runner.stopping
        use(desk, JOBS)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert between == {"job-1": "done", "job-2": "waiting"}
    assert why == NOT_ALLOWED
    assert states(desk) == {"job-1": "done", "job-2": "done"}


async def test_a_budget_counts_the_calls_of_the_job_and_not_those_of_others_that_take_its_name(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes(seconds=30.0))
        desk.submit("lead", [make("a", token_budget=10)])
        await trio.sleep(5)
        desk.record(call_of("other", "job-1"))
        between = desk.show("job-1").jobs[0]
        desk.record(call_of("lead", "job-1"))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert (between.state, between.tokens) == ("running", 0)
    after = desk.show("job-1").jobs[0]
    assert (after.state, after.tokens, after.reason) == ("stopped", 12, "its budget of 10 tokens is spent")


async def test_the_queue_is_bounded_and_a_submission_is_taken_whole_or_not_at_all(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes(seconds=100.0))
        desk.submit("lead", [make("a")] * 4)
        with pytest.raises(JobRefused, match="4 jobs wait, and the policy lets 5 wait") as full:
            desk.submit("lead", [make("b"), make("c")])
        with pytest.raises(JobRefused, match="two tasks have the id `job-1`"):
            desk.submit("lead", [make("b", id="job-1")])
        with pytest.raises(JobRefused, match="`command` cannot be split"):
            desk.submit("lead", [WantedTask(command="claude -p 'x")])
        with pytest.raises(JobRefused, match="`command` is empty"):
            desk.submit("lead", [WantedTask(command="  ")])
        with pytest.raises(JobRefused, match="`deadline` is '6'"):
            desk.submit("lead", [make("b", deadline="6")])
        assert full.value.is_full
        assert len(desk.show().jobs) == 4
        nursery.cancel_scope.cancel()


async def test_a_deadline_counts_from_the_submission(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes(seconds=30.0))
        desk.submit("lead", [make("a")])
        await trio.sleep(100)
        desk.submit("lead", [make("b", deadline="50s"), make("c", deadline="10s")])
        await trio.sleep(100)
        nursery.cancel_scope.cancel()

    assert states(desk) == {"job-1": "done", "job-2": "done", "job-3": "stopped"}
    assert desk.show("job-3").jobs[0].reason == "its deadline of 10 s has passed"


async def test_a_restart_goes_on_with_what_ran_and_leaves_what_was_stopped(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes(seconds=30.0))
        desk.submit("lead", [make("a", deadline="5s"), make("b"), WantedTask(command=["claude", "-p", "x"])])
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert desk.runner is not None
    desk.runner.file.close()
    session = {job.id: job.session for job in desk.show().jobs}["job-3"]

    processes = Processes(seconds=2.0)
    async with trio.open_nursery() as nursery:
        again = desk_of(nursery, processes)
        await trio.sleep(60)
        before = states(again)
        again.resume("job-1")
        with pytest.raises(JobRefused, match="is done; only a stopped one"):
            again.resume("job-3")
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert before == {"job-1": "stopped", "job-2": "done", "job-3": "done"}
    (resumed,) = [argv for argv, _ in processes.started if argv[0] == "claude"]
    assert resumed[resumed.index("--resume") + 1] == session
    assert states(again)["job-1"] == "done"
    assert again.show("job-1").jobs[0].starts == 2


async def test_the_oldest_that_are_over_are_forgotten_with_their_output(
    autojump_clock: MockClock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "ENDED_KEPT", 3)
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes())
        for number in range(6):
            desk.submit("lead", [make(f"t{number}")])
            await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert [*states(desk)] == ["job-4", "job-5", "job-6"]
    assert kept(home) == ["job-4.out", "job-5.out", "job-6.out"]


async def test_a_forgotten_job_does_not_refuse_those_that_come_after_its_successors(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "ENDED_KEPT", 2)
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes())
        desk.submit("lead", [make("a"), make("b", after=("job-1",))])
        await trio.sleep(60)
        desk.submit("lead", [make("c")])  # `job-1` is forgotten, and `job-2` came after it
        await trio.sleep(60)
        desk.submit("lead", [make("d")])
        with pytest.raises(JobRefused, match="comes after `job-1`, which is no task"):
            desk.submit("lead", [make("e", after=("job-1",))])
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert states(desk) == {"job-3": "done", "job-4": "done"}


async def test_no_job_is_forgotten_that_a_new_one_comes_after_or_that_has_a_process(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "ENDED_KEPT", 0)
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes())
        desk.submit("lead", [make("a")])
        await trio.sleep(60)
        desk.submit("lead", [make("b", after=("job-1",))])
        await trio.sleep(2)
        desk.cancel("job-2", "lead")  # its process has not ended yet
        desk.submit("lead", [make("c")])
        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert states(desk) == {"job-2": "cancelled", "job-3": "done"}


async def test_jobs_that_never_started_end_when_they_are_given_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "SHOWN", 2)
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes(), JOBS.replace("capacity 2", "capacity 1"))
        desk.submit("lead", [make("a"), make("b"), make("c")])
        await trio.sleep(60)
        desk.submit("lead", [make("d"), make("e"), make("f", after=("job-5",))])
        await trio.sleep(2)
        desk.cancel("job-5", "lead")
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()

    assert states(desk) == {"job-4": "running", "job-5": "cancelled", "job-6": "blocked"}


async def test_a_file_in_use_elsewhere_does_not_keep_the_proxy_from_serving(autojump_clock: MockClock) -> None:
    settings = RunSettings(
        agents=1, patience_s=1, max_wait_s=1, policy=None, proxy=None, adapter="", is_idempotent=False, output_bytes=9
    )
    file = RunFile.create("serve-team", 0.0, "/", settings, ())
    async with trio.open_nursery() as nursery:
        desk = desk_of(nursery, Processes())
        with pytest.raises(JobRefused, match="in progress in another process"):
            desk.submit("lead", [make("a")])
        file.close()
        assert desk.submit("lead", [make("a")]) == ["job-1"]
        nursery.cancel_scope.cancel()


async def test_a_full_disk_ends_processes_and_not_the_proxy_and_the_jobs_go_on_once_it_has_room(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    async with trio.open_nursery() as nursery:
        processes = Processes(seconds=20.0)
        desk = desk_of(nursery, processes)
        desk.on_trouble = said.append
        desk.submit("lead", [WantedTask(command=["claude", "-p", "x"]), make("b", after=("job-1",))])
        await trio.sleep(10)
        with monkeypatch.context() as full:

            def fails(*_: object) -> None:
                raise sqlite3.OperationalError("database or disk is full")

            full.setattr(RunFile, "save", fails)
            full.setattr(RunFile, "add", fails)
            with pytest.raises(JobRefused, match="jobs cannot be kept: database or disk is full"):
                desk.submit("lead", [make("c")])
            await trio.sleep(100)
            between = processes.alive, desk.show().held, list(said)
        await trio.sleep(200)
        nursery.cancel_scope.cancel()

    assert between == (0, "jobs cannot be kept: database or disk is full", ["database or disk is full"])
    assert states(desk) == {"job-1": "done", "job-2": "done"}
    assert (said[1:], desk.show().held) == ([""], "")
