"""State of a proxy on disk, opened under the names of its policy."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import final

import attrs

from hivemind_trio.policy import Program, Renames
from hivemind_trio.runtime import Calendar
from hivemind_trio.store import SqliteStore, unwritable


@final
@attrs.define(eq=False)
class StateTrouble:
    """Why the state cannot be written, of the several that write it.

    Args:
        tell: Told once that one of them cannot write, and with "" when all can again.
    """

    _tell: Callable[[str], None]
    _why: dict[str, str] = attrs.field(init=False, factory=dict)

    def of(self, writer: str) -> Callable[[str], None]:
        """Return what one of those that write is to tell."""

        def told(why: str) -> None:
            known = bool(self._why)
            if why:
                self._why[writer] = why
            else:
                self._why.pop(writer, None)
            if bool(self._why) is not known:
                self._tell(why)

        return told


def open_state(path: str, program: Program) -> SqliteStore:
    """Open the state of a proxy that is to run this program, under the names of that. Blocking.

    Raises:
        StateError: It cannot be used.
    """
    calendar = Calendar.of(program.server.timezone)
    store = SqliteStore.open(path, time.time_ns(), lambda account: calendar.turns(0, account.window))
    renames = Renames.since_restart(program)
    names = {account: account.renamed(renames) for account in {**store.restored.spends, **store.restored.settled}}
    try:
        store.rename({old: new for old, new in names.items() if old != new})
    except (OSError, sqlite3.Error) as error:
        store.close()
        raise unwritable(path, str(error)) from None
    spends = {names[account]: spent for account, spent in store.restored.spends.items()}
    settled = {names[account]: amount for account, amount in store.restored.settled.items()}
    store.restored = attrs.evolve(store.restored, spends=spends, settled=settled)
    return store
