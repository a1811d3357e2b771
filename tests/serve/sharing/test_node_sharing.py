"""A node speaks to the store, and looks at its shares, only where calls wait or time is up."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from bench.several import CAP, Arrival, arrivals
from hivemind_trio.model import Dimension
from hivemind_trio.policy import AimdSettings, LimitGroupSettings, Program, RateLimitSettings
from hivemind_trio.runtime import Engine
from hivemind_trio.runtime.ticket import Ticket
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk
from hivemind_trio.scheduler.sharing.fleet_model import FleetModel
from hivemind_trio.scheduler.sharing.node_shares import NodeShares
from hivemind_trio.scheduler.sharing.share_row import ShareAnswer, ShareRequest
from hivemind_trio.serve.sharing.node_sharing import NodeSharing, SharedSlots, SharingTold, lease_terms, sharing
from hivemind_trio.serve.sharing.store_answers import StoreAnswers
from hivemind_trio.store.fleet.interface import FleetStore, StoreUnreachable
from hivemind_trio.store.fleet.memory_fleet import MemoryFleet
from hivemind_trio.store.fleet.node_cards import ListedNode, NodeCard
from tests.runtime.agents import running
from tests.support.ends import SUCCEEDED
from tests.support.programs import program, provider, wish

CALLS = 200
AIMD = AimdSettings(low=1, start=8)


def ignore(*_: object) -> None:
    pass


@attrs.define(eq=False)
class Nodes:
    engines: list[Engine]
    store: MemoryFleet
    sharing: list[NodeSharing] = attrs.field(factory=list)
    lessons: Counter[str] = attrs.field(factory=Counter)
    looks: int = 0
    """Times that a node has looked at its shares."""
    began_s: list[float] = attrs.field(factory=list)
    """When calls began."""

    async def serve(self, node: int, calls: int, hold_s: float = 0.001) -> None:
        """Serve calls one after the other."""
        engine = self.engines[node]

        for _ in range(calls):
            with engine.ticket(wish(), "x") as ticket:

                async def attempt(ticket: Ticket = ticket) -> AttemptResult:
                    ticket.heard((), True)
                    await trio.sleep(hold_s)
                    return SUCCEEDED

                await ticket.granted()
                self.began_s.append(trio.current_time())
                ticket.start(attempt)
                await trio.sleep(2 * hold_s)


@asynccontextmanager
async def nodes(of: Program, monkeypatch: pytest.MonkeyPatch, count: int = 2) -> AsyncIterator[Nodes]:
    """Engines that share a store within the context, once each has its share."""
    of = attrs.evolve(of, server=attrs.evolve(of.server, nodes=count))
    store = MemoryFleet(lease_terms(of.store), lambda: round(trio.current_time() * 1_000) + 1, is_first=True)
    one = Nodes([], store)
    learn, due = FleetModel.learn, NodeShares.due

    def learned(self: FleetModel, pool: str, ask: LearnAsk, now_ms: int) -> LearnAnswer:
        one.lessons.update(lesson.kind for lesson in ask.lessons)
        return learn(self, pool, ask, now_ms)

    def looked(self: NodeShares, now_ns: int, demand: Mapping[str, tuple[int, int]]) -> list[tuple[str, ShareRequest]]:
        one.looks += 1
        return due(self, now_ns, demand)

    monkeypatch.setattr(FleetModel, "learn", learned)
    monkeypatch.setattr(NodeShares, "due", looked)
    told = SharingTold(joined=ignore, away=ignore, slow=ignore, fenced=ignore, learns=ignore, learned=ignore)
    async with AsyncExitStack() as stack:
        for number in range(count):
            engine = await stack.enter_async_context(running(of))
            one.engines.append(engine)
            slots = SharedSlots(pools=store, node=f"n{number}", told=told)
            shares = await stack.enter_async_context(sharing(engine, slots))
            assert shares is not None
            one.sharing.append(shares)
        await trio.sleep(5)
        yield one


async def test_a_call_that_fits_the_share_makes_no_node_look_at_its_shares(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(program(providers=[provider("p", limit=8)]), monkeypatch) as one:
        before = one.looks
        began_s = trio.current_time()
        await one.serve(0, CALLS)
        rounds = (trio.current_time() - began_s) / 2 + 1
        assert one.looks - before <= 6 * rounds  # for renewals and their answers


async def test_a_call_that_waits_is_served_though_the_other_node_has_the_slots(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(program(providers=[provider("p", limit=2)]), monkeypatch) as one:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for node in (0, 1):
                    for _ in range(4):
                        nursery.start_soon(one.serve, node, 10, 0.2)


async def test_a_slot_that_comes_free_is_used_at_once_by_a_node_that_waits(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, asked = FleetModel.sync, Counter[str]()

    def counted(self: FleetModel, pool: str, ask: ShareRequest, now_ms: int, present: Collection[str]) -> ShareAnswer:
        asked[ask.node] += 1
        return sync(self, pool, ask, now_ms, present)

    of = program(providers=[provider("p", limit=2)])
    async with nodes(of, monkeypatch) as one, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one.serve, 0, 1, 0.3)
        await trio.sleep(0.1)
        nursery.start_soon(one.serve, 1, 1, 0.1)
        await trio.sleep(0.1)
        monkeypatch.setattr(FleetModel, "sync", counted)
        await trio.sleep(0.13)
        assert one.engines[1].snapshot().pools["p"].inflight == 1
        assert asked == {"n0": 1}


async def waited_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the time that calls wait in all, where most come to one node, and every few seconds to another one."""
    waits: list[float] = []
    async with nodes(program(providers=[provider("p", limit=CAP)]), monkeypatch, 4) as one, trio.open_nursery() as own:
        began_s = trio.current_time()

        async def call(of: Arrival) -> None:
            await trio.sleep_until(began_s + of.at_s)
            with one.engines[of.node].ticket(wish(), "x") as ticket:

                async def attempt() -> AttemptResult:
                    ticket.heard((), True)
                    await trio.sleep(of.service_s)
                    return SUCCEEDED

                await ticket.granted()
                waits.append(trio.current_time() - began_s - of.at_s)
                ticket.start(attempt)
                await trio.sleep(of.service_s)

        for of in arrivals(Random(7), 4, 20.0, 0.9 * CAP / 0.3, 0.3):
            own.start_soon(call, of)
    return sum(waits)


