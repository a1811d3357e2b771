"""Windows that nodes share: no more begins in any of them than the limit, whatever becomes of messages and nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Dimension
from hivemind_trio.scheduler import DrawWindow
from hivemind_trio.scheduler.sharing.store_life import StoreLife
from hivemind_trio.scheduler.sharing.window_credits import WindowCredits
from hivemind_trio.scheduler.sharing.window_draw import WindowKey
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowRing, WindowShape

from .window_fleet import LEARNING_MS, MS, WindowFleet

pytestmark = pytest.mark.slow


def hard_life(fleet: WindowFleet, until_ms: int) -> None:
    """Nodes are killed and started anew, the store loses what it knows, and the hot node moves."""
    random = fleet.random
    fleet.at(0, fleet.arrivals)
    while fleet.now_ms < until_ms:
        fleet.play(fleet.now_ms + random.randrange(200, 4_000))
        match random.randrange(6):
            case 0:
                fleet.restart(random.randrange(fleet.size))
            case 1 | 2:
                fleet.hot = random.randrange(fleet.size)
            case _:
                pass


@settings(max_examples=25)
@given(st.integers(0, 1 << 30), st.integers(1, 6), st.sampled_from([1_000, 3_000, 20_000]))
def test_I5_no_window_holds_more_than_the_limit(seed: int, size: int, window_ms: int) -> None:
    fleet = WindowFleet(Random(seed), size, window_ms=window_ms, local=0.0)
    hard_life(fleet, 40_000)
    assert fleet.most() <= fleet.limit
    assert fleet.granted_ms


@settings(max_examples=settings().max_examples // 5)
@given(st.integers(0, 1 << 30), st.integers(1, 6))
def test_nodes_that_the_store_does_not_hear_use_their_parts_beyond_the_limit_and_no_more(seed: int, size: int) -> None:
    fleet = WindowFleet(Random(seed), size, local=0.4)
    hard_life(fleet, 40_000)
    assert fleet.most() <= fleet.limit * 1.4


@settings(max_examples=20)
@given(st.integers(0, 1 << 30), st.integers(2, 5))
def test_I5_holds_when_the_store_loses_what_it_knows(seed: int, size: int) -> None:
    # What a node has used that is not heard for so long is not known. No call waits for it for longer: that costs a
    # refusal, at worst.
    learning_ms = 12_000
    fleet = WindowFleet(Random(seed), size, local=0.0)
    fleet.ring = WindowRing(fleet.ring.shape, learning_ms)
    fleet.at(0, fleet.arrivals)
    for number in range(4):
        fleet.play(fleet.now_ms + fleet.random.randrange(3_000, 9_000))
        if number % 2:
            fleet.run += 1
        else:  # emptied, by the same process
            fleet.ring = WindowRing(fleet.ring.shape, learning_ms)
    fleet.play(fleet.now_ms + 9_000)
    assert fleet.most() <= fleet.limit
    assert len(fleet.granted_ms) > fleet.limit


@settings(max_examples=settings().max_examples // 5)
@given(st.integers(0, 1 << 30), st.integers(2, 5))
def test_without_the_store_the_nodes_go_on_within_their_part_and_the_limit(seed: int, size: int) -> None:
    fleet = WindowFleet(Random(seed), size, loss=0.0, local=0.5)
    fleet.at(0, fleet.arrivals)
    fleet.play(10_000)
    fleet.away = True
    fleet.play(30_000)
    alone = sum(ms > 20_000 for ms in fleet.granted_ms)
    fleet.away = False
    fleet.play(50_000)
    assert fleet.most() <= fleet.limit
    assert 0 < alone <= fleet.limit * fleet.local * 10_000 / fleet.window_ms + fleet.limit
    assert sum(ms > 40_000 for ms in fleet.granted_ms) > fleet.limit


@settings(max_examples=20)
@given(st.integers(0, 1 << 30), st.integers(1, 5), st.integers(100, 1_500))
def test_nodes_of_a_slow_store_go_on_within_their_part_and_the_limit(seed: int, size: int, slow_ms: int) -> None:
    fleet = WindowFleet(Random(seed), size, loss=0.0, local=0.5)
    fleet.at(0, fleet.arrivals)
    fleet.play(10_000)
    fleet.slow_ms = slow_ms
    fleet.play(25_000)
    assert fleet.most() <= fleet.limit
    slow = sum(ms > 15_000 for ms in fleet.granted_ms)
    assert slow >= 0.6 * fleet.limit * fleet.local * 10_000 / fleet.window_ms
    # Nothing is taken from others that cannot be used: what counts is what was used.
    assert sum(fleet.ring.drawn.values()) <= fleet.limit
    fleet.slow_ms = 0
    fleet.play(40_000)
    assert fleet.most() <= fleet.limit * (1 + fleet.local)  # the first node that is heard again may find it all free
    assert sum(ms > 30_000 for ms in fleet.granted_ms) > 0.7 * fleet.limit * 10_000 / fleet.window_ms


def test_a_node_of_a_slow_store_takes_nothing_that_others_can_use() -> None:
    key = WindowKey("p", None, Dimension.REQUESTS, 60_000 * MS)
    node = WindowCredits(key, nodes=2, local=0.25, born_ns=0)
    node.limit, now_ns = 60, 1_000 * MS
    ring = WindowRing(WindowShape(60_000), LEARNING_MS)

    def trip(takes_ms: int) -> DrawWindow:
        nonlocal now_ns
        node.fits_ns(1, now_ns)
        draw = node.draw(1, (), now_ns)
        assert draw is not None
        ask = WindowAsk(
            node="n", epoch=1, seq=draw.seq, run=draw.run, nodes=1, limit=60,
            least=draw.least, want=draw.want, more=draw.more, back=draw.back, report=draw.report,
        )  # fmt: skip
        answer = ring.draw(ask, now_ns // MS, "r")
        now_ns += takes_ms * MS
        node.answered(answer, now_ns)
        return draw

    trip(10)
    now_ns += 100 * MS
    while not (late := trip(600)).want:
        now_ns += 1_000 * MS
    assert sum(ring.drawn.values()) == late.want == 1
    now_ns += 1_000 * MS
    assert (probe := trip(600)).want == 0
    assert [amount for _, amount in probe.back] == [1]
    assert sum(ring.drawn.values()) == 0
    now_ns += 1_000 * MS
    assert trip(10).want == 0
    assert trip(10).want == 1  # at once after an answer in time
    assert node.fits_ns(1, now_ns) == now_ns


def test_most_of_the_limit_is_used_and_every_node_has_a_part() -> None:
    fleet = WindowFleet(Random(1), 4, limit=60, window_ms=6_000, loss=0.0)
    fleet.at(0, fleet.arrivals)
    fleet.play(10_000)
    before, asks = list(fleet.began), fleet.asks
    fleet.play(130_000)
    served = [after - one for after, one in zip(fleet.began, before, strict=True)]
    assert sum(served) >= 0.95 * 60 * 20
    assert min(served) >= 0.15 * sum(served)
    assert (fleet.asks - asks) <= 2.5 * sum(served)


def test_an_idle_fleet_asks_for_nothing() -> None:
    fleet = WindowFleet(Random(1), 3, loss=0.0)
    fleet.play(5_000)
    asks = fleet.asks
    fleet.play(500_000)
    assert fleet.asks == asks


def test_I5_what_was_said_before_a_store_was_wiped_counts_for_nothing() -> None:
    def ask(node: str, seq: int, run: str, want: int = 0, **more: Any) -> WindowAnswer:
        return ring.draw(WindowAsk(node=node, epoch=1, seq=seq, run=run, nodes=2, limit=30, want=want, **more), 0, "1")

    ring = WindowRing(WindowShape(3_000), LEARNING_MS)
    life = ask("a", 9, "1/before", back=((0, 8),)).run
    assert not ask("b", 1, life, report=((0, 12),)).anew
    # The report of `a` to the life before comes twice, and late: it has used ten since.
    assert ask("a", 10, "1/before", report=()).anew
    assert ask("a", 10, "1/before", report=()).anew
    assert ask("a", 11, "1/before", back=((0, 8),), more=3).used == 12
    assert ask("b", 2, life, 30).granted == 0
    assert ask("a", 12, life, report=((0, 10),)).used == 22
    assert ask("b", 3, life, 30).granted == 8


class Generous(WindowRing):
    """A planted bug: what is drawn counts for the window only, and not while it may still be used."""

    def _over_ms(self, slot: int) -> int:
        return (slot + 1) * self.shape.slot_ms + self.shape.window_ms - 1_000


class Forgetful(WindowRing):
    """A planted bug: a store that has lost what it knew asks nobody, and grants at once."""

    def __attrs_post_init__(self) -> None:
        self.life = StoreLife(0)


def test_I5_misses_no_planted_bug_of_the_ring() -> None:
    def most(seed: int) -> int:
        fleet = WindowFleet(Random(seed), 4, local=0.0)
        fleet.ring = Generous(fleet.ring.shape, LEARNING_MS)
        hard_life(fleet, 20_000)
        return fleet.most() - fleet.limit

    assert any(most(seed) > 0 for seed in range(20))


def test_I5_misses_no_store_that_forgets() -> None:
    def most(seed: int) -> int:
        fleet = WindowFleet(Random(seed), 4, loss=0.0)
        fleet.ring = Forgetful(fleet.ring.shape, LEARNING_MS)
        fleet.at(0, fleet.arrivals)
        fleet.play(8_000)
        fleet.run += 1
        fleet.play(16_000)
        return fleet.most() - fleet.limit

    assert any(most(seed) > 0 for seed in range(20))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 2_000)), min_size=1, max_size=30))
def test_I4_what_arrives_twice_or_late_changes_nothing(asks: list[tuple[int, int, int]]) -> None:
    once, twice = (WindowRing(WindowShape(3_000), 0) for _ in range(2))
    now_ms, said = 1_000_000, []
    for ring in (once, twice):
        ring.life.begin("1")
    for seq, (want, back, later_ms) in enumerate(asks, 1):
        now_ms += later_ms
        given = ((now_ms // 50, back),)
        ask = WindowAsk(node="a", epoch=1, seq=seq, run="1", nodes=1, limit=30, want=want, back=given)
        said.append(ask)
        assert not once.draw(ask, now_ms, "1").anew
        twice.draw(ask, now_ms, "1")
        for late in said:
            assert twice.draw(late, now_ms, "1").granted == 0
        assert twice.drawn == once.drawn
