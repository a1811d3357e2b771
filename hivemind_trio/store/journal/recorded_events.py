"""Events of the scheduler as the journal keeps them where it is told to: enough to repeat every decision.

A row is one event, the ends of calendar windows that the scheduler asked for meanwhile, and its commands. Of a call's
headers and metadata only what the journal keeps anyway, and what the policy reads, is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.policy import BudgetWindow
from hivemind_trio.scheduler import (
    AttemptEnded,
    BeliefsRestored,
    BudgetsAnswered,
    BudgetsCalled,
    BudgetsShared,
    BudgetsUnanswered,
    CallArrived,
    CallCancelled,
    Command,
    CreditDrawn,
    Draining,
    Event,
    LearnAnswered,
    LearnCalled,
    LearningShared,
    LearnUnanswered,
    LedgerOpened,
    LedgerWritable,
    LetThrough,
    PauseSet,
    PolicyLoaded,
    PrioritySet,
    ResponseStarted,
    SharesSet,
    SpendingSet,
    StreamsReceived,
    TimePassed,
    WindowAnswered,
    WindowsShared,
    WindowUnanswered,
)

KINDS: Final[Mapping[str, type[Any]]] = {
    one.__name__: one
    for one in (
        CallArrived,
        CallCancelled,
        ResponseStarted,
        StreamsReceived,
        AttemptEnded,
        Draining,
        TimePassed,
        LedgerOpened,
        CreditDrawn,
        LedgerWritable,
        BeliefsRestored,
        PauseSet,
        PrioritySet,
        LetThrough,
        SharesSet,
        SpendingSet,
        WindowsShared,
        WindowAnswered,
        WindowUnanswered,
        BudgetsShared,
        BudgetsAnswered,
        BudgetsUnanswered,
        BudgetsCalled,
        LearningShared,
        LearnAnswered,
        LearnUnanswered,
        LearnCalled,
    )
}
Turned = tuple[tuple[BudgetWindow, int], ...]

_encode: Final = msgspec.msgpack.Encoder().encode
_DECODERS: Final = {name: msgspec.msgpack.Decoder(kind) for name, kind in KINDS.items()}


@final
@attrs.frozen
class Recorded:
    """An event, for the journal's writer."""

    number: int
    """From 1, without gaps."""
    event: Event
    commands: tuple[Command, ...]
    turns: Turned
    """Calendar windows that the scheduler asked for, and when they end."""


@final
@attrs.frozen
class PolicyFiles:
    """A policy as it was read, so that it can be compiled again."""

    hash: str
    """Hash of the program."""
    path: str
    files: Mapping[str, str]
    """Path -> text."""
    host: str | None
    """Address that the command line listens on; None: that of the policy."""


@final
@attrs.frozen
class RecordedEvent:
    """An event as it is read back."""

    number: int
    at_ns: int
    event: Event | None
    """None: a policy was loaded."""
    policy: str
    """Hash of that policy; empty: none was loaded."""
    turns: Turned
    commands: list[Any]
    """As JSON has them: each is its name and its fields."""


def event_row(session: int, at_ns: int, recorded: Recorded) -> tuple[Any, ...]:
    """Return the row of an event whose headers and metadata are redacted."""
    event = recorded.event
    if isinstance(event, PolicyLoaded):
        kind, body = PolicyLoaded.__name__, _encode(event.program.hash)
    else:
        kind, body = type(event).__name__, _encode(event)
    commands = [(type(one).__name__, one) for one in recorded.commands]
    return session, recorded.number, at_ns, kind, body, _encode(recorded.turns), _encode(commands)


def shown(commands: Sequence[Command]) -> list[Any]:
    """Return commands as they are read back."""
    decoded: list[Any] = msgspec.msgpack.decode(_encode([(type(one).__name__, one) for one in commands]))
    return decoded


def recorded_sessions(database: Connection) -> list[tuple[int, int, str]]:
    """Return the sessions that have events: number, events and version of hivemind-trio."""
    return database.execute(
        "SELECT sessions.session, count(*), sessions.version FROM sessions JOIN events USING (session) "
        "GROUP BY sessions.session ORDER BY sessions.session"
    ).fetchall()


def recorded_events(database: Connection, session: int) -> Iterator[RecordedEvent]:
    """Yield the events of a session, in order.

    Raises:
        ValueError: A row cannot be read by this version.
    """
    rows = database.execute(
        "SELECT number, at_ns, kind, body, turns, commands FROM events WHERE session = ? ORDER BY number", (session,)
    )
    for number, at_ns, kind, body, turns, commands in rows:
        try:
            is_policy = kind == PolicyLoaded.__name__
            yield RecordedEvent(
                number=number,
                at_ns=at_ns,
                event=None if is_policy else _DECODERS[kind].decode(body),
                policy=msgspec.msgpack.decode(body, type=str) if is_policy else "",
                turns=msgspec.msgpack.decode(turns, type=Turned),
                commands=msgspec.msgpack.decode(commands),
            )
        except (KeyError, msgspec.MsgspecError) as error:
            raise ValueError(f"event {number} ({kind}) is of another version: {error}") from error


def first_policy(database: Connection, session: int) -> str:
    """Return the hash of the policy that a session began with."""
    (found,) = database.execute(
        "SELECT hash FROM policies WHERE session = ? ORDER BY at_ns, rowid LIMIT 1", (session,)
    ).fetchone()
    return str(found)


def policy_files(database: Connection, policy_hash: str) -> PolicyFiles | None:
    """Return the files of a policy; None: they are not in the journal."""
    row = database.execute("SELECT path, files, host FROM policy_files WHERE hash = ?", (policy_hash,)).fetchone()
    if row is None:
        return None
    return PolicyFiles(policy_hash, row[0], msgspec.json.decode(row[1], type=dict[str, str]), row[2])
