"""Ledger of a proxy with several workers: the supervisor keeps it, and workers send it their entries.

An entry is with the kernel before its call goes on, as in the log of a proxy of one process, so that the end of a
worker loses none. What a worker leaves open when it is killed is charged at once.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import attrs
import trio

from hivemind_trio.policy import Renames
from hivemind_trio.scheduler import AccountKey, Lease
from hivemind_trio.store import Claim, Entry, Learned, Ledger, OpenedState, Restored, Spent
from hivemind_trio.store.state.entry_log import EntryLines, entry_of
from hivemind_trio.store.state.interface import CORRECTION, SLICES, counts_still

ENTRY_MAX: Final = 1 << 20
"""Bytes of a line."""

CHUNKS: Final = 16
"""Credit of all workers is made durable in such parts of a budget."""

CALL_BITS: Final = 40
"""Bits of a call's number below those of the process that serves it."""


@final
@attrs.frozen(kw_only=True, eq=False)
class SentState:
    """`OpenedState` of a worker.

    Args:
        sock: A socket of packets, whose other end the supervisor reads.
        join_there: Tells the supervisor the name and start under which budgets are shared; called in a thread.
        learn_there: Sends hints to the supervisor; called in a thread.
    """

    restored: Restored
    alias_key: bytes = attrs.field(repr=False)
    _sock: socket.socket
    _join_there: Callable[[str, int], None]
    _learn_there: Callable[[Learned], None]
    _lines: EntryLines = attrs.field(init=False, factory=EntryLines)

    def append(self, entry: Entry) -> None:
        """Send an entry.

        Raises:
            OSError: The supervisor is behind, or gone.
        """
        self._sock.send(self._lines.line(entry), socket.MSG_DONTWAIT)

    def draw(self, draws: Sequence[tuple[AccountKey, int]]) -> None:
        """Do nothing: credit comes from the store that workers share."""

    def rotate(self) -> None:
        """Return None: the supervisor has the log."""

    def fold(self, batch: object) -> None:
        """Do nothing."""

    def learn(self, learned: Learned, wall_ns: int) -> None:
        """Keep hints."""
        self._learn_there(learned)

    def join(self, node: str, epoch: int) -> None:
        """Tell under which name this worker shares budgets."""
        self._join_there(node, epoch)

    def rename(self, names: Mapping[AccountKey, AccountKey]) -> None:
        """Do nothing: the supervisor loads the same policy."""

    def keep_leases(self, kept: Sequence[Lease], ended: Sequence[Lease]) -> None:
        """Do nothing: the supervisor keeps the leases."""

    def bye(self) -> None:
        """Do nothing: the ledger ends with the supervisor."""


Slots = dict[AccountKey, dict[int, int]]
"""Account -> end of the slice or window -> amount."""


@final
@attrs.define
class Joined:
    """The last process of a worker that shared budgets."""

    node: str
    epoch: int
    settled: dict[AccountKey, int] = attrs.field(factory=lambda: defaultdict(int))
    """Total that it has spent of each account; when it has ended, with the claims that it left open."""


