"""The script of budgets that Redis runs answers every history as the model does."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hivemind_trio.scheduler.sharing.budget_ask import NO_LIMIT, BudgetAsk, BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.budget_pot import BudgetPots
from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms
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
WINDOWS = {"day": (86_400_000, True), "hour": (3_600_000, False), "minute": (60_000, False)}


def wish(random: Random, account: str, day: int) -> BudgetAsk:
    window_ms, calendar = WINDOWS[account]
    settled = random.randrange(0, 60)
    return BudgetAsk(
        life=random.choice([0, 0, 0, 0, 1]),
        limit=random.choice([100, 100, 100, 70, NO_LIMIT]),
        window_ms=window_ms,
        slot=day if calendar else 0,
        drawn=random.choice([0, 0, random.randrange(0, 80)]),
        settled=settled,
        returned=random.randrange(0, 9),
        least=random.choice([0, 1, 5, 40]),
        waits=random.random() < 0.7,
        idle=random.choice([0, 0, 3]),
        report=random.choice([None, None, ((0, settled), (40_000, 3))]),
        closes=random.choice([None, None, (BEGAN_MS, settled)]),
        spent=random.choice([None] * 12 + [0, 17]),
        spent_seq=random.randrange(1, 4),
    )


def message(random: Random, seq: int, day: int, runs: list[str]) -> BudgetsAsk:
    return BudgetsAsk(
        node=random.choice(NODES),
        epoch=BEGAN_MS + random.choice([0, 0, 0, 0, 0, 0, 1]),
        seq=max(1, seq + random.choice([0, 0, 0, -3])),
        nodes=4,
        run=random.choice(["", *runs[-2:]]),
        complete=random.random() < 0.7,
        accounts=tuple((name, wish(random, name, day)) for name in WINDOWS if random.random() < 0.6),
    )


async def asked(pools: RedisPools, ask: BudgetsAsk) -> BudgetsAnswer | None:
    try:
        return await pools.spend(ask)
    except FencedNode:
        return None


async def test_I12_redis_and_the_model_answer_random_histories_of_budgets_alike(tmp_path: Path) -> None:
    granted = alone = 0
    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as pools:
        for seed in range(30):
            random = Random(seed)
            pools.namespace = f"budgets-{seed}"
            model = BudgetPots(TERMS.learning_ms)
            now_ms, run, day, runs = BEGAN_MS, 1, 1_795_478_400, [""]
            for seq in range(1, 60):
                now_ms += random.choice([0, 0, 0, 1, 20, 150, 700, 4_000, 70_000, 700_000, -50])
                run += random.random() < 0.03
                day += 86_400 * (random.random() < 0.03)
                ask = message(random, seq, day, runs)
                pools.clock = f"local now, run = {now_ms}, '{run}'\n"
                before = {name: pot.out() for name, pot in model.pots.items()}
                try:
                    expected = model.spend(ask, now_ms, f"{run}")
                except FencedNode:
                    expected = None
                assert await asked(pools, ask) == expected, (seed, seq)
                if expected is None:
                    continue
                runs.append(expected.run)
                for (name, one), answer in zip(ask.accounts, expected.accounts, strict=bool(expected.accounts)):
                    granted += bool(one.least and not answer.short and not answer.anew)
                    alone += not answer.short and one.waits and answer.spent + answer.out > 100 > answer.spent
                    assert name in model.pots or not before
    assert granted > 50
    assert alone
