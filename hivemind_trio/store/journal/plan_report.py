"""Plans of accounts, as answers told of them."""

from __future__ import annotations

import sqlite3
from typing import Final, final

import attrs

SINCE_VERSION: Final = 5
"""Version of the journal that has the table `plans`."""


@final
@attrs.frozen(kw_only=True)
class PlanRow:
    """One window of an account's plan, as it was read last."""

    provider: str
    account: str
    """Name of the caller's credential; empty: the provider's key."""
    window: str
    """As the provider calls it."""
    span: str
    models: str
    """Word of the models that it counts; empty: all."""
    used: float
    """0 to 1."""
    read_wall_ns: int
    """When that was news, since 1970."""
    resets_wall_ns: int | None
    """When it begins anew, since 1970; None: the provider does not say."""
    overage: bool


def latest_plans(database: sqlite3.Connection) -> tuple[PlanRow, ...]:
    """Return the plan of every account, as it was read last. Of each provider the last session that has any."""
    if not _has_plans(database):
        return ()
    heads = database.execute(
        "SELECT max(rowid) FROM plans AS each WHERE session = "
        "(SELECT max(session) FROM plans WHERE provider = each.provider) GROUP BY provider, account ORDER BY 1"
    ).fetchall()
    return tuple(row for (head,) in heads for row in _reading(database, head))


def plan_at(
    database: sqlite3.Connection, session: int, provider: str, credential: str, at_ns: int
) -> tuple[PlanRow, ...]:
    """Return the plan that a call counted against, as it was known at its end.

    Args:
        credential: The caller's, as `calls` has it; the plan may be that of the provider's key instead.
        at_ns: Its end, since the session began.
    """
    if not _has_plans(database):
        return ()
    (head,) = database.execute(
        "SELECT max(rowid) FROM plans WHERE session = ? AND provider = ? AND account IN (?, '') AND at_ns <= ?",
        (session, provider, credential, at_ns),
    ).fetchone()
    return _reading(database, head) if head is not None else ()


def plan_rows(database: sqlite3.Connection, source: str = "plans") -> dict[tuple[int, int], list[sqlite3.Row]]:
    """Return the rows of readings, by session and call.

    Args:
        source: What the query reads in place of the table.
    """
    found: dict[tuple[int, int], list[sqlite3.Row]] = {}
    if _has_plans(database):
        for row in database.execute(f"SELECT plans.* FROM {source} ORDER BY plans.rowid"):  # noqa: S608 - own names
            found.setdefault((row["session"], row["call"]), []).append(row)
    return found


def _has_plans(database: sqlite3.Connection) -> bool:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version) >= SINCE_VERSION


def _reading(database: sqlite3.Connection, head: int) -> tuple[PlanRow, ...]:
    """Return the windows of the reading that a row is of."""
    rows = database.execute(
        "SELECT plans.*, sessions.began_wall_ns FROM plans JOIN plans AS head USING (session, call, at_ns, provider, "
        "account) JOIN sessions USING (session) WHERE head.rowid = ? ORDER BY plans.rowid",
        (head,),
    )
    return tuple(
        PlanRow(
            provider=row["provider"],
            account=row["account"],
            window=row["window"],
            span=row["span"],
            models=row["models"],
            used=row["used"] / 1e6,
            read_wall_ns=row["began_wall_ns"] + row["at_ns"],
            resets_wall_ns=None if row["resets_ns"] is None else row["began_wall_ns"] + row["resets_ns"],
            overage=bool(row["overage"]),
        )
        for row in rows
    )
