"""The file: opened once and by one writer, whoever else reads it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, final

import attrs

from .tables import APPLICATION_ID, HISTORY, TABLES, UPGRADES, VERSION

BUSY_S: Final = 5.0
"""Time to wait for a reader that holds a lock. What cannot be written then is tried again."""

# They are numbered from 1 in each session; to count them would be to read the whole file.
_CALLS: Final = (
    "SELECT coalesce(sum((SELECT max(call) FROM calls WHERE calls.session = sessions.session)), 0) FROM sessions"
)

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""Table -> its new rows."""


@final
class JournalError(Exception):
    """A file that cannot be used as a journal; `help` says what to do instead."""

    def __init__(self, path: str, what: str, help: str) -> None:  # noqa: A002 - the word of every other diagnostic
        super().__init__(f"{path}: {what}")
        self.what = what
        self.help = help


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
    _lock: int = attrs.field(repr=False)
    _database: sqlite3.Connection = attrs.field(repr=False)

    @classmethod
    def open(cls, path: str) -> Self:
        """Open it, and make it if there is none.

        Raises:
            JournalError: It is no journal, another process writes it, or it cannot be written.
        """
        lock = _locked(path)
        try:
            # Made here so that it is nobody else's to read; what SQLite puts beside it has the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                _prepare(path, database)
                (session,) = database.execute("SELECT coalesce(max(session), 0) + 1 FROM sessions").fetchone()
                (calls,) = database.execute(_CALLS).fetchone()
                (decided,) = database.execute("SELECT coalesce(max(decided), 0) FROM deciders").fetchone()
            except BaseException:
                database.close()
                raise
        except OSError as error:
            _unlock(path, lock)
            raise _unwritable(path, error.strerror or str(error)) from None
        except sqlite3.Error as error:
            _unlock(path, lock)
            raise _of_sqlite(path, error) from None
        except BaseException:
            _unlock(path, lock)
            raise
        return cls(path, session, calls, decided, lock, database)

    def write(self, rows: Rows) -> None:
        """Add rows, all of them or none.

        Raises:
            sqlite3.Error: It cannot be done now.
        """
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            for table, new in rows.items():
                if new:
                    places = ", ".join("?" * len(new[0]))
                    database.executemany(f"INSERT INTO {table} VALUES ({places})", new)  # noqa: S608 - our own names
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def close(self, ended_ns: int | None) -> None:
        """Say when the session ended, if it could be written to its end, and let go of the file."""
        try:
            if ended_ns is not None:
                self._database.execute("UPDATE sessions SET ended_ns = ? WHERE session = ?", (ended_ns, self.session))
        finally:
            self._database.close()
            _unlock(self.path, self._lock)


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
        path, "not a journal", "name a file that `hivemind-trio serve --journal FILE` has written, or is to make"
    )


def _prepare(path: str, database: sqlite3.Connection) -> None:
    (entries,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if entries:
        check_kind(path, database)
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


def _lock_path(path: str) -> str:
    # Of the file itself, by whichever of its names it is called: two writers would not know of each other.
    return f"{os.path.realpath(path)}.lock"


def _locked(path: str) -> int:
    """Take the file's lock, which goes with the process however that ends."""
    beside = _lock_path(path)
    if not Path(path).parent.is_dir():
        raise JournalError(path, "there is no such folder", f"`mkdir -p {Path(path).parent}`")
    while True:
        try:
            lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(path, error.strerror or str(error)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == Path(beside).stat().st_ino:
                return lock
            os.close(lock)  # whoever had it has taken it away with them
        except FileNotFoundError:
            os.close(lock)
        except BlockingIOError:
            os.close(lock)
            raise JournalError(
                path, "another hivemind-trio is writing it", "give each proxy a journal of its own, or stop the other"
            ) from None
        except OSError as error:
            os.close(lock)
            raise _unwritable(path, error.strerror or str(error)) from None


def _unlock(path: str, lock: int) -> None:
    # Taken away while it is still held: whoever opens it in between finds that it is not there any more.
    Path(_lock_path(path)).unlink(missing_ok=True)
    os.close(lock)


def _unwritable(path: str, why: str) -> JournalError:
    return JournalError(path, f"cannot be written: {why}", "name a file in a folder that can be written to")


def _of_sqlite(path: str, error: sqlite3.Error) -> JournalError:
    if isinstance(error, sqlite3.OperationalError):
        return _unwritable(path, str(error))
    return not_a_journal(path)
