"""From the file to calls, while it is being written or after."""

from __future__ import annotations

import functools
import math
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar, final
from urllib.parse import quote

import attrs
import msgspec

from hivemind_trio.model import (
    Api,
    CountedBy,
    Outcome,
    PlanSpan,
    Reason,
    RecordedAttempt,
    RecordedCall,
    RecordedWindow,
    Request,
    Usage,
)
from hivemind_trio.model.addresses import LOOPBACK, address_number
from hivemind_trio.store.journal.journal_file import BUSY_S, JournalError, check_kind, no_file, not_a_journal
from hivemind_trio.store.journal.plan_report import plan_rows

_Key = tuple[int, int]

_CALLS: Final = (
    "SELECT calls.*, coalesce(header_sets.headers, calls.headers) AS kept_headers, "
    "coalesce(header_sets.meta, calls.meta) AS kept_meta FROM {calls} LEFT JOIN header_sets USING (header_set) "
    "ORDER BY calls.session, calls.call"
)
_CALLS_9: Final = _CALLS.replace("calls.*,", "calls.*, NULL AS tokens_counted, NULL AS counted_by,")
"""Before version 10."""
_CALLS_7: Final = _CALLS_9.replace("calls.*,", "calls.*, NULL AS client_address,")
"""Before version 8."""
_CALLS_5: Final = _CALLS_7.replace("calls.*,", "calls.*, NULL AS minute, NULL AS date,")
"""Before version 6."""
_CALLS_3: Final = (
    "SELECT calls.*, calls.headers AS kept_headers, calls.meta AS kept_meta, NULL AS minute, NULL AS date, "
    "NULL AS client_address, NULL AS tokens_counted, NULL AS counted_by FROM {calls} ORDER BY calls.session, calls.call"
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
    newest: int | None = None
    """At most so many, the newest, before `agent` chooses; None: all."""

    @property
    def is_bounded(self) -> bool:
        """True if the time or the number of a call may leave it out."""
        return self.newest is not None or (self.since_ns, self.until_ns) != (0, 1 << 62)


ALL_CALLS: Final = CallFilter()


def read_journal(path: str, chosen: CallFilter = ALL_CALLS) -> tuple[RecordedCall, ...]:
    """Return the calls of all sessions, in the order of arrival; the first one arrives at 0.

    One session is as far behind another as the clock on the wall says; if that was put back in between, as if they had
    followed at once. Those of several workers are of the same time.

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
        raise no_file(path)
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


@final
@attrs.frozen
class _Rows:
    """Rows of some calls, or of all."""

    database: sqlite3.Connection
    are_chosen: bool
    """False: of all."""

    def source(self, table: str) -> str:
        """Return what a query reads in place of a table."""
        # The order of a CROSS JOIN is kept: of a large journal nothing but the chosen calls is touched.
        return f"temp.chosen CROSS JOIN {table} USING (session, call)" if self.are_chosen else table

    def of(self, table: str, rest: str = "") -> sqlite3.Cursor:
        """Return the rows of a table."""
        return self.database.execute(f"SELECT {table}.* FROM {self.source(table)} {rest}")  # noqa: S608 - own names


def _chosen(database: sqlite3.Connection, chosen: CallFilter) -> _Rows:
    """Return the rows of the calls that their times choose; the index of times finds them."""
    if not chosen.is_bounded:
        return _Rows(database, are_chosen=False)
    database.execute("CREATE TEMP TABLE chosen (session, call, PRIMARY KEY (session, call)) WITHOUT ROWID")
    database.execute(
        "INSERT INTO temp.chosen SELECT session, call FROM calls WHERE wall_ns >= ? AND wall_ns < ? "
        "ORDER BY wall_ns DESC LIMIT ?",
        (chosen.since_ns, chosen.until_ns, -1 if chosen.newest is None else chosen.newest),
    )
    return _Rows(database, are_chosen=True)


def _calls(database: sqlite3.Connection, chosen: CallFilter) -> list[RecordedCall]:
    rows = _chosen(database, chosen)
    begins = _begins(rows)
    agents = _agents(rows)
    (version,) = database.execute("PRAGMA user_version").fetchone()
    found = [
        row
        for row in database.execute(_calls_of(version).format(calls=rows.source("calls")))
        if chosen.agent is None or agents.get(_key(row)) == chosen.agent
    ]
    if not found:
        return []
    # Sessions of several workers are of the same time.
    found.sort(key=lambda row: begins[row["session"]] + row["at_ns"])
    first_ns = begins[found[0]["session"]] + found[0]["at_ns"]
    begins = {session: began_ns - first_ns for session, began_ns in begins.items()}
    refusals = {_key(row): Reason(row["reason"]) for row in rows.of("refusals")}
    answers = {_key(row): row for row in rows.of("answers", "WHERE answers.call IS NOT NULL")}
    attempts, plans = _attempts(rows, begins), plan_rows(database, rows.source("plans"))

    def call(row: sqlite3.Row) -> RecordedCall:
        key, began_ns = _key(row), begins[row["session"]]
        answer = answers.get(key)
        return RecordedCall(
            arrived_ns=began_ns + row["at_ns"],
            request=_request(row),
            caller=row["caller"],
            agent=agents.get(key, ""),
            job=row["job"],
            prefix=row["prefix"],
            credential=row["credential"],
            again=row["again"],
            needs_slot=bool(row["needs_slot"]),
            attempts=tuple(attempts.get(key, ())),
            plan=tuple(_window(window, began_ns) for window in plans.get(key, ())),
            refused=refusals.get(key),
            status=None if answer is None else answer["status"],
            ended_ns=None if answer is None else began_ns + answer["at_ns"],
        )

    return [call(row) for row in found]


def _calls_of(version: int) -> str:
    """Return the query for the calls of a journal of a version."""
    last = {3: _CALLS_3, 5: _CALLS_5, 7: _CALLS_7, 9: _CALLS_9}
    return next((query for until, query in last.items() if version <= until), _CALLS)


def _window(row: sqlite3.Row, began_ns: int) -> RecordedWindow:
    return RecordedWindow(
        provider=row["provider"],
        of_key=not row["account"],
        span=PlanSpan(row["span"]),
        at_ns=began_ns + row["at_ns"],
        used=row["used"],
        resets_ns=None if row["resets_ns"] is None else began_ns + row["resets_ns"],
        models=row["models"],
    )


@final
@attrs.frozen
class _SessionSpan:
    """Extent of a session, from its begin."""

    first_ns: int
    """Its first arrival."""
    last_ns: int
    """Its last arrival."""
    ended_ns: int
    """Last thing that is known of its calls."""
    first_row: float
    """Place of its first answer among those of all sessions, in the order of writing."""
    last_row: float


def _begins(rows: _Rows) -> dict[int, int]:
    """Session -> when it began, ns after the first, by the clock on the wall. Only sessions with calls.

    Where the clock was put back, a session follows at once on the one that was over before it.
    """
    walls = dict(rows.database.execute("SELECT session, began_wall_ns FROM sessions").fetchall())
    spans = _spans(rows)
    begins: dict[int, int] = {}
    for session, span in spans.items():
        begin_ns = walls[session] - walls[next(iter(spans))]
        for earlier, began_ns in begins.items():
            other = spans[earlier]
            was_over = other.last_row < span.first_row
            if was_over and begin_ns + span.first_ns < began_ns + other.last_ns:
                begin_ns = max(begin_ns, began_ns + other.ended_ns)
        begins[session] = begin_ns
    return begins


def _spans(rows: _Rows) -> dict[int, _SessionSpan]:
    """Return the extents of sessions with calls, in the order of sessions."""

    def grouped(columns: str, table: str) -> dict[int, tuple[int, ...]]:
        query = f"SELECT {table}.session, {columns} FROM {rows.source(table)} GROUP BY {table}.session"  # noqa: S608 - names of our own tables
        return {row[0]: tuple(row)[1:] for row in rows.database.execute(query)}

    arrivals = grouped("min(calls.at_ns), max(calls.at_ns)", "calls")
    ends = grouped("max(ends.at_ns)", "ends")
    answers = grouped("max(answers.at_ns), min(answers.rowid), max(answers.rowid)", "answers")
    found = {}
    for session, (first_ns, last_ns) in sorted(arrivals.items()):
        answered_ns, *written = answers.get(session, (0, math.inf, -math.inf))
        ended_ns = max(last_ns, answered_ns, *ends.get(session, ()))
        found[session] = _SessionSpan(first_ns, last_ns, ended_ns, *written)
    return found


def _attempts(rows: _Rows, begins: Mapping[int, int]) -> dict[_Key, list[RecordedAttempt]]:
    ends = {(*_key(row), row["attempt"]): row for row in rows.of("ends")}
    query = f"SELECT calls.session, calls.call, calls.model FROM {rows.source('calls')}"  # noqa: S608 - own names
    models = {_key(row): row["model"] for row in rows.database.execute(query)}
    found: dict[_Key, list[RecordedAttempt]] = {}
    for row in rows.of("grants", "WHERE grants.slot ORDER BY grants.rowid"):
        key = _key(row)
        if key not in models:
            continue  # of a call that was deleted
        begin_ns = begins[row["session"]]
        attempt = RecordedAttempt(
            granted_ns=begin_ns + row["at_ns"],
            waited_ns=row["waited_ns"],
            provider=row["provider"],
            model=row["model"] or models[key],
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


def _agents(rows: _Rows) -> dict[_Key, str]:
    """Return the agent of each call, by the latest record."""
    found = {_key(row): row["agent"] for row in rows.of("refusals", "WHERE refusals.agent IS NOT NULL")}
    for row in rows.of("grants", "ORDER BY grants.rowid"):
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
        tokens_counted=row["tokens_counted"] or 0,
        counted_by=CountedBy(row["counted_by"]) if row["counted_by"] else None,
        tokens_max_out=row["tokens_max_out"],
        cost_microusd=row["cost_microusd"],
        hour=row["hour"],
        minute=row["minute"] or 0,
        weekday=row["weekday"],
        date=row["date"] or "",
        client_address=_address(row["client_address"]),
        headers=_words(row["kept_headers"]),
        meta=_words(row["kept_meta"]),
    )


def _address(text: str | None) -> int:
    number = None if text is None else address_number(text)
    return LOOPBACK if number is None else number


@functools.lru_cache(maxsize=4_096)
def _words(text: str) -> Mapping[str, str]:
    """Return the words of an agent's calls; calls with equal words share one value."""
    return MappingProxyType(_WORDS.decode(text))


def _key(row: sqlite3.Row) -> _Key:
    return row["session"], row["call"]
