"""Estimates of a scheduler's future, taken while it runs, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from time import thread_time_ns
from typing import Final, Self, final

import attrs
import trio

from hivemind_trio.admin import Conduct, Foresight
from hivemind_trio.runtime import Engine, SchedulerCopies
from hivemind_trio.scheduler import CallId, Command, Event, Scheduler
from hivemind_trio.sim import Calibration, JudgedStart, StartEstimate, Starts

SECOND_NS: Final = 1_000_000_000
EVERY_NS: Final = 15 * SECOND_NS
"""Between two estimates, on average; half as much at least."""
ESTIMATES_MAX: Final = 20
"""Estimates of one run."""


@final
@attrs.frozen(kw_only=True)
class Row:
    """One estimate of one call, from its time on, in ns."""

    p50: int | None
    p90: int | None
    raw90: int | None
    """As the futures have it, without calibration."""
    start: int | None
    """The start that came; None: it was rejected, or its client had left."""
    floor50: int | None = None
    """By the oracle (`oracle.py`)."""
    floor90: int | None = None
    has_floor: bool = False
    """The oracle was asked."""

    @classmethod
    def of(cls, taken: TakenEstimate) -> Self:
        """Return an estimate and what came."""
        judged, estimate, floor = taken.judged, taken.estimate, taken.floor
        known = judged.started and judged.until_ns is not None
        return cls(
            floor50=None if floor is None else floor.p50_ns,
            floor90=None if floor is None else floor.p90_ns,
            has_floor=floor is not None,
            p50=estimate.p50_ns,
            p90=estimate.p90_ns,
            raw90=judged.raw.p90_ns,
            start=(judged.until_ns or 0) - judged.taken_ns if known else None,
        )


@final
@attrs.define(eq=False)
class TakenEstimate:
    """One estimate, while the run goes on."""

    judged: JudgedStart
    estimate: StartEstimate
    floor: StartEstimate | None = None


class AllJudged(Exception):  # noqa: N818 - the end of a run, no error
    """Nothing more will be known."""


@final
@attrs.define(eq=False, kw_only=True)
class Watch:
    """Takes estimates with the code of the running proxy (`admin/forecasts`)."""

    scheduler: Callable[[], Scheduler] | None = None
    """Scheduler of a run in virtual time."""
    oracle: Callable[[Sequence[CallId], Callable[[list[Mapping[CallId, int | None]]], None]], None] | None = None
    """Has the world's true futures told, soon; None: there is no floor."""
    seed: int = 0
    conduct: Conduct = attrs.field(factory=Conduct)
    calibration: Calibration = attrs.field(factory=Calibration)
    cpu_ns: list[int] = attrs.field(factory=list, init=False)
    """Processor time of each estimate."""
    _kept: list[TakenEstimate] = attrs.field(factory=list, init=False)
    _next_ns: int = attrs.field(default=EVERY_NS // 3, init=False)
    _chance: Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._chance = Random(f"forecast/{self.seed}")

    def observe(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Note an event in virtual time, and take an estimate if it is time."""
        self.conduct.observe(now_ns, event, commands)
        self.calibration.observe(now_ns, event, commands)
        if now_ns < self._next_ns or self.scheduler is None:
            return
        if len(self.cpu_ns) >= ESTIMATES_MAX:
            if all(one.judged.until_ns is not None for one in self._kept):
                raise AllJudged
            return
        scheduler = self.scheduler()
        if scheduler.state.room.waiters:
            self._next_ns = now_ns + round(EVERY_NS * (0.5 + self._chance.random()))
            copies = SchedulerCopies.of(scheduler, scheduler.state.turns)
            began_ns = thread_time_ns()
            foresight = Foresight.of(copies, self.conduct, self.calibration, now_ns)
            self._keep(foresight, foresight.look(), thread_time_ns() - began_ns)

    async def live(self, engine: Engine) -> None:
        """Take estimates of a proxy that serves, until cancelled."""
        while True:
            await trio.sleep(EVERY_NS / SECOND_NS * (0.5 + self._chance.random()))
            if not engine.snapshot().waiting:
                continue
            foresight = Foresight.of(engine.copies(), self.conduct, self.calibration, engine.now_ns())
            starts, cpu_ns = await trio.to_thread.run_sync(foresight.look_briefly)
            self._keep(foresight, starts, cpu_ns)

    def rows(self) -> list[Row]:
        """Return what is known."""
        return [Row.of(one) for one in self._kept]

    def _keep(self, foresight: Foresight, starts: Starts, cpu_ns: int) -> None:
        self.cpu_ns.append(cpu_ns)
        foresight.judge(starts)
        taken = [TakenEstimate(judged, starts.of(judged.call_id)) for judged in foresight.judged]
        self._kept += taken
        if self.oracle is not None and taken:
            self.oracle([one.judged.call_id for one in taken], partial(_keep_floor, taken))


def _keep_floor(taken: Sequence[TakenEstimate], futures: list[Mapping[CallId, int | None]]) -> None:
    starts = Starts(futures, {})
    for one in taken:
        one.floor = starts.raw(one.judged.call_id)
