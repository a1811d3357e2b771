"""Run file: what a run was asked to do and how far it is, so that a killed one goes on."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Self, final

import attrs

from hivemind_trio.store import FileLock, HeldElsewhere, make_private, state_home

from .job import Job, JobState
from .task import Task

VERSION: Final = 1
FILE: Final = "run.db"

_TABLES: Final = """
CREATE TABLE run (
    version INTEGER NOT NULL,
    began_s REAL NOT NULL,
    folder TEXT NOT NULL,
    settings TEXT NOT NULL
) STRICT;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    state TEXT NOT NULL,
    progress TEXT NOT NULL
) STRICT;
"""


class RunFileError(Exception):
    """A run's file cannot be used. `help` says what to do."""

    def __init__(self, message: str, help_text: str) -> None:
        super().__init__(message)
        self.help = help_text


@final
@attrs.frozen(kw_only=True)
class RunSettings:
    """Options of a run that hold when it is continued, too."""

    agents: int
    patience_s: float
    max_wait_s: float
    policy: str | None
    proxy: str | None
    adapter: str
    """Empty: by each command's program."""
    is_idempotent: bool
    output_bytes: int
    is_served: bool = False
    """True if a `serve` runs them, for agents that submit them."""


@final
@attrs.define(eq=False)
class RunFile:
    """The file of one run, locked by the process that runs it. Each change is durable when its method returns."""

    path: Path
    began_s: float
    folder: str
    """Working directory of the run."""
    settings: RunSettings
    jobs: list[Job]
    _database: sqlite3.Connection
    _lock: FileLock

    @property
    def name(self) -> str:
        """Name of the run, for `--continue`."""
        return self.path.parent.name

    @classmethod
    def create(cls, name: str, began_s: float, folder: str, settings: RunSettings, tasks: Iterable[Task]) -> Self:
        """Write a new run.

        Raises:
            RunFileError: Its folder cannot be written to, or there is such a run.
        """
        try:
            place = runs_home() / name
            make_private(place.parent)
            place.mkdir(mode=0o700)
        except (OSError, RuntimeError) as error:
            raise RunFileError(f"the run cannot be kept: {error}", "set XDG_STATE_HOME to a writable folder") from None
        path = place / FILE
        lock = FileLock.take(f"{path}")
        database = sqlite3.connect(path)
        _prepare(path, database)
        jobs = [Job(task, number) for number, task in enumerate(tasks)]
        with database:
            database.executescript(_TABLES)
            database.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?)",
                (VERSION, began_s, folder, json.dumps(attrs.asdict(settings))),
            )
            database.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?)", [_row(job) for job in jobs])
        return cls(path, began_s, folder, settings, jobs, database, lock)

    @staticmethod
    def exists(name: str) -> bool:
        """Return True if there is such a run."""
        return (runs_home() / name / FILE).exists()

    @classmethod
    def open(cls, name: str) -> Self:
        """Open a run to continue it.

        Raises:
            RunFileError: There is none, or another process runs it.
        """
        path = runs_home() / name / FILE
        if not path.exists():
            known = ", ".join(runs()[:5]) or "none"
            raise RunFileError(f"there is no run `{name}`", f"the latest runs are: {known}")
        try:
            lock = FileLock.take(f"{path}")
        except HeldElsewhere:
            raise RunFileError(f"run `{name}` is in progress in another process", "let it end first") from None
        try:
            began_s, folder, settings, jobs, database = _read(path)
        except BaseException:
            lock.release()
            raise
        return cls(path, began_s, folder, settings, jobs, database, lock)

    def save(self, job: Job) -> None:
        """Write how far a job is."""
        with self._database:
            self._database.execute("UPDATE jobs SET task = ?2, state = ?3, progress = ?4 WHERE number = ?1", _row(job))

    def add(self, jobs: Sequence[Job]) -> None:
        """Write further jobs."""
        with self._database:
            self._database.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?)", [_row(job) for job in jobs])
        self.jobs += jobs

    def remove(self, job: Job) -> None:
        """Delete a job and its output."""
        with self._database:
            self._database.execute("DELETE FROM jobs WHERE number = ?", (job.number,))
        self.jobs.remove(job)
        for suffix in ("out", "err", "out.1", "err.1"):
            self.output(job, suffix).unlink(missing_ok=True)

    def output(self, job: Job, suffix: str) -> Path:
        """Return the path of a job's output."""
        return self.path.parent / f"{job.id}.{suffix}"

    def close(self) -> None:
        """Close the file for another process."""
        self._database.close()
        self._lock.release()


def runs_home() -> Path:
    """Return the folder of all runs."""
    return state_home() / "runs"


def runs() -> list[str]:
    """Return the names of the runs, the latest first."""
    home = runs_home()
    if not home.is_dir():
        return []
    names = [one.name for one in home.iterdir() if (one / FILE).exists()]
    # A name begins with its time, but for the jobs of a proxy's agents, which have no end: they come last.
    return sorted(names, key=lambda name: (name[0].isdigit(), name), reverse=True)


def run_path(name: str) -> Path:
    """Return the path of a run's file."""
    return runs_home() / name / FILE


def read_run(name: str) -> tuple[float, str, RunSettings, list[Job]]:
    """Return the begin, the folder, the settings and the jobs of a run, which may be in progress.

    Raises:
        RunFileError: There is none.
    """
    path = runs_home() / name / FILE
    if not path.exists():
        raise RunFileError(f"there is no run `{name}`", f"the latest runs are: {', '.join(runs()[:5]) or 'none'}")
    began_s, folder, settings, jobs, database = _read(path)
    database.close()
    return began_s, folder, settings, jobs


def _prepare(path: Path, database: sqlite3.Connection) -> None:
    os.chmod(path, 0o600)
    database.execute("PRAGMA journal_mode = WAL")
    # A killed process loses nothing; only a crash of the machine may lose the last changes.
    database.execute("PRAGMA synchronous = NORMAL")


def _read(path: Path) -> tuple[float, str, RunSettings, list[Job], sqlite3.Connection]:
    database = sqlite3.connect(path)
    try:
        _prepare(path, database)
        version, began_s, folder, settings = database.execute("SELECT * FROM run").fetchone()
        if version != VERSION:
            raise RunFileError(f"{path} is of version {version}, this is {VERSION}", "continue it with that release")
        rows = database.execute("SELECT number, task, state, progress FROM jobs ORDER BY number").fetchall()
    except sqlite3.DatabaseError as error:
        database.close()
        raise RunFileError(f"{path} is damaged: {error}", "start the run anew") from None
    jobs = [_job(number, json.loads(task), state, json.loads(progress)) for number, task, state, progress in rows]
    return began_s, folder, RunSettings(**json.loads(settings)), jobs, database


_PROGRESS: Final = tuple(field.name for field in attrs.fields(Job) if field.name not in ("task", "number", "state"))


def _row(job: Job) -> tuple[int, str, str, str]:
    progress = {name: getattr(job, name) for name in _PROGRESS}
    return job.number, json.dumps(attrs.asdict(job.task)), job.state, json.dumps(progress)


def _job(number: int, task: dict[str, Any], state: str, progress: dict[str, Any]) -> Job:
    task = task | {"argv": tuple(task["argv"]), "after": tuple(task["after"])}
    if "resumed_at" in progress:
        progress["resumed_at"] = tuple(progress["resumed_at"])
    return Job(Task(**task), number, JobState(state), **progress)
