"""Several proxies with one budget in a real Redis: never overspent, whichever node is killed and whatever is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2
import pytest
import trio

from hivemind_trio.sim import Traits
from tests.e2e.control import eventually
from tests.e2e.process import PATIENCE_S
from tests.support.redis import needs_redis

from .test_nodes import MS, Nodes, get, nodes

pytestmark = [pytest.mark.slow, needs_redis]

MOST = 60
QUICK = Traits(latency_mean_ns=30 * MS, latency_sigma_ns=10 * MS, latency_min_ns=10 * MS)
BUDGET = f'budget calls {{ requests {MOST}/day; window sliding; at 100% {{ deny "enough" }} }}\n'


async def use_up(fleet: Nodes, node: int, agents: int = 4) -> None:
    """Call a node until the budget is used up, or the node is gone."""

    async def agent() -> None:
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            while True:
                try:
                    answer = await client.post(
                        f"{fleet.proxies[node].url}/v1/chat/completions",
                        json={"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]},
                    )
                except httpx2.HTTPError:
                    return
                if answer.status_code != 200:
                    assert "enough" in answer.text or "draining" in answer.text
                    return
                fleet.done[node] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(agents):
            nursery.start_soon(agent)


async def joined(fleet: Nodes) -> None:
    """Wait until every node may spend: one that comes late would find the budget used up."""
    for proxy in fleet.proxies:
        await proxy.says("node_joined")


async def test_two_nodes_use_up_one_budget_together_and_both_refuse_then(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, QUICK, beside=BUDGET) as fleet:
        await joined(fleet)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use_up, fleet, 0)
            nursery.start_soon(use_up, fleet, 1)
        assert sum(fleet.done) == fleet.provider.world.attempts == MOST
        assert min(fleet.done) > 5


async def test_a_killed_node_comes_back_and_its_credit_with_it(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, QUICK, beside=BUDGET) as fleet:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use_up, fleet, 0)
            await fleet.more(0, 10)
            fleet.proxies[0].signal(signal.SIGKILL)
        await fleet.proxies[0].ended()
        cut_off = fleet.provider.world.attempts - fleet.done[0]  # the provider has served them, too
        await fleet.start(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use_up, fleet, 0)
            nursery.start_soon(use_up, fleet, 1)
        assert cut_off <= 4
        assert MOST - 4 <= fleet.provider.world.attempts <= MOST


async def test_a_node_that_ends_in_order_leaves_its_credit_to_the_other(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, QUICK, beside=BUDGET) as fleet:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use_up, fleet, 0)
            await fleet.more(0, 10)
            fleet.proxies[0].signal(signal.SIGTERM)
        assert await fleet.proxies[0].ended() == 0
        await use_up(fleet, 1)
        assert fleet.provider.world.attempts == MOST


async def test_a_budget_is_kept_when_the_store_is_emptied(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, QUICK, beside=BUDGET) as fleet:
        await joined(fleet)

        async def spent(calls: int) -> None:
            """Wait for so many calls of all nodes: how many are of which is left open, and there are no more."""
            with trio.fail_after(PATIENCE_S):
                await fleet.provider.until(lambda: sum(fleet.done) >= calls)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(use_up, fleet, 0)
            nursery.start_soon(use_up, fleet, 1)
            await spent(MOST // 4)
            await fleet.redis.send("FLUSHALL")
            await spent(MOST // 2)
            await fleet.redis.stop()
            await fleet.redis.start()  # with nothing in it
        assert fleet.provider.world.attempts == MOST


async def test_a_store_that_crashes_and_keeps_a_file_knows_what_a_killed_node_has_spent(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, QUICK, beside=BUDGET, keeps=("--save", "", "--appendonly", "yes")) as fleet:
        await joined(fleet)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use_up, fleet, 0)
            await fleet.more(0, 20)
            fleet.proxies[0].signal(signal.SIGKILL)
        await fleet.proxies[0].ended()
        await fleet.redis.stop()
        await fleet.redis.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use_up, fleet, 1, 1)
            await fleet.more(1, 5)
            nursery.cancel_scope.cancel()

        async def spent() -> int:
            spent: int = (await get(fleet.proxies[1], "/v1/budgets"))["budgets"][0]["spent"]
            return spent

        # The last chunk that the killed node had drawn is charged, and not spent.
        await eventually(spent, lambda of_both: of_both >= fleet.done[1] + 10)
