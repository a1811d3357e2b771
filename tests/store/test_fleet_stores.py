"""Every store of a fleet behaves alike behind its interface. Its rules are compared by `test_shared_*`."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from hivemind_trio.scheduler.learning.lesson import LearnAsk
from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms, RowNotice, ShareRequest
from hivemind_trio.scheduler.sharing.window_ring import WindowAsk, WindowShape
from hivemind_trio.store.fleet.interface import FleetStore, Notice
from hivemind_trio.store.fleet.memory_fleet import MemoryFleet
from hivemind_trio.store.fleet.node_cards import CARDS_MAX, NodeCard
from hivemind_trio.store.fleet.redis_pools import open_pools
from tests.support.redis import needs_redis, redis_server

pytestmark = [
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*MemoryObject:pytest.PytestUnraisableExceptionWarning"),
]

STORES = ["memory", pytest.param("redis", marks=[needs_redis, pytest.mark.slow])]
TERMS = LeaseTerms(lease_ms=6_000, renew_ms=200, gone_ms=1_000)
CAP = 8
SHAPE = WindowShape(60_000)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what coredis left here, where the warning is ignored, and not in a test that comes later."""
    yield
    gc.collect()


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[FleetStore]:
    if kind == "memory":
        yield MemoryFleet(TERMS, lambda: time.time_ns() // 1_000_000)
        return
    async with redis_server(folder) as server, open_pools(server.url, "test", TERMS) as pools:
        yield pools


def wish(node: str, seq: int, demand: int, run: str = "", epoch: int = 1, nodes: int = 1) -> ShareRequest:
    return ShareRequest(
        node=node,
        epoch=epoch,
        seq=seq,
        cap=CAP,
        nodes=nodes,
        run=run,
        keep=0,
        held=0,
        demand=demand,
        target=demand,
        owed=0,
        floor=1,
    )


async def learned(store: FleetStore) -> str:
    """Let a store that has started anew hear the only node that there may be; return its life."""
    run = (await store.sync("p", wish("a", 1, 0))).run
    await store.sync("p", wish("a", 2, 0, run))
    return run


@pytest.mark.parametrize("kind", STORES)
async def test_a_store_that_has_started_anew_grants_nothing_before_all_have_reported(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store, trio.open_nursery() as nursery:
        for node in "ab":
            listens = trio.Event()
            nursery.start_soon(store.listen, node, listens.set, lambda about: None)
            await listens.wait()

        async def asks(node: str, seq: int, run: str) -> tuple[int, bool]:
            answer = await store.sync("p", wish(node, seq, CAP, run, nodes=2))
            return answer.share, answer.learning

        run = (await store.sync("p", wish("a", 1, CAP, nodes=2))).run
        assert await asks("a", 2, run) == (0, True)
        assert await asks("b", 1, "of-before/1") == (0, True)
        assert await asks("a", 3, run) == (0, True)
        assert await asks("b", 2, run) == (0, True)
        assert await asks("a", 4, run) == (CAP, False)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", STORES)
async def test_a_node_is_told_with_each_report_that_another_waits_for_what_it_has(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        assert await store.epoch() > 1_700_000_000_000
        await learned(store)
        assert (await store.sync("p", wish("a", 3, CAP))).share == CAP
        send, hear = trio.open_memory_channel[Notice](8)
        listens = trio.Event()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.listen, "a", listens.set, send.send_nowait)
                await listens.wait()
                for seq in (2, 3):
                    answer = await store.sync("p", wish("b", seq, 4))
                    assert (answer.share, answer.tell) == (0, ("a",))
                    notice = await hear.receive()
                    assert notice == RowNotice(pool="p", node="b", run=answer.run, row=answer.rows["b"])
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", STORES)
async def test_a_node_is_told_what_another_one_reports_where_it_need_not_answer(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await learned(store)
        await store.sync("p", wish("a", 3, CAP - 1))
        send, hear = trio.open_memory_channel[Notice](8)
        listens = trio.Event()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.listen, "a", listens.set, send.send_nowait)
                await listens.wait()
                answer = await store.sync("p", wish("b", 2, 1))
                assert answer.tell == ("a",)
                notice = await hear.receive()
                assert notice == RowNotice(pool="p", node="b", run=answer.run, row=answer.rows["b"])
                again = await store.sync("p", attrs.evolve(wish("b", 3, 1), keep=1))
                assert (again.share, again.tell) == (1, ())  # nothing has changed
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", STORES)
async def test_slots_that_come_free_are_given_to_a_node_that_waits_without_its_asking(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as store:
        await learned(store)
        await store.sync("p", wish("a", 3, CAP))
        send, hear = trio.open_memory_channel[Notice](8)
        listens = trio.Event()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.listen, "b", listens.set, send.send_nowait)
                await listens.wait()
                waits = (await store.sync("p", wish("b", 2, 4))).rows["b"]
                back = attrs.evolve(wish("a", 4, CAP), keep=CAP - 2, target=CAP - 2, parts=(("c", 4), ("b", 3)))
                answer = await store.sync("p", back)
                row = attrs.evolve(waits, share=2, changes=1)
                assert (answer.granted, answer.tell) == (("b",), ("b",))
                assert answer.rows["b"] == row
                notice = await hear.receive()
                assert notice == RowNotice(pool="p", node="a", run=answer.run, row=answer.rows["a"], granted={"b": row})
                # The next report says what the node uses of it, and begins anew.
                used = await store.sync("p", attrs.evolve(wish("b", 3, 4), keep=2))
                assert (used.share, used.rows["b"].changes) == (2, 0)
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", STORES)
async def test_a_node_that_is_not_connected_is_given_no_slots(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await learned(store)
        await store.sync("p", wish("a", 3, CAP))
        await store.sync("p", wish("b", 2, 4))
        answer = await store.sync("p", attrs.evolve(wish("a", 4, CAP), keep=4, target=4, parts=(("b", 4),)))
        assert (answer.granted, answer.rows["b"].share) == ((), 0)


@pytest.mark.parametrize("kind", STORES)
async def test_a_node_that_ends_frees_its_slots_and_is_fenced_by_its_successor(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await learned(store)
        await store.sync("p", wish("a", 3, CAP))
        await store.bye("p", "a", 1)
        assert (await store.sync("p", wish("b", 2, CAP))).share == CAP
        await store.sync("p", wish("a", 1, 0, epoch=2))
        with pytest.raises(FencedNode):
            await store.sync("p", wish("a", 4, CAP))


@pytest.mark.parametrize("kind", STORES)
async def test_nodes_draw_of_one_window(kind: str, tmp_path: Path) -> None:
    def ask(node: str, seq: int, want: int, run: str = "") -> WindowAsk:
        report = () if seq == 2 else None
        return WindowAsk(node=node, epoch=1, seq=seq, run=run, nodes=2, limit=10, least=want, want=want, report=report)

    async with opened(kind, tmp_path) as store:
        first = await store.draw("p", "w", ask("a", 1, 0), SHAPE)
        assert first.anew
        assert (await store.draw("p", "w", ask("b", 1, 7), SHAPE)) == attrs.evolve(first, granted=0)
        assert not (await store.draw("p", "w", ask("a", 2, 0, first.run), SHAPE)).anew
        assert (await store.draw("p", "w", ask("b", 2, 7, first.run), SHAPE)).granted == 7
        assert (await store.draw("p", "w", ask("a", 3, 4, first.run), SHAPE)).granted == 0
        assert (await store.draw("p", "w", ask("a", 4, 3, first.run), SHAPE)).granted == 3


def card(node: str, epoch: int = 1, policy: str = "one") -> NodeCard:
    return NodeCard(node=node, epoch=epoch, policy=policy, version="1")


@pytest.mark.parametrize("kind", STORES)
async def test_nodes_are_listed_with_their_policies_until_they_leave(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await store.introduce(card("b", epoch=2))
        listens = trio.Event()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.listen, "a", listens.set, lambda about: None)
                await listens.wait()
                listed = await store.introduce(card("a", policy="other"))
                nursery.cancel_scope.cancel()
        assert [(one.card, one.present) for one in listed] == [
            (card("a", policy="other"), True),
            (card("b", epoch=2), False),
        ]
        assert all(0 <= one.age_ms < 20_000 for one in listed)
        # An older process under the name of a newer one, and its end, change nothing.
        assert card("b", epoch=2) in [one.card for one in await store.introduce(card("b", epoch=1, policy="old"))]
        await store.leave("b", 1)
        assert [one.card.node for one in await store.introduce(card("a", epoch=3))] == ["a", "b"]
        await store.leave("b", 2)
        assert [one.card for one in await store.introduce(card("a", epoch=3))] == [card("a", epoch=3)]


@pytest.mark.parametrize("kind", STORES)
async def test_no_more_nodes_are_listed_than_the_newest(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        for number in range(CARDS_MAX + 1):
            listed = await store.introduce(card(f"{number:03}"))
            if not number:
                await trio.sleep(0.01)  # the clock has milliseconds
        assert [one.card.node for one in listed] == [f"{number:03}" for number in range(1, CARDS_MAX + 1)]


def report(node: str, seq: int = 1) -> LearnAsk:
    return LearnAsk(node=node, epoch=1, seq=seq, held=0, binds=False)


@pytest.mark.parametrize("kind", STORES)
async def test_the_node_that_leads_is_named_until_it_leaves(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        assert await store.leader("p") == ""
        await store.learn("p", report("b"))
        await store.learn("p", report("a"))
        assert await store.leader("p") == "b"
        await store.bye("p", "b", 1)
        assert await store.leader("p") == ""
        await store.learn("p", report("a", 2))
        assert await store.leader("p") == "a"
