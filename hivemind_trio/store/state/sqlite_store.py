"""State on disk: totals in SQLite, the newest entries in a log beside it.

What survives what:

- The end of the process, however it ends: everything. Entries are handed to the kernel before a call goes on.
- A loss of power: every chunk, for it was on the disk before it could be claimed. The log may be short, so the whole
  chunk is charged. The boot id of the machine tells the two cases apart.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Self, final

import attrs

from hivemind_trio.scheduler import AccountKey, Lease
from hivemind_trio.store.file_lock import FileLock, HeldElsewhere
from hivemind_trio.store.journal.journal_file import move_aside
from hivemind_trio.store.place import make_private
from hivemind_trio.store.state.entry_log import EntryLog, read_entries
from hivemind_trio.store.state.interface import (
    CORRECTION,
    Charge,
    Claim,
    Entry,
    Learned,
    Restored,
    account_of,
    account_text,
    counts_still,
    lease_of,
    lease_text,
    slot_ns,
)
from hivemind_trio.store.state.memory_store import charge_claims
from hivemind_trio.store.state.tables import APPLICATION_ID, TABLES, UPGRADES, VERSION

BUSY_S: Final = 5.0

CHARGES_KEPT_NS: Final = 90 * 86_400 * 1_000_000_000

Spends = dict[tuple[AccountKey, int], int]
LeftNs = Callable[[AccountKey], int]


@final
class StateError(Exception):
    """A state file that cannot be used; `help` says what to do instead."""

    def __init__(
        self,
        path: str,
        what: str,
        help: str,  # noqa: A002 - the word of every other diagnostic
        *,
        held: bool = False,
    ) -> None:
        super().__init__(f"{path}: {what}")
        self.help = help
        self.held = held
        """Another process has it."""


@final
@attrs.define(eq=False)
class _Batch:
    """Entries of the logs before `generation`."""

    generation: int
    spends: Spends
    corrected: dict[AccountKey, int]
    """The part of the spends that is an operator's, and settles no credit."""
    claims: dict[int, Claim]
    """All that are open, not only those of the batch."""


