"""The script that Redis runs answers every history as the model does."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import trio

from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.shared_pool import SharedPool
from hivemind_trio.store.fleet.interface import Notice, StoreUnreachable
from hivemind_trio.store.fleet.redis_pools import RedisPools, open_pools
from hivemind_trio.store.fleet.scripts import CLOCK
from tests.support.redis import needs_redis, redis_server

pytestmark = [
    pytest.mark.slow,
    needs_redis,
    # coredis leaves a stream of a broken connection to the garbage collector.
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*MemoryObject:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what coredis left here, where the warning is ignored, and not in a test that comes later."""
    yield
    gc.collect()


TERMS = LeaseTerms(lease_ms=6_000, renew_ms=200, gone_ms=1_000)

NODES = "abcd"


def clock(now_ms: int, run: int, present: str) -> str:
    """What stands in the place of the server's own time, process and connections."""
    there = f"string.find('{present}', n, 1, true) ~= nil"
    all_of_them = ", ".join(f"'{name}'" for name in present)
    return (
        f"local now, run = {now_ms}, '{run}'\nlocal function connected(n) return {there} end\n"
        f"local function listeners() return {{{all_of_them}}} end\n"
    )


async def asked(pools: RedisPools, ask: ShareRequest, at: str) -> ShareAnswer | None:
    pools.clock = at
    try:
        return await pools.sync("p", ask)
    except FencedNode:
        return None


def asked_of_model(pool: SharedPool, ask: ShareRequest, now_ms: int, run: int, present: str) -> ShareAnswer | None:
    try:
        return pool.sync(ask, now_ms, f"{run}", present)
    except FencedNode:
        return None


def wish(random: Random, name: str, seq: int, lives: Sequence[str] = ("",)) -> ShareRequest:
    return ShareRequest(
        node=name,
        epoch=1_795_450_000_000 + random.choice([0, 0, 0, 1]),
        seq=max(1, seq + random.choice([0, 0, 0, -3])),
        cap=random.choice([12, 12, 12, 9]),
        nodes=4,
        run=random.choice(lives),
        keep=random.randrange(0, 14),
        held=random.randrange(0, 4),
        demand=random.randrange(0, 20),
        target=random.randrange(0, 14),
        owed=random.randrange(-2_000, 2_000),
        floor=random.randrange(0, 2),
        parts=tuple((other, random.randrange(0, 14)) for other in random.sample("abcd", random.randrange(0, 4))),
    )


async def test_I12_redis_and_the_model_answer_random_histories_alike(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as pools:
        for seed in range(25):
            random = Random(seed)
            pools.namespace = f"history-{seed}"
            model = SharedPool(TERMS)
            now_ms, run, lives = 1_795_450_000_000, 1, [""]
            for seq in range(1, 60):
                now_ms += random.choice([0, 1, 20, 150, 150, 700, 4_000, -50])
                run += random.random() < 0.03
                present = "".join(name for name in NODES if random.random() < 0.7)
                name = random.choice(NODES)
                if random.random() < 0.05:
                    model.bye(name, 1_795_450_000_000)
                    await pools.bye("p", name, 1_795_450_000_000)
                    continue
                ask = wish(random, name, seq, lives[-1:] * 4 + lives[-2:])
                expected = asked_of_model(model, ask, now_ms, run, present)
                assert await asked(pools, ask, clock(now_ms, run, present)) == expected, (seed, seq)
                if expected is not None:
                    lives.append(expected.run)


async def test_a_store_knows_the_nodes_of_its_namespace_that_are_connected(tmp_path: Path) -> None:
    async with (
        redis_server(tmp_path) as server,
        open_pools(server.url, "te?m[x]*", TERMS) as ours,
        open_pools(server.url, "team[x]1", TERMS) as others,
        trio.open_nursery() as nursery,
    ):
        for pools in (ours, others):
            listens = trio.Event()
            nursery.start_soon(pools.listen, f"node of {pools.namespace}", listens.set, lambda about: None)
            await listens.wait()
        for pools in (ours, others):
            channel = pools.arguments(wish(Random(1), "a", 1))[15:16]
            found = await pools.run(f"{CLOCK} return listeners()", (), ("",) * 15 + channel)
            assert found == [f"node of {pools.namespace}"]
        nursery.cancel_scope.cancel()


async def test_a_store_that_ends_is_said_to_be_unreachable_and_is_used_again_once_it_is_back(tmp_path: Path) -> None:
    opened, called, ended = trio.Event(), trio.Event(), trio.Event()

    async def listen(pools: RedisPools) -> None:
        with pytest.raises(StoreUnreachable):
            await pools.listen("a", opened.set, lambda about: called.set())
        ended.set()

    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as pools:
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen, pools)
                await opened.wait()
                await pools.sync("p", wish(Random(1), "a", 1))
                await server.stop()
                await ended.wait()
            with pytest.raises(StoreUnreachable):
                await pools.epoch()
            await server.start()
            assert await pools.epoch() > 1_700_000_000_000


async def test_a_message_that_cannot_be_read_is_a_call_to_report(tmp_path: Path) -> None:
    heard, hear = trio.open_memory_channel[Notice](8)
    opened = trio.Event()
    publish = "return redis.call('PUBLISH', ARGV[1], ARGV[2])"
    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as pools:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pools.listen, "a", opened.set, heard.send_nowait)
                await opened.wait()
                for row in ("", "\n{}", '\n{"node": "b", "run": 1, "row": {"of": "a later version"}}', "\nnonsense"):
                    await pools.run(publish, (), ("hm:{test}:to:a", f"key{row}"))
                    assert await hear.receive() == "key"
                nursery.cancel_scope.cancel()
