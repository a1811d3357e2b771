"""State of a proxy on disk: its place, and how it is opened."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from pathlib import Path
from typing import final

import attrs

from hivemind_trio.policy import Program, Renames, StoreSettings
from hivemind_trio.runtime import Calendar
from hivemind_trio.store import SqliteStore, unwritable

FOLDER = "hivemind-trio"


@final
@attrs.frozen
class StatePlace:
    """Paths of the files that outlive a proxy."""

    state: str
    """Budgets and hints."""
    journal: str
    """A row for each call."""


def state_home() -> Path:
    """Return the folder of the states of all policies.

    Raises:
        RuntimeError: There is no home directory.
    """
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state") / FOLDER


def state_place(policy: str | None, settings: StoreSettings, port: int) -> StatePlace:
    """Return the place that a policy's state has, unless its `store` says another.

    Args:
        policy: Path of the policy's file; None: it was made from what is found.
        port: Of the listener: it tells proxies without a policy apart.

    Raises:
        RuntimeError: There is no home directory.
    """
    if settings.path is not None:
        # Beside the policy, as its other paths are.
        beside = Path(policy).parent if policy is not None else Path()
        state = Path(os.path.normpath(beside / settings.path))
    elif policy is None:
        state = state_home() / f"found-{port}" / "state.db"
    else:
        real = os.path.realpath(policy)
        digest = hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        state = state_home() / f"{Path(real).stem}-{digest}" / "state.db"
    return StatePlace(str(state), str(state.with_name("journal.db")))


def open_state(path: str, program: Program) -> SqliteStore:
    """Open the state of a proxy that is to run this program, under the names of that. Blocking.

    Raises:
        StateError: It cannot be used.
    """
    calendar = Calendar.of(program.server.timezone)
    store = SqliteStore.open(path, time.time_ns(), lambda account: calendar.turns(0, account.window_ns))
    renames = Renames.since_restart(program)
    names = {account: account.renamed(renames) for account in store.restored.spends}
    try:
        store.rename({old: new for old, new in names.items() if old != new})
    except (OSError, sqlite3.Error) as error:
        store.close()
        raise unwritable(path, str(error)) from None
    spends = {names[account]: spent for account, spent in store.restored.spends.items()}
    store.restored = attrs.evolve(store.restored, spends=spends)
    return store
