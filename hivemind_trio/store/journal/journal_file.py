"""The file: opened once and by one writer, whoever else reads it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, Final, Self, final
from urllib.parse import quote

import attrs

from hivemind_trio.store.file_lock import FileLock, HeldElsewhere
from hivemind_trio.store.journal.rows import HEADER_SETS_MAX
from hivemind_trio.store.journal.tables import APPLICATION_ID, HISTORY, TABLES, UPGRADES, VERSION

BUSY_S: Final = 5.0
"""Time to wait for a reader that holds a lock. What cannot be written then is tried again."""

PRUNED_AT_ONCE: Final = 1_000
"""Calls deleted in one transaction: the writer waits for it."""

SESSION_BITS: Final = 32
"""Bits of numbers of `deciders` and `header_sets` below those of the session, where several write at the same time."""

ROWS_AT_ONCE: Final = (128, 32, 8, 1)
"""Rows of one statement: a few sizes, so that SQLite has each prepared."""

# They are numbered from 1 in each session; to count them would be to read the whole file.
_CALLS: Final = (
    "SELECT coalesce(sum((SELECT max(call) FROM calls WHERE calls.session = sessions.session)), 0) FROM sessions"
)

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""Table -> its new rows."""


@final
class JournalError(Exception):
    """A file that cannot be used as a journal; `help` says what to do instead."""

    def __init__(
        self,
        path: str,
        what: str,
        help: str,  # noqa: A002 - the word of every other diagnostic
        *,
        damaged: bool = False,
    ) -> None:
        super().__init__(f"{path}: {what}")
        self.what = what
        self.help = help
        self.damaged = damaged


