"""Nodes of before 2026-11-24 and newer ones on one store: where either finds it emptied, both let it learn.

The older ones know a life of the store by `run`, and that it learns by `learns`: when it began to.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from hivemind_trio.scheduler.sharing.budget_ask import BudgetAsk, BudgetsAsk
from hivemind_trio.scheduler.sharing.share_row import FORGET_MS, LeaseTerms, ShareRequest
from hivemind_trio.scheduler.sharing.window_ring import WindowAsk, WindowShape
from hivemind_trio.store.fleet.interface import Notice
from hivemind_trio.store.fleet.redis_pools import RedisPools, open_pools
from tests.support.redis import needs_redis, redis_server

pytestmark = [
    pytest.mark.slow,
    needs_redis,
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*MemoryObject:pytest.PytestUnraisableExceptionWarning"),
]

TERMS = LeaseTerms(lease_ms=60_000, renew_ms=2_000, gone_ms=10_000)
LEARNING_MS = TERMS.learning_ms
NOW_MS = 1_795_450_000_000
RUN = "17ab"
LIFE = f"{RUN}/{NOW_MS}"
CAP = 9
SLOTS, WINDOW, BUDGETS = "hm:{test:p}:m", "hm:{test:p}:w", "hm:{test:b}:m"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what coredis left here, where the warning is ignored, and not in a test that comes later."""
    yield
    gc.collect()


@pytest.fixture
async def pools(tmp_path: Path) -> AsyncIterator[RedisPools]:
    async with redis_server(tmp_path) as server, open_pools(server.url, "test", TERMS) as opened:
        at(opened, 0)
        yield opened


def at(pools: RedisPools, after_ms: int, run: str = RUN) -> None:
    """Put time, process and connections in the place of the server's own: both nodes are connected."""
    pools.clock = (
        f"local now, run = {NOW_MS + after_ms}, '{run}'\nlocal function connected(n) return true end\n"
        "local function listeners() return {'new', 'old'} end\n"
    )


async def marks(pools: RedisPools, key: str) -> dict[str, str]:
    found = await pools.run("return redis.call('HGETALL', KEYS[1])", (key,), ())
    return dict(zip(found[::2], found[1::2], strict=True))


async def old_node(pools: RedisPools, key: str, *fields: str | int) -> None:
    """Write fields, as the script of an older node does."""
    await pools.run("return redis.call('HSET', KEYS[1], unpack(ARGV))", (key,), fields)


async def slots(pools: RedisPools, seq: int, run: str = "", node: str = "new") -> tuple[int, str]:
    """Have a node that has nothing ask for all slots; what it has then, and the life that it hears of."""
    answer = await pools.sync(
        "p",
        ShareRequest(
            node=node, epoch=1, seq=seq, cap=CAP, nodes=2, run=run, keep=0, held=0, demand=CAP, target=CAP, owed=0,
            floor=1,
        ),
    )  # fmt: skip
    return answer.share, answer.run


async def draw(pools: RedisPools, seq: int, run: str = "") -> tuple[int, str]:
    ask = WindowAsk(node="new", epoch=1, seq=seq, run=run, nodes=2, limit=CAP, least=CAP, want=CAP, report=())
    answer = await pools.draw("p", "w", ask, WindowShape(60_000))
    return answer.granted, answer.run


async def spend(pools: RedisPools, seq: int, run: str = "") -> tuple[int, str]:
    one = BudgetAsk(
        life=0, limit=CAP, window_ms=60_000, slot=0, drawn=0, settled=0, returned=0, least=CAP, waits=True, report=()
    )
    answer = await pools.spend(
        BudgetsAsk(node="new", epoch=1, seq=seq, nodes=2, run=run, complete=True, accounts=(("b", one),))
    )
    return answer.accounts[0].drawn, answer.run


ASKS = {SLOTS: slots, WINDOW: draw, BUDGETS: spend}


