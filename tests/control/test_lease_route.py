"""Lease sessions: a lease ends with its connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import trio

from hivemind_trio.admin import LeaseHouse
from hivemind_trio.control.lease_route import HeldLease, LeaseSession
from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.runtime import LeaseKeeper, keeping_leases
from tests.support.policies import compiled


async def test_a_lease_has_ended_when_its_session_is_closed(autojump_clock: object) -> None:
    def now_ns() -> int:
        return round(trio.current_time() * 1e9)

    keeper = LeaseKeeper(compiled("provider anthropic { }\nresource gpu { }"), now_ns=now_ns, wall_ns=now_ns)
    house: Any = SimpleNamespace(leases=keeper, now_ns=now_ns, at=lambda _: None)
    async with keeping_leases(keeper):
        wait = keeper.ask("gpu", agent=UNKNOWN_AGENT, caller="a")
        assert wait.lease is not None
        session = LeaseSession(cast(LeaseHouse, house), HeldLease(lease=wait.lease.id), "somebody").events()
        line = msgspec.json.decode(await anext(session))
        held = keeper.lease(wait.lease.id)
        await session.aclose()

        assert (line["event"], line["lease"]) == ("lease", wait.lease.id)
        assert held is not None
        assert keeper.lease(wait.lease.id) is None
