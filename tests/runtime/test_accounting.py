"""Invariant: whoever leaves, crashes or is overtaken by a reload, and whenever, every permit comes back and no cap is
ever exceeded by what really runs.

Times are single nanoseconds and few, so that arrivals, deadlines, departures and reloads meet in the same tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from hivemind_trio.model import Request
from hivemind_trio.policy import Program
from hivemind_trio.runtime import Engine, Rejected
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, Command, Event, Grant, Permit
from tests.scheduler.models.drawn import CALLERS, programs, settings, wishes
from tests.support.ends import SUCCEEDED

TICK_S = 1e-9
END_S = 1.0
"""Far beyond the last thing that can happen. Whoever is still there then was forgotten."""


class BugError(Exception):
    """What an attempt lets escape."""


manners = settings(
    caller=CALLERS,
    needs_slot=[True] * 7 + [False],
    arrives=range(6),
    leaves=[None, None, None, 0, 1, 2, 4, 8],
    dawdles=[None, 0, 1],
    hold=[0, 1, 2, 5],
    stubborn=[False] * 4 + [True],
    crashes=[False] * 5 + [True],
)


@attrs.define(eq=False)
class World:
    """Agents with their manners before one engine; `running` is counted by the attempts themselves."""

    engine: Engine = attrs.field(init=False)
    running: Counter[Hashable] = attrs.field(init=False, factory=Counter)
    granted: int = attrs.field(init=False, default=0)
    ended: int = attrs.field(init=False, default=0)
    crashes: int = attrs.field(init=False, default=0)
    seen_crashes: int = attrs.field(init=False, default=0)
    fates: Counter[str] = attrs.field(init=False, factory=Counter)

    async def run(
        self, first: Program, reloads: Sequence[tuple[int, Program]], calls: Sequence[tuple[Request, dict[str, Any]]]
    ) -> None:
        self.engine = Engine(first, audit=True, journal=self.journal, on_crash=self.crashed)
        with trio.fail_after(END_S):
            async with trio.open_nursery() as nursery:
                await nursery.start(self.engine.run)
                async with trio.open_nursery() as agents:
                    agents.start_soon(self.reload, reloads)
                    for request, manner in calls:
                        agents.start_soon(self.agent, request, manner)
                await self.engine.idle()
                self.assert_nothing_is_left()
                nursery.cancel_scope.cancel()
        assert self.fates.total() == len(calls)

    async def reload(self, reloads: Sequence[tuple[int, Program]]) -> None:
        for pause, program in reloads:
            await trio.sleep(pause * TICK_S)
            self.engine.load(program)

    async def agent(self, request: Request, manner: dict[str, Any]) -> None:
        await trio.sleep(manner["arrives"] * TICK_S)
        fate = "left"
        with trio.CancelScope() as scope:
            if manner["leaves"] is not None:
                scope.deadline = trio.current_time() + manner["leaves"] * TICK_S
            fate = await self.call(request, manner)
        self.fates[fate] += 1

    async def call(self, request: Request, manner: dict[str, Any]) -> str:
        over = trio.Event()

        async def attempt() -> AttemptResult:
            self.running.update(names)
            try:
                with trio.CancelScope(shield=manner["stubborn"]):
                    await trio.sleep(manner["hold"] * TICK_S)
                if manner["crashes"]:
                    self.crashes += 1
                    raise BugError
            finally:
                self.running.subtract(names)
                over.set()
            return SUCCEEDED

        with self.engine.ticket(request, manner["caller"], needs_slot=manner["needs_slot"]) as ticket:
            try:
                grant = await ticket.granted()
            except Rejected:
                return "refused"
            names = [] if grant.permit is None else names_of(grant.permit)
            if manner["dawdles"] is not None:
                await trio.sleep(manner["dawdles"] * TICK_S)
            ticket.start(attempt)
            await over.wait()
        return "answered"

    def journal(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Before the limiters hear of it: a grant beyond a cap must not depend on them to be seen."""
        program = self.engine.program
        if isinstance(event, AttemptEnded):
            self.ended += 1
        new: Counter[Hashable] = Counter()
        for command in commands:
            if not isinstance(command, Grant) or command.permit is None:
                continue
            permit = command.permit
            self.granted += 1
            new.update(names_of(permit))
            for name, cap in caps(program, permit).items():
                running = self.running[name] + new[name]
                assert cap is None or running <= cap, f"{running} attempts of {name} at {now_ns} ns, the cap is {cap}"

    def crashed(self, error: Exception) -> None:
        assert isinstance(error, BugError)
        self.seen_crashes += 1

    def assert_nothing_is_left(self) -> None:
        snapshot = self.engine.snapshot()
        assert (snapshot.inflight, snapshot.waiting, snapshot.agents) == (0, 0, 0)
        assert not any(pool.inflight or pool.waiting for pool in snapshot.pools.values())
        assert not any(snapshot.lanes_waiting.values())
        # The limiter of an agent that no policy declares goes with its last token; the others stay, and are empty.
        assert all(declared for declared, _ in self.engine.caps.agents)
        assert not any(limiter.borrowed_tokens for limiter in self.engine.caps.agents.values())
        for name, limiters in self.engine.caps.providers.items():
            assert name in self.engine.program.providers
            assert not limiters.pool.borrowed_tokens
            assert not any(limiter.borrowed_tokens for limiter in (*limiters.lanes.values(), *limiters.groups.values()))
        assert not self.engine.tickets
        assert not +self.running
        assert self.granted == self.ended
        assert self.crashes == self.seen_crashes


def names_of(permit: Permit) -> list[Hashable]:
    at = permit.provider
    return [at, (at, "lane", permit.lane), (at, "group", permit.group), (permit.declared, permit.agent)]


def caps(program: Program, permit: Permit) -> dict[Hashable, int | None]:
    """What the policy says of each of `names_of`. Spelled out again, so as not to share a mistake with the limiters."""
    provider = program.providers[permit.provider]
    groups = {each.glob: each.concurrency for each in provider.groups}
    agent = program.agents[permit.agent] if permit.declared else program.unknown
    figures = [
        provider.limit,
        program.lanes[permit.lane].cap(provider.limit),
        groups.get(permit.group),
        agent.concurrency,
    ]
    return dict(zip(names_of(permit), figures, strict=True))


@pytest.mark.slow
@given(
    first=programs(),
    reloads=st.lists(st.tuples(st.integers(0, 4), programs()), max_size=3),
    calls=st.lists(st.tuples(wishes, manners), min_size=8, max_size=30),
)
def test_every_permit_comes_back_and_no_cap_is_exceeded(
    first: Program, reloads: list[tuple[int, Program]], calls: list[tuple[Request, dict[str, Any]]]
) -> None:
    world = World()

    trio.run(world.run, first, reloads, calls, clock=MockClock(autojump_threshold=0))