@final
@attrs.define(eq=False)
class SqliteStore:
    """`StateStore` on a local disk."""

    path: str
    restored: Restored
    set_aside: str
    """New path of a damaged file; empty: there was none."""
    alias_key: bytes = attrs.field(repr=False)
    """Key of the names that stand for credentials, the same in every run."""
    _lock: FileLock = attrs.field(repr=False)
    _database: sqlite3.Connection = attrs.field(repr=False)
    _epoch: int
    _log: EntryLog = attrs.field(repr=False)
    _generation: int
    _claims: dict[int, Claim] = attrs.field(factory=dict, init=False, repr=False)
    _spends: Spends = attrs.field(factory=lambda: defaultdict(int), init=False, repr=False)
    _corrected: dict[AccountKey, int] = attrs.field(factory=lambda: defaultdict(int), init=False, repr=False)
    _shares: bool = attrs.field(default=False, init=False)
    """Other nodes count in the budgets, too."""
    _gone: bool = attrs.field(default=False, init=False)
    """The file was deleted or moved, as of the last rotation."""

    @classmethod
    def open(cls, path: str, wall_ns: int, left_ns: LeftNs, boot: str | None = None) -> Self:
        """Open the state of a proxy, and charge what an earlier run left open.

        Args:
            wall_ns: Time on the wall clock, ns since 1970.
            left_ns: Time until an account's calendar window ends.
            boot: Id of this boot of the machine; None: ask the machine.

        Raises:
            StateError: It is none, another process has it, or it cannot be written.
        """
        lock = _lock(path)
        try:
            boot = boot_id() if boot is None else boot
            try:
                return cls._opened(path, lock, wall_ns, left_ns, boot, "")
            except (sqlite3.DatabaseError, ValueError) as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise unwritable(path, str(error)) from None
                aside = _move_aside(path, wall_ns)
                lock.release()
                lock = _lock(path)
                return cls._opened(path, lock, wall_ns, left_ns, boot, aside)
        except OSError as error:
            lock.release()
            raise unwritable(path, error.strerror or str(error)) from None
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _opened(cls, path: str, lock: FileLock, wall_ns: int, left_ns: LeftNs, boot: str, aside: str) -> Self:
        database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(path, database)
            recovery = _Recovery(path, database, wall_ns, left_ns)
            restored, epoch, generation = recovery.run(boot)
            log = EntryLog.create(_log_path(path, generation))
            for old in _logs(path):
                if old != log.path:
                    old.unlink(missing_ok=True)
            return cls(path, restored, aside, _alias_key(database), lock, database, epoch, log, generation)
        except BaseException:
            database.close()
            raise

    # ---- the event loop's ----

    def append(self, entry: Entry) -> None:
        """Note an entry in the log."""
        if self._gone:
            raise OSError(2, "the state file was deleted or moved")
        self._log.append(entry)
        if isinstance(entry, Claim):
            self._claims[entry.call] = entry
            return
        self._claims.pop(entry.call, None)
        for account, slot, amount in entry.parts:
            self._spends[account, slot] += amount
            if entry.call == CORRECTION:
                self._corrected[account] += amount

    def rotate(self) -> _Batch | None:
        """Begin a new log."""
        # Not at each entry: two more calls of the kernel would double what an entry costs.
        self._gone = self._lock.gone
        if self._gone or not self._log.size:
            return None
        log = EntryLog.create(_log_path(self.path, self._generation + 1))
        self._log.close()
        self._log = log
        self._generation += 1
        spends, self._spends = self._spends, defaultdict(int)
        corrected, self._corrected = self._corrected, defaultdict(int)
        return _Batch(self._generation, spends, corrected, dict(self._claims))

    # ---- the writer's ----

    def fold(self, batch: object) -> None:
        """Fold a batch into the totals, and remove its log."""
        assert isinstance(batch, _Batch)
        settled: dict[AccountKey, int] = defaultdict(int)
        for (account, _), amount in batch.spends.items():
            settled[account] += amount
        for account, amount in batch.corrected.items():
            settled[account] -= amount
        with self._transaction() as database:
            database.executemany(
                "INSERT INTO spends VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
                [(account_text(account), slot, amount) for (account, slot), amount in batch.spends.items() if amount],
            )
            database.executemany(
                "UPDATE chunks SET settled = settled + ? WHERE account = ?",
                [(amount, account_text(account)) for account, amount in settled.items()],
            )
            if self._shares:
                _add_settled(database, settled)
            database.execute("DELETE FROM claims")
            database.executemany("INSERT INTO claims VALUES (?, ?, ?, ?)", _claim_rows(batch.claims.values()))
            database.execute("UPDATE nodes SET generation = ? WHERE epoch = ?", (batch.generation, self._epoch))
        for log in _logs(self.path):
            if _generation_of(log) < batch.generation:
                # The generation makes a log that stays be ignored; the next start removes it.
                with suppress(OSError):
                    log.unlink()

    def draw(self, draws: Sequence[tuple[AccountKey, int]]) -> None:
        """Write chunks, and wait for the disk."""
        with self._transaction() as database:
            database.executemany(
                "INSERT INTO chunks VALUES (?, ?, 0) ON CONFLICT DO UPDATE SET drawn = drawn + excluded.drawn",
                [(account_text(account), amount) for account, amount in draws],
            )

    def learn(self, learned: Learned, wall_ns: int) -> None:
        """Keep hints."""
        with self._transaction() as database:
            database.executemany(
                "INSERT OR REPLACE INTO learned VALUES (?, ?, ?, ?)",
                [(pool, what, value, wall_ns) for (pool, what), value in learned.items()],
            )

    def keep_leases(self, kept: Sequence[Lease], ended: Sequence[Lease]) -> None:
        """Write leases of resources and the ends of others, with their fencing tokens."""
        with self._transaction() as database:
            database.executemany(
                "INSERT OR REPLACE INTO leases VALUES (?, ?)", [(lease.id, lease_text(lease)) for lease in kept]
            )
            database.executemany("DELETE FROM leases WHERE id = ?", [(lease.id,) for lease in ended])
            database.executemany(
                "INSERT INTO fences VALUES (?, ?) ON CONFLICT DO UPDATE SET fence = max(fence, excluded.fence)",
                [(lease.resource, lease.fence) for lease in (*kept, *ended)],
            )

    def rename(self, names: Mapping[AccountKey, AccountKey]) -> None:
        """Keep accounts under new keys."""
        texts = [(account_text(old), account_text(new)) for old, new in names.items() if old != new]
        if not texts:
            return
        with self._transaction() as database:
            # In two steps, for two may change names with each other.
            for old, new in [(old, f">{new}") for old, new in texts] + [(f">{new}", new) for _, new in texts]:
                database.execute("UPDATE OR REPLACE spends SET account = ? WHERE account = ?", (new, old))
                database.execute("UPDATE OR REPLACE chunks SET account = ? WHERE account = ?", (new, old))
                database.execute("UPDATE OR REPLACE claims SET account = ? WHERE account = ?", (new, old))
                database.execute("UPDATE OR REPLACE settled SET account = ? WHERE account = ?", (new, old))

    def join(self, node: str, epoch: int) -> None:
        """Share budgets from now on."""
        with self._transaction() as database:
            database.execute("DELETE FROM shared")
            database.execute("DELETE FROM settled")
            database.execute("INSERT INTO shared VALUES (?, ?)", (node, epoch))
        self._shares = True

    def bye(self) -> None:
        """End in order."""
        batch = self.rotate()
        if batch is not None:
            self.fold(batch)
        with self._transaction() as database:
            database.execute("DELETE FROM chunks")
            database.execute("UPDATE nodes SET ended = 1 WHERE epoch = ?", (self._epoch,))

    def close(self) -> None:
        """Let go of the file, as the end of the process would."""
        self._log.close()
        if not self._log.size:
            with suppress(OSError):  # the disk may be read-only; the next start removes it
                self._log.path.unlink(missing_ok=True)
        self._database.close()
        self._lock.release()

    def _transaction(self) -> _Transaction:
        if self._lock.gone:
            raise sqlite3.OperationalError("the state file was deleted or moved")
        return _Transaction(self._database)


