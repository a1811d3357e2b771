"""Lease sessions: a lease ends with its connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import trio

from hivemind_trio.admin import LeaseHouse
from hivemind_trio.control.lease_route import HeldLease, LeaseSession
from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.proxy import OwnPriorities
from hivemind_trio.runtime import LeaseKeeper, keeping_leases
from tests.support.policies import compiled

GPU: Final = compiled("provider anthropic { }\nresource gpu { }")


class BrokenDisk:
    """A disk that is read-only."""

    async def keep_leases(self, *_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError(30, "Read-only file system")


async def test_a_client_hears_of_its_request_while_its_lease_cannot_be_written(autojump_clock: object) -> None:
    def now_ns() -> int:
        return round(trio.current_time() * 1e9)

    keeper = LeaseKeeper(GPU, now_ns=now_ns, wall_ns=now_ns, store=BrokenDisk())
    house: Any = SimpleNamespace(
        leases=keeper, now_ns=now_ns, at=lambda _: None, program=GPU, priorities=OwnPriorities()
    )
    lines: list[tuple[float, Any]] = []
    async with keeping_leases(keeper):
        began_s = trio.current_time()
        session = LeaseSession(cast(LeaseHouse, house), HeldLease(resource="gpu", agent="a", wait_s=40.0), "somebody")
        async for line in session.events():
            lines.append((trio.current_time() - began_s, msgspec.json.decode(line)))

    assert [line["event"] for _, line in lines] == ["waiting", "waiting", "waiting", "refused"]
    # Not at once: a disk that is sound has written it before.
    assert [round(at_s) for at_s, _ in lines[:3]] == [1, 16, 31]
    assert {line["before_you"] for _, line in lines[:3]} == {0}
    assert {line["unwritten"] for _, line in lines[:3]} == {"[Errno 30] Read-only file system"}
    assert "could be written to disk in time ([Errno 30] Read-only file system)" in lines[3][1]["detail"]


async def test_a_lease_has_ended_when_its_session_is_closed(autojump_clock: object) -> None:
    def now_ns() -> int:
        return round(trio.current_time() * 1e9)

    keeper = LeaseKeeper(GPU, now_ns=now_ns, wall_ns=now_ns)
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
