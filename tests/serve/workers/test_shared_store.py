"""A store at the other end of a channel answers every history as the model does."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import pytest
import trio

from hivemind_trio.policy import Measure, Per
from hivemind_trio.scheduler import AccountKey
from hivemind_trio.scheduler.learning.learn_record import LearnRecord
from hivemind_trio.scheduler.learning.lesson import LearnAsk, Lesson, SharedVerdict
from hivemind_trio.scheduler.sharing.budget_ask import NO_LIMIT, BudgetAsk, BudgetsAsk
from hivemind_trio.scheduler.sharing.budget_pot import BudgetPots
from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms, RowNotice, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.shared_pool import SharedPool
from hivemind_trio.scheduler.sharing.window_ring import WindowAsk, WindowRing, WindowShape
from hivemind_trio.serve.workers.channel import Channel
from hivemind_trio.serve.workers.shared_store import ChannelStore, Cover, serve_store
from hivemind_trio.store.fleet.interface import CreditNotKept, Notice, StoreUnreachable
from hivemind_trio.store.fleet.memory_fleet import MemoryFleet
from hivemind_trio.store.state.interface import account_text

RUN = "memory"
TERMS = LeaseTerms(lease_ms=6_000, renew_ms=200, gone_ms=1_000)


@attrs.define
class Clock:
    now_ms: int = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@asynccontextmanager
async def reached(store: MemoryFleet, cover: Cover | None = None) -> AsyncIterator[tuple[ChannelStore, Channel]]:
    ours, theirs = map(Channel, socket.socketpair())
    async with trio.open_nursery() as nursery:
        await nursery.start(ours.run)
        await nursery.start(theirs.run)
        serve_store(store, theirs, nursery, cover)
        yield ChannelStore(ours), theirs
        nursery.cancel_scope.cancel()


def wish(random: Random, seq: int) -> ShareRequest:
    return ShareRequest(
        node=random.choice("abcd"),
        epoch=1 + (random.random() < 0.1),
        seq=max(1, seq + random.choice([0, 0, 0, -3])),
        cap=random.choice([12, 12, 12, 9]),
        nodes=4,
        run=random.choice(["", RUN]),
        keep=random.randrange(0, 14),
        held=random.randrange(0, 4),
        demand=random.randrange(0, 20),
        target=random.randrange(0, 14),
        owed=random.randrange(-2_000, 2_000),
        floor=random.randrange(0, 2),
        parts=tuple((other, random.randrange(0, 14)) for other in random.sample("abcd", random.randrange(0, 4))),
    )


async def test_I12_a_channel_and_the_model_answer_random_histories_alike() -> None:
    for seed in range(10):
        random, clock = Random(seed), Clock()
        model = SharedPool(TERMS)
        model.life.begin(RUN)
        async with reached(MemoryFleet(TERMS, clock, True)) as (store, _):
            for seq in range(1, 60):
                clock.now_ms += random.choice([1, 20, 150, 700, 4_000])
                ask = wish(random, seq)
                expected: ShareAnswer | None = None
                try:
                    expected = model.sync(ask, clock.now_ms, RUN, ())
                except FencedNode:
                    with pytest.raises(FencedNode):
                        await store.sync("p", ask)
                    continue
                assert await store.sync("p", ask) == expected, (seed, seq)


async def test_windows_pass_a_channel_and_nothing_is_to_be_learned_first() -> None:
    clock, shape = Clock(), WindowShape(60_000)
    model = WindowRing(shape, TERMS.learning_ms)
    model.life.begin(RUN)
    async with reached(MemoryFleet(TERMS, clock, True)) as (store, _):
        for seq, want in enumerate((4, 4, 4), start=1):
            ask = WindowAsk(
                node="a", epoch=1, seq=seq, run="", nodes=2, limit=10, least=want, want=want, back=((1, 2),)
            )
            answer = await store.draw("p", "w", ask, shape)
            assert answer == model.draw(ask, clock.now_ms, RUN)
            assert answer.granted == (4 if seq < 3 else 0)


async def test_reports_of_attempts_pass_a_channel() -> None:
    clock = Clock()
    model = LearnRecord(TERMS.grace_ms, TERMS.gone_ms)
    verdict = SharedVerdict(limit=8, doubling=True, circuit="closed")
    lesson = Lesson(call=1, age_ms=5, kind="ended", lasted_ms=70, outcome="overloaded", said_ms=300, tokens=2)
    async with reached(MemoryFleet(TERMS, clock, True)) as (store, _):
        for node, seq in (("a", 1), ("b", 1), ("a", 2)):
            clock.now_ms += 20
            ask = LearnAsk(node=node, epoch=1, seq=seq, held=3, binds=True, lessons=(lesson,), verdict=verdict)
            answer = await store.learn("p", ask)
            assert answer == model.learn(ask, clock.now_ms)
        assert answer.leads
        assert [(one.node, one.lessons) for one in answer.reports] == [("b", (attrs.evolve(lesson, age_ms=25),))]


TEAM = AccountKey("team", Per.ALL, "", Measure.COST, 3_600_000_000_000, False)


def spending(node: str, seq: int, **more: Any) -> BudgetsAsk:
    values = {"life": 0, "limit": 100, "window_ms": 3_600_000, "slot": 0, "drawn": 0, "settled": 0, "returned": 0}
    ask = BudgetAsk(**{**values, "report": (), **more})
    return BudgetsAsk(
        node=node,
        epoch=1,
        seq=seq,
        nodes=2,
        run=f"{RUN}/{Clock().now_ms}",
        complete=True,
        accounts=((account_text(TEAM), ask),),
    )


async def test_budgets_pass_a_channel_and_their_credit_is_durable_before_a_worker_has_it() -> None:
    clock, model = Clock(), BudgetPots(TERMS.learning_ms)
    covered: list[tuple[AccountKey, int, int]] = []

    async def cover(account: AccountKey, out: int, limit: int) -> None:
        if len(covered) == 2:
            raise OSError("disk full")
        await trio.lowlevel.checkpoint()
        covered.append((account, out, limit))

    asks = [
        spending("a", 1),
        spending("b", 1),
        spending("a", 2, least=30, waits=True),
        spending("b", 2, least=50, waits=True),
        spending("a", 3, drawn=30, settled=10),
    ]
    async with reached(MemoryFleet(TERMS, clock, True), cover) as (store, _):
        for ask in asks:
            assert await store.spend(ask) == model.spend(ask, clock.now_ms, RUN)
        # Nothing is granted where a budget stops no call, and nothing more where the disk does not take it.
        await store.spend(spending("b", 3, limit=NO_LIMIT, drawn=50, least=5))
        with pytest.raises(CreditNotKept, match="disk full"):
            await store.spend(spending("b", 4, drawn=50, least=60, waits=True))
    assert covered == [(TEAM, 30, 100), (TEAM, 80, 100)]


async def test_a_node_is_called_over_its_channel_and_hears_that_the_store_has_ended() -> None:
    clock = Clock()
    fleet = MemoryFleet(TERMS, clock, True)
    opened = trio.Event()
    heard, hear = trio.open_memory_channel[Notice](8)

    async def listen(store: ChannelStore) -> None:
        with pytest.raises(StoreUnreachable):
            await store.listen("a", opened.set, heard.send_nowait)

    async with reached(fleet) as (store, theirs):
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen, store)
                await opened.wait()
                assert await store.epoch() == clock.now_ms
                first = attrs.evolve(wish(Random(1), 1), node="a", epoch=1, cap=8, keep=0, held=0, demand=8, target=8)
                assert (await store.sync("p", first)).share == 8
                waits = await store.sync("p", attrs.evolve(first, node="b", demand=4, target=4))
                assert await hear.receive() == RowNotice(pool="p", node="b", run=waits.run, row=waits.rows["b"])
                told = await store.sync("p", attrs.evolve(first, node="b", seq=2, demand=0, target=0))
                assert await hear.receive() == RowNotice(pool="p", node="b", run=told.run, row=told.rows["b"])
                await store.sync("p", attrs.evolve(first, seq=2, demand=12, target=4))
                back = attrs.evolve(first, node="b", seq=3, demand=0, target=0, parts=(("a", 7),))
                answer = await store.sync("p", back)
                assert await hear.receive() == answer.notice("p", "b")
                assert answer.notice("p", "b").granted["a"].share == 7
                await store.bye("p", "b", 1)
                assert await hear.receive() == "p"
                await store.bye("p", "a", 1)
                assert fleet.model.pools["p"].rows["a"].share == 0
                theirs.close()
        with pytest.raises(StoreUnreachable):
            await store.epoch()
