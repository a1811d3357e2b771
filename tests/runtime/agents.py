"""Agents and attempts for an engine: they really run, and count themselves while they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from hivemind_trio.model import Request
from hivemind_trio.policy import Program
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import AttemptResult, Grant
from tests.support.ends import SUCCEEDED

END_S = 1_000.0


@asynccontextmanager
async def running(program: Program, **options: Any) -> AsyncIterator[Engine]:
    """An engine that runs within the context, its two keepers compared after every event.

    On a virtual clock: what would wait for ever fails at once, after `END_S`.
    """
    engine = Engine(program, audit=True, **options)
    with trio.fail_after(END_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            yield engine
            nursery.cancel_scope.cancel()


def held(engine: Engine) -> int:
    """Tokens of all limiters that are borrowed now. White box: the limiters have no door of their own."""
    caps = engine.caps
    limiters = [*caps.agents.values()]
    for each in caps.providers.values():
        limiters += [each.pool, *each.lanes.values(), *each.groups.values()]
    return sum(limiter.borrowed_tokens for limiter in limiters)


def assert_empty(engine: Engine) -> None:
    """Nobody waits, nothing runs, and neither keeper holds anything."""
    snapshot = engine.snapshot()
    assert (snapshot.inflight, snapshot.waiting, snapshot.agents) == (0, 0, 0)
    assert sum(snapshot.lanes_waiting.values()) == 0
    for pool in snapshot.pools.values():
        assert (pool.inflight, pool.waiting) == (0, 0)
        assert not any(pool.lanes_inflight.values())
        assert not any(pool.groups_inflight.values())
    assert held(engine) == 0


@attrs.define(eq=False)
class Work:
    """What is going on upstream, counted inside the attempts and not by the scheduler that is under test.

    An attempt takes `hold_s`, or until `release`, whichever is first.
    """

    hold_s: float = 1.0
    release: trio.Event = attrs.field(factory=trio.Event)
    now: Counter[Hashable] = attrs.field(factory=Counter)
    peak: Counter[Hashable] = attrs.field(factory=Counter)
    finished: Counter[Hashable] = attrs.field(factory=Counter)
    cancelled: Counter[Hashable] = attrs.field(factory=Counter)

    async def attempt(self, *names: Hashable, crash: BaseException | None = None) -> AttemptResult:
        """Count under each of the names while it lasts."""
        for name in names:
            self.now[name] += 1
            self.peak[name] = max(self.peak[name], self.now[name])
        try:
            with trio.move_on_after(self.hold_s):
                await self.release.wait()
            if crash is not None:
                raise crash
        except trio.Cancelled:
            self.cancelled.update(names)
            raise
        finally:
            self.now.subtract(names)
        self.finished.update(names)
        return SUCCEEDED

    async def call(
        self,
        engine: Engine,
        request: Request,
        *,
        caller: str = "x",
        crash: BaseException | None = None,
        needs_slot: bool = True,
        task_status: trio.TaskStatus[Grant] = trio.TASK_STATUS_IGNORED,
    ) -> Grant:
        """One agent's call from arrival to the end of its attempt; `started` when its attempt was handed over."""
        over = trio.Event()

        async def attempt() -> AttemptResult:
            try:
                return await self.attempt(grant.treatment.provider, crash=crash)
            finally:
                over.set()

        with engine.ticket(request, caller, needs_slot=needs_slot) as ticket:
            grant = await ticket.granted()
            ticket.start(attempt)
            task_status.started(grant)
            await over.wait()
        return grant
