"""The story of one call, as the journal tells it."""

from __future__ import annotations

import sqlite3
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.scheduler import SessionFacts
from hivemind_trio.store.journal.plan_report import PlanRow, plan_at
from hivemind_trio.store.journal.refused import RefusedStory, refused_about
from hivemind_trio.store.journal.rows import INT_MAX
from hivemind_trio.store.journal.turns import TurnStory, WaitingTurn, place_of, turn_of

_words: Final = msgspec.json.Decoder(dict[str, str])


@final
@attrs.frozen(kw_only=True)
class AttemptStory:
    """One attempt upstream. Times are in ns."""

    number: int
    provider: str
    model: str
    """As it was sent."""
    instead_of: str | None
    """The provider that it should have gone to; None: it went there."""
    lane: str
    priority: int
    budgets: tuple[str, ...]
    reason: str
    """Limit that it waited for last."""
    waited_ns: int
    """For this attempt."""
    granted_ns: int
    """Since the call arrived."""
    lasted_ns: int | None
    """None: its end is not recorded."""
    outcome: str | None
    status: int
    failure: str | None
    first_byte_ns: int | None
    retry_after_ns: int | None
    tokens: dict[str, int] | None
    """Input, cache_read, cache_write and output; None: unknown."""
    cost_microusd: int | None
    unretried: str | None = None
    """Why it failed and was the last; None: it did not, or was not, or the journal is of an older version."""
    turn: TurnStory | None = None
    """Slot time of its caller, if it waited for its turn; None: it did not, or had had no more than others."""


@final
@attrs.frozen(kw_only=True)
class CallStory:
    """One call. Times are in ns."""

    name: str
    """As in `x-hivemind-call`; empty: it has had no answer yet."""
    wall_ns: int
    """Arrival, since 1970."""
    method: str
    path: str
    model: str
    stream: bool
    tokens_in: int
    tokens_counted: int | None
    """Input as it was counted before it was sent; None: it was not, or the journal is of an older version."""
    counted_by: str | None
    tokens_max_out: int
    agent: str
    caller: str
    job: str
    team: str
    lane: str
    policy: str
    """Hash of the policy that decided."""
    deciders: dict[str, str]
    """Setting -> who decided it; empty: not recorded, as of a call whose turn never came."""
    attempts: tuple[AttemptStory, ...]
    refused: str | None
    """Reason of the proxy's own rejection; None: there was none."""
    message: str | None
    left_ns: int | None
    """When the client disconnected while the call waited, since its arrival; None: it did not."""
    status: int | None
    """Status that the client got; 0: it disconnected; None: there is no answer yet."""
    waited_ns: int
    """In all."""
    total_ns: int | None
    """From arrival to the end of the answer."""
    reason: str
    """Limit that it waited for last, or of its rejection."""
    session: SessionFacts | None = None
    """Its client's session when the call arrived; None: it is of none, or the journal is of an older version."""
    refusals: RefusedStory | None = None
    """Attempts of any call that its provider refused about its time; None: it refused none."""
    plan: tuple[PlanRow, ...] = ()
    """Plan of the account that it was sent with, as it was known when it ended; empty: no answer told of one."""


def story_named(database: sqlite3.Connection, name: str) -> CallStory | None:
    """Return the call with this `x-hivemind-call`; None: there is none that the scheduler knew."""
    row = database.execute(
        "SELECT session, call FROM answers WHERE name = ? AND call IS NOT NULL ORDER BY session DESC", (name,)
    ).fetchone()
    return _story(database, row["session"], row["call"]) if row is not None else None


def turned_away(database: sqlite3.Connection, name: str) -> str | None:
    """Return what is known of a request that was refused before it was a call; None: there is none of this name."""
    row = database.execute(
        "SELECT method, path, status, reason FROM answers WHERE name = ? AND call IS NULL ORDER BY rowid DESC", (name,)
    ).fetchone()
    if row is None:
        return None
    request = f"{row['method']} {row['path']}".strip() or "a request that could not be read"
    return f"{request}: answered with {row['status']} ({row['reason']}) before it was a call"