@final
@attrs.define
class _Transaction:
    _database: sqlite3.Connection

    def __enter__(self) -> sqlite3.Connection:
        self._database.execute("BEGIN IMMEDIATE")
        return self._database

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            try:
                self._database.execute("COMMIT")
                return
            except BaseException:
                self._rollback()
                raise
        self._rollback()

    def _rollback(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")


@final
@attrs.define
class _Recovery:
    """The state that the last run left, made whole in one transaction."""

    _path: str
    _database: sqlite3.Connection
    _wall_ns: int
    _left_ns: LeftNs
    _spends: Spends = attrs.field(factory=lambda: defaultdict(int), init=False)
    _settled: dict[AccountKey, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    _claims: dict[int, Claim] = attrs.field(factory=dict, init=False)

    def run(self, boot: str) -> tuple[Restored, int, int]:
        """Return what the new run begins with, its epoch, and the generation of its log."""
        database = self._database
        last = database.execute("SELECT epoch, boot, generation FROM nodes ORDER BY epoch DESC LIMIT 1").fetchone()
        epoch, last_boot, generation = last if last is not None else (0, "", 0)
        self._read_claims()
        generations = sorted(_generation_of(log) for log in _logs(self._path))
        for each in generations:
            if each >= generation:
                self._apply(_log_path(self._path, each))
        power_lost = not boot or boot != last_boot
        charges = self._charges(power_lost=power_lost)
        for charge in charges:
            slot = slot_ns(charge.account, self._wall_ns, self._left_ns(charge.account))
            self._spends[charge.account, slot] += charge.amount
        generation = max([generation, *generations]) + 1
        epoch += 1
        with _Transaction(database):
            database.executemany(
                "INSERT INTO spends VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
                [(account_text(account), slot, amount) for (account, slot), amount in self._spends.items() if amount],
            )
            spends = self._counting()
            shared_by, settled = self._shared(charges, power_lost=power_lost)
            database.execute("DELETE FROM claims")
            database.execute("DELETE FROM chunks")
            database.execute("DELETE FROM charges WHERE at_ns < ?", (self._wall_ns - CHARGES_KEPT_NS,))
            database.executemany(
                "INSERT INTO charges VALUES (?, ?, ?, ?, ?)",
                [(epoch, account_text(one.account), one.amount, one.calls, self._wall_ns) for one in charges],
            )
            node = (epoch, os.getpid(), boot, generation, self._wall_ns)
            database.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, 0)", node)
        learned = {
            (pool, what): (value, at_ns) for pool, what, value, at_ns in database.execute("SELECT * FROM learned")
        }
        restored = Restored(
            spends=spends,
            charges=charges,
            learned=learned,
            shared_by=shared_by,
            settled=settled,
            runs=epoch - 1,
            leases=tuple(lease_of(text) for (text,) in database.execute("SELECT lease FROM leases ORDER BY id")),
            fences=dict(database.execute("SELECT resource, fence FROM fences").fetchall()),
        )
        return restored, epoch, generation

    def _read_claims(self) -> None:
        parts: dict[int, list[tuple[AccountKey, int]]] = defaultdict(list)
        began: dict[int, int] = {}
        for call, text, most, at_ns in self._database.execute("SELECT * FROM claims"):
            parts[call].append((account_of(text), most))
            began[call] = at_ns
        self._claims = {call: Claim(call, began[call], tuple(of_call)) for call, of_call in parts.items()}

    def _apply(self, log: Path) -> None:
        for entry in read_entries(log):
            if isinstance(entry, Claim):
                self._claims[entry.call] = entry
                continue
            self._claims.pop(entry.call, None)
            for account, slot, amount in entry.parts:
                self._spends[account, slot] += amount
                if entry.call != CORRECTION:
                    self._settled[account] += amount

    def _charges(self, *, power_lost: bool) -> tuple[Charge, ...]:
        """Return what the run left open: its calls in flight, or all of its credit if the log may be short."""
        charges = {charge.account: charge for charge in charge_claims(self._claims.values())}
        if power_lost:
            for text, drawn, settled in self._database.execute("SELECT * FROM chunks"):
                account = account_of(text)
                left = drawn - settled - self._settled.get(account, 0)
                known = charges.get(account)
                if left > (known.amount if known is not None else 0):
                    charges[account] = Charge(account=account, amount=left, calls=0)
        return tuple(charges.values())

    def _shared(
        self, charges: Iterable[Charge], *, power_lost: bool
    ) -> tuple[tuple[str, int] | None, dict[AccountKey, int]]:
        """Return the last run that shared budgets, and what it has spent in all; what a short log says is not it."""
        database = self._database
        row = database.execute("SELECT node, epoch FROM shared").fetchone()
        if row is None or power_lost:
            database.execute("DELETE FROM shared")
            database.execute("DELETE FROM settled")
            return None, {}
        for charge in charges:
            self._settled[charge.account] += charge.amount
        _add_settled(database, self._settled)
        settled = {account_of(text): amount for text, amount in database.execute("SELECT * FROM settled")}
        return (str(row[0]), int(row[1])), settled

    def _counting(self) -> dict[AccountKey, tuple[tuple[int, int], ...]]:
        """Return the spends that count now, and delete those that do not."""
        found: dict[AccountKey, list[tuple[int, int]]] = defaultdict(list)
        over = []
        for text, slot, amount in self._database.execute("SELECT * FROM spends ORDER BY account, slot_ns"):
            account = account_of(text)
            if counts_still(account, slot, self._wall_ns):
                found[account].append((slot, amount))
            else:
                over.append((text, slot))
        self._database.executemany("DELETE FROM spends WHERE account = ? AND slot_ns = ?", over)
        return {account: tuple(slots) for account, slots in found.items()}


def _add_settled(database: sqlite3.Connection, settled: Mapping[AccountKey, int]) -> None:
    database.executemany(
        "INSERT INTO settled VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
        [(account_text(account), amount) for account, amount in settled.items() if amount],
    )


def boot_id() -> str:
    """Return an id of this boot of the machine; empty: it cannot be told."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def holder(path: str) -> int | None:
    """Return the process that used the state last, as far as the file can be read."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=BUSY_S)) as database,
    ):
        row = database.execute("SELECT pid FROM nodes ORDER BY epoch DESC LIMIT 1").fetchone()
        return int(row[0]) if row is not None else None
    return None


