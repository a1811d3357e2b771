"""From the file to calls, while it is being written or after."""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar, final
from urllib.parse import quote

import attrs
import msgspec

from hivemind_trio.model import (
    Api,
    Outcome,
    PlanSpan,
    Reason,
    RecordedAttempt,
    RecordedCall,
    RecordedWindow,
    Request,
    Usage,
)
from hivemind_trio.store.journal.journal_file import BUSY_S, JournalError, check_kind, not_a_journal
from hivemind_trio.store.journal.plan_report import plan_rows

_Key = tuple[int, int]

_CALLS: Final = (
    "SELECT calls.*, coalesce(header_sets.headers, calls.headers) AS kept_headers, "
    "coalesce(header_sets.meta, calls.meta) AS kept_meta "
    "FROM calls LEFT JOIN header_sets USING (header_set) ORDER BY session, call"
)
_CALLS_5: Final = _CALLS.replace("calls.*,", "calls.*, NULL AS minute, NULL AS date,")
"""Before version 6."""
_OLD_CALLS: Final = (
    "SELECT *, headers AS kept_headers, meta AS kept_meta, NULL AS minute, NULL AS date "
    "FROM calls ORDER BY session, call"
)
"""Before version 4."""

_WORDS: Final = msgspec.json.Decoder(dict[str, str])


@final
@attrs.frozen(kw_only=True)
class CallFilter:
    """Choice of recorded calls."""

    since_ns: int = 0
    """Arrivals from then on, ns since 1970."""
    until_ns: int = 1 << 62
    """Arrivals before that."""
    agent: str | None = None
    """None: of every agent."""


ALL_CALLS: Final = CallFilter()


def read_journal(path: str, chosen: CallFilter = ALL_CALLS) -> tuple[RecordedCall, ...]:
    """Return the calls of all sessions, in the order of arrival; the first one arrives at 0.

    One session is as far behind another as the clock on the wall says; if that was put back in between, as if they had
    followed at once.

    Raises:
        JournalError: There is no such file, it is no journal, or a newer one.
    """
    return questioned(path, lambda database: tuple(_calls(database, chosen)))


T = TypeVar("T")


def questioned(path: str, question: Callable[[sqlite3.Connection], T]) -> T:
    """Return the answer of a journal, while it is being written or after. All tables are of one moment.

    Raises:
        JournalError: There is no such file, it is no journal, or a newer one.
    """
    if not Path(path).is_file():
        what = "it is a folder" if Path(path).is_dir() else "no such file"
        raise JournalError(path, what, "name a file that `hivemind-trio serve` has written")
    # Without a log beside it nobody writes it, and then SQLite need not set one up to read, and leave it behind.
    still = not _has_log(path)
    try:
        found = asked(path, question, still=still)
        return found if not (still and _has_log(path)) else asked(path, question, still=False)
    except sqlite3.OperationalError as error:
        raise JournalError(path, f"cannot be read: {error}", "see who may read it, and what lies beside it") from None
    except sqlite3.DatabaseError:
        raise not_a_journal(path) from None


def _has_log(path: str) -> bool:
    return Path(f"{os.path.realpath(path)}-wal").exists()


def asked(path: str, question: Callable[[sqlite3.Connection], T], *, still: bool) -> T:
    """Return the answer of the file as it is now; `still`: nobody writes it."""
    where = f"file:{quote(str(Path(path).absolute()))}?{'immutable=1' if still else 'mode=ro'}"
    with closing(sqlite3.connect(where, uri=True, timeout=BUSY_S, isolation_level=None)) as database:
        database.row_factory = sqlite3.Row
        check_kind(path, database)
        # One transaction, so that all tables are of the same moment.
        database.execute("BEGIN")
        return question(database)


def _calls(database: sqlite3.Connection, chosen: CallFilter) -> Iterator[RecordedCall]:
    begins = _begins(database)
    attempts = _attempts(database, begins)
    refusals = {_key(row): Reason(row["reason"]) for row in database.execute("SELECT * FROM refusals")}
    agents = _agents(database)
    answers = {
        _key(row): (row["status"], begins[row["session"]] + row["at_ns"])
        for row in database.execute("SELECT * FROM answers WHERE call IS NOT NULL")
    }
    plans = plan_rows(database)
    first_ns: int | None = None
    (version,) = database.execute("PRAGMA user_version").fetchone()
    for row in database.execute(_CALLS if version >= 6 else _CALLS_5 if version >= 4 else _OLD_CALLS):
        key = _key(row)
        if not chosen.since_ns <= row["wall_ns"] < chosen.until_ns:
            continue
        if chosen.agent is not None and agents.get(key) != chosen.agent:
            continue
        arrived_ns = begins[row["session"]] + row["at_ns"]
        first_ns = arrived_ns if first_ns is None else first_ns
        status, ended_ns = answers.get(key, (None, None))
        yield RecordedCall(
            arrived_ns=arrived_ns - first_ns,
            request=_request(row),
            caller=row["caller"],
            agent=agents.get(key, ""),
            job=row["job"],
            prefix=row["prefix"],
            credential=row["credential"] and f"{row['session']}/{row['credential']}",
            again=row["again"],
            needs_slot=bool(row["needs_slot"]),
            attempts=tuple(_moved(each, first_ns) for each in attempts.get(key, ())),
            plan=tuple(_window(row, begins, first_ns) for row in plans.get(key, ())),
            refused=refusals.get(key),
            status=status,
            ended_ns=ended_ns if ended_ns is None else ended_ns - first_ns,
        )


