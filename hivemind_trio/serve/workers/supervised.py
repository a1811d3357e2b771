"""Workers as operations reach them."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Protocol

from hivemind_trio.policy import Program
from hivemind_trio.scheduler import Pausable

from .ledger import SharedLedger
from .process import WorkerProcess


class Supervised(Protocol):
    """A proxy of several workers."""

    @property
    def names(self) -> Sequence[str]:
        """Names of all workers, also of one that is being started again."""
        ...

    @property
    def workers(self) -> Mapping[str, WorkerProcess]:
        """Name -> the process of now."""
        ...

    @property
    def starts(self) -> Mapping[str, int]:
        """Name -> processes so far."""
        ...

    @property
    def paused(self) -> MutableMapping[tuple[Pausable, str], None]:
        """Kinds and names that operators have paused."""
        ...

    @property
    def program(self) -> Program:
        """The policy in force."""
        ...

    @property
    def draining(self) -> bool:
        """True while calls in flight end."""
        ...

    @property
    def started_at_ns(self) -> int:
        """Start on the wall clock."""
        ...

    @property
    def began_s(self) -> float:
        """Start on Trio's clock."""
        ...

    @property
    def ledger(self) -> SharedLedger | None:
        """Ledger of budgets; None: they end with the proxy."""
        ...

    def ready(self) -> list[WorkerProcess]:
        """Return the workers that serve now."""
        ...