def _lock(path: str) -> FileLock:
    try:
        make_private(Path(path).parent)
        return FileLock.take(path)
    except HeldElsewhere:
        pid = holder(path)
        who = f"process {pid}" if pid is not None else "another process"
        raise StateError(
            path,
            f"{who} is serving this policy with this state",
            "stop it, or copy the policy to another file: each file has a state of its own",
            held=True,
        ) from None
    except OSError as error:
        raise unwritable(path, error.strerror or str(error)) from None


def _prepare(path: str, database: sqlite3.Connection) -> None:
    (entries,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if entries:
        (application_id,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise StateError(path, "a database of another program", "name another file in `store sqlite { path }`")
        if version > VERSION:
            what = f"it is state of version {version}, and this hivemind-trio knows up to {VERSION}"
            raise StateError(path, what, "use the hivemind-trio that has written it, or a newer one")
        (sound,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise sqlite3.DatabaseError(sound)
    (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StateError(path, f"its file system has no room for a write-ahead log ({mode})", "use a local disk")
    database.execute("PRAGMA synchronous = FULL")
    if not entries:
        database.executescript(
            f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {VERSION}; COMMIT;"
        )
        return
    for older in range(version, VERSION):
        database.executescript(f"BEGIN IMMEDIATE; {UPGRADES[older]} PRAGMA user_version = {older + 1}; COMMIT;")


def _alias_key(database: sqlite3.Connection) -> bytes:
    with _Transaction(database):
        database.execute("INSERT OR IGNORE INTO keys VALUES ('alias', ?)", (secrets.token_bytes(32),))
        row = database.execute("SELECT value FROM keys WHERE name = 'alias'").fetchone()
    return bytes(row[0])


def _move_aside(path: str, wall_ns: int) -> str:
    aside = move_aside(path, wall_ns)
    for log in _logs(path):
        log.rename(f"{aside}{log.name.removeprefix(Path(path).name)}")
    return aside


def _log_path(path: str, generation: int) -> Path:
    return Path(f"{path}-log{generation}")


def _logs(path: str) -> list[Path]:
    start = f"{Path(path).name}-log"
    return [
        one
        for one in Path(path).parent.iterdir()
        if one.name.startswith(start) and one.name.removeprefix(start).isdigit()
    ]


def _generation_of(log: Path) -> int:
    return int(log.name.rpartition("-log")[2])


def _claim_rows(claims: Iterable[Claim]) -> list[tuple[int, str, int, int]]:
    return [(claim.call, account_text(account), most, claim.at_ns) for claim in claims for account, most in claim.parts]


def unwritable(path: str, why: str) -> StateError:
    """Return the error for a place that cannot be written."""
    return StateError(
        path, f"cannot be written: {why}", "name a writable place in `store sqlite { path }`, or use `store memory`"
    )