async def test_nodes_that_hear_of_each_others_reports_at_once_wait_less(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = FleetModel.sync

    def silent(self: FleetModel, pool: str, ask: ShareRequest, now_ms: int, present: Collection[str]) -> ShareAnswer:
        return attrs.evolve(sync(self, pool, ask, now_ms, present), tell=())

    told = await waited_s(monkeypatch)
    monkeypatch.setattr(FleetModel, "sync", silent)
    assert told < 0.8 * await waited_s(monkeypatch)


async def test_a_node_introduces_itself_anew_to_a_store_that_was_emptied(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    introduce, cards = MemoryFleet.introduce, []

    async def introduced(self: MemoryFleet, card: NodeCard) -> tuple[ListedNode, ...]:
        cards.append(card.node)
        return await introduce(self, card)

    monkeypatch.setattr(MemoryFleet, "introduce", introduced)
    async with nodes(program(providers=[provider("p", limit=8)]), monkeypatch) as one:
        cards.clear()
        await trio.sleep(8)
        assert cards == []
        one.store.model.run = "emptied"
        await trio.sleep(8)
        assert sorted(cards) == ["n0", "n1"]


async def test_a_reload_that_takes_the_shared_providers_away_ends_what_is_said_of_an_emptied_store(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(program(providers=[provider("p", limit=8)]), monkeypatch, 1) as one:
        engine = one.engines[0]
        one.store.model.run = "emptied"
        await trio.sleep(5)
        assert one.sharing[0].known().learns_s is not None
        other = program(providers=[])
        engine.load(attrs.evolve(other, server=attrs.evolve(other.server, nodes=1)))
        await trio.sleep(60)
        assert one.sharing[0].known().learns_s is None


async def test_a_new_policy_is_told_to_the_store_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(program(providers=[provider("p", limit=8)]), monkeypatch, 1) as one:
        engine = one.engines[0]
        wider = program(providers=[provider("p", limit=12)])
        engine.load(attrs.evolve(wider, server=attrs.evolve(wider.server, nodes=1)))
        await trio.sleep(0.1)
        assert one.store.model.pools["p"].rows["n0"].cap == 12


async def test_an_attempt_that_ends_well_at_a_fixed_limit_is_one_lesson(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(program(providers=[provider("p", limit=8)]), monkeypatch) as one:
        await one.serve(0, CALLS)
        await trio.sleep(5)
        assert one.lessons["served"] >= CALLS - 5
        assert one.lessons.total() <= 1.1 * CALLS


async def test_every_step_is_a_lesson_where_the_limit_is_learned(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(program(providers=[provider("p", limit=8, aimd=AIMD)]), monkeypatch) as one:
        await one.serve(0, CALLS)
        await trio.sleep(5)
        assert one.lessons == {"granted": CALLS, "accepted": CALLS, "ended": CALLS}


@attrs.define(eq=False)
class SlowFleet:
    """A store behind a long way, or behind none that leads there."""

    _store: MemoryFleet
    trip_s: float
    """Infinite: there is no answer."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        inner = getattr(self._store, name)

        async def asked(*arguments: object) -> object:
            await trio.sleep(self.trip_s / 2)
            answer = await inner(*arguments)
            await trio.sleep(self.trip_s / 2)
            return answer

        return asked


@asynccontextmanager
async def far_nodes(of: Program, told: SharingTold) -> AsyncIterator[tuple[Nodes, SlowFleet]]:
    """Two engines within the context that share a store, which is near at first."""
    of = attrs.evolve(of, server=attrs.evolve(of.server, nodes=2))
    store = MemoryFleet(lease_terms(of.store), lambda: round(trio.current_time() * 1_000) + 1, is_first=True)
    far, one = SlowFleet(store, 0.02), Nodes([], store)
    async with AsyncExitStack() as stack:
        for number in range(2):
            one.engines.append(engine := await stack.enter_async_context(running(of)))
            slots = SharedSlots(pools=cast(FleetStore, far), node=f"n{number}", told=told)
            shares = await stack.enter_async_context(sharing(engine, slots))
            assert shares is not None
            one.sharing.append(shares)
        yield one, far


@pytest.mark.parametrize(("trip_s", "says"), [(0.2, 0), (0.4, 1), (1.5, 1)])
async def test_a_store_that_is_slow_grants_slots_as_slowly_and_is_said_to_be(
    autojump_clock: MockClock, trip_s: float, says: int
) -> None:
    slow, away = list[float](), list[str]()
    told = SharingTold(
        joined=ignore, away=away.append, slow=slow.append, fenced=ignore, learns=ignore, learned=ignore
    )  # fmt: skip
    async with far_nodes(program(providers=[provider("p", limit=2)]), told) as (one, far):
        far.trip_s = trip_s
        with trio.fail_after(200):
            async with trio.open_nursery() as nursery:
                for node in (0, 1):
                    for _ in range(3):
                        nursery.start_soon(one.serve, node, 4, 0.2)
        assert one.store.model.pools["p"].rows.keys() == {"n0", "n1"}
        assert len(slow) == 2 * says
        assert slow == pytest.approx([trip_s] * len(slow))
        known = await one.sharing[0].look()
        assert known.slow_s == (pytest.approx(trip_s) if says else None)
        if says:
            assert away[0].startswith("no answer in ")
            assert known.away_s is None


@pytest.mark.parametrize("window_s", [1, 10, 60])
@pytest.mark.parametrize("trip_s", [0.2, 0.6, 1.5])
async def test_a_store_that_is_slow_stops_no_calls_of_a_declared_limit_and_lets_none_exceed_it(
    autojump_clock: MockClock, trip_s: float, window_s: int
) -> None:
    quota = RateLimitSettings(dimension=Dimension.REQUESTS, amount=24, window_ns=window_s * 10**9)
    block = LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,))
    of = program(providers=[attrs.evolve(provider("p", limit=8), groups=(block,))])
    told = SharingTold(joined=ignore, away=ignore, slow=ignore, fenced=ignore, learns=ignore, learned=ignore)
    async with far_nodes(of, told) as (one, far):
        with trio.move_on_after(6 * window_s + 10):
            async with trio.open_nursery() as nursery:
                for node in (0, 1):
                    for _ in range(2):
                        nursery.start_soon(one.serve, node, 10_000, window_s / 50)
                await trio.sleep(window_s + 5)
                far.trip_s, slow_s = trip_s, trio.current_time() + 5
    last = one.began_s[-1]
    part = sum(at_s > last - 2 * window_s for at_s in one.began_s if at_s > slow_s)
    assert part >= 2 * 24 * of.store.local * 0.4
    for first, at_s in enumerate(one.began_s):
        assert sum(at_s <= other < at_s + window_s for other in one.began_s[first : first + 100]) <= 24


async def test_an_operator_waits_for_a_silent_store_for_a_moment_and_not_at_all_once_it_is_known(
    autojump_clock: MockClock,
) -> None:
    told = SharingTold(joined=ignore, away=ignore, slow=ignore, fenced=ignore, learns=ignore, learned=ignore)
    of = program(providers=[provider(f"p{number}", limit=8) for number in range(5)])
    async with far_nodes(of, told) as (one, far):
        await trio.sleep(10)
        far.trip_s = float("inf")
        asked_s = trio.current_time()
        known = await one.sharing[0].look()
        assert trio.current_time() - asked_s == pytest.approx(0.5)
        assert len(known.nodes) == 2
        await trio.sleep(30)
        asked_s = trio.current_time()
        known = await one.sharing[0].look()
        assert trio.current_time() == asked_s
        assert known.away_s == pytest.approx(30, abs=3)
        await one.sharing[0].leave()
        assert trio.current_time() - asked_s == pytest.approx(2.0)


async def test_a_store_is_waited_for_longer_after_each_answer_that_did_not_come(autojump_clock: MockClock) -> None:
    slow = list[float]()
    answers = StoreAnswers(slow.append)

    async def ask(takes_s: float, trips: int = 1) -> tuple[float, float | None]:
        async def question() -> None:
            await trio.sleep(takes_s)

        await answers.of(question, trips)
        return round(answers.within_s, 6), answers.slow_s and round(answers.slow_s, 6)

    for within_s in (0.25, 0.5, 1.0, 2.0, 2.0):
        asked_s = trio.current_time()
        with pytest.raises(StoreUnreachable, match=f"^no answer in {within_s:g} s$"):
            await ask(3.0)
        assert trio.current_time() - asked_s == pytest.approx(within_s)
    assert await ask(1.5) == (2.0, 1.5)
    assert await ask(0.6) == (1.2, 0.6)
    assert await ask(0.2) == (0.6, 0.2)  # not long enough to be said again
    assert await ask(0.3) == (0.6, 0.3)
    assert await ask(0.1) == (0.3, None)  # the next may take long again
    assert await ask(0.1) == (0.25, None)
    assert await ask(0.9, 4) == (0.25, None)  # of several trips
    assert slow == [pytest.approx(1.5)]
