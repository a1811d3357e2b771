"""Conduct of providers and agents, as a forecast begins with it."""

from __future__ import annotations

from random import Random
from typing import Final

from hivemind_trio.admin.history import Conduct
from hivemind_trio.sim import ExpectedAgent, FirstCall, Habits

ACTIVE_NS: Final = 60_000_000_000
"""An agent without a call for so long is taken to be done."""


def habits_of(conduct: Conduct, now_ns: int) -> Habits:
    """Return the conduct of everybody."""
    gone = sum(not one.live and now_ns - one.ended_ns > ACTIVE_NS for one in conduct.callers.values())
    gaps = list(conduct.gaps_ns)
    return Habits(
        attempts=conduct.attempts(now_ns),
        gaps_ns=gaps,
        leaving=gone / ((gone + len(gaps)) or 1),
        first_calls=[FirstCall(now_ns - at_ns, call) for at_ns, call in conduct.first_calls],
    )


def between_calls(conduct: Conduct, habits: Habits, now_ns: int) -> tuple[ExpectedAgent, ...]:
    """Return the agents that called lately, have no call now and are expected to call again."""
    chance = Random(f"gaps/{now_ns}")  # noqa: S311 - guards nothing
    found = []
    for one in conduct.callers.values():
        idle_ns = now_ns - one.ended_ns
        longer = [gap_ns for gap_ns in habits.gaps_ns if gap_ns > idle_ns]
        if one.live or not one.served or idle_ns > ACTIVE_NS or not longer:
            continue
        found.append(ExpectedAgent(call=one.call, first_ns=chance.choice(longer) - idle_ns))
    return tuple(found)
