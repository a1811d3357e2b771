"""A door over a running engine and a provider that plays a part; no sockets, so that the clock can jump."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.policy import Program
from hivemind_trio.proxy import CallRecord, Door
from hivemind_trio.proxy.request.body_memory import BODIES_BYTES
from hivemind_trio.runtime import Engine
from hivemind_trio.upstream import Upstream
from tests.runtime.agents import assert_empty
from tests.support.agent import Agent
from tests.support.policies import compiled as compiled
from tests.support.upstream import FakeProvider

END_S = 10_000.0
"""Beyond every timeout. Whoever is still there then was forgotten."""


def env(name: str) -> SecretRef:
    return SecretRef(SecretSource.ENV, name)


def body_of(**fields: Any) -> tuple[bytes, ...]:
    """An Anthropic message's body."""
    return (json.dumps({"model": "claude-x", "max_tokens": 9, "messages": []} | fields).encode(),)


@attrs.define(eq=False)
class House:
    engine: Engine
    door: Door
    provider: FakeProvider
    nursery: trio.Nursery
    records: list[CallRecord]
    crashes: list[Exception]

    async def ask(self, agent: Agent | None = None, **request: Any) -> Agent:
        """Be served to the end."""
        agent = agent or Agent(**request)
        await agent.call(self.door)
        return agent

    async def begin(self, agent: Agent | None = None, **request: Any) -> Agent:
        """Call, and go as far as it goes without time passing."""
        agent = agent or Agent(**request)
        await self.nursery.start(agent.call, self.door)
        await wait_all_tasks_blocked()
        return agent

    async def assert_quiet(self) -> None:
        """Whatever happened, nothing of it is left."""
        await wait_all_tasks_blocked()
        assert self.provider.open == 0
        assert_empty(self.engine)
        assert self.door.bodies.held == 0
        assert self.crashes == []


@asynccontextmanager
async def house(
    program: Program,
    provider: FakeProvider | None = None,
    secrets: Mapping[SecretRef, str] | None = None,
    bodies_max: int = BODIES_BYTES,
    **options: Any,
) -> AsyncIterator[House]:
    """Opened for the context; at its end everybody must have gone home."""
    provider = provider or FakeProvider()
    records: list[CallRecord] = []
    crashes: list[Exception] = []
    engine = Engine(program, audit=True, on_crash=crashes.append, **options)
    door = Door(engine, Upstream(provider), on_call=records.append, bodies_max=bodies_max)
    door.use(program, secrets or {})
    # With a bound there is always a next time to jump to: who is forgotten fails, and does not hang.
    with trio.fail_after(END_S):
        async with trio.open_nursery() as engine_nursery:
            await engine_nursery.start(engine.run)
            async with trio.open_nursery() as nursery:
                opened = House(engine, door, provider, nursery, records, crashes)
                yield opened
            await opened.assert_quiet()
            engine_nursery.cancel_scope.cancel()
