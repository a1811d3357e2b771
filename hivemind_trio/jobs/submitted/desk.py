"""Jobs of agents in a proxy that serves: submitted one by one, run by the runner of `hivemind-trio run`."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import JobRefused, JobsView, JobView, WantedTask
from hivemind_trio.jobs.gate import Hold
from hivemind_trio.jobs.job import ENDED, Job, JobState
from hivemind_trio.jobs.job_proxy import OwnProxy
from hivemind_trio.jobs.output import end_of
from hivemind_trio.jobs.overview import RunOverview
from hivemind_trio.jobs.process import Spawn, run_process
from hivemind_trio.jobs.run_file import RunFile, RunFileError, RunSettings
from hivemind_trio.jobs.runner import Runner
from hivemind_trio.jobs.task import TaskError, check_order, task_of
from hivemind_trio.model import SecretRef
from hivemind_trio.policy import JobsSettings, Program
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve import ProxyServer

from .identity import identity, without_secrets

SECOND_NS: Final = 1_000_000_000
ENDED_KEPT: Final = 1_000
"""Jobs that are over and still known; older ones are forgotten, with their output."""
SHOWN: Final = 50
"""Jobs that are over, in a view of all."""
OUTPUT_SHOWN: Final = 4_000
OUTPUT_BYTES: Final = 16_000_000
MAX_WAIT_S: Final = 7 * 86_400.0
NOT_ALLOWED: Final = "the policy allows no jobs now"
AGAIN_S: Final = 30.0
"""Until it is tried again to run jobs whose file could not be written."""
SURE_S: Final = 2.0
"""Time after which jobs that run again are said to."""


@final
@attrs.define(eq=False)
class ServeJobs:
    """Jobs of the agents that the policy names, behind the proxy in this process."""

    house: ProxyServer
    name: str
    """Name of the run that its file has."""
    secrets: Callable[[], Mapping[SecretRef, str]]
    """Secrets of the policy in force."""
    clock: Callable[[], float]
    """Time of the wall clock."""
    environment: Mapping[str, str]
    folder: str
    nursery: trio.Nursery
    spawn: Spawn = run_process
    on_trouble: Callable[[str], None] = lambda _: None
    """Told once why jobs cannot be kept, and with "" when they can be again."""
    runner: Runner | None = attrs.field(default=None, init=False)
    """None: no job was ever submitted, or none may."""
    _hidden: dict[SecretRef, None] = attrs.field(factory=dict, init=False)
    """Secrets of this policy and of those before it: their variables are in the environment all the same."""
    _proxy: OwnProxy = attrs.field(init=False)
    _hold: Hold | None = attrs.field(default=None, init=False)
    _trouble: str = attrs.field(default="", init=False)
    """Why jobs cannot be kept now; empty: they can be."""

    def __attrs_post_init__(self) -> None:
        self._proxy = OwnProxy(self.house, "", self.clock, self._called)
        self._hidden |= dict.fromkeys(self.secrets())

    @property
    def _settings(self) -> JobsSettings:
        return self.house.engine.program.jobs

    # ---- what operations ask ----

    def submit(self, agent: str, tasks: Sequence[WantedTask]) -> list[str]:
        """Put jobs in line, all or none; return their ids.

        Raises:
            JobRefused: The policy does not allow a command, too many wait, or a task is malformed.
        """
        jobs = self.runner.file.jobs if self.runner is not None else []
        waiting = sum(job.state is JobState.WAITING for job in jobs)
        if waiting + len(tasks) > self._settings.queue:
            message = f"{waiting} jobs wait, and the policy lets {self._settings.queue} wait (`jobs {{ queue }}`)"
            raise JobRefused(message, is_full=True)
        number = max((job.number for job in jobs), default=-1) + 1
        made: list[Job] = []
        try:
            for place, wanted in enumerate(tasks):
                record: dict[str, Any] = {name: value for name, value in msgspec.to_builtins(wanted).items() if value}
                task = task_of(f"task {place + 1}", number + place + 1, record)
                self._check_folder(task.cwd, place)
                problem = self._problem(agent, task.argv)
                if problem:
                    raise JobRefused(problem)
                made.append(Job(task, number + place, submitted_s=self.clock(), submitted_by=agent))
            check_order([job.task for job in made], {job.id for job in jobs})
        except TaskError as error:
            raise JobRefused(f"{error}" + (f"; {error.help}" if error.help else "")) from None
        runner = self._opened()
        with _kept():
            runner.add(made)
            self._forget(len(made))
        return [job.id for job in made]

    def resume(self, job: str) -> None:
        """Let a job that is stopped go on in its session.

        Raises:
            JobRefused: There is no such job, or it is not stopped.
        """
        found = self._job(job)
        if found.state is not JobState.STOPPED:
            raise JobRefused(f"job `{job}` is {found.state}; only a stopped one can be resumed")
        with _kept():
            self._opened().resume(found)

    def cancel(self, job: str, by: str) -> None:
        """End a job for good.

        Raises:
            JobRefused: There is no such job, or it is over.
        """
        found = self._job(job)
        if found.state in ENDED:
            raise JobRefused(f"job `{job}` is {found.state} already")
        with _kept():
            self._opened().cancel(found, f"cancelled by {by}")

    def show(self, job: str = "") -> JobsView:
        """Return the jobs, or one with its output.

        Raises:
            JobRefused: There is no such job.
        """
        jobs = self.runner.file.jobs if self.runner is not None else []
        ended = [one for one in jobs if one.state in ENDED]
        latest = set(map(id, sorted(ended, key=lambda one: one.ended_s or 0.0)[-SHOWN:]))
        shown = [self._job(job)] if job else [one for one in jobs if one.state not in ENDED or id(one) in latest]
        held = "" if self._hold is None or all(one.state in ENDED for one in jobs) else self._hold.reason
        held = f"jobs cannot be kept: {self._trouble}" if self._trouble else held
        return JobsView(
            jobs=tuple(self._view(one, with_output=bool(job)) for one in shown),
            counts={state.value: count for state, count in Counter(one.state for one in jobs).items()},
            capacity=self._settings.capacity,
            held=held,
        )

    def _view(self, job: Job, *, with_output: bool) -> JobView:
        assert self.runner is not None
        file = self.runner.file
        run = RunOverview(
            name=file.name, began_s=file.began_s, folder=file.folder, adapter="", in_progress=True, jobs=[job]
        )
        parked = job.state is JobState.PARKED and job.opens_s is not None
        return JobView(
            id=job.id,
            state=job.state.value,
            reason=job.reason,
            opens_at=_moment(job.opens_s) if parked else None,
            place=run.place(job),
            session=job.session,
            resume_by_hand=run.by_hand(job),
            command=job.task.argv,
            after=job.task.after,
            submitted_by=job.submitted_by,
            starts=job.starts,
            calls=job.calls,
            tokens=job.tokens,
            cost_usd=round(job.cost_microusd / 1e6, 6),
            output=end_of(file.output(job, "out"), file.output(job, "err"), OUTPUT_SHOWN) if with_output else None,
        )

    # ---- what the runner is told ----

    def changed(self, job: Job) -> None:
        """Do nothing: whoever wants to know asks."""

    def holds(self, hold: Hold | None) -> None:
        """Remember why no further job starts."""
        self._hold = hold

    def record(self, call: CallRecord) -> None:
        """Count a call that is over, if a job made it."""
        job = self.runner.job(call.claimed) if self.runner is not None and call.claimed else None
        if job is not None and job.submitted_by == call.agent:
            self._proxy.record(call)

    def _called(self, job: str) -> None:
        if self.runner is not None:
            self.runner.called(job)

    def _identity(self, job: Job) -> Mapping[str, str]:
        return identity(self.house.engine.program.agent(job.submitted_by).tokens, self.secrets())

    def _inherited(self) -> dict[str, str]:
        self._hidden |= dict.fromkeys(self.secrets())
        return without_secrets(self.environment, self._hidden)

    def _forbids(self, job: Job) -> str:
        """Return why the policy does not let a job begin; empty: it does."""
        return self._problem(job.submitted_by, job.task.argv)

    def _problem(self, agent: str, argv: Sequence[str]) -> str:
        settings = self._settings
        if agent not in settings.allow:
            return f"agent `{agent}` may submit no jobs (`jobs {{ allow }}` of the policy)"
        if not settings.may_run(argv):
            line = " ".join(argv)
            globs = ", ".join(f"`{glob}`" for glob in settings.commands)
            return f"the policy does not allow the command `{line[:200]}`; `jobs {{ commands }}` has {globs or 'none'}"
        return ""

    def _check_folder(self, cwd: str | None, place: int) -> None:
        folder = os.path.join(self.folder, cwd or "")
        if not os.path.isdir(folder):
            raise JobRefused(f"task {place + 1}: `cwd`: there is no folder {folder}")

    # ---- its file and its runner ----

    def _job(self, name: str) -> Job:
        job = self.runner.job(name) if self.runner is not None else None
        if job is None:
            raise JobRefused(f"there is no job `{name}`", is_unknown=True)
        return job

    def _opened(self) -> Runner:
        if self.runner is None:
            with _kept():
                self._start(self._file())
        assert self.runner is not None
        return self.runner

    def _file(self) -> RunFile:
        if RunFile.exists(self.name):
            return RunFile.open(self.name)
        settings = RunSettings(
            agents=self._settings.capacity,
            patience_s=self._settings.patience_ns / SECOND_NS,
            max_wait_s=MAX_WAIT_S,
            policy=None,
            proxy=self.house.url,
            adapter="",
            is_idempotent=False,
            output_bytes=OUTPUT_BYTES,
            is_served=True,
        )
        return RunFile.create(self.name, self.clock(), self.folder, settings, ())

    def _start(self, file: RunFile) -> None:
        self.runner = Runner(
            file,
            self._proxy,
            self,
            self._inherited,
            self.clock,
            spawn=self.spawn,
            identity=self._identity,
            forbids=self._forbids,
            stays=True,
        )
        self.load(self.house.engine.program)
        self.nursery.start_soon(self._run, self.runner)

    async def _run(self, runner: Runner) -> None:
        """Run the jobs until cancelled. A disk that fails ends their processes, and not the proxy; they go on later."""
        try:
            await runner.run()
        except* (OSError, sqlite3.Error) as errors:
            self._lose(runner, errors)
        while self.runner is None:
            await trio.sleep(AGAIN_S)
            self.go_on()
        await trio.sleep(SURE_S)
        if self.runner is not None:
            self._trouble = ""
            self.on_trouble("")

    def _lose(self, runner: Runner, errors: BaseException) -> None:
        while isinstance(errors, BaseExceptionGroup):
            errors = errors.exceptions[0]
        self.runner = None
        with suppress(sqlite3.Error):
            runner.file.close()
        if not self._trouble:
            self.on_trouble(f"{errors}")
        self._trouble = f"{errors}"

    def go_on(self) -> None:
        """Go on with the jobs of an earlier process, if the policy still allows any."""
        if self._settings.allow and RunFile.exists(self.name):
            # Where its file cannot be used, the proxy serves all the same, and who submits a job is told why.
            with suppress(JobRefused):
                self._opened()

    def load(self, program: Program) -> None:
        """Take over a new policy."""
        self._hidden |= dict.fromkeys(self.secrets())
        if self.runner is None:
            self.go_on()
        else:
            settings = program.jobs
            self.runner.bound(settings.capacity, settings.patience_ns / SECOND_NS)
            self.runner.pause("" if settings.allow else NOT_ALLOWED)

    def stop_starting(self) -> None:
        """Start no job any more: the proxy is about to end."""
        if self.runner is not None:
            self.runner.stop_starting("the proxy ends")

    def _forget(self, room: int) -> None:
        """Forget the jobs that ended first, beyond what is kept."""
        assert self.runner is not None
        jobs = self.runner.file.jobs
        needed = {name for job in jobs if job.state not in ENDED for name in job.task.after}
        over = [job for job in jobs if self.runner.is_over(job) and job.id not in needed]
        for job in sorted(over, key=lambda one: one.ended_s or 0.0)[: max(0, len(over) + room - ENDED_KEPT)]:
            self.runner.forget(job)
            self._proxy.forget(job.id)


@asynccontextmanager
async def open_jobs(
    house: ProxyServer,
    name: str,
    secrets: Callable[[], Mapping[SecretRef, str]],
    clock: Callable[[], float],
    environment: Mapping[str, str],
    on_trouble: Callable[[str], None],
) -> AsyncIterator[ServeJobs]:
    """Run jobs of agents within the context; those that have a process at its end go on when it is opened again."""
    async with trio.open_nursery() as nursery:
        desk = ServeJobs(house, name, secrets, clock, environment, os.getcwd(), nursery, on_trouble=on_trouble)
        try:
            desk.go_on()
            yield desk
        finally:
            nursery.cancel_scope.cancel()
    if desk.runner is not None:
        desk.runner.file.close()


@contextmanager
def _kept() -> Iterator[None]:
    """Refuse a job that cannot be written down."""
    try:
        yield
    except (RunFileError, OSError, sqlite3.Error) as error:
        raise JobRefused(f"jobs cannot be kept: {error}") from None


def _moment(time_s: float | None) -> str | None:
    return None if time_s is None else datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")
