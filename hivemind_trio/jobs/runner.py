"""Runner: starts jobs when the gate lets them, parks them at limits, and resumes them in their sessions."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, Protocol, final

import attrs
import trio

from .adapters import NAMED, Adapter, adapter_of, invocation, session_in
from .ending import Ending, EndKind, classify
from .gate import Hold, StartGate
from .job import ENDED, Job, JobState
from .job_proxy import JobProxy, OwnProxy, job_environment
from .output import BoundedFile
from .process import Spawn, birth, end_leftover, run_process
from .run_file import RunFile

CRASHES_MAX: Final = 3
CRASH_PAUSE_S: Final = 5.0
"""Pause after the first crash in a row; doubled with each."""
LIMIT_PAUSE_S: Final = 15.0
"""Pause after a limit of which no end is known; doubled with each in a row."""
LIMIT_PAUSE_MAX_S: Final = 900.0
OPENING_JITTER_S: Final = 2.0
"""Jobs that wait for one window do not go on in the same instant."""


class Observer(Protocol):
    """Display of a run."""

    def changed(self, job: Job) -> None:
        """Note that a job has another state."""

    def holds(self, hold: Hold | None) -> None:
        """Note why no further job starts; None: one may."""


@final
@attrs.define(eq=False)
class Runner:
    """Runs the jobs of a run to their ends."""

    file: RunFile
    proxy: JobProxy
    observer: Observer
    environment: Callable[[], dict[str, str]]
    """Gives the variables that a job's process inherits."""
    clock: Callable[[], float]
    """Time of the wall clock."""
    random: Random = attrs.field(factory=Random)
    spawn: Spawn = run_process
    identity: Callable[[Job], Mapping[str, str]] = lambda _: {}
    """Gives the variables by which a job's calls are known."""
    forbids: Callable[[Job], str] = lambda _: ""
    """Says why a job may not start; empty: it may."""
    stays: bool = False
    """True if further jobs come while it runs: it ends when cancelled."""
    stopping: str = attrs.field(default="", init=False)
    """Why no job starts any more; empty: they do."""
    _gate: StartGate = attrs.field(init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scopes: dict[str, tuple[trio.CancelScope, list[str]]] = attrs.field(factory=dict, init=False)
    """Job with a process -> how to stop it, and why it is stopped."""
    _closed: dict[str, float] = attrs.field(factory=dict, init=False)
    """Adapter -> time of the wall clock until which a limit of its provider is known to hold."""
    _ids: dict[str, Job] = attrs.field(init=False)
    _before: dict[str, tuple[int, int, int, float]] = attrs.field(init=False)
    """Job -> its calls, tokens, micro-dollars and seconds of waits before this process."""

    def __attrs_post_init__(self) -> None:
        settings = self.file.settings
        self._gate = StartGate(settings.agents, settings.patience_s, self.random)
        self._ids = {job.id: job for job in self.file.jobs}
        self._before = {job.id: (job.calls, job.tokens, job.cost_microusd, job.waited_s) for job in self.file.jobs}

    async def run(self) -> None:
        """Return when no job can go on by itself."""
        await self._recover()
        async with trio.open_nursery() as nursery:
            while True:
                self._block()
                self._give_up()
                wake_s = self._step(nursery)
                if wake_s is None and not self._scopes and not self._goes_on() and not self.stays:
                    return
                self._changed = trio.Event()
                # Within a second even so: what the gate asks of the scheduler changes without an event.
                wait_s = 1.0 if wake_s is None else min(1.0, max(0.0, wake_s - self.clock()))
                if self.stays and all(job.ended for job in self.file.jobs):
                    wait_s = math.inf
                with trio.move_on_after(wait_s):
                    await self._changed.wait()

    def stop_starting(self, reason: str) -> None:
        """Let the jobs in progress end, and start none."""
        self.stopping = reason
        self._changed.set()

    def stop_all(self, reason: str) -> None:
        """End all processes; the jobs can be continued."""
        self.stopping = reason
        for scope, why in self._scopes.values():
            why.append(reason)
            scope.cancel()
        self._changed.set()

    def called(self, name: str) -> None:
        """Note that a call of a job is over: stop the job if its budget is spent."""
        job = self._ids.get(name)
        if job is None:
            return
        self._count(job)
        spent = _spent(job)
        if spent and name in self._scopes:
            self._stop(job, spent)

    # ---- jobs that come while it runs ----

    def job(self, name: str) -> Job | None:
        """Return a job by its id; None: there is none."""
        return self._ids.get(name)

    def add(self, jobs: Sequence[Job]) -> None:
        """Take further jobs."""
        self.file.add(jobs)
        for job in jobs:
            self._ids[job.id] = job
            self._before[job.id] = (0, 0, 0, 0.0)
        self._changed.set()

    def is_over(self, job: Job) -> bool:
        """Return True if a job has ended, and its process with it."""
        return job.state in ENDED and job.id not in self._scopes

    def forget(self, job: Job) -> None:
        """Forget a job that is over, and its output."""
        self.file.remove(job)
        del self._ids[job.id], self._before[job.id]

    def resume(self, job: Job) -> None:
        """Let a stopped job go on."""
        self._unstop(job)
        self._changed.set()

    def cancel(self, job: Job, reason: str) -> None:
        """End a job for good."""
        self._move(job, JobState.CANCELLED, reason)
        if job.id in self._scopes:
            self._stop(job, reason)
        self._changed.set()

    def bound(self, agents: int, patience_s: float) -> None:
        """Take over other bounds of the start gate."""
        self._gate.agents, self._gate.patience_s = agents, patience_s
        self._changed.set()

    def pause(self, reason: str) -> None:
        """Start no job for this reason; empty: start them again."""
        self.stopping = reason
        self._changed.set()

    def _stop(self, job: Job, reason: str) -> None:
        scope, why = self._scopes[job.id]
        why.append(reason)
        scope.cancel()

    def _unstop(self, job: Job) -> None:
        # Whoever resumes a job that its deadline or its budget has stopped gives it the same again.
        job.submitted_s, job.resumed_at = self.clock(), (job.tokens, job.cost_microusd)
        state = JobState.PARKED if job.starts else JobState.WAITING
        self._move(job, state, job.reason, opens_s=self.clock())

    # ---- what happens next ----

    async def _recover(self) -> None:
        """End what a killed run has left behind, and make its jobs resumable."""
        for job in self.file.jobs:
            if job.state is JobState.RUNNING:
                await end_leftover(job.pid, job.born)
                job.pid, job.born = 0, ""
                self._move(job, JobState.PARKED, "the run was interrupted", opens_s=self.clock())
            elif job.state is JobState.STOPPED and not self.stays:
                self._unstop(job)

    def _goes_on(self) -> bool:
        """Return True if a job may still start by itself."""
        return not self.stopping and any(not job.ended for job in self.file.jobs)

    def _block(self) -> None:
        """End the jobs whose turn cannot come."""
        for job in self.file.jobs:
            if job.state is not JobState.WAITING:
                continue
            ended = [self._ids[name] for name in job.task.after if self._ids[name].state in ENDED - {JobState.DONE}]
            if ended:
                how = "was cancelled" if ended[0].state is JobState.CANCELLED else "failed"
                self._move(job, JobState.BLOCKED, f"job `{ended[0].id}` before it {how}")

    def _give_up(self) -> None:
        """Stop what would have to wait for too long, or has run out of time."""
        now_s = self.clock()
        for job in self.file.jobs:
            if job.ended:
                continue
            deadline_s = job.task.deadline_s
            began_s = self.file.began_s if job.submitted_s is None else job.submitted_s
            if deadline_s is not None and now_s >= began_s + deadline_s:
                why = f"its deadline of {deadline_s:g} s has passed"
                if job.id in self._scopes:
                    self._stop(job, why)
                else:
                    self._move(job, JobState.STOPPED, why)
            elif job.state is JobState.PARKED and (job.opens_s or 0) - now_s > self.file.settings.max_wait_s:
                self._move(job, JobState.STOPPED, f"{job.reason}; it opens later than --max-wait allows")
            elif job.state is JobState.WAITING and self._has_before(job, JobState.STOPPED):
                self._move(job, JobState.STOPPED, "a job before it is stopped")

    def _has_before(self, job: Job, state: JobState) -> bool:
        return any(self._ids[name].state is state for name in job.task.after)

    def _step(self, nursery: trio.Nursery) -> float | None:
        """Start at most one job; return when to look again, or None: when something happens."""
        now_s = self.clock()
        if self.stopping:
            return None
        ready = [job for job in self.file.jobs if self._is_ready(job, now_s)]
        if not ready:
            return self._next_s()
        hold = self._gate.ask(now_s, len(self._scopes), self.proxy.signals())
        self.observer.holds(hold)
        if hold is not None:
            return hold.until_s
        # What has begun goes before what has not: its session is warm, and others may wait for it.
        job = min(ready, key=lambda one: (-one.task.priority, one.state is not JobState.PARKED, one.number))
        forbidden = self.forbids(job)
        if forbidden:
            self._move(job, JobState.FAILED, forbidden)
            return now_s
        self._gate.started(now_s)
        self._begin(job, nursery)
        return now_s

    def _is_ready(self, job: Job, now_s: float) -> bool:
        opens_s = self._opens_s(job)
        return opens_s is not None and opens_s <= now_s

    def _opens_s(self, job: Job) -> float | None:
        """Return when nothing but the gate keeps the job from a start; None: not known, or it has ended."""
        closed_s = self._closed.get(self._adapter(job).name, 0.0)
        if job.state is JobState.PARKED:
            return max(job.opens_s or 0.0, closed_s)
        if job.state is JobState.WAITING and all(self._ids[name].state is JobState.DONE for name in job.task.after):
            return closed_s
        return None

    def _next_s(self) -> float | None:
        """Return when the next job may start of those that none may now, and say so."""
        times = [opens_s for job in self.file.jobs if (opens_s := self._opens_s(job)) is not None]
        next_s = min(times, default=None)
        held = next_s is not None and any(job.state is JobState.WAITING for job in self.file.jobs)
        self.observer.holds(Hold("the provider's limit has not opened", next_s) if held else None)
        return next_s

    # ---- one job ----

    def _begin(self, job: Job, nursery: trio.Nursery) -> None:
        scope, why = trio.CancelScope(), list[str]()
        self._scopes[job.id] = (scope, why)
        now_s = self.clock()
        if job.began_s is None:
            job.began_s = now_s
        elif job.ended_s is not None:
            job.parked_s += now_s - job.ended_s
        job.starts += 1
        self._move(job, JobState.RUNNING, "")
        nursery.start_soon(self._work, job, scope, why)

    async def _work(self, job: Job, scope: trio.CancelScope, why: list[str]) -> None:
        began_s = self.clock()
        try:
            with scope:
                ending = await self._execute(job)
        finally:
            del self._scopes[job.id]
            job.pid, job.born = 0, ""
            job.ran_s += self.clock() - began_s
            job.ended_s = self.clock()
        self._count(job)
        if job.state is JobState.CANCELLED:
            self.file.save(job)
        elif scope.cancelled_caught:
            self._move(job, JobState.STOPPED, why[0] if why else "stopped")
        else:
            self._settle(job, ending)
        self._changed.set()

    async def _execute(self, job: Job) -> Ending:
        settings, task = self.file.settings, job.task
        adapter = self._adapter(job)
        resumes = bool(job.session) and job.starts > 1 and adapter.has_sessions
        what = invocation(
            adapter,
            task.argv,
            prompt=task.prompt,
            url=f"{self.proxy.url}/@{job.id}",
            model=task.model,
            session=job.session,
            resumes=resumes,
        )
        job.session = what.session
        # An end of an earlier process must not be taken for one of this.
        usage = self.proxy.usage(job.id)
        usage.last = usage.limit = None
        out, err = (BoundedFile.open(self.file.output(job, suffix), settings.output_bytes) for suffix in ("out", "err"))
        if adapter.has_sessions and not adapter.named and not resumes:
            # As soon as it is printed: a run that is killed must know it.
            out.on_write = err.on_write = lambda: self._learn_session(job, adapter, out.tail + err.tail)
        try:
            status = await self.spawn(
                what.argv,
                cwd=os.path.join(self.file.folder, task.cwd or ""),
                environment=job_environment(
                    self.environment(), {**self.identity(job), **what.environment}, job=job.id, run=self.file.name
                ),
                out=out,
                err=err,
                on_started=lambda pid: self._started(job, pid),
            )
        except OSError as error:
            return Ending(end=EndKind.FAILED, words=f"`{what.argv[0]}` cannot be started: {error.strerror or error}")
        finally:
            self._learn_session(job, adapter, out.tail + err.tail)
            out.close()
            err.close()
        # Standard error first: a result of JSON is the last line of standard output.
        return classify(adapter, status, f"{err.tail}\n{out.tail}", usage.last, usage.limit, resumed=resumes)

    def _learn_session(self, job: Job, adapter: Adapter, output: str) -> None:
        if not adapter.has_sessions or adapter.named:
            return
        session = session_in(adapter, output) or self.proxy.usage(job.id).session or job.session
        if session != job.session:
            job.session = session
            self.file.save(job)

    def _adapter(self, job: Job) -> Adapter:
        named = self.file.settings.adapter
        return NAMED[named] if named else adapter_of(job.task.argv)

    def _started(self, job: Job, pid: int) -> None:
        job.pid, job.born = pid, birth(pid)
        self.file.save(job)
        self.observer.changed(job)

    def _settle(self, job: Job, ending: Ending) -> None:
        """Decide what becomes of a job whose process has ended by itself."""
        settings, now_s = self.file.settings, self.clock()
        adapter = self._adapter(job)
        goes_on = (adapter.has_sessions and bool(job.session)) or settings.is_idempotent
        match ending.end:
            case EndKind.DONE:
                job.crashes = job.limits = 0
                if isinstance(self.proxy, OwnProxy):
                    self.proxy.finished(job.id)
                self._move(job, JobState.DONE, "")
            case EndKind.LIMIT if goes_on:
                job.crashes = 0
                job.limits += 1
                pause_s = min(LIMIT_PAUSE_MAX_S, LIMIT_PAUSE_S * 2 ** (job.limits - 1))
                opens_s = ending.opens_s if ending.opens_s is not None else now_s + pause_s
                if ending.opens_s is not None:
                    self._closed[adapter.name] = ending.opens_s
                self._move(
                    job, JobState.PARKED, ending.words, opens_s=opens_s + self.random.uniform(0, OPENING_JITTER_S)
                )
            case EndKind.LOST if goes_on:
                job.session = ""
                self._move(job, JobState.PARKED, ending.words, opens_s=now_s)
            case EndKind.CRASH if goes_on and job.crashes < CRASHES_MAX:
                job.crashes += 1
                pause_s = CRASH_PAUSE_S * 2 ** (job.crashes - 1) * self.random.uniform(0.8, 1.2)
                self._move(job, JobState.PARKED, f"{ending.words}; try {job.crashes} of {CRASHES_MAX}", now_s + pause_s)
            case EndKind.LIMIT | EndKind.CRASH if not goes_on:
                hint = "it has no session to resume; --idempotent starts such commands anew"
                self._move(job, JobState.FAILED, f"{ending.words} ({hint})")
            case _:
                self._move(job, JobState.FAILED, ending.words)

    def _count(self, job: Job) -> None:
        """Take over what the proxy has counted, beside what was counted before this process."""
        usage, before = self.proxy.usage(job.id), self._before[job.id]
        job.calls = before[0] + usage.calls
        job.tokens = before[1] + usage.input + usage.output
        job.cost_microusd = before[2] + usage.cost_microusd
        job.waited_s = before[3] + usage.waited_s

    def _move(self, job: Job, state: JobState, reason: str, opens_s: float | None = None) -> None:
        job.state, job.reason, job.opens_s = state, reason, opens_s
        if self.is_over(job):
            job.ended_s = self.clock()
        self.file.save(job)
        self.observer.changed(job)


def _spent(job: Job) -> str:
    """Return which budget of a job is spent; empty: none."""
    money, tokens = job.task.budget_microusd, job.task.budget_tokens
    if money is not None and job.cost_microusd - job.resumed_at[1] >= money:
        return f"its budget of ${money / 1e6:,.2f} is spent"
    if tokens is not None and job.tokens - job.resumed_at[0] >= tokens:
        return f"its budget of {tokens:,} tokens is spent"
    return ""
