"""Usage: calls, tokens, money and waits of a journal, added up by something.

SQLite adds up: a line of Python for each call would take five times as long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Final, final

import attrs

_AT: Final = "calls.wall_ns / 900000000000"
"""Quarter of an hour of an arrival: days and hours of every time zone are made of them."""

_KEY_OF: Final = {
    "agent": "CASE WHEN grants.agent IS NULL THEN nullif(answers.agent, '') ELSE grants.agent END",
    "team": "grants.team",
    "model": "coalesce(nullif(grants.model, ''), nullif(calls.model, ''))",
    "provider": "coalesce(grants.account, grants.provider)",
    "lane": "CASE WHEN grants.lane IS NULL THEN nullif(answers.lane, '') ELSE grants.lane END",
    "session": "nullif(calls.job, '')",
    "caller": "nullif(calls.caller, '')",
    "credential": "nullif(calls.credential, '')",
    "day": _AT,
    "hour": _AT,
    "status": "answers.status",
    "reason": "nullif(answers.reason, '')",
}
"""Key -> its value for a call and its last grant."""

KEYS: Final = tuple(_KEY_OF)

_NONE: Final = {"agent": "unknown"}
"""Key -> word for calls without one, where that is not `none`."""

_OF_CALL: Final = """
    FROM calls
    LEFT JOIN answers ON answers.session = calls.session AND answers.call = calls.call
    LEFT JOIN grants ON grants.rowid =
        (SELECT max(rowid) FROM grants AS each WHERE each.session = calls.session AND each.call = calls.call)
"""
_TOKENS: Final = """
    count(ends.session),
    total(CASE WHEN ends.tokens_out IS NOT NULL THEN ends.tokens_in END), total(ends.tokens_cache_read),
    total(ends.tokens_cache_write), total(ends.tokens_out),
    total(CASE WHEN ends.tokens_out IS NOT NULL THEN {cost} END),
    count(CASE WHEN ends.tokens_out IS NOT NULL AND {cost} IS NULL THEN 1 END)
"""
_REJECTED: Final = "coalesce(answers.refused, 0)"
_WITHIN: Final = "WHERE calls.wall_ns >= ? AND calls.wall_ns < ?"

# Nearly every call has one attempt: it is joined, and others are found by one look at all ends.
_FIRST: Final = f"""
    SELECT {{key}}, {_REJECTED}, CASE WHEN {_REJECTED} THEN 0 ELSE coalesce(answers.waited_ns, 0) / 1000000 END,
        count(*), count(CASE WHEN answers.status >= 400 OR answers.status = 0 THEN 1 END),
        total(answers.waited_ns), {_TOKENS}
    {_OF_CALL}
    LEFT JOIN ends ON ends.session = calls.session AND ends.call = calls.call AND ends.attempt = 1
    {_WITHIN} GROUP BY 1, 2, 3
"""
_FURTHER: Final = f"""
    SELECT {{key}}, {_TOKENS}
    {_OF_CALL.replace("FROM calls", "FROM ends CROSS JOIN calls USING (session, call)")}
    {_WITHIN} AND ends.attempt <> 1 GROUP BY 1
"""


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
    waited_ns: int = 0
    """Sum of the waits of calls that were not rejected."""
    waits_ms: dict[int, int] = attrs.field(factory=dict, repr=False)
    """Wait in whole milliseconds -> number of such calls that waited so long."""

    def wait_quantile_ns(self, share: float) -> int:
        """Return the wait that such a share of the calls that were not rejected did not exceed; 0 if there is none."""
        calls = sum(self.waits_ms.values())
        place = min(calls - 1, int(share * calls))
        for wait_ms in sorted(self.waits_ms):
            place -= self.waits_ms[wait_ms]
            if place < 0:
                return wait_ms * 1_000_000
        return 0

    def spend(self, attempts: int, *amounts: float) -> None:
        """Add attempts with their tokens and their cost."""
        tokens_in, cache_read, cache_write, output, cost_microusd, unpriced = map(int, amounts)
        self.attempts += attempts
        self.input += tokens_in
        self.cache_read += cache_read
        self.cache_write += cache_write
        self.output += output
        self.cost_microusd += cost_microusd
        self.unpriced += unpriced


def usage_by(
    database: sqlite3.Connection, key: str, since_ns: int | None, until_ns: int | None, zone: tzinfo = UTC
) -> tuple[UsageRow, ...]:
    """Return the sums by one of `KEYS`, the most expensive first; days and hours in their order.

    Args:
        since_ns: Arrivals from then on, ns since 1970; None: from the first.
        until_ns: Arrivals before that; None: to the last.
        zone: Of days and hours.
    """
    word_of = _word_of(key, zone)
    rows: dict[str, UsageRow] = {}

    def row_of(value: str | int | None) -> UsageRow:
        word = word_of(value)
        return rows.setdefault(word, UsageRow(key=word))

    given = since_ns or 0, until_ns if until_ns is not None else 1 << 62
    (version,) = database.execute("PRAGMA user_version").fetchone()
    of = "grants.provider" if key == "provider" and version < 9 else _KEY_OF[key]
    values = {"key": of, "cost": "ends.cost_microusd" if version >= 3 else "NULL"}
    for value, is_rejected, wait_ms, calls, failed, waited_ns, *spent in database.execute(
        _FIRST.format_map(values), given
    ):
        row = row_of(value)
        row.calls += calls
        row.spend(*spent)
        if is_rejected:
            row.rejected += calls
            continue
        row.failed += failed
        row.waited_ns += int(waited_ns)
        row.waits_ms[wait_ms] = row.waits_ms.get(wait_ms, 0) + calls
    for value, *spent in database.execute(_FURTHER.format_map(values), given):
        row_of(value).spend(*spent)
    if key in ("day", "hour"):
        return tuple(sorted(rows.values(), key=lambda row: row.key))
    return tuple(sorted(rows.values(), key=lambda row: (-row.cost_microusd, -row.input - row.output, row.key)))


def _word_of(key: str, zone: tzinfo) -> Callable[[str | int | None], str]:
    none = _NONE.get(key, "none")
    shape = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d %H:00"}.get(key)

    def word(value: str | int | None) -> str:
        if shape is not None and isinstance(value, int):
            return datetime.fromtimestamp(value * 900, zone).strftime(shape)
        return none if value is None else str(value)

    return word
