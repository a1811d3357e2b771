"""Leases that the supervisor keeps for the agents of workers."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from hivemind_trio.admin import AskingAgent, OperationFailed, ProblemKind, leases
from hivemind_trio.proxy import OwnPriorities
from hivemind_trio.runtime import LeaseKeeper, keeping_leases
from hivemind_trio.serve.workers.channel import Channel
from hivemind_trio.serve.workers.leases import LeasesAtSupervisor, SupervisedLeases
from tests.support.policies import compiled

POLICY = compiled("provider anthropic { }\nresource gpu { lease 30s }\nresource browser { queue 1 }")
MINE, THEIRS = AskingAgent(name="mine"), AskingAgent(name="theirs")


def _ignore(*_: object) -> None:
    pass


@asynccontextmanager
async def two_workers() -> AsyncIterator[tuple[LeaseKeeper, list[Channel], list[LeasesAtSupervisor]]]:
    def now_ns() -> int:
        return round(trio.current_time() * 1e9)

    keeper = LeaseKeeper(POLICY, now_ns=now_ns, wall_ns=now_ns)
    house = SupervisedLeases(
        leases=keeper, priorities=OwnPriorities(), note=_ignore, now_ns=now_ns, program=lambda: POLICY
    )
    channels: list[Channel] = []
    async with keeping_leases(keeper), trio.open_nursery() as nursery:
        for _ in range(2):
            here, there = map(Channel, socket.socketpair())
            house.serve(here)
            await nursery.start(here.run)
            await nursery.start(there.run)
            channels.append(there)
        yield keeper, channels, [LeasesAtSupervisor(channel) for channel in channels]
        nursery.cancel_scope.cancel()


def wanted(resource: str = "gpu", wait_s: float = 60) -> leases.WantedLease:
    return leases.WantedLease(resource=resource, wait_s=wait_s)


async def until(keeper: LeaseKeeper, waiting: int) -> None:
    with trio.fail_after(5):
        while len(keeper.resources["gpu"].waiting) != waiting:
            await trio.lowlevel.checkpoint()


async def test_agents_of_two_workers_have_one_line_for_a_lease() -> None:
    async with two_workers() as (keeper, _, (first, second)), trio.open_nursery() as nursery:
        got: list[Any] = []

        async def wait() -> None:
            got.append(await second.ask("lease", THEIRS, wanted()))

        mine = await first.ask("lease", MINE, wanted())
        one = leases.OneLease(id=mine.lease.lease)
        nursery.start_soon(wait)
        await until(keeper, 1)
        renewed = await second.ask("renew", MINE, one)  # its next connection may be another worker's
        with pytest.raises(OperationFailed, match="has ended") as foreign:
            await second.ask("release", THEIRS, one)
        released = await first.ask("release", MINE, one)

    assert (mine.lease.fence, renewed.lease, released.released) == (1, "gpu-1", "gpu-1")
    assert foreign.value.kind is ProblemKind.NO_SUCH_RESOURCE
    assert (got[0].lease.fence, got[0].lease.caller) == (2, "theirs")


@pytest.mark.parametrize("how", ["the agent gives up", "its worker ends"])
async def test_a_request_leaves_the_line_when(how: str) -> None:
    async with two_workers() as (keeper, channels, (first, second)), trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def wait() -> None:
            with scope, pytest.raises(OperationFailed, match="the proxy ends"):
                await second.ask("lease", THEIRS, wanted())

        await first.ask("lease", MINE, wanted())
        nursery.start_soon(wait)
        await until(keeper, 1)
        if how == "the agent gives up":
            scope.cancel()
        else:
            channels[1].close()
        await until(keeper, 0)
        assert len(keeper.resources["gpu"].held) == 1


async def test_a_refusal_reaches_the_agent() -> None:
    async with two_workers() as (_, _, (first, _)):
        with pytest.raises(OperationFailed, match="no resource `printer`") as unknown:
            await first.ask("lease", MINE, wanted("printer"))
        with pytest.raises(OperationFailed, match="without a name"):
            await first.ask("lease", AskingAgent(), wanted())

    assert unknown.value.kind is ProblemKind.NO_SUCH_RESOURCE
