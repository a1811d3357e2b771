"""The script of windows that Redis runs answers every history as the model does."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowRing, WindowShape
from hivemind_trio.store.fleet.redis_pools import RedisPools, open_pools
from tests.support.redis import needs_redis, redis_server

pytestmark = [
    pytest.mark.slow,
    needs_redis,
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*MemoryObject:pytest.PytestUnraisableExceptionWarning"),
]

TERMS = LeaseTerms(lease_ms=6_000, renew_ms=200, gone_ms=1_000)
BEGAN_MS = 1_795_450_000_000
NODES = "abcd"


def wish(random: Random, name: str, seq: int, slot: int, lives: list[str]) -> WindowAsk:
    least = random.choice([0, 1, 5, 40])
    return WindowAsk(
        node=name,
        epoch=BEGAN_MS + random.choice([0, 0, 0, 0, 0, 0, 1]),
        seq=max(1, seq + random.choice([0, 0, 0, -3])),
        run=random.choice(["", *lives[-1:] * 3, *lives[-2:-1]]),
        nodes=4,
        limit=random.choice([100, 100, 100, 90]),
        least=least,
        want=least + random.choice([0, 0, 3, 60]),
        more=random.choice([0, 0, 0, 2]),
        back=tuple((slot - random.randrange(0, 9), random.randrange(1, 8)) for _ in range(random.randrange(0, 3))),
        report=random.choice([None, None, None, ((0, 5), (2_500, 7), (90_000, 3))]),
    )


async def asked(pools: RedisPools, ask: WindowAsk, shape: WindowShape) -> WindowAnswer | None:
    try:
        return await pools.draw("p", "w", ask, shape)
    except FencedNode:
        return None


async def test_I12_redis_and_the_model_answer_random_histories_of_a_window_alike(tmp_path: Path) -> None:
    granted = 0
    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as pools:
        for seed in range(30):
            random = Random(seed)
            pools.namespace = f"window-{seed}"
            shape = WindowShape(random.choice([1_000, 60_000, 3_600_000]))
            model = WindowRing(shape, TERMS.learning_ms)
            now_ms, run, lives = BEGAN_MS, 1, list[str]()
            for seq in range(1, 60):
                now_ms += random.choice([0, 1, 20, 150, shape.slot_ms, 5 * shape.slot_ms, shape.window_ms // 3, -50])
                run += random.random() < 0.03
                if random.random() < 0.02:  # emptied, by the same process
                    model = WindowRing(shape, TERMS.learning_ms)
                    await server.send("FLUSHALL")
                ask = wish(random, random.choice(NODES), seq, now_ms // shape.slot_ms, lives)
                pools.clock = f"local now, run = {now_ms}, '{run}'\n"
                try:
                    expected = model.draw(ask, now_ms, f"{run}")
                except FencedNode:
                    expected = None
                assert await asked(pools, ask, shape) == expected, (seed, seq)
                if expected is not None:
                    granted += expected.granted
                    lives.append(expected.run)
    assert granted > 1_000
