"""State of a job within a run."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

import attrs

from .task import Task


class JobState(StrEnum):
    """State of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    PARKED = "parked"
    """Without a process, until a limit opens or a pause after a crash is over."""
    STOPPED = "stopped"
    """Without a process, until somebody resumes it."""
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    """A job before it has failed."""
    CANCELLED = "cancelled"


ENDED: Final = frozenset({JobState.DONE, JobState.FAILED, JobState.BLOCKED, JobState.CANCELLED})
"""States that a run does not leave by itself; `STOPPED` is left by `--continue`."""


@final
@attrs.define(eq=False)
class Job:
    """One job and how far it is."""

    task: Task
    number: int
    """Position in the run, from 0."""
    state: JobState = JobState.WAITING
    reason: str = ""
    """Why it is in its state."""
    session: str = ""
    """Id of the agent's session; empty: none, or not known."""
    opens_s: float | None = None
    """Time of the wall clock when a parked job goes on."""
    starts: int = 0
    crashes: int = 0
    """In a row."""
    limits: int = 0
    """In a row."""
    pid: int = 0
    """Id of its process and of the process group; 0: none."""
    born: str = ""
    """Tells that process from a later one with the same id."""
    began_s: float | None = None
    """Time of the wall clock of the first start."""
    ended_s: float | None = None
    ran_s: float = 0.0
    """Time with a process."""
    parked_s: float = 0.0
    """Time without one, after the first."""
    calls: int = 0
    tokens: int = 0
    cost_microusd: int = 0
    waited_s: float = 0.0
    """Time that its calls waited in line."""
    submitted_s: float | None = None
    """Time of the wall clock that its deadline counts from; None: the begin of the run."""
    resumed_at: tuple[int, int] = (0, 0)
    """Tokens and micro-dollars that do not count in its budget: it was resumed since."""
    submitted_by: str = ""
    """Agent that submitted it; empty: whoever started the run."""

    @property
    def id(self) -> str:
        """Name of the job, and of its calls at the proxy."""
        return self.task.id

    @property
    def ended(self) -> bool:
        """True if nothing more happens to it in this run."""
        return self.state in ENDED or self.state is JobState.STOPPED
