"""Hints as they are kept: sessions by the wall clock, of one process or of several workers."""

from __future__ import annotations

import attrs

from hivemind_trio.policy import Renames
from hivemind_trio.scheduler import KeptSessions, KeptThread, KeptTotal, ProviderBeliefs
from hivemind_trio.store import SESSIONS_HINT, hints, restored_beliefs
from tests.support.policies import compiled

S = 10**9
NOW = 1_900_000_000 * S
NO_RENAMES = Renames({}, {})
BELIEFS = ProviderBeliefs()

THREAD = KeptThread(
    caller="@x",
    job="s/main",
    context=900,
    turns=4,
    first_context=100,
    uses_tools=True,
    agent="ci",
    model="m",
    provider="p",
    seen_ns=70 * S,
)
SESSIONS = KeptSessions((THREAD,), (KeptTotal(caller="@x", session="s", first_ns=10 * S, cost=5),))


def test_sessions_come_back_by_the_time_of_the_engine_of_now() -> None:
    learned = {key: (value, NOW + 90 * S) for key, value in hints({}, SESSIONS, NOW).items()}

    again = restored_beliefs(learned, NO_RENAMES, NOW + 200 * S, NOW + 100 * S)

    assert again.sessions == SESSIONS.shifted(-100 * S)
    assert again.beliefs == {}


def test_beliefs_come_back_under_the_new_names_of_providers_and_accounts() -> None:
    text = "provider {} {{ api anthropic; account {} {{ key env(A) }}; account b {{ key env(B); shares {} }} }}"
    now = compiled(text.format("new was old", "prod was a", "prod"))

    for was in ("old.a", "old.prod", "new.a", "new.prod"):
        learned = {key: (value, NOW) for key, value in hints({was: BELIEFS}, KeptSessions(), NOW).items()}
        assert list(restored_beliefs(learned, Renames.since_restart(now), NOW, NOW).beliefs) == ["new.prod"]


def test_sessions_that_stand_still_are_no_news() -> None:
    assert hints({}, SESSIONS, NOW) == hints({}, SESSIONS, NOW)
    assert hints({}, KeptSessions(), NOW) == {}


def test_of_several_workers_the_latest_word_on_a_session_counts() -> None:
    older = attrs.evolve(SESSIONS, threads=(attrs.evolve(THREAD, turns=3), attrs.evolve(THREAD, job="t")))
    rows = [("worker-2", older, NOW + S), ("worker-1", SESSIONS, NOW + 2 * S)]
    learned = {
        (worker, SESSIONS_HINT): (hints({}, sessions, NOW)["", SESSIONS_HINT], at_ns)
        for worker, sessions, at_ns in rows
    }

    again = restored_beliefs(learned, NO_RENAMES, NOW, NOW).sessions

    assert [(one.job, one.turns) for one in again.threads] == [("t", 4), ("s/main", 4)]
    assert again.totals == SESSIONS.totals


def test_sessions_of_another_version_are_left_out() -> None:
    learned = {("", SESSIONS_HINT): ('{"began_wall_ns": 1, "sessions": {"threads": [{"job": 1}]}}', NOW)}

    assert restored_beliefs(learned, NO_RENAMES, NOW, NOW).sessions == KeptSessions()