@final
@attrs.define(eq=False)
class SharedLedger:
    """The supervisor's ledger: keeps what each worker spends, so that its next process begins with that.

    What was spent before is taken for the first worker's, so that the workers' parts add up to the whole.

    Args:
        state: The state on disk.
        ledger: Writes it.
        first: Name of the first worker.
    """

    state: OpenedState
    ledger: Ledger
    _first: str
    hints: dict[tuple[str, str], str] = attrs.field(init=False, factory=dict)
    """Hints of workers, the latest of any."""
    _spends: dict[str, Slots] = attrs.field(init=False)
    """Worker -> what it has spent."""
    _joined: dict[str, Joined] = attrs.field(init=False, factory=dict)
    _durable: dict[AccountKey, int] = attrs.field(init=False, factory=dict)
    """Amount that was drawn of the state and that nobody has spent: a loss of power charges as much."""
    _processes: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._spends = {self._first: {key: dict(slots) for key, slots in self.state.restored.spends.items()}}

    def restored(self, worker: str, wall_ns: int) -> Restored:
        """Return what a worker begins with that starts now."""
        found = {}
        for account, slots in self._spends.get(worker, {}).items():
            kept = tuple((slot, slots[slot]) for slot in sorted(slots) if counts_still(account, slot, wall_ns))
            if kept:
                found[account] = kept
        last = self._joined.get(worker)
        return attrs.evolve(
            self.state.restored,
            spends=found,
            charges=(),
            leases=(),
            shared_by=(last.node, last.epoch) if last is not None else None,
            settled=dict(last.settled) if last is not None else {},
        )

    def spent(self, account: AccountKey, wall_ns: int) -> int:
        """Return what all workers have spent of an account in the window of now."""
        return sum(
            amount
            for spends in self._spends.values()
            for slot, amount in spends.get(account, {}).items()
            if counts_still(account, slot, wall_ns)
        )

    def accounts(self) -> list[AccountKey]:
        """Return the accounts of which anything was spent."""
        return list(dict.fromkeys(account for spends in self._spends.values() for account in spends))

    def set_spent(self, account: AccountKey, wanted: int, wall_ns: int) -> None:
        """Have so much count as spent: take from what was spent first, or add to what was spent last."""
        change = wanted - self.spent(account, wall_ns)
        for worker, spends in self._spends.items():
            slots, parts = spends.get(account, {}), []
            for slot in sorted(slots):
                if change < 0 < slots[slot] and counts_still(account, slot, wall_ns):
                    taken = min(slots[slot], -change)
                    change += taken
                    parts.append((account, slot, -taken))
            if parts:
                self.note(worker, Spent(CORRECTION, tuple(parts)), wall_ns)
        if change > 0:
            more = Spent(CORRECTION, ((account, self.ledger.slot_ns(account, wall_ns), change),))
            self.note(self._first, more, wall_ns)

    def rename(self, renames: Renames) -> None:
        """Keep accounts under the names of a new policy."""
        self.ledger.rename(renames)
        self._spends = {
            worker: {account.renamed(renames): slots for account, slots in spends.items()}
            for worker, spends in self._spends.items()
        }
        self._durable = {account.renamed(renames): amount for account, amount in self._durable.items()}
        for joined in self._joined.values():
            renamed = {account.renamed(renames): amount for account, amount in joined.settled.items()}
            joined.settled = defaultdict(int, renamed)

    def reader(self, worker: str, sock: socket.socket) -> WorkerLedger:
        """Return the reader of the entries of a worker's new process."""
        self._processes += 1
        return WorkerLedger(self, worker, sock, self._processes)

    def join(self, worker: str, node: str, epoch: int) -> None:
        """Note the name and start under which a worker's process shares budgets from now on."""
        self._joined[worker] = Joined(node, epoch)

    async def cover(self, account: AccountKey, out: int, limit: int) -> None:
        """Make what workers have drawn of an account durable, and some more, so that this is needed seldom.

        Raises:
            OSError, sqlite3.Error: It cannot be done now.
        """
        lacking = out - self._durable.get(account, 0)
        if lacking > 0:
            chunk = max(lacking, limit // CHUNKS)
            await self.ledger.draw_now([(account, chunk)])
            self._durable[account] = self._durable.get(account, 0) + chunk

    def note(self, worker: str, entry: Entry, wall_ns: int) -> None:
        """Write an entry of a worker."""
        self.ledger.note(entry)
        if not isinstance(entry, Spent):
            return
        spends, joined = self._spends.setdefault(worker, {}), self._joined.get(worker)
        for account, slot, amount in entry.parts:
            slots = spends.setdefault(account, {})
            slots[slot] = slots.get(slot, 0) + amount
            if len(slots) > 4 * SLICES:
                spends[account] = {one: spent for one, spent in slots.items() if counts_still(account, one, wall_ns)}
            if entry.call == CORRECTION:
                continue
            if joined is not None:
                joined.settled[account] += amount
            if account in self._durable:
                self._durable[account] -= amount


@final
@attrs.define(eq=False)
class WorkerLedger:
    """Reads the entries of one worker."""

    _shared: SharedLedger
    _worker: str
    _sock: socket.socket
    _process: int
    _open: dict[int, Claim] = attrs.field(init=False, factory=dict)

    async def run(self, wall_ns: Callable[[], int]) -> Mapping[AccountKey, tuple[int, int]]:
        """Write its entries until it ends; charge the calls that it leaves open.

        Returns:
            Account -> what was charged, and for how many calls.
        """
        self._sock.setblocking(False)
        with self._sock:
            while True:
                await trio.lowlevel.wait_readable(self._sock)
                try:
                    line = self._sock.recv(ENTRY_MAX)
                except BlockingIOError:
                    continue
                except OSError:
                    break
                if not line:
                    break
                self._take(entry_of(line), wall_ns())
        return self._close(wall_ns())

    def _take(self, entry: Entry, wall_ns: int) -> None:
        if entry.call == CORRECTION:
            return  # of its own counts; the supervisor corrects the sum
        entry = attrs.evolve(entry, call=self._process << CALL_BITS | entry.call)
        if isinstance(entry, Claim):
            self._open[entry.call] = entry
        else:
            self._open.pop(entry.call, None)
        self._shared.note(self._worker, entry, wall_ns)

    def _close(self, wall_ns: int) -> Mapping[AccountKey, tuple[int, int]]:
        charged: defaultdict[AccountKey, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for claim in self._open.values():
            parts = tuple((key, self._shared.ledger.slot_ns(key, wall_ns), amount) for key, amount in claim.parts)
            self._shared.note(self._worker, Spent(claim.call, parts), wall_ns)
            for key, amount in claim.parts:
                if amount:
                    charged[key] = charged[key][0] + amount, charged[key][1] + 1
        self._open.clear()
        return charged
