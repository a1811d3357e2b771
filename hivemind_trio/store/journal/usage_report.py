"""Usage: calls, tokens, money and waits of a journal, added up by something."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final, final

import attrs

KEYS: Final = ("agent", "team", "model", "provider", "lane", "session", "day", "hour", "status", "reason")


_CALLS: Final = (
    "SELECT calls.session, calls.call, calls.wall_ns, calls.model, calls.job, answers.agent AS answer_agent, "
    "answers.status, answers.refused, answers.reason, answers.lane AS answer_lane, "
    "coalesce(answers.waited_ns, 0) AS waited_ns FROM calls LEFT JOIN answers ON answers.session = calls.session "
    "AND answers.call = calls.call"
)
_GRANTS: Final = (
    "SELECT grants.session, grants.call, agent, team, grants.model, provider, lane "
    "FROM calls CROSS JOIN grants ON grants.session = calls.session AND grants.call = calls.call"
)
_ENDS: Final = "FROM calls CROSS JOIN ends ON ends.session = calls.session AND ends.call = calls.call"
_WITHIN: Final = "WHERE calls.wall_ns >= ? AND calls.wall_ns < ? ORDER BY calls.session, calls.call"


@final
@attrs.define(kw_only=True)
class UsageRow:
    """Sums of the calls with one key."""

    key: str
    calls: int = 0
    rejected: int = 0
    """Answered by the proxy with a rejection."""
    failed: int = 0
    """Other answers of 400 and above, and calls whose client disconnected."""
    attempts: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    cost_microusd: int = 0
    unpriced: int = 0
    """Attempts whose cost is not known."""
    waits_ns: list[int] = attrs.field(factory=list, repr=False)

    @property
    def waited_ns(self) -> int:
        """Sum of all waits."""
        return sum(self.waits_ns)

    def wait_quantile_ns(self, share: float) -> int:
        """Return the wait that such a share of the calls did not exceed."""
        if not self.waits_ns:
            return 0
        ordered = sorted(self.waits_ns)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def usage_by(
    database: sqlite3.Connection, key: str, since_ns: int | None, until_ns: int | None, zone: tzinfo = UTC
) -> tuple[UsageRow, ...]:
    """Return the sums by one of `KEYS`, the most expensive first; days and hours in their order.

    Args:
        since_ns: Arrivals from then on, ns since 1970; None: from the first.
        until_ns: Arrivals before that; None: to the last.
        zone: Of days and hours.
    """
    key_of = _key(key, zone)
    rows: dict[str, UsageRow] = {}
    given = since_ns or 0, until_ns if until_ns is not None else 1 << 62
    # Each in the order of calls, and read side by side: a query for each call would take several times as long.
    (version,) = database.execute("PRAGMA user_version").fetchone()
    every_end = f"SELECT ends.*, {'ends.cost_microusd' if version >= 3 else 'NULL'} AS cost {_ENDS}"
    grants, ends = (_Rows(database.execute(f"{query} {_WITHIN}", given)) for query in (_GRANTS, every_end))
    for call in database.execute(f"{_CALLS} {_WITHIN}", given):
        granted = grants.of(call)
        name = key_of(call, granted[-1] if granted else None)
        row = rows.get(name)
        if row is None:
            row = rows[name] = UsageRow(key=name)
        row.calls += 1
        row.waits_ns.append(call["waited_ns"])
        if call["refused"]:
            row.rejected += 1
        elif call["status"] is not None and (call["status"] >= 400 or call["status"] == 0):
            row.failed += 1
        for end in ends.of(call):
            _add(row, end)
    if key in ("day", "hour"):
        return tuple(sorted(rows.values(), key=lambda row: row.key))
    return tuple(sorted(rows.values(), key=lambda row: (-row.cost_microusd, -row.input - row.output, row.key)))


@final
class _Rows:
    """Rows of calls, in the order of the calls."""

    def __init__(self, cursor: Iterator[sqlite3.Row]) -> None:
        self._cursor = cursor
        self._next = next(cursor, None)

    def of(self, call: sqlite3.Row) -> list[sqlite3.Row]:
        """Return the rows of the next call."""
        found: list[sqlite3.Row] = []
        row = self._next
        while row is not None and row["call"] == call["call"] and row["session"] == call["session"]:
            found.append(row)
            row = next(self._cursor, None)
        self._next = row
        return found


def _add(row: UsageRow, end: sqlite3.Row) -> None:
    row.attempts += 1
    if end["tokens_out"] is None:
        return
    row.input += end["tokens_in"] or 0
    row.cache_read += end["tokens_cache_read"] or 0
    row.cache_write += end["tokens_cache_write"] or 0
    row.output += end["tokens_out"]
    cost = end["cost"]
    if cost is None:
        row.unpriced += 1
    else:
        row.cost_microusd += cost


def _key(key: str, zone: tzinfo) -> Callable[[sqlite3.Row, sqlite3.Row | None], str]:
    def at(call: sqlite3.Row) -> datetime:
        return datetime.fromtimestamp(call["wall_ns"] / 1e9, zone)

    keys: dict[str, Callable[[sqlite3.Row, sqlite3.Row | None], str]] = {
        "agent": lambda call, grant: grant["agent"] if grant is not None else call["answer_agent"] or "unknown",
        "team": lambda call, grant: grant["team"] if grant is not None else "none",
        "model": lambda call, grant: (grant["model"] if grant is not None else None) or call["model"] or "none",
        "provider": lambda call, grant: grant["provider"] if grant is not None else "none",
        "lane": lambda call, grant: grant["lane"] if grant is not None else call["answer_lane"] or "none",
        "session": lambda call, grant: call["job"] or "none",
        "day": lambda call, grant: at(call).strftime("%Y-%m-%d"),
        "hour": lambda call, grant: at(call).strftime("%Y-%m-%d %H:00"),
        "status": lambda call, grant: "none" if call["status"] is None else str(call["status"]),
        "reason": lambda call, grant: call["reason"] or "none",
    }
    return keys[key]
