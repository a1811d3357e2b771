"""Views of workers become one."""

from __future__ import annotations

import attrs

from hivemind_trio.admin.views import SessionsView, SessionView
from hivemind_trio.serve.workers import merging

SESSION = SessionView(
    session="s",
    agent="ci",
    model="m",
    context=50,
    turns=1,
    growth=0,
    window=100,
    turns_left=None,
    cost=0.5,
    age_s=1.0,
    seen_at="2026-11-24T10:00:02.000Z",
)


def test_a_session_of_several_workers_is_as_the_last_of_them_knows_it() -> None:
    older = attrs.evolve(SESSION, context=90, seen_at="2026-11-24T10:00:01.000Z")
    larger = attrs.evolve(SESSION, session="t", context=60)
    unknown = attrs.evolve(SESSION, session="u", window=None, context=99)
    views = [SessionsView(sessions=(SESSION, unknown)), SessionsView(sessions=(older, larger))]

    assert merging.sessions(views, 9).sessions == (larger, SESSION, unknown)
    assert merging.sessions(views, 1).sessions == (larger,)
