"""Overview of a run for those who did not start it: its jobs, their places and sessions, and why each is as it is."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

import attrs

from hivemind_trio.store import FileLock, HeldElsewhere

from .adapters import NAMED, adapter_of
from .job import ENDED, Job, JobState
from .run_file import RunFileError, read_run, run_path, runs

FORMAT_VERSION: Final = 1
LATEST: Final = "last"
KILLED: Final = "the run was killed"


@final
@attrs.frozen(kw_only=True)
class RunOverview:
    """A run and its jobs, at one moment."""

    name: str
    began_s: float
    folder: str
    adapter: str
    """Empty: by each command's program."""
    in_progress: bool
    jobs: list[Job]
    is_served: bool = False
    """True if a `serve` runs them, for agents that submit them."""

    @property
    def resumable(self) -> list[Job]:
        """Jobs that go on when the run is continued."""
        return [] if self.in_progress else [job for job in self.jobs if job.state not in ENDED]

    @property
    def counts(self) -> dict[JobState, int]:
        """Jobs of each state that there is."""
        counts = Counter(job.state for job in self.jobs)
        return {state: counts[state] for state in JobState if counts[state]}

    def place(self, job: Job) -> str:
        """Return the folder of a job."""
        return f"{Path(self.folder, job.task.cwd or '')}"

    def by_hand(self, job: Job) -> str:
        """Return the command that resumes a job's session without the run; empty: its agent has no sessions."""
        adapter = NAMED[self.adapter] if self.adapter else adapter_of(job.task.argv)
        if not job.session or not adapter.has_sessions:
            return ""
        words = [word.replace("{session}", job.session) for word in adapter.resume]
        return f"cd {shlex.quote(self.place(job))} && {shlex.join([job.task.argv[0], *words])}"

    def as_json(self, *, with_jobs: bool) -> dict[str, Any]:
        """Return the run as JSON has it."""
        found: dict[str, Any] = {
            "run": self.name,
            "began": _moment(self.began_s),
            "folder": self.folder,
            "in_progress": self.in_progress,
            "resumable": len(self.resumable),
            "counts": {state.value: count for state, count in self.counts.items()},
        }
        if with_jobs:
            found["jobs"] = [self._job(job) for job in self.jobs]
        return found

    def _job(self, job: Job) -> dict[str, Any]:
        return {
            "id": job.id,
            "state": job.state.value,
            "reason": job.reason,
            "opens": _moment(job.opens_s) if job.state is JobState.PARKED else None,
            "place": self.place(job),
            "session": job.session,
            "resume_by_hand": self.by_hand(job),
            "command": list(job.task.argv),
            "after": list(job.task.after),
            "starts": job.starts,
            "calls": job.calls,
            "tokens": job.tokens,
            "cost_usd": round(job.cost_microusd / 1e6, 6),
        }


def overview(name: str) -> RunOverview:
    """Return a run, which may be in progress; `last` is the latest.

    Raises:
        RunFileError: There is none.
    """
    if name == LATEST:
        known = runs()
        if not known:
            raise RunFileError("there is no run", 'start one: hivemind-trio run -- claude -p "fix {}" ::: a b')
        name = known[0]
    began_s, folder, settings, jobs = read_run(name)
    busy = _in_progress(name)
    for job in jobs:
        if job.state is JobState.RUNNING and not busy:
            job.state, job.reason = JobState.STOPPED, KILLED
    return RunOverview(
        name=name,
        began_s=began_s,
        folder=folder,
        adapter=settings.adapter,
        in_progress=busy,
        jobs=jobs,
        is_served=settings.is_served,
    )


def overviews() -> tuple[list[RunOverview], list[RunFileError]]:
    """Return all runs, the latest first, and what is wrong with those that cannot be read."""
    found, wrong = [], []
    for name in runs():
        try:
            found.append(overview(name))
        except RunFileError as error:
            wrong.append(error)
    return found, wrong


def _in_progress(name: str) -> bool:
    try:
        FileLock.take(f"{run_path(name)}").release()
    except HeldElsewhere:
        return True
    return False


def _moment(time_s: float | None) -> str | None:
    return None if time_s is None else datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
