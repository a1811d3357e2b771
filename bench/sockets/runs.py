"""Runs over sockets, several at a time: as many as leave each other alone, with progress, until done or interrupted."""

from __future__ import annotations

import resource
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, final

import attrs
import trio

from hivemind_trio.policy import Program
from hivemind_trio.sim import Efforts, Figures, Scenario, Way, World, bound_of

from .measured import Measured
from .sockets import Stage, house_process, staged

CALL_S: Final = 8e-3
EVENT_S: Final = 0.6e-3
"""CPU that a call and a streamed event take of a slow core, both processes together: what can run beside what?"""

LOAD_MAX: Final = 0.5
"""Cores that runs which are under way together may take on average."""

BUSY_S: Final = 10.0
"""What is over sooner is in nobody's way for longer."""

TOLD_EVERY_S: Final = 10.0


@final
@attrs.frozen(kw_only=True)
class Case:
    """A scenario under a policy."""

    scenario: Scenario
    program: Program
    policy: str = ""
    """What the policy is called where a scenario is run under several; empty: it is the scenario's own."""

    @property
    def name(self) -> str:
        return f"{self.scenario.name}: {self.policy}" if self.policy else self.scenario.name


@final
@attrs.frozen(kw_only=True, eq=False)
class Run:
    """A case, one way, with one seed; and what the virtual world says of it."""

    case: Case
    way: Way
    seed: int
    simulated: Figures

    @classmethod
    def of(cls, case: Case, way: Way, seed: int, efforts: Efforts | None = None) -> Run:
        """Takes as long as simulating it does.

        Args:
            efforts: What code, bytes and kernels take; None: nothing.
        """
        bound = bound_of(case.program, case.scenario, seed)
        figures = World(case.program, case.scenario, seed, way, bound=bound, efforts=efforts).run()
        return cls(case=case, way=way, seed=seed, simulated=figures)

    def again(self) -> Run:
        """The same once more, to be told apart."""
        return attrs.evolve(self)

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.way}"

    @property
    def seconds(self) -> float:
        """That it will take, about."""
        return self.simulated.makespan_ns / 1e9

    @property
    def load(self) -> float:
        """Cores that it will take on average, about."""
        streamed = max((fleet.stream for fleet in self.case.scenario.fleets), default=0.0)
        answers = [one.traits.tokens_out_mean / one.traits.tokens_per_event for one in self.case.scenario.upstreams]
        events = streamed * self.simulated.attempts * max(answers, default=0.0)
        return (self.simulated.attempts * CALL_S + events * EVENT_S) / max(BUSY_S, self.seconds)


@final
@attrs.define(eq=False)
class Together:
    """Runs that are under way, and what has come of those that are over."""

    runs: Sequence[Run]
    apart_s: float
    """Between two beginnings: the busy moments of windows of equal length then do not meet."""
    found: dict[Run, Measured] = attrs.field(init=False, factory=dict)
    interrupted: bool = attrs.field(init=False, default=False)
    _under_way: dict[Run, Stage] = attrs.field(init=False, factory=dict)
    _room: trio.Condition = attrs.field(init=False, factory=trio.Condition)

    async def perform(self) -> None:
        """All of them. Returns early when it is told to stop; what is over by then has been found."""
        async with trio.open_nursery() as everything:
            everything.start_soon(self._until_told, everything.cancel_scope)
            async with AsyncExitStack() as stack:
                self._say(f"{len(self.runs)} runs, {self._expected_s():.0f} s or more")
                stages = await self._stages(stack)
                everything.start_soon(self._tell)
                async with trio.open_nursery() as nursery:
                    for run, stage in zip(self.runs, stages, strict=True):
                        await self._until_room(run)
                        self._under_way[run] = stage
                        nursery.start_soon(self._run, run, stage)
                        await trio.sleep(self.apart_s)
            everything.cancel_scope.cancel()

    async def _stages(self, stack: AsyncExitStack) -> list[Stage]:
        """All of them up before anything begins: starting one would be in the way of those that run."""
        children = [
            await stack.enter_async_context(house_process()) if run.way is Way.PROXY else None for run in self.runs
        ]
        return [
            await stack.enter_async_context(staged(run.case.program, run.case.scenario, run.seed, run.way, child))
            for run, child in zip(self.runs, children, strict=True)
        ]

    async def _run(self, run: Run, stage: Stage) -> None:
        self.found[run] = measured = await stage.run()
        lost = f", {measured.dead} dead" if measured.dead else ""
        self._say(f"{run.name}: {measured.seconds:.1f} s{lost}")
        async with self._room:
            del self._under_way[run]
            self._room.notify_all()

    async def _until_room(self, run: Run) -> None:
        async with self._room:
            while self._under_way and sum(one.load for one in self._under_way) + run.load > LOAD_MAX:
                await self._room.wait()

    async def _until_told(self, scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                self.interrupted = True
                scope.cancel()

    async def _tell(self) -> None:
        while True:
            await trio.sleep(TOLD_EVERY_S)
            for run, stage in self._under_way.items():
                if run.seconds > TOLD_EVERY_S:
                    self._say(f"  {run.name}: {stage.progress}")

    def _expected_s(self) -> float:
        """If nothing had to wait for room."""
        return max((place * self.apart_s + run.seconds for place, run in enumerate(self.runs)), default=0.0)

    def _say(self, line: str) -> None:
        done = f"{len(self.found)}/{len(self.runs)}"
        print(f"[{done}] {line}", file=sys.stderr, flush=True)


def performed(runs: Sequence[Run], apart_s: float) -> tuple[dict[Run, Measured], bool]:
    """What came of each run, and whether that was all: neither an interrupt nor a crash loses the hour before it."""
    _raise_file_limit()
    together = Together(runs, apart_s)
    try:
        trio.run(together.perform)
    except Exception:
        if not together.found:
            raise
        together.interrupted = True
        traceback.print_exc()
    return together.found, not together.interrupted


def _raise_file_limit() -> None:
    """An agent has a connection, and the other end of it is here as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