def latest_story(database: sqlite3.Connection, agent: str | None) -> CallStory | None:
    """Return the call that was answered last; of one agent, if it is named."""
    if agent is None:
        where, given = "call IS NOT NULL", ()
    else:
        where, given = "call IS NOT NULL AND agent = ?", (agent,)  # type: ignore[assignment]
    row = database.execute(
        f"SELECT session, call FROM answers WHERE {where} ORDER BY rowid DESC LIMIT 1",  # noqa: S608 - our own words
        given,
    ).fetchone()
    return _story(database, row["session"], row["call"]) if row is not None else None


def slowest_stories(
    database: sqlite3.Connection, since_ns: int, agent: str | None, number: int
) -> tuple[CallStory, ...]:
    """Return the calls that waited longest since a moment on the wall clock, the longest first."""
    rows = database.execute(
        "SELECT answers.session, answers.call FROM calls JOIN answers ON answers.session = calls.session "
        "AND answers.call = calls.call WHERE calls.wall_ns >= ? AND (? IS NULL OR answers.agent = ?) "
        "ORDER BY answers.waited_ns DESC LIMIT ?",
        (since_ns, agent, agent, number),
    ).fetchall()
    return tuple(_story(database, row["session"], row["call"]) for row in rows)


def _story(database: sqlite3.Connection, session: int, call: int) -> CallStory:
    key = (session, call)

    def row_of(table: str) -> dict[str, Any]:
        found = database.execute(
            f"SELECT * FROM {table} WHERE session = ? AND call = ? ORDER BY rowid DESC LIMIT 1"  # noqa: S608 - our names
            if table != "calls"
            else "SELECT * FROM calls WHERE session = ? AND call = ?",
            key,
        ).fetchone()
        return dict(found) if found is not None else {}

    arrived, answer, refusal, departure = (row_of(each) for each in ("calls", "answers", "refusals", "departures"))
    attempts, grant = _attempts(database, key, arrived)
    decided = {**refusal, **grant}.get("decided")
    at_ns = arrived.get("at_ns", answer.get("at_ns", 0))
    waited_ns = answer.get("waited_ns") or refusal.get("waited_ns") or grant.get("waited_ns") or 0
    return CallStory(
        name=answer.get("name", ""),
        wall_ns=arrived.get("wall_ns", 0),
        method=arrived.get("method", answer.get("method", "")),
        path=arrived.get("path", answer.get("path", "")),
        model=arrived.get("model", ""),
        stream=bool(arrived.get("stream", 0)),
        tokens_in=arrived.get("tokens_in", 0),
        tokens_counted=arrived.get("tokens_counted"),
        counted_by=arrived.get("counted_by"),
        tokens_max_out=arrived.get("tokens_max_out", 0),
        agent=grant.get("agent") or refusal.get("agent") or answer.get("agent", ""),
        caller=arrived.get("caller", ""),
        job=arrived.get("job", ""),
        team=grant.get("team") or refusal.get("team") or "",
        lane=grant.get("lane") or refusal.get("lane") or answer.get("lane") or "",
        policy=_policy(database, session, at_ns),
        deciders=_deciders(database, decided),
        attempts=attempts,
        refused=refusal.get("reason") or (answer.get("reason") if answer.get("refused") else None),
        message=refusal.get("message"),
        left_ns=departure["at_ns"] - at_ns if departure else None,
        status=answer.get("status"),
        waited_ns=waited_ns,
        total_ns=answer["at_ns"] - at_ns if answer else None,
        reason=answer.get("reason") or refusal.get("reason") or grant.get("reason") or "none",
        session=_session(arrived),
        refusals=refused_about(
            database,
            key,
            max(attempts, key=lambda one: one.waited_ns).provider if attempts else "",
            grant.get("lane") or refusal.get("lane") or "",
            at_ns,
            answer.get("at_ns", INT_MAX),
        ),
        plan=plan_at(
            database, session, grant.get("provider", ""), arrived.get("credential", ""), answer.get("at_ns", INT_MAX)
        ),
    )