@pytest.mark.parametrize("key", ASKS)
async def test_a_store_that_an_older_node_found_empty_grants_a_newer_one_nothing_before_there_was_time(
    pools: RedisPools, key: str
) -> None:
    await old_node(pools, key, "run", RUN if key == SLOTS else LIFE, "learns", NOW_MS)
    granted = []
    run = ""
    for seq, after_ms in enumerate((10, LEARNING_MS // 5, LEARNING_MS * 2 // 5), 1):
        at(pools, after_ms)
        amount, run = await ASKS[key](pools, seq, run)
        granted.append(amount)
    assert granted == [0, 0, 0]
    at(pools, FORGET_MS + LEARNING_MS)  # so long a silence counts as none of the time to learn
    assert (await ASKS[key](pools, 4, run))[0] == CAP
    assert not marks_of_learning(await marks(pools, key))


@pytest.mark.parametrize("key", ASKS)
async def test_a_store_that_a_newer_node_found_empty_learns_for_an_older_one_as_long_as_for_itself(
    pools: RedisPools, key: str
) -> None:
    _, run = await ASKS[key](pools, 1)
    found = await marks(pools, key)
    # An older node looks for the process: for slots by its bare name, else with the time when the life began.
    assert re.fullmatch(RUN if key == SLOTS else f"{RUN}/[0-9]+", found["run"])
    assert float(found["learns"]) == NOW_MS
    at(pools, LEARNING_MS * 9 // 10)  # the store seems to have been away, or the older one to be unheard
    assert (await ASKS[key](pools, 2, run))[0] == 0
    found = await marks(pools, key)
    assert float(found["till"]) > NOW_MS + LEARNING_MS
    assert float(found["learns"]) + LEARNING_MS == float(found["till"])


def marks_of_learning(found: dict[str, str]) -> set[str]:
    return found.keys() & {"learns", "till", "since", "heard"}


async def test_slots_that_an_older_node_reports_to_an_emptied_store_are_given_to_nobody_else(
    pools: RedisPools,
) -> None:
    await old_node(pools, SLOTS, "run", RUN, "learns", NOW_MS)
    row = f'{{"e":1,"q":7,"p":{CAP},"a":4,"h":4,"w":4,"c":0,"f":1,"t":{NOW_MS},"k":true,"s":-1}}'
    await old_node(pools, "hm:{test:p}:n", "old", row)
    share, run = await slots(pools, 1)
    assert share == 0
    await slots(pools, 2, run)  # both have told this life what they have
    assert (await slots(pools, 3, run))[0] == CAP - 4
    found = await marks(pools, SLOTS)
    assert not marks_of_learning(found)
    assert found["run"] == RUN


async def test_a_store_that_older_nodes_have_taught_has_nothing_to_learn_of_a_newer_one(pools: RedisPools) -> None:
    await old_node(pools, SLOTS, "run", RUN)
    assert await slots(pools, 1) == (CAP, LIFE)  # one that is emptied later gets another name
    assert (await marks(pools, SLOTS))["run"] == RUN


async def test_older_and_newer_nodes_each_find_another_process_of_the_store(pools: RedisPools) -> None:
    await old_node(pools, SLOTS, "run", RUN, "life", "of-before/1")  # an older one has not heard a newer one yet
    await old_node(pools, SLOTS, "learns", NOW_MS)
    assert (await slots(pools, 1))[0] == 0
    await old_node(pools, SLOTS, "run", "of-before", "life", "of-before/1")
    share, run = await slots(pools, 2)
    assert (share, run) == (0, LIFE)
    assert (await marks(pools, SLOTS))["run"] == RUN


async def test_a_late_message_that_finds_another_process_lets_older_nodes_learn(pools: RedisPools) -> None:
    await slots(pools, 5)
    at(pools, 1, "next")
    await slots(pools, 5)
    found = await marks(pools, SLOTS)
    assert (found["run"], float(found["learns"])) == ("next", NOW_MS + 1)


async def test_a_newer_node_learns_for_as_long_as_an_older_one_finds_necessary(pools: RedisPools) -> None:
    await old_node(pools, SLOTS, "run", RUN, "learns", NOW_MS)
    _, run = await slots(pools, 1)
    await old_node(pools, SLOTS, "learns", NOW_MS + 5_000)
    at(pools, 1)
    await slots(pools, 2, run)
    assert float((await marks(pools, SLOTS))["till"]) == NOW_MS + 5_000 + LEARNING_MS


async def test_an_older_node_that_waits_is_called_to_ask_for_slots_that_come_free(pools: RedisPools) -> None:
    _, run = await slots(pools, 1)
    await slots(pools, 1, run, "old")
    await slots(pools, 2, run)
    assert await slots(pools, 3, run) == (CAP, run)
    row = {"e": 1, "q": 2, "p": CAP, "a": 0, "h": 0, "w": 4, "c": 0, "f": 1, "t": NOW_MS, "k": True, "s": -1}
    await old_node(pools, "hm:{test:p}:n", "old", json.dumps(row))
    back = ShareRequest(
        node="new", epoch=1, seq=4, cap=CAP, nodes=2, run=run, keep=5, held=5, demand=CAP, target=5, owed=0, floor=1,
        parts=(("old", 4),),
    )  # fmt: skip

    send, hear = trio.open_memory_channel[Notice](8)
    listens = trio.Event()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pools.listen, "old", listens.set, send.send_nowait)
            await listens.wait()
            answer = await pools.sync("p", back)
            assert (answer.granted, answer.rows["old"].share) == ((), 0)
            assert isinstance(await hear.receive(), str)  # it is to report
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("does", "called"), [({"g": True}, True), ({"g": 2}, False)])
async def test_a_node_of_before_is_called_to_give_back_where_another_waits(
    pools: RedisPools, does: dict[str, object], called: bool
) -> None:
    _, run = await slots(pools, 1)
    await slots(pools, 1, run, "old")
    row = {"e": 1, "q": 2, "p": CAP, "a": CAP, "h": 0, "w": 0, "c": 0, "f": 1, "t": NOW_MS, "k": True, "s": -1, "n": 0}
    await old_node(pools, "hm:{test:p}:n", "old", json.dumps(row | does))
    send, hear = trio.open_memory_channel[Notice](8)
    listens = trio.Event()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pools.listen, "old", listens.set, send.send_nowait)
            await listens.wait()
            await slots(pools, 2, run)
            assert isinstance(await hear.receive(), str) is called
            nursery.cancel_scope.cancel()
