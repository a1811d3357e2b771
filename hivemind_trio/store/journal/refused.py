"""Attempts that a provider refused for its limits, about the time of one call."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome

from .turns import place_of

SPAN_NS: Final = 300 * 10**9
"""Refusals longer before the call's arrival do not count."""
ROWS_MAX: Final = 20_000

REFUSED: Final = frozenset(
    {Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST, Outcome.CONCURRENCY, Outcome.OVERLOADED, Outcome.TERMINAL}
)
"""Outcomes by which a provider says that it takes no more."""


@final
@attrs.frozen(kw_only=True)
class RefusedStory:
    """Attempts that the provider of a call refused, of this call and of others."""

    provider: str
    """Without its account."""
    outcome: str
    """The most frequent one of those that were refused."""
    status: int
    """Status of the latest of these."""
    refused: int
    attempts: int
    """All that ended in that time."""
    span_ns: int = SPAN_NS
    """Time before the call arrived, from which on they count."""


def refused_about(
    database: sqlite3.Connection, call: tuple[int, int], provider: str, lane: str, from_ns: int, until_ns: int
) -> RefusedStory | None:
    """Return the refusals of the provider of a call; None: there was none.

    Args:
        call: Session and number.
        provider: Or one of its accounts; empty: the call was never sent, and that of its lane which refused most is it.
        lane: Lane of the call.
        from_ns: Arrival of the call.
        until_ns: Its end.
    """
    attempts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    outcomes: Counter[tuple[str, str]] = Counter()
    status: dict[tuple[str, str], int] = {}
    wanted = _declared(provider)
    for row in _ended(database, call):
        if row["at_ns"] < from_ns - SPAN_NS:
            break
        name = _declared(place_of(row))
        if row["at_ns"] > until_ns or (name != wanted if wanted else row["lane"] != lane):
            continue
        attempts[name] += 1
        if row["outcome"] in REFUSED:
            refused[name] += 1
            outcomes[name, row["outcome"]] += 1
            status.setdefault((name, row["outcome"]), row["status"])
    if not refused:
        return None
    name, count = refused.most_common(1)[0]
    most = max((one for one in outcomes if one[0] == name), key=outcomes.__getitem__)
    return RefusedStory(provider=name, outcome=most[1], status=status[most], refused=count, attempts=attempts[name])


def _declared(provider: str) -> str:
    return provider.partition(".")[0]


def _ended(database: sqlite3.Connection, call: tuple[int, int]) -> Iterator[sqlite3.Row]:
    """Yield attempts that had ended by about the time at which a call was over, the latest first."""
    # Rows are in the order of time. A call that was never sent has none; the next that has was over later.
    last = database.execute(
        "SELECT rowid FROM ends WHERE session = ? AND call >= ? ORDER BY call, rowid DESC LIMIT 1", call
    ).fetchone()
    yield from database.execute(
        "SELECT e.at_ns, e.outcome, e.status, g.* FROM ends AS e NOT INDEXED JOIN grants AS g "
        "ON g.session = e.session AND g.call = e.call AND g.attempt = e.attempt "
        "WHERE e.rowid <= ? AND e.session = ? AND g.slot ORDER BY e.rowid DESC LIMIT ?",
        (last["rowid"] if last is not None else 1 << 62, call[0], ROWS_MAX),
    )