def _session(arrived: dict[str, Any]) -> SessionFacts | None:
    if arrived.get("session_turns") is None:
        return None
    return SessionFacts(
        context=arrived["session_context"],
        turns=arrived["session_turns"],
        cost=arrived["session_cost_microusd"],
        age_ns=arrived["session_age_ns"],
    )


def _attempts(
    database: sqlite3.Connection, key: tuple[int, int], arrived: dict[str, Any]
) -> tuple[tuple[AttemptStory, ...], dict[str, Any]]:
    """Return the attempts, and the last grant."""
    ends = {
        row["attempt"]: dict(row)
        for row in database.execute("SELECT * FROM ends WHERE session = ? AND call = ? ORDER BY rowid", key)
    }
    attempts: list[AttemptStory] = []
    last: dict[str, Any] = {}
    waited_before_ns = 0
    for row in database.execute(
        "SELECT rowid AS number, * FROM grants WHERE session = ? AND call = ? ORDER BY rowid", key
    ):
        last = dict(row)
        end = ends.get(row["attempt"], {})
        tokens = None
        if end.get("tokens_out") is not None:
            tokens = {
                "input": end["tokens_in"],
                "cache_read": end["tokens_cache_read"],
                "cache_write": end["tokens_cache_write"],
                "output": end["tokens_out"],
            }
        attempts.append(
            AttemptStory(
                number=row["attempt"],
                provider=place_of(row),
                model=row["model"] or arrived.get("model", ""),
                instead_of=row["instead_of"],
                lane=row["lane"],
                priority=row["priority"],
                budgets=tuple(row["budgets"].split()),
                reason=row["reason"],
                waited_ns=row["waited_ns"] - waited_before_ns,
                granted_ns=row["at_ns"] - arrived.get("at_ns", row["at_ns"]),
                lasted_ns=end["at_ns"] - row["at_ns"] if end else None,
                outcome=end.get("outcome"),
                status=end.get("status", 0),
                failure=end.get("failure"),
                first_byte_ns=end.get("first_byte_ns"),
                retry_after_ns=end.get("retry_after_ns"),
                tokens=tokens,
                cost_microusd=end.get("cost_microusd"),
                unretried=end.get("unretried"),
                turn=_turn(database, row, waited_before_ns, arrived) if row["reason"] == "turn" else None,
            )
        )
        waited_before_ns = row["waited_ns"]
    return tuple(attempts), last


def _turn(
    database: sqlite3.Connection, row: sqlite3.Row, waited_before_ns: int, arrived: dict[str, Any]
) -> TurnStory | None:
    waited = WaitingTurn(
        session=row["session"],
        before_row=row["number"],
        from_ns=row["at_ns"] - (row["waited_ns"] - waited_before_ns),
        until_ns=row["at_ns"],
        provider=place_of(row),
        lane=row["lane"],
        priority=row["priority"],
        agent=row["agent"],
        team=row["team"],
        caller=arrived.get("caller", ""),
    )
    return turn_of(database, waited)


def _policy(database: sqlite3.Connection, session: int, at_ns: int) -> str:
    row = database.execute(
        "SELECT hash FROM policies WHERE session = ? AND at_ns <= ? ORDER BY rowid DESC LIMIT 1", (session, at_ns)
    ).fetchone()
    return str(row["hash"]) if row is not None else ""


def _deciders(database: sqlite3.Connection, decided: int | None) -> dict[str, str]:
    if decided is None:
        return {}
    row = database.execute("SELECT by FROM deciders WHERE decided = ?", (decided,)).fetchone()
    return _words.decode(row["by"]) if row is not None else {}
