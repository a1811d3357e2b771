"""The ledger: budgets of the scheduler, kept by a `StateStore`.

    store = SqliteStore.open(path, ...)
    ledger = Ledger(store, post=engine.post, ...)   # and it is the engine's `ledger`
    ledger.open(store.restored)
    async with writing(ledger):
        ...

Entries are noted on the event loop and survive the end of the process. What waits for the disk, chunks and totals, is
written by a thread; nobody waits for it but the calls of an account whose chunk is used up.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, final

import trio

from hivemind_trio.policy import BudgetWindow, Renames
from hivemind_trio.scheduler import (
    AccountKey,
    CallId,
    CreditDrawn,
    Event,
    LedgerOpened,
    LedgerWritable,
    Parts,
    RestoredAccount,
)
from hivemind_trio.store.state.interface import CORRECTION, Claim, Entry, Learned, Restored, Spent, StateStore, slot_ns

FOLD_S: Final = 1.0
"""Time for which entries are gathered in the log before they are folded into the totals."""

FOLD_ENTRIES: Final = 4_096
"""Entries after which they are folded at once."""

LEARN_S: Final = 10.0
"""Time between two writings of hints."""

AGAIN_S: Final = 1.0
"""Until it is tried again to write what could not be written."""

CLOSE_S: Final = 10.0

ENDS_NS: Final = 1_000_000_000
"""Time for which the end of a calendar window is taken for known; clocks are set and time zones change."""

LeftNs = Callable[[BudgetWindow], int]
"""Calendar window -> time until it ends, in ns."""


@final
class Ledger:
    """A `runtime.BudgetLedger`.

    Args:
        post: Where its events go; the engine's.
        left_ns: Time until a calendar window ends.
        learned: The hints of now; asked every `LEARN_S`.
        on_trouble: Told once why it cannot be written, and with "" when it can be again.
        wall_ns: The clock on the wall, ns since 1970.
    """

    def __init__(
        self,
        store: StateStore,
        *,
        post: Callable[[Event], None],
        left_ns: LeftNs,
        learned: Callable[[], Learned],
        on_trouble: Callable[[str], None],
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._post = post
        self._left_ns = left_ns
        self._learned = learned
        self._on_trouble = on_trouble
        self._wall_ns = wall_ns
        self._draws: list[tuple[AccountKey, int]] = []
        self._names: list[Mapping[AccountKey, AccountKey]] = []
        self._ends: dict[tuple[int, bool, str], tuple[int, int]] = {}
        """Calendar window -> when its end was computed, and the end, on the wall clock."""
        self._keys: set[AccountKey] = set()
        """Accounts of which anything may be on the disk."""
        self._backlog: deque[Entry] = deque()
        """Entries that the log would not take."""
        self._batches: list[object] = []
        """Parts of the log that are to be folded."""
        self._noted = 0
        """Entries since the log was last rotated."""
        self._wake = trio.Event()
        self._urgent = trio.Event()
        self._thread = trio.CapacityLimiter(1)
        self._troubled = ""
        self._held = False
        """The scheduler knows that the log takes no entries."""
        self._known: dict[tuple[str, str], str] = {}
        """Hints that are written, or about to be."""
        self._unlearned: Learned = {}
        """Those that are about to be."""
        self._undrawn = False
        """Another process of this proxy could not be given a chunk."""

    def open(self, restored: Restored) -> None:
        """Hand the scheduler what earlier processes left."""
        self._keys.update(restored.spends)
        wall_ns = self._wall_ns()
        accounts = tuple(
            RestoredAccount(key=key, spent=tuple((slot - wall_ns, amount) for slot, amount in slots))
            for key, slots in restored.spends.items()
        )
        self._post(LedgerOpened(accounts))

    # ---- the engine's: on the decision path ----

    def claim(self, call_id: CallId, parts: Parts) -> None:
        """Note the most that a call may take, before it begins."""
        self._note(Claim(call_id, self._wall_ns(), parts))

    def spend(self, call_id: CallId, parts: Parts) -> None:
        """Note what a call has taken; its claim is over."""
        wall_ns = self._wall_ns()
        slots = tuple((key, self.slot_ns(key, wall_ns), amount) for key, amount in parts)
        self._keys.update(key for key, _ in parts)
        self._note(Spent(call_id, slots))

    def correct(self, account: AccountKey, changes: tuple[tuple[int, int], ...]) -> None:
        """Note what an operator has changed: parts of the window by their age.

        Their slices on the wall clock may be the neighbours of those that were spent in; the sum is right.
        """
        wall_ns = self._wall_ns()
        slots: dict[int, int] = {}
        for age_ns, change in changes:
            slot = self.slot_ns(account, wall_ns - (0 if account.calendar else age_ns))
            slots[slot] = slots.get(slot, 0) + change
        self._keys.add(account)
        self._note(Spent(CORRECTION, tuple((account, slot, change) for slot, change in slots.items())))

    def draw(self, account: AccountKey, amount: int) -> None:
        """Make a chunk durable, and say so."""
        self._draws.append((account, amount))
        self._wake.set()
        self._urgent.set()

    async def join(self, node: str, epoch: int) -> None:
        """Keep what is spent from now on under a node's name; without it, its next start charges all that is drawn."""
        try:
            await trio.to_thread.run_sync(self._store.join, node, epoch, limiter=self._thread)
        except (OSError, sqlite3.Error) as error:
            self._trouble(error)

    def note(self, entry: Entry) -> None:
        """Note an entry that another process of this proxy has made."""
        if isinstance(entry, Spent):
            self._keys.update(key for key, _, _ in entry.parts)
        self._note(entry)

    async def draw_now(self, draws: Sequence[tuple[AccountKey, int]]) -> None:
        """Make the chunks of another process of this proxy durable.

        Raises:
            OSError, sqlite3.Error: It cannot be done now.
        """
        self._keys.update(account for account, _ in draws)
        try:
            await trio.to_thread.run_sync(self._store.draw, draws, limiter=self._thread)
        except (OSError, sqlite3.Error) as error:
            self._undrawn = True
            self._trouble(error)
            raise
        if self._undrawn:
            self._undrawn = False
            self._wake.set()

    def rename(self, renames: Renames) -> None:
        """Accounts are called otherwise from now on."""
        names = {key: key.renamed(renames) for key in self._keys}
        changed = {old: new for old, new in names.items() if old != new}
        if not changed:
            return
        self._keys = set(names.values())
        try:
            self._rotate()
        except OSError as error:
            self._trouble(error)  # then entries under the old names are kept under them
        self._names.append(changed)
        self._wake.set()
        self._urgent.set()

    def slot_ns(self, key: AccountKey, wall_ns: int) -> int:
        """Return the slice that a spend of now falls into."""
        if not key.calendar:
            return slot_ns(key, wall_ns, 0)
        window = key.window_ns, key.is_month, key.timezone
        from_ns, slot = self._ends.get(window, (wall_ns, wall_ns))
        if not from_ns <= wall_ns < min(slot, from_ns + ENDS_NS):
            slot = slot_ns(key, wall_ns, self._left_ns(key.window))
            self._ends[window] = wall_ns, slot
        return slot

    def _note(self, entry: Entry) -> None:
        if self._backlog:
            self._backlog.append(entry)
            return
        try:
            self._store.append(entry)
        except OSError as error:
            # The scheduler is in the middle of an event: the writer tells it.
            self._backlog.append(entry)
            self._trouble(error)
            self._urgent.set()
        self._noted += 1
        self._wake.set()
        if self._noted >= FOLD_ENTRIES:
            self._urgent.set()

    # ---- the writer ----

    async def run(self) -> None:
        """Write until cancelled."""
        learn_at_s = trio.current_time() + LEARN_S
        while True:
            with trio.move_on_at(learn_at_s):
                await self._wake.wait()
                with trio.move_on_after(FOLD_S):
                    await self._urgent.wait()
            if trio.current_time() >= learn_at_s:
                learn_at_s = trio.current_time() + LEARN_S
                self._learn()
            if not await self._write():
                await trio.sleep(AGAIN_S)

    async def finish(self) -> None:
        """Write what is left, as far as `CLOSE_S` allows."""
        with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_S):
            self._learn()
            if await self._write():
                try:
                    await trio.to_thread.run_sync(self._store.bye, limiter=self._thread)
                except (OSError, sqlite3.Error) as error:
                    self._trouble(error)

    async def in_turn(self, write: Callable[[], None]) -> None:
        """Run a blocking method of the store in a thread, when no other one runs."""
        await trio.to_thread.run_sync(write, limiter=self._thread)

    def _learn(self) -> None:
        """Note the hints that have changed since they were last written."""
        news = {key: value for key, value in self._learned().items() if self._known.get(key) != value}
        self._known |= news
        self._unlearned = {**self._unlearned, **news}

    async def _write(self) -> bool:
        """Write what there is; False: it cannot be done now, and is to be tried again."""
        self._wake, self._urgent = trio.Event(), trio.Event()
        if self._backlog and not self._held:
            self._held = True
            self._post(LedgerWritable(False))
        try:
            while self._backlog:
                self._store.append(self._backlog[0])
                self._backlog.popleft()
            if not self._names:
                self._rotate()
            # Draws first: calls wait for them, and for nothing else here.
            await self._draw()
            if self._batches or self._names or self._unlearned:
                await trio.to_thread.run_sync(self._commit, self._batches, self._names, limiter=self._thread)
                self._undrawn = False  # the database takes what it is given: so it does for other processes
        except (OSError, sqlite3.Error) as error:
            self._trouble(error)
            self._wake.set()
            self._urgent.set()
            return False
        if self._troubled and not self._undrawn:
            self._troubled = ""
            self._on_trouble("")
        if self._held:
            self._held = False
            self._post(LedgerWritable(True))
        return True

    async def _draw(self) -> None:
        if not self._draws:
            return
        draws, self._draws = self._draws, []
        try:
            await trio.to_thread.run_sync(self._store.draw, draws, limiter=self._thread)
        except BaseException:
            self._draws = draws + self._draws
            raise
        self._undrawn = False
        for account, amount in draws:
            self._keys.add(account)
            self._post(CreditDrawn(account, amount))

    def _rotate(self) -> None:
        batch = self._store.rotate()
        self._noted = 0
        if batch is not None:
            self._batches.append(batch)

    def _commit(self, batches: list[object], names: list[Mapping[AccountKey, AccountKey]]) -> None:
        while batches:
            self._store.fold(batches[0])
            batches.pop(0)
        while names:
            self._store.rename(names[0])
            names.pop(0)
        if self._unlearned:
            self._store.learn(self._unlearned, self._wall_ns())
            self._unlearned = {}

    def _trouble(self, error: Exception) -> None:
        if not self._troubled:
            self._troubled = str(error) or type(error).__name__
            self._on_trouble(self._troubled)


@asynccontextmanager
async def writing(ledger: Ledger) -> AsyncIterator[None]:
    """Write within the context; leaving it writes what is left."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.run)
            yield
            nursery.cancel_scope.cancel()
    finally:
        await ledger.finish()