def _window(row: sqlite3.Row, begins: Mapping[int, int], first_ns: int) -> RecordedWindow:
    began_ns = begins[row["session"]] - first_ns
    return RecordedWindow(
        provider=row["provider"],
        of_key=not row["account"],
        span=PlanSpan(row["span"]),
        at_ns=began_ns + row["at_ns"],
        used=row["used"],
        resets_ns=None if row["resets_ns"] is None else began_ns + row["resets_ns"],
        models=row["models"],
    )


def _begins(database: sqlite3.Connection) -> dict[int, int]:
    """Session -> when it began, ns after the first; none before the one before has written its last."""
    latest = dict(
        database.execute(
            "SELECT session, max(at_ns) FROM (SELECT session, at_ns FROM calls UNION ALL SELECT session, at_ns "
            "FROM ends UNION ALL SELECT session, at_ns FROM answers) GROUP BY session"
        ).fetchall()
    )
    begins: dict[int, int] = {}
    origin_ns: int | None = None
    free_ns = 0
    for session, wall_ns in database.execute("SELECT session, began_wall_ns FROM sessions ORDER BY session"):
        origin_ns = wall_ns if origin_ns is None else origin_ns
        begins[session] = max(free_ns, wall_ns - origin_ns)
        free_ns = begins[session] + (latest.get(session) or 0)
    return begins


def _attempts(database: sqlite3.Connection, begins: Mapping[int, int]) -> dict[_Key, list[RecordedAttempt]]:
    ends = {(*_key(row), row["attempt"]): row for row in database.execute("SELECT * FROM ends")}
    models = {_key(row): row["model"] for row in database.execute("SELECT session, call, model FROM calls")}
    found: dict[_Key, list[RecordedAttempt]] = {}
    for row in database.execute("SELECT * FROM grants WHERE slot ORDER BY rowid"):
        key = _key(row)
        begin_ns = begins[row["session"]]
        attempt = RecordedAttempt(
            granted_ns=begin_ns + row["at_ns"],
            waited_ns=row["waited_ns"],
            provider=row["provider"],
            model=row["model"] or models.get(key, ""),
        )
        end = ends.get((*key, row["attempt"]))
        found.setdefault(key, []).append(attempt if end is None else _ended(attempt, end, begin_ns))
    return found


def _ended(attempt: RecordedAttempt, row: sqlite3.Row, begin_ns: int) -> RecordedAttempt:
    usage = None
    if row["tokens_out"] is not None:
        usage = Usage(
            input=row["tokens_in"],
            cache_read=row["tokens_cache_read"],
            cache_write=row["tokens_cache_write"],
            output=row["tokens_out"],
            exact=bool(row["exact"]),
        )
    return attrs.evolve(
        attempt,
        ended_ns=begin_ns + row["at_ns"],
        outcome=Outcome(row["outcome"]),
        status=row["status"],
        committed=bool(row["committed"]),
        first_byte_ns=row["first_byte_ns"],
        usage=usage,
    )


def _agents(database: sqlite3.Connection) -> dict[_Key, str]:
    """Return the agent of each call, by the latest record."""
    refused = database.execute("SELECT session, call, agent FROM refusals WHERE agent IS NOT NULL")
    found = {_key(row): row["agent"] for row in refused}
    for row in database.execute("SELECT session, call, agent FROM grants ORDER BY rowid"):
        found[_key(row)] = row["agent"]
    return found


def _request(row: sqlite3.Row) -> Request:
    return Request(
        apis=tuple(Api(each) for each in row["apis"].split()),
        token_agent=row["token_agent"],
        claimed=row["claimed"],
        model=row["model"],
        method=row["method"],
        path=row["path"],
        stream=bool(row["stream"]),
        tools=bool(row["tools"]),
        images=bool(row["images"]),
        tokens_in=row["tokens_in"],
        tokens_max_out=row["tokens_max_out"],
        cost_microusd=row["cost_microusd"],
        hour=row["hour"],
        minute=row["minute"] or 0,
        weekday=row["weekday"],
        date=row["date"] or "",
        headers=_words(row["kept_headers"]),
        meta=_words(row["kept_meta"]),
    )


@functools.lru_cache(maxsize=4_096)
def _words(text: str) -> Mapping[str, str]:
    """Return the words of an agent's calls; calls with equal words share one value."""
    return MappingProxyType(_WORDS.decode(text))


def _key(row: sqlite3.Row) -> _Key:
    return row["session"], row["call"]


def _moved(attempt: RecordedAttempt, by_ns: int) -> RecordedAttempt:
    ended_ns = attempt.ended_ns
    return attrs.evolve(
        attempt, granted_ns=attempt.granted_ns - by_ns, ended_ns=None if ended_ns is None else ended_ns - by_ns
    )
