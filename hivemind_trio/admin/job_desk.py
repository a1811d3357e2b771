"""Jobs of agents as operations reach them: to submit, show and cancel one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol, final

import attrs
import msgspec

TASKS_MAX = 100
"""Tasks of one submission."""

Word = Annotated[str, msgspec.Meta(max_length=100_000)]
JobId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


@final
@attrs.frozen(kw_only=True)
class WantedTask:
    """A command that an agent asks for."""

    command: Word | Annotated[list[Word], msgspec.Meta(min_length=1, max_length=1_000)]
    """Program and arguments; a string is split as a shell would, and no shell runs."""
    id: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Empty: one is given."""
    cwd: Word = ""
    """Folder; empty: that of the proxy."""
    after: Annotated[tuple[JobId, ...], msgspec.Meta(max_length=1_000)] = ()
    """Jobs that have to be done first."""
    priority: int = 0
    """Higher starts first."""
    deadline: Annotated[str, msgspec.Meta(max_length=32)] = ""
    """Time from now after which it is stopped, such as `6h`."""
    budget: Annotated[str, msgspec.Meta(max_length=32)] = ""
    """Money that its calls may cost, such as `$2`."""
    token_budget: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Tokens that its calls may take."""
    model: Annotated[str, msgspec.Meta(max_length=200)] = ""


@final
@attrs.frozen(kw_only=True)
class JobView:
    """A job of an agent."""

    id: str
    state: str
    """`waiting`, `running`, `parked`, `stopped`, `done`, `failed`, `blocked` or `cancelled`."""
    reason: str
    """Why it is in its state."""
    opens_at: str | None
    """Time at which a parked job goes on."""
    place: str
    """Its folder."""
    session: str
    """Id of its agent's session; empty: none, or not known."""
    resume_by_hand: str
    """Shell command that resumes the session without the proxy; empty: there is no session."""
    command: tuple[str, ...]
    after: tuple[str, ...]
    submitted_by: str
    """Agent that its calls count for."""
    starts: int
    calls: int
    tokens: int
    cost_usd: float
    output: str | None = None
    """End of its output; null: shown for one job only."""


@final
@attrs.frozen(kw_only=True)
class JobsView:
    """Jobs of agents: those that are not over, and the latest that are."""

    jobs: tuple[JobView, ...]
    counts: dict[str, int]
    """State -> jobs."""
    capacity: int
    """Jobs that run at once."""
    held: str
    """Why no further job starts now; empty: one may."""


@final
class JobRefused(Exception):  # noqa: N818 - one of the ways in which a request ends
    """The jobs cannot be submitted, resumed or cancelled. The message says why, and what to do instead."""

    def __init__(self, message: str, *, is_full: bool = False, is_unknown: bool = False) -> None:
        super().__init__(message)
        self.is_full = is_full
        """True if too many wait."""
        self.is_unknown = is_unknown
        """True if there is no such job."""


class JobDesk(Protocol):
    """Runs jobs of agents. Whether an agent may ask is the operations' to check; which commands may run is its own."""

    def submit(self, agent: str, tasks: Sequence[WantedTask]) -> list[str]:
        """Put jobs in line, all or none; return their ids.

        Raises:
            JobRefused: The policy does not allow a command, too many wait, or a task is malformed.
        """
        ...

    def resume(self, job: str) -> None:
        """Let a job that is stopped go on in its session.

        Raises:
            JobRefused: There is no such job, or it is not stopped.
        """
        ...

    def cancel(self, job: str, by: str) -> None:
        """End a job for good.

        Raises:
            JobRefused: There is no such job, or it is over.
        """
        ...

    def show(self, job: str = "") -> JobsView:
        """Return the jobs, or one with its output.

        Raises:
            JobRefused: There is no such job.
        """
        ...
