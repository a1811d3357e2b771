"""Turns of forecasts: one after the other, in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from hivemind_trio.admin.problems import OperationFailed, ProblemKind

LIVE_MAX: Final = 2_000
"""Calls above which the scheduler is not copied: it would hold up the calls for 0.1 s and more."""
WAITING_MAX: Final = 32
"""Forecasts in line; whoever comes next is told to come back."""

_T = TypeVar("_T")
_ONE_AT_A_TIME: Final = trio.CapacityLimiter(1)


async def in_turn(compute: Callable[[], _T]) -> _T:
    """Compute in a thread, one forecast after the other: calls have the rest of the processor."""
    waiting = _ONE_AT_A_TIME.statistics().tasks_waiting
    if waiting >= WAITING_MAX:
        raise OperationFailed(ProblemKind.CONFLICT, f"{waiting} forecasts wait already; ask again in a few seconds")
    return await trio.to_thread.run_sync(compute, limiter=_ONE_AT_A_TIME, abandon_on_cancel=True)
