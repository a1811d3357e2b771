"""Habits for tests."""

from __future__ import annotations

from hivemind_trio.model import Outcome, Usage
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.sim import Habits, SeenAttempt

SECOND_NS = 1_000_000_000

SERVED = AttemptResult(outcome=Outcome.SUCCEEDED, status=200, usage=Usage(input=0, output=100), committed=True)
REFUSED = AttemptResult(outcome=Outcome.OVERLOADED, status=529)


def seen(
    lasted_s: float,
    result: AttemptResult | None = SERVED,
    *,
    began_s: float = 0,
    group: str = "",
    load: float = 1.0,
    begun: bool = False,
) -> SeenAttempt:
    """Return an attempt that took so long."""
    began_ns, lasted_ns = round(began_s * SECOND_NS), round(lasted_s * SECOND_NS)
    return SeenAttempt(began_ns, lasted_ns, result, group=group, load=load, begun=begun)


def habits(*times_s: float, gaps_s: tuple[int, ...] = ()) -> Habits:
    """Return habits of a provider whose answers take one of these times."""
    return Habits(attempts={"p": [seen(time) for time in times_s]}, gaps_ns=[gap * SECOND_NS for gap in gaps_s])
