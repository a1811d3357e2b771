"""The journal as the engine and the door meet it: what happens is noted in memory, and written by a thread.

Nobody waits for the disk. Entries go in group commits of at most 1,024 or 100 ms. Entries that cannot be written are
kept and tried again; where too many have gathered, further ones are counted and left out, and that is reported. Budgets
do not depend on the journal: they have a ledger of their own.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, final

import attrs
import trio
import trio.lowlevel

from hivemind_trio.policy import BudgetWindow
from hivemind_trio.scheduler import (
    CallArrived,
    Command,
    Event,
    ResponseStarted,
    SessionFacts,
    StreamsReceived,
    TimePassed,
)
from hivemind_trio.store.journal.journal_file import JournalFile
from hivemind_trio.store.journal.recorded_events import PolicyFiles, Recorded
from hivemind_trio.store.journal.rows import Answered, Began, Entry, InSession, Over, Price, Scribe, no_price

GATHERED: Final = 1_024
"""Entries in a commit, at most."""

GATHER_S: Final = 0.1
"""Time for which rows are gathered before they are written."""

AGAIN_S: Final = 1.0
"""Until it is tried again to write what could not be written."""

BEHIND: Final = 16_384
"""Entries that may wait for the disk; about 3,000 calls, and 15 MB."""

PRUNE_S: Final = 600.0
"""Time between two searches for rows that are too old."""

KEEP_NS: Final = 30 * 86_400 * 1_000_000_000
MAX_BYTES: Final = 10**9

CLOSE_S: Final = 10.0
"""Time for which the shutdown may write the remaining rows."""


@final
@attrs.frozen(kw_only=True)
class JournalBacklog:
    """Entries that are not in the file."""

    unwritten: int
    """Those that wait in memory."""
    waits_s: float
    """Time without a commit, while any waits."""
    left_out: int
    """Those that never will be in it, for too many waited."""
    error: str
    """Why the last commit failed; empty: it did not."""


@final
class Journal:
    """Journal of one session.

    Args:
        on_trouble: Told once why it cannot be written, and with "" when it can be again; and what is not in it, if
            anything is not.
        wall_ns: The clock on the wall, ns since 1970.
        behind: Entries that may wait for the disk; further ones are left out.
    """

    def __init__(
        self,
        file: JournalFile,
        *,
        on_trouble: Callable[[str], None],
        wall_ns: Callable[[], int] = time.time_ns,
        behind: int = BEHIND,
    ) -> None:
        self.file = file
        self._on_trouble = on_trouble
        self._wall_ns = wall_ns
        self._most = behind
        self._scribe = Scribe(file.session, file.decided, file.header_set, secrets.token_bytes(16))
        self._pending: list[Entry] = []
        self._rows: dict[str, list[tuple[Any, ...]]] | None = None
        """Rows of the oldest entries that could not be written yet."""
        self._taken = 0
        """Entries that these are made of."""
        self._some = trio.Event()
        self._many = trio.Event()
        self._prune = trio.Event()
        self._keep_ns, self._max_bytes = KEEP_NS, MAX_BYTES
        self._thread = trio.CapacityLimiter(1)
        self._troubled = False
        self._error = ""
        """Why the last commit failed; empty: it did not."""
        self._time_s = trio.lowlevel.current_clock().current_time
        self._since_s = 0.0
        """When the first of the pending entries was noted, or the last commit made, whichever is later."""
        self.dropped = 0
        """Entries that were left out, for too many waited for the disk."""
        self._dropped_said = 0
        self._latest_ns = 0
        self._events = 0
        """Recorded events so far, also those that were left out."""
        self._policies = set(file.policies)
        """Hashes of policies whose text is in the file."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.file.path

    @property
    def session(self) -> int:
        """Its number in the file, from 1."""
        return self.file.session

    @property
    def calls_before(self) -> int:
        """In the file, of earlier sessions."""
        return self.file.calls

    # ---- what happens: on the decision path, so nothing is done but noted ----

    def began(
        self, version: str, policy_hash: str, now_ns: int, reads: Collection[str] = (), price: Price = no_price
    ) -> None:
        """Note that the proxy runs, on this policy.

        Args:
            reads: Fields that the policy depends on: its headers and metadata are kept beside the well-known ones.
            price: The policy's price of a model at a provider.
        """
        self._note((now_ns, self._wall_ns(), Began(version, policy_hash, frozenset(reads), price), ()))

    def record(
        self, now_ns: int, event: Event, commands: Sequence[Command], session: SessionFacts | None = None
    ) -> None:
        """Note an event of the scheduler and what came of it.

        Args:
            session: Of the call that arrived.
        """
        if session is not None and isinstance(event, CallArrived):
            self._note((now_ns, self._wall_ns(), InSession(event, session), tuple(commands)))
        elif commands or not isinstance(event, TimePassed | ResponseStarted | StreamsReceived):
            self._note((now_ns, self._wall_ns(), event, tuple(commands)))

    def record_event(
        self, now_ns: int, event: Event, commands: Sequence[Command], turns: Sequence[tuple[BudgetWindow, int]]
    ) -> None:
        """`runtime.Engine`'s recorder: note the event so that the scheduler's decision can be repeated."""
        self._events += 1
        self._note((now_ns, 0, Recorded(self._events, event, tuple(commands), tuple(turns)), ()))

    def policy(self, files: PolicyFiles) -> None:
        """Note the text of a policy, before it is in force."""
        if files.hash not in self._policies:
            self._policies.add(files.hash)
            self._note((0, 0, files, ()))

    def over(self, now_ns: int, answered: Answered) -> None:
        """Note that the agent of a call has its answer, or has gone."""
        self._note((now_ns, 0, Over(answered), ()))

    def _note(self, entry: Entry) -> None:
        pending = self._pending
        if len(pending) >= self._most:
            self.dropped += 1
            return
        pending.append(entry)
        if len(pending) == 1:
            self._since_s = self._time_s()
            self._some.set()
        elif len(pending) == GATHERED:
            self._many.set()

    @property
    def set_aside(self) -> str:
        """New path of a damaged file that was in its place; empty: there was none."""
        return self.file.set_aside

    @property
    def unwritten(self) -> int:
        """Entries that are not on the disk yet."""
        return len(self._pending)

    @property
    def backlog(self) -> JournalBacklog:
        """Entries that are not in the file."""
        waits_s = self._time_s() - self._since_s if self._pending else 0.0
        return JournalBacklog(unwritten=len(self._pending), waits_s=waits_s, left_out=self.dropped, error=self._error)

    def retain(self, keep_ns: int, max_bytes: int) -> None:
        """Keep rows of that age, and a file of that size, from now on."""
        self._keep_ns, self._max_bytes = keep_ns, max_bytes
        self._prune.set()

    # ---- the writer ----

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            await self._some.wait()
            if len(self._pending) < GATHERED:
                with trio.move_on_after(GATHER_S):
                    await self._many.wait()
            if not await self._write():
                await trio.sleep(AGAIN_S)

    async def prune(self) -> None:
        """Delete rows that are too old or too many, until cancelled."""
        while True:
            try:
                while await trio.to_thread.run_sync(
                    self.file.prune, self._wall_ns() - self._keep_ns, self._max_bytes, limiter=self._thread
                ):
                    await trio.lowlevel.checkpoint()
            except sqlite3.Error:
                pass  # whatever it is, the writer meets it too, and says so
            with trio.move_on_after(PRUNE_S):
                await self._prune.wait()
            self._prune = trio.Event()

    async def finish(self) -> None:
        """Write what is left, as far as `CLOSE_S` allows, and close the file. Says what is lost, if anything is."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(CLOSE_S):
                while self._pending and await self._write():
                    pass
            lost = len(self._pending) + self.dropped - self._dropped_said
            if lost:
                self._on_trouble(f"{lost} entries are lost: the end came before they could be written")
            try:
                ended_ns = None if lost else self._latest_ns
                await trio.to_thread.run_sync(self.file.close, ended_ns, limiter=self._thread)
            except sqlite3.Error as error:
                self._on_trouble(str(error))

    async def _write(self) -> bool:
        """One commit; False: it cannot be done now."""
        if self._rows is None:
            self._taken = min(len(self._pending), GATHERED)
        try:
            await trio.to_thread.run_sync(self.commit, self._pending[: self._taken], limiter=self._thread)
        except sqlite3.Error as error:
            self._error = str(error)
            if not self._troubled:
                self._troubled = True
                self._on_trouble(str(error))
            return False
        self._error, self._since_s = "", self._time_s()
        self._latest_ns = self._pending[self._taken - 1][0]
        del self._pending[: self._taken]
        self._rows = None
        if not self._pending:
            self._some = trio.Event()
        if len(self._pending) < GATHERED:
            self._many = trio.Event()
        if len(self._pending) < self._most and self.dropped > self._dropped_said:
            left_out, self._dropped_said = self.dropped - self._dropped_said, self.dropped
            self._troubled = True
            self._on_trouble(f"{left_out} entries were left out meanwhile, and are not in it")
        if self._troubled:
            self._troubled = False
            self._on_trouble("")
        return True

    def commit(self, entries: Sequence[Entry]) -> None:
        """Write entries to the file, in the thread of the journal."""
        # The scribe sees each entry once: what could not be written is kept as the rows that it made of it.
        if self._rows is None:
            self._rows = self._scribe.rows(entries)
        self.file.write(self._rows)


@asynccontextmanager
async def open_journal(
    path: str,
    *,
    on_trouble: Callable[[str], None],
    wall_ns: Callable[[], int] = time.time_ns,
    behind: int = BEHIND,
    replaces_damaged: bool = False,
) -> AsyncIterator[Journal]:
    """Open a journal that is written within the context; leaving it writes what is left.

    Args:
        replaces_damaged: A file that is no journal is moved aside; else it is an error.

    Raises:
        JournalError: The file cannot be used.
    """
    file = await trio.to_thread.run_sync(partial(JournalFile.open, path, replaces_damaged=replaces_damaged))
    journal = Journal(file, on_trouble=on_trouble, wall_ns=wall_ns, behind=behind)
    async with _writing(journal), trio.open_nursery() as nursery:
        nursery.start_soon(journal.prune)
        yield journal
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def join_journal(
    path: str, session: int, *, on_trouble: Callable[[str], None], wall_ns: Callable[[], int] = time.time_ns
) -> AsyncIterator[Journal]:
    """Open a journal for one more session, while another process of this proxy keeps it open and prunes it.

    Raises:
        JournalError: The file cannot be used.
    """
    file = await trio.to_thread.run_sync(JournalFile.joined, path, session)
    journal = Journal(file, on_trouble=on_trouble, wall_ns=wall_ns)
    async with _writing(journal):
        yield journal


@asynccontextmanager
async def _writing(journal: Journal) -> AsyncIterator[None]:
    """Write a journal within the context; leaving it writes what is left."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            yield
            nursery.cancel_scope.cancel()
    finally:
        await journal.finish()