@final
@attrs.define(eq=False)
class JournalFile:
    """Open for writing. Blocking, and for one thread at a time."""

    path: str
    session: int
    """The number of this run's."""
    calls: int
    """In the file before this session."""
    decided: int
    """The last number of `deciders`."""
    header_set: int
    """The last number of `header_sets`."""
    policies: frozenset[str]
    """Hashes of the policies whose text it has."""
    set_aside: str
    """New path of a damaged file that was here; empty: there was none."""
    _lock: FileLock = attrs.field(repr=False)
    database: sqlite3.Connection = attrs.field(repr=False)

    @classmethod
    def open(cls, path: str, *, replaces_damaged: bool = False) -> Self:
        """Open it, and make it if there is none.

        Args:
            replaces_damaged: A file that is no journal is moved aside; else it is an error.

        Raises:
            JournalError: It is no journal, another process writes it, or it cannot be written.
        """
        aside = ""
        while True:
            lock = _locked(path)
            try:
                return cls._opened(path, lock, aside)
            except JournalError as error:
                if not (replaces_damaged and error.damaged) or aside:
                    lock.release()
                    raise
                aside = move_aside(path, time.time_ns())
                lock.release()
            except BaseException:
                lock.release()
                raise

    @classmethod
    def joined(cls, path: str, session: int) -> Self:
        """Open a file that another process of this proxy keeps open, for one more session.

        Several sessions write at the same time: numbers that are unique in the file begin at a place of this one's own.

        Args:
            session: Number of the session, which no other has.

        Raises:
            JournalError: It cannot be opened.
        """
        try:
            lock = FileLock.beside(path)
        except OSError as error:
            raise _unwritable(path, error.strerror or str(error)) from None
        try:
            joined = cls._opened(path, lock, "")
        except BaseException:
            lock.release()
            raise
        first = session << SESSION_BITS
        joined.session, joined.decided, joined.header_set = session, first, first
        return joined

    @classmethod
    def _opened(cls, path: str, lock: FileLock, aside: str) -> Self:
        try:
            database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                _prepare(path, database)
                (session,) = database.execute("SELECT coalesce(max(session), 0) + 1 FROM sessions").fetchone()
                (calls,) = database.execute(_CALLS).fetchone()
                (decided,) = database.execute("SELECT coalesce(max(decided), 0) FROM deciders").fetchone()
                (header_set,) = database.execute("SELECT coalesce(max(header_set), 0) FROM header_sets").fetchone()
                policies = frozenset(row[0] for row in database.execute("SELECT hash FROM policy_files"))
            except BaseException:
                database.close()
                raise
        except sqlite3.Error as error:
            raise _of_sqlite(path, error) from None
        return cls(path, session, calls, decided, header_set, policies, aside, lock, database)

    def write(self, rows: Rows) -> None:
        """Add rows, all of them or none.

        Raises:
            sqlite3.Error: It cannot be done now.
        """
        self._check_named()
        database = self.database
        database.execute("BEGIN IMMEDIATE")
        try:
            for table, new in rows.items():
                _insert(database, table, new)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def prune(self, before_wall_ns: int, max_bytes: int) -> int:
        """Delete the oldest calls: some of those before a moment, or of a file that is too large.

        Returns:
            Calls deleted, at most `PRUNED_AT_ONCE`; 0: there is nothing to delete.

        Raises:
            sqlite3.Error: It cannot be done now.
        """
        self._check_named()
        database = self.database
        oldest = database.execute(
            "SELECT session, call, at_ns, wall_ns FROM calls ORDER BY wall_ns, session, call LIMIT ?",
            (PRUNED_AT_ONCE,),
        ).fetchall()
        if self._size() <= max_bytes:
            oldest = list(takewhile(lambda row: row[3] < before_wall_ns, oldest))
        if not oldest:
            return 0
        # Of each session the last of them: sessions of several workers are of the same time.
        lasts = {session: (call, at_ns) for session, call, at_ns, _ in oldest}
        database.execute("BEGIN IMMEDIATE")
        try:
            for session, (call, at_ns) in lasts.items():
                for table in ("calls", "grants", "ends", "refusals", "departures", "answers", "plans"):
                    database.execute(
                        f"DELETE FROM {table} WHERE session = ? AND call <= ?",  # noqa: S608 - our own names
                        (session, call),
                    )
                database.execute(
                    "DELETE FROM answers WHERE call IS NULL AND session = ? AND at_ns <= ?", (session, at_ns)
                )
            (first,) = database.execute("SELECT coalesce(min(session), ?) FROM calls", (min(lasts),)).fetchone()
            for table in ("grants", "ends", "refusals", "departures", "answers", "plans"):
                # Of a session without a call only older ones are pruned: it may be about to have one.
                database.execute(
                    f"DELETE FROM {table} WHERE session < ?",  # noqa: S608 - our own names
                    (min(first, *lasts),),
                )
            # What follows the oldest call has its number, a higher one, or one of so many before it.
            database.execute(
                "DELETE FROM header_sets WHERE header_set < "
                "(SELECT header_set FROM calls ORDER BY session, call LIMIT 1) - ?",
                (HEADER_SETS_MAX,),
            )
            # A session that lacks its beginning cannot be repeated.
            database.execute("DELETE FROM events WHERE session < ?", (min(lasts),))
            database.executemany("DELETE FROM events WHERE session = ?", [(session,) for session in lasts])
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        database.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page
        return len(oldest)

    def _size(self) -> int:
        """Return the bytes that are in use."""
        pages, free, size = (
            self.database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        used: int = (pages - free) * size
        return used

    def _check_named(self) -> None:
        if self._lock.gone:
            raise sqlite3.OperationalError("the file was deleted or moved")

    def close(self, ended_ns: int | None) -> None:
        """Say when the session ended, if it could be written to its end, and let go of the file."""
        try:
            if ended_ns is not None:
                self.database.execute("UPDATE sessions SET ended_ns = ? WHERE session = ?", (ended_ns, self.session))
        finally:
            self.database.close()
            self._lock.release()


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows, many with one statement.

    With `executemany` this thread gives the interpreter lock away at each row, and takes it back from an event loop
    that is busy: four changes of threads for each call.
    """
    place = 0
    for many in ROWS_AT_ONCE:
        while len(rows) - place >= many:
            values = ", ".join([f"({', '.join('?' * len(rows[place]))})"] * many)
            flat = [*chain.from_iterable(rows[place : place + many])]
            database.execute(f"INSERT INTO {table} VALUES {values}", flat)  # noqa: S608 - our own names
            place += many


def no_file(path: str) -> JournalError:
    """Return the error for a path at which there is no regular file: SQLite reads no pipe."""
    what = "it is a folder" if Path(path).is_dir() else "not a regular file" if Path(path).exists() else "no such file"
    return JournalError(path, what, "name a file that `hivemind-trio serve` has written")


def vacuum_journal(path: str) -> None:
    """Rewrite the file without the room of deleted rows.

    Raises:
        JournalError: There is none, it is no journal, another process writes it, or there is no room for the copy.
    """
    if not Path(path).is_file():
        raise no_file(path)
    lock = _locked(path)
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as database:
            check_kind(path, database)
            database.execute("VACUUM")
    except sqlite3.Error as error:
        raise _of_sqlite(path, error) from None
    finally:
        lock.release()


def check_kind(path: str, database: sqlite3.Connection) -> None:
    """Raise JournalError unless this is a journal that can be read."""
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise not_a_journal(path)
    if version > VERSION:
        what = f"it is a journal of version {version}, and this hivemind-trio knows up to {VERSION}"
        raise JournalError(path, what, "use the hivemind-trio that has written it, or a newer one")


def not_a_journal(path: str) -> JournalError:
    """Return the error for a file that is not a journal."""
    return JournalError(
        path,
        "not a journal",
        "name a file that `hivemind-trio serve --journal FILE` has written, or is to make",
        damaged=True,
    )


def _prepare(path: str, database: sqlite3.Connection) -> None:
    (entries,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if entries:
        check_kind(path, database)
    else:
        # Before anything is written, or it is too late: deleted rows give their room back.
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    # Readers and the writer do not wait for each other, and a commit is one write and one fsync.
    (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise JournalError(path, f"its file system has no room for a write-ahead log ({mode})", "use a local disk")
    database.execute("PRAGMA synchronous = FULL")
    if not entries:
        database.executescript(
            f"BEGIN IMMEDIATE; {TABLES} {HISTORY} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {VERSION}; COMMIT;"
        )
    else:
        # What cannot be written is to be noticed now, not at the first call.
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        for older in range(version, VERSION):
            database.executescript(f"BEGIN IMMEDIATE; {UPGRADES[older]} PRAGMA user_version = {older + 1}; COMMIT;")


def _locked(path: str) -> FileLock:
    """Take the file's lock, which goes with the process however that ends."""
    if not Path(path).parent.is_dir():
        raise JournalError(path, "there is no such folder", f"`mkdir -p {Path(path).parent}`")
    try:
        return FileLock.take(path)
    except HeldElsewhere:
        writer = writing_process(path)
        who = f"process {writer} (another hivemind-trio)" if writer is not None else "another hivemind-trio"
        raise JournalError(
            path, f"{who} is writing it", "give each proxy a journal of its own, or stop the other"
        ) from None
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def writing_process(path: str) -> int | None:
    """Return the process that began the last session, as far as the file can be read."""
    where = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(where, uri=True, timeout=BUSY_S)) as database:
        row = database.execute("SELECT pid FROM sessions ORDER BY session DESC LIMIT 1").fetchone()
        return int(row[0]) if row is not None and row[0] is not None else None
    return None


def move_aside(path: str, wall_ns: int) -> str:
    """Rename a damaged database with all that belongs to it; return its new path."""
    aside = f"{path}.damaged-{wall_ns // 1_000_000_000}"
    os.rename(path, aside)
    for end in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(path + end, aside + end)
    return aside


def _unwritable(path: str, why: str) -> JournalError:
    return JournalError(path, f"cannot be written: {why}", "name a file in a folder that can be written to")


def _of_sqlite(path: str, error: sqlite3.Error) -> JournalError:
    if isinstance(error, sqlite3.OperationalError):
        return _unwritable(path, str(error))
    return not_a_journal(path)
