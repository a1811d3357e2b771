"""The running proxy as operations reach it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol, final

import attrs

from hivemind_trio.listen import LoopLag
from hivemind_trio.policy import Program
from hivemind_trio.proxy import Door, OwnPriorities
from hivemind_trio.runtime import Engine, LeaseKeeper
from hivemind_trio.store import Journal

from .history import AdviceKeeper, CallMetrics, Conduct, HourUsage, ProviderHistory, StartsKeeper, Tally, TimeSeries
from .job_desk import JobDesk
from .policy_keeper import PolicyKeeper
from .views import NodeView

SECOND_NS: Final = 1_000_000_000


@final
@attrs.frozen
class NoArguments:
    """Arguments of an operation that takes none."""


@final
@attrs.frozen(kw_only=True)
class Facts:
    """Facts of a process that do not change while it runs."""

    version: str
    pid: int
    address: str
    """Base URL for agents."""
    policy: str
    """Path of the policy's file; `built-in.hmp` if it was made from the environment."""
    journal: str | None
    """Path of the journal; None: there is none."""


@final
@attrs.frozen(kw_only=True)
class KnownFleet:
    """The nodes that share limits."""

    nodes: tuple[NodeView, ...] = ()
    away_s: float | None = None
    """Time for which the shared store has not answered; None: it does."""
    slow_s: float | None = None
    """Time of the last answer of a shared store that is slow; None: it is not."""
    learns_s: float | None = None
    """Time for which the store has granted no slots, for it has started anew; None: it does."""
    blind: bool = False
    """The store may not know which nodes are connected, and so grants none for a whole lease."""


class Fellows(Protocol):
    """Nodes that share this process's limits, as it knows them."""

    async def look(self) -> KnownFleet:
        """Return the nodes after a look at the store."""

    def known(self) -> KnownFleet:
        """Return the nodes as they were known last."""


class LeaseHouse(Protocol):
    """Process that keeps the leases: the proxy, or the supervisor of its workers."""

    @property
    def leases(self) -> LeaseKeeper:
        """The leases."""
        ...

    @property
    def program(self) -> Program:
        """The policy in force."""
        ...

    @property
    def priorities(self) -> OwnPriorities:
        """Priorities that agents have asked for."""
        ...

    @property
    def note(self) -> Callable[[str, str, str, str], None]:
        """Callback with every change: action, subject, who asked for it, and details."""
        ...

    def now_ns(self) -> int:
        """Return the time of the leases' clock."""
        ...

    def at(self, engine_ns: int | None) -> str | None:
        """Return a moment of that clock as text; None stays None."""
        ...


@final
@attrs.frozen(kw_only=True, eq=False)
class Operated:
    """A running proxy."""

    facts: Facts
    engine: Engine
    leases: LeaseKeeper
    door: Door
    tally: Tally
    metrics: CallMetrics
    hour: HourUsage
    providers: ProviderHistory
    series: TimeSeries
    wall_ns: Callable[[], int]
    """The time, ns since 1970."""
    policy: PolicyKeeper
    disk_troubles: Mapping[str, str]
    """`state`, `journal` or `jobs` -> why it cannot be written now."""
    note: Callable[[str, str, str, str], None]
    """Told of every change: action, subject, who asked for it, and details."""
    conduct: Conduct
    starts: StartsKeeper
    advice: AdviceKeeper = attrs.field(factory=AdviceKeeper)
    journal: Journal | None = None
    """Journal that this process writes; None: it writes none."""
    lag: LoopLag | None = None
    """Says when calls are refused because the process cannot keep up; None: they never are."""
    jobs: JobDesk | None = None
    """Runs jobs of agents; None: this process runs none."""
    fellows: Fellows | None = None
    """Nodes that share its limits; None: it is alone."""
    leases_elsewhere: Callable[[str, Any, Any], Awaitable[Any]] | None = None
    """Asks the process that keeps the leases: operation, agent, arguments; None: this one keeps them."""

    @property
    def program(self) -> Program:
        """The policy in force."""
        return self.engine.program

    @property
    def priorities(self) -> OwnPriorities:
        """Priorities that agents have asked for."""
        return self.door.priorities

    def now_ns(self) -> int:
        """Return the time of the engine."""
        return self.engine.now_ns()

    @property
    def policy_hash(self) -> str:
        """Hash of the policy in force."""
        return self.engine.program.hash

    def at(self, engine_ns: int | None) -> str | None:
        """Return a moment of the engine as RFC 3339 text in UTC, to the millisecond; None stays None."""
        return None if engine_ns is None else moment_text(self.wall_ns() + engine_ns - self.engine.now_ns())


def moment_text(wall_ns: int) -> str:
    """Return a moment, ns since 1970, as RFC 3339 text in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(round(wall_ns / 1_000_000) / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(time_ns: int) -> float:
    """Return a duration in seconds, to the millisecond."""
    return round(time_ns / SECOND_NS, 3)
