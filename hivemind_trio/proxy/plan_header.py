"""Header `x-hivemind-plan`: how the plan of the caller's account stands.

session 93% resets 22:13Z; week 61% resets 2026-11-27T09:00Z; overage
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from hivemind_trio.model import PlanStanding, PlanUse

from .request.header_filter import Headers

NAME: Final = b"x-hivemind-plan"

SOON: Final = timedelta(hours=20)
"""A reset within this is told by its time alone."""


def plan_header(standing: PlanStanding, now: datetime | None = None) -> Headers:
    """Return the header of an account's plan; nothing if no answer has told of one.

    Args:
        now: For tests.
    """
    if not standing.uses:
        return []
    moment = datetime.now(UTC) if now is None else now
    parts = [_use(one, moment) for one in standing.uses]
    return [(NAME, "; ".join([*parts, *(["overage"] if standing.overage else [])]).encode())]


def _use(use: PlanUse, now: datetime) -> str:
    # Rounded down: 100 % is said of what is used up alone.
    used = f"{use.span} {use.used // 10_000}%"
    if use.resets_ns is None:
        return used
    left = timedelta(microseconds=use.resets_ns // 1_000)
    resets = now + left + timedelta(seconds=30)  # to the nearest minute
    return f"{used} resets {resets:{'%H:%MZ' if left < SOON else '%Y-%m-%dT%H:%MZ'}}"
