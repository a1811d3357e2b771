"""Slots, waiting calls and refusals of each provider over the last hour."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Final, final

import attrs
import trio

from hivemind_trio.model import Outcome
from hivemind_trio.runtime import Engine

STEP_S: Final = 5
SPAN_S: Final = 3_600

RATE: Final = (Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST, Outcome.CONCURRENCY, Outcome.TERMINAL)
"""Refusals for the caller's rate, as 429 says."""
DOWN: Final = (Outcome.OVERLOADED, Outcome.FAILED, Outcome.UNREACHABLE)
"""The provider has too much to do, or is down, as 529 and 5xx say."""


@final
@attrs.frozen(kw_only=True)
class SeriesPoint:
    """One provider at one moment."""

    at_ns: int
    """Since the engine began."""
    limit: int
    inflight: int
    waiting: int
    refused: int
    """Attempts since the point before that were refused for the rate."""
    failed: int
    """The same of those that failed: overloaded, 5xx, unreachable."""
    circuit: str
    bound_by: str | None
    """Reason for which most of the waiting calls wait; None: none waits."""


@final
@attrs.define(eq=False)
class TimeSeries:
    """A point of each provider every `STEP_S` seconds, for an hour.

    Args:
        attempts: (Provider, outcome) -> attempts since the start.
    """

    _engine: Engine
    _attempts: Mapping[tuple[str, str], int]
    step_s: int = STEP_S
    points: dict[str, deque[SeriesPoint]] = attrs.field(factory=dict, init=False)
    """Provider -> its points, oldest first."""
    _before: defaultdict[str, tuple[int, int]] = attrs.field(factory=lambda: defaultdict(lambda: (0, 0)), init=False)

    async def run(self) -> None:
        """Take a point every few seconds, for ever."""
        while True:
            self.take()
            await trio.sleep(self.step_s)

    def take(self) -> None:
        """Take a point of now; a provider that is gone is forgotten when its last point is an hour old."""
        snapshot = self._engine.snapshot()
        now_ns = self._engine.now_ns()
        reasons: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
        for call in self._engine.occupancy().waiting:
            reasons[call.decision.provider][str(call.reason)] += 1
        for name, pool in snapshot.pools.items():
            refused, failed = (sum(self._attempts.get((name, str(one)), 0) for one in kind) for kind in (RATE, DOWN))
            before = self._before[name]
            self._before[name] = refused, failed
            bound = reasons[name].most_common(1)
            point = SeriesPoint(
                at_ns=now_ns,
                limit=pool.limit,
                inflight=pool.inflight,
                waiting=pool.waiting,
                refused=refused - before[0],
                failed=failed - before[1],
                circuit=pool.circuit.value,
                bound_by=bound[0][0] if bound else None,
            )
            self.points.setdefault(name, deque(maxlen=SPAN_S // self.step_s)).append(point)
        for name in [name for name, points in self.points.items() if points[-1].at_ns < now_ns - SPAN_S * 10**9]:
            del self.points[name]
            self._before.pop(name, None)
