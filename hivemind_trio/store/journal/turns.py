"""Slot time that callers had had when calls went before another one, which waited for its turn.

Teams, or agents where they are their own team, take turns by what they have had. Calls of a higher priority, and of the
same caller, go first for other reasons.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, final

import attrs

from hivemind_trio.policy import NO_TEAM, UNKNOWN_AGENT

SPAN_NS: Final = 300 * 10**9
"""Slot time before does not count."""
FIRST_MAX: Final = 100
"""Calls that went first, the last of which are looked at."""
ROWS_MAX: Final = 20_000
LATER: Final = 1 << 62
AWAY_NS: Final = 5 * 10**9
"""A recorded arrival is that of a live call if it is no further away."""


@final
@attrs.frozen(kw_only=True)
class TurnStory:
    """Slot time when calls of others went first, on average over these calls."""

    caller: str
    """Agent, caller or team."""
    is_team: bool
    had_ns: int
    others: int
    """Number of the others whose calls went first."""
    others_ns: int
    """Slot time of one of them."""
    span_ns: int = SPAN_NS
    """Time before, in which it was had."""


@final
@attrs.frozen(kw_only=True)
class WaitingTurn:
    """A wait in a line."""

    session: int
    before_row: int
    """Row of its grant; a larger one than all if it has none."""
    from_ns: int
    until_ns: int
    provider: str
    """Or one of its accounts."""
    lane: str
    priority: int
    agent: str
    team: str
    caller: str


@final
@attrs.frozen
class _Granted:
    """An attempt."""

    at_ns: int
    end_ns: int
    priority: int
    agent: str
    team: str

    def who(self, of_teams: bool) -> str:
        """Return who is to be fair to."""
        return self.team if of_teams and self.team not in ("", NO_TEAM) else self.agent


def turn_of(database: sqlite3.Connection, waited: WaitingTurn) -> TurnStory | None:
    """Return what the caller and those before it had had; None: it had had no more than they, or nobody went first."""
    own = _Granted(waited.until_ns, waited.until_ns, waited.priority, _name(waited.agent, waited.caller), waited.team)
    granted = list(_granted(database, waited))
    first = [one for one in granted if one.at_ns > waited.from_ns and one.priority <= waited.priority]
    of_teams = any(one.who(True) != own.who(True) for one in first)
    rivals = [one for one in first if one.who(of_teams) != own.who(of_teams)][:FIRST_MAX]
    if not rivals:
        return None
    by: defaultdict[str, list[_Granted]] = defaultdict(list)
    for one in granted:
        by[one.who(of_teams)].append(one)
    name = own.who(of_teams)
    had_ns = round(fmean(_had_ns(by[name], one.at_ns) for one in rivals))
    others_ns = round(fmean(_had_ns(by[one.who(of_teams)], one.at_ns) for one in rivals))
    if had_ns <= others_ns:
        return None
    others = len({one.who(of_teams) for one in rivals})
    is_team = of_teams and own.team not in ("", NO_TEAM)
    return TurnStory(caller=name, is_team=is_team, had_ns=had_ns, others=others, others_ns=others_ns)


def live_turn(
    database: sqlite3.Connection, call: int, arrived_wall_ns: int, place: Mapping[str, Any]
) -> TurnStory | None:
    """Return the same of a call that waits; None also if its arrival is not written yet.

    Args:
        call: Number of the call.
        arrived_wall_ns: Since 1970.
        place: Fields of `WaitingTurn` that the journal does not have yet.
    """
    row = database.execute(
        "SELECT calls.session, at_ns, wall_ns, caller FROM sessions JOIN calls ON calls.session = sessions.session "
        "AND call = ? WHERE ended_ns IS NULL ORDER BY abs(wall_ns - ?) LIMIT 1",
        (call, arrived_wall_ns),
    ).fetchone()
    if row is None or abs(row["wall_ns"] - arrived_wall_ns) > AWAY_NS:
        return None
    seen = {"session": row["session"], "before_row": LATER, "from_ns": row["at_ns"], "until_ns": LATER}
    return turn_of(database, WaitingTurn(**seen, caller=row["caller"], **place))


def _granted(database: sqlite3.Connection, waited: WaitingTurn) -> Iterator[_Granted]:
    """Yield attempts in its line before it went, the latest first."""
    rows = database.execute(
        "SELECT g.*, caller, (SELECT min(ends.at_ns) FROM ends WHERE "
        "ends.session = g.session AND ends.call = g.call AND ends.attempt = g.attempt) AS end_ns "
        "FROM grants AS g NOT INDEXED JOIN calls ON calls.session = g.session AND calls.call = g.call "
        "WHERE g.rowid < ? AND g.session = ? AND lane = ? AND slot "
        "ORDER BY g.rowid DESC LIMIT ?",
        (waited.before_row, waited.session, waited.lane, ROWS_MAX),
    )
    for row in rows:
        if row["at_ns"] < waited.from_ns - SPAN_NS:
            return
        if place_of(row) != waited.provider:
            continue
        end_ns = row["end_ns"] if row["end_ns"] is not None else waited.until_ns
        yield _Granted(row["at_ns"], end_ns, row["priority"], _name(row["agent"], row["caller"]), row["team"])


def place_of(row: sqlite3.Row) -> str:
    """Return the account or provider of an attempt; a journal of an older version has no accounts."""
    return str((row["account"] if "account" in row.keys() else None) or row["provider"])  # noqa: SIM118 - a row of SQLite has no `in` by key


def _had_ns(attempts: Sequence[_Granted], at_ns: int) -> int:
    """Return the slot time of attempts that began in the span before a moment."""
    return sum(min(one.end_ns, at_ns) - one.at_ns for one in attempts if at_ns - SPAN_NS < one.at_ns < at_ns)


def _name(agent: str, caller: str) -> str:
    return caller if agent == UNKNOWN_AGENT else agent
