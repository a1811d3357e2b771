"""The script for what nodes learn together answers every history as the model does."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from hivemind_trio.scheduler.learning.learn_record import LearnRecord
from hivemind_trio.scheduler.learning.lesson import LESSONS_MAX, LearnAsk, Lesson, SharedVerdict
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms, ShareRequest
from hivemind_trio.store.fleet.redis_pools import open_pools
from tests.support.redis import needs_redis, redis_server

pytestmark = [
    needs_redis,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*MemoryObject:pytest.PytestUnraisableExceptionWarning"),
]

TERMS = LeaseTerms(lease_ms=6_000, renew_ms=200, gone_ms=1_000)
BORN_MS = 1_795_450_000_000
NODES = "abcd"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what coredis left here, where the warning is ignored, and not in a test that comes later."""
    yield
    gc.collect()


def clock(now_ms: int) -> str:
    return f"local now = {now_ms}\nlocal run = '1'\nlocal function connected(name) return true end\n"


def lesson(random: Random) -> Lesson:
    return Lesson(
        call=random.randrange(1, 9),
        age_ms=random.randrange(0, 300),
        kind=random.choice(["granted", "accepted", "ended"]),
        lasted_ms=random.randrange(0, 9_000),
        is_probe=random.random() < 0.2,
        outcome=random.choice(["", "succeeded", "overloaded"]),
        said_ms=random.choice([-1, 0, 1_500]),
        tokens=random.randrange(0, 200),
    )


def report(random: Random, seq: int, lessons: int) -> LearnAsk:
    verdict = SharedVerdict(
        limit=random.choice([0, 8, 20]),
        doubling=random.random() < 0.5,
        circuit=random.choice(["closed", "open", "half-open", "half-open"]),
        opens_ms=random.choice([0, 700]),
    )
    return LearnAsk(
        node=random.choice(NODES),
        epoch=BORN_MS + random.choice([0, 0, 0, 1]),
        seq=max(1, seq + random.choice([0, 0, 0, -3])),
        held=random.randrange(0, 9),
        binds=random.random() < 0.5,
        lessons=tuple(lesson(random) for _ in range(lessons)),
        urgent=random.random() < 0.3,
        verdict=verdict if random.random() < 0.7 else None,
        leads=random.random() < 0.5,
        wants_probe=random.random() < 0.5,
        probes=random.random() < 0.2,
    )


async def test_I12_redis_and_the_model_answer_random_reports_alike(tmp_path: Path) -> None:
    led: set[str] = set()
    probed = 0
    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as pools:
        for seed in range(25):
            random = Random(seed)
            pools.namespace = f"history-{seed}"
            model = LearnRecord(TERMS.grace_ms, TERMS.gone_ms)
            now_ms = BORN_MS
            for seq in range(1, 60):
                now_ms += random.choice([0, 1, 20, 150, 150, 700, 4_000, -50])
                if random.random() < 0.05:
                    model.bye("a", BORN_MS)
                    await pools.bye("p", "a", BORN_MS)  # it has no share that it would lose
                    continue
                ask = report(random, seq, LESSONS_MAX // 2 if random.random() < 0.02 else random.randrange(0, 4))
                pools.clock = clock(now_ms)
                expected = model.learn(ask, now_ms)
                assert await pools.learn("p", ask) == expected, (seed, seq)
                led |= {ask.node} if expected.leads else set()
                probed += expected.probe

    assert led == set(NODES)
    assert probed > 20


async def test_no_node_is_granted_more_than_all_have_learned(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as pools:
        lives = [""]

        async def asks(node: str, seq: int) -> tuple[int, int]:
            ask = ShareRequest(
                node=node,
                epoch=1,
                seq=seq,
                cap=64,
                nodes=1,
                run=lives[-1],
                keep=0,
                held=0,
                demand=64,
                target=64,
                owed=0,
                floor=0,
            )
            answer = await pools.sync("p", ask)
            lives.append(answer.run)
            return answer.share, answer.cap

        await asks("a", 1)
        await asks("a", 2)
        learned = SharedVerdict(limit=20, doubling=False, circuit="closed")
        await pools.learn("p", LearnAsk(node="a", epoch=1, seq=1, held=0, binds=False, verdict=learned))
        assert await asks("a", 3) == (20, 20)
        assert await asks("b", 1) == (0, 20)
