"""Values that the supervisor sends a worker: the policy, and what it begins with."""

from __future__ import annotations

from pathlib import Path
from typing import final

import attrs

from hivemind_trio.host import Secrets
from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.policy import MemoryFiles
from hivemind_trio.scheduler import Pausable
from hivemind_trio.serve.load import Loaded, load
from hivemind_trio.serve.options import Options
from hivemind_trio.store import Restored, account_of, account_text


@final
@attrs.frozen(kw_only=True)
class PolicyText:
    """A policy as the supervisor has read it: no worker reads a file, so that all run on the same one."""

    path: str
    files: dict[str, str]
    """Path -> text."""
    host: str | None
    """Address of the proxy, if the command line says so."""
    secrets: tuple[tuple[SecretSource, str, str], ...] = attrs.field(repr=False)
    """Source, name and value."""
    processes: int
    """Number of workers."""

    @classmethod
    def of(cls, loaded: Loaded, processes: int) -> PolicyText:
        """Return the text of a good policy."""
        return cls(
            path=loaded.files.path,
            files=dict(loaded.files.files),
            host=loaded.files.host,
            secrets=tuple((ref.source, ref.name, value) for ref, value in loaded.secrets.items()),
            processes=processes,
        )

    def load(self) -> Loaded:
        """Return the policy, compiled for one of the processes."""
        allowed = tuple(f"{Path(name).parent}" for name in self.files)
        loaded = load(self.path, MemoryFiles(self.files), self.host, allowed)
        secrets = Secrets({SecretRef(source, name): value for source, name, value in self.secrets})
        server = attrs.evolve(loaded.program.server, processes=self.processes)
        return attrs.evolve(loaded, secrets=secrets, program=attrs.evolve(loaded.program, server=server))


@final
@attrs.frozen(kw_only=True)
class StateText:
    """State of the proxy as it is when a worker starts."""

    spends: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    """(Account, (end of the slice or window on the wall clock, amount), oldest first)."""
    learned: tuple[tuple[str, str, str, int], ...]
    """(Provider, what, JSON value, when it was learned)."""
    shared_by: tuple[str, int] | None
    settled: tuple[tuple[str, int], ...]
    """As in `Restored`."""
    runs: int
    alias_key: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, restored: Restored, alias_key: bytes) -> StateText:
        """Return the text of a state."""
        spends = tuple((account_text(account), slots) for account, slots in restored.spends.items())
        learned = tuple((*key, value, at_ns) for key, (value, at_ns) in restored.learned.items())
        return cls(
            spends=spends,
            learned=learned,
            shared_by=restored.shared_by,
            settled=tuple((account_text(account), amount) for account, amount in restored.settled.items()),
            runs=restored.runs,
            alias_key=alias_key,
        )

    def restored(self) -> Restored:
        """Return the state."""
        return Restored(
            spends={account_of(text): slots for text, slots in self.spends},
            charges=(),
            learned={(pool, what): (value, at_ns) for pool, what, value, at_ns in self.learned},
            shared_by=self.shared_by,
            settled={account_of(text): amount for text, amount in self.settled},
            runs=self.runs,
        )


@final
@attrs.frozen(kw_only=True)
class WorkerSetup:
    """Everything that a worker begins with."""

    name: str
    """Among the workers: `worker-1`."""
    place: int
    """On the board of connections."""
    options: Options
    policy: PolicyText
    address: tuple[str, int]
    """Address at which the supervisor listens."""
    journal: str | None
    """Path of the journal; None: there is none."""
    session: int
    """Its number in the journal."""
    state: StateText | None
    """None: nothing outlives the proxy."""
    paused: tuple[tuple[Pausable, str], ...]
    """Kinds and names that operators have paused."""
