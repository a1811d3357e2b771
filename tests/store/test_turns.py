"""Turns in the journal: what callers had had when calls went before another one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from hivemind_trio.store import TurnStory, live_turn
from hivemind_trio.store.journal.tables import HISTORY, TABLES
from hivemind_trio.store.journal.turns import LATER, SPAN_NS, WaitingTurn, turn_of

from .lines import SECOND_NS, JournalLine


@pytest.fixture
def line() -> Iterator[JournalLine]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        database.executescript(f"{TABLES} {HISTORY} INSERT INTO sessions VALUES (1, 0, '', NULL, 1)")
        yield JournalLine(database)


def turn(line: JournalLine, agent: str = "hog", from_s: float = 310, until_s: float = 350, **more: Any) -> Any:
    """Return the turn of a call that waited from one moment to another."""
    given: dict[str, Any] = {"team": "none", "lane": "default", "provider": "sim", "priority": 0, "caller": agent}
    given |= {"from_ns": from_s * SECOND_NS, "until_ns": until_s * SECOND_NS}
    return turn_of(line.database, WaitingTurn(session=1, before_row=LATER, agent=agent, **(given | more)))


def hogged(line: JournalLine) -> None:
    """An agent has had 200 slot-seconds, another 20; a third has had none."""
    for at_s in (100, 200):
        line.granted(at_s, 100, "hog")
    line.granted(300, 20, "modest")


def test_who_waited_had_had_more_than_those_who_went_first(line: JournalLine) -> None:
    hogged(line)
    line.granted(320, 5, "modest")
    line.granted(340, 5, "new")
    line.granted(341, 5, "hog")

    assert turn(line) == TurnStory(
        caller="hog", is_team=False, had_ns=200 * SECOND_NS, others=2, others_ns=10 * SECOND_NS
    )


def test_what_was_had_long_ago_and_what_goes_on_count_as_they_should(line: JournalLine) -> None:
    """Attempts that began more than five minutes before do not; of one in flight the time until then does."""
    line.granted(10, 200, "hog")
    line.granted(300, None, "hog")
    line.granted(320, 5, "new")

    assert turn(line).had_ns == 20 * SECOND_NS
    assert SPAN_NS == 300 * SECOND_NS


@pytest.mark.parametrize(
    "fields",
    [{"priority": 1}, {"lane": "other"}, {"provider": "other"}, {"account": "sim.prod"}, {"slot": 0}, {"agent": "hog"}],
)
def test_calls_that_went_first_for_other_reasons_tell_of_no_turn(line: JournalLine, fields: dict[str, Any]) -> None:
    hogged(line)
    line.granted(320, 5, **({"agent": "new"} | fields))

    assert turn(line) is None


def test_who_had_had_no_more_waited_for_something_else(line: JournalLine) -> None:
    hogged(line)
    line.granted(320, 5, "hog")

    assert turn(line, "modest") is None
    assert turn(line, "modest", from_s=325) is None, "nobody went first"


def test_teams_take_turns_whoever_their_agents_are(line: JournalLine) -> None:
    line.granted(200, 100, "a1", team="a")
    line.granted(300, 10, "b1", team="b")
    line.granted(320, 5, "b2", team="b")
    line.granted(325, 5, "a3", team="a")
    found = turn(line, "a2", team="a")

    assert (found.caller, found.is_team, found.others) == ("a", True, 1)
    assert (found.had_ns, found.others_ns) == (100 * SECOND_NS, 10 * SECOND_NS)


def test_agents_of_one_team_take_turns_where_no_other_team_went_first(line: JournalLine) -> None:
    line.granted(200, 100, "a1", team="a")
    line.granted(325, 5, "a3", team="a")
    found = turn(line, "a1", team="a")

    assert (found.caller, found.is_team, found.others) == ("a1", False, 1)


def test_agents_that_the_policy_does_not_name_are_told_apart(line: JournalLine) -> None:
    line.granted(200, 100, "unknown", caller="one@x")
    line.granted(320, 5, "unknown", caller="two@x")
    found = turn(line, "unknown", caller="one@x")

    assert (found.caller, found.others, found.had_ns) == ("one@x", 1, 100 * SECOND_NS)


def test_an_older_journal_has_no_accounts(line: JournalLine) -> None:
    hogged(line)
    line.granted(320, 5, "new")
    line.database.executescript("DROP VIEW history; ALTER TABLE grants DROP COLUMN account")

    assert turn(line).others == 1


def test_the_turn_of_a_call_that_waits_is_found_by_its_arrival(line: JournalLine) -> None:
    hogged(line)
    call = line.arrived(310, "hog", wall_s=5_000)
    line.granted(320, 5, "new")
    place = {"provider": "sim", "lane": "default", "priority": 0, "agent": "hog", "team": "none"}

    found = live_turn(line.database, call, 5_001 * SECOND_NS, place)
    assert found is not None
    assert (found.caller, found.others, found.had_ns) == ("hog", 1, 200 * SECOND_NS)
    assert live_turn(line.database, call, 6_000 * SECOND_NS, place) is None, "it is one of an earlier process"
    assert live_turn(line.database, call + 1_000, 5_001 * SECOND_NS, place) is None, "its arrival is not written yet"
