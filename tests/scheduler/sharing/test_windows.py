"""Windows that nodes share: no more begins in any of them than the limit, whatever becomes of messages and nodes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.scheduler.sharing.window_ring import WindowAsk, WindowRing, WindowShape

from .window_fleet import LEARNING_MS, WindowFleet

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


@given(st.integers(0, 1 << 30), st.integers(1, 6), st.sampled_from([1_000, 3_000, 20_000]))
def test_I5_no_window_holds_more_than_the_limit(seed: int, size: int, window_ms: int) -> None:
    fleet = WindowFleet(Random(seed), size, window_ms=window_ms, local=0.0)
    hard_life(fleet, 40_000)
    assert fleet.most() <= fleet.limit
    assert fleet.granted_ms


@given(st.integers(0, 1 << 30), st.integers(1, 6))
def test_nodes_that_the_store_does_not_hear_use_their_parts_beyond_the_limit_and_no_more(seed: int, size: int) -> None:
    fleet = WindowFleet(Random(seed), size, local=0.4)
    hard_life(fleet, 40_000)
    assert fleet.most() <= fleet.limit * 1.4


@given(st.integers(0, 1 << 30), st.integers(2, 5))
def test_I5_holds_when_the_store_loses_what_it_knows(seed: int, size: int) -> None:
    fleet = WindowFleet(Random(seed), size, loss=0.0)
    fleet.at(0, fleet.arrivals)
    for number in range(4):
        fleet.play(fleet.now_ms + fleet.random.randrange(3_000, 9_000))
        if number % 2:
            fleet.run += 1
        else:  # emptied, by the same process
            fleet.ring = WindowRing(fleet.ring.shape, LEARNING_MS)
    fleet.play(fleet.now_ms + 9_000)
    assert fleet.most() <= fleet.limit
    assert len(fleet.granted_ms) > fleet.limit


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


class Generous(WindowRing):
    """A planted bug: what is drawn counts for the window only, and not while it may still be used."""

    def _over_ms(self, slot: int) -> int:
        return (slot + 1) * self.shape.slot_ms + self.shape.window_ms - 1_000


class Forgetful(WindowRing):
    """A planted bug: a store that has lost what it knew asks nobody, and grants at once."""

    def _learns(self, nodes: int, now_ms: int) -> bool:
        self._learns_ms = None
        return False


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
    now_ms, said, run = 1_000_000, [], ""
    for seq, (want, back, later_ms) in enumerate(asks, 1):
        now_ms += later_ms
        given = ((now_ms // 50, back),)
        report = None if run else ()
        ask = WindowAsk(node="a", epoch=1, seq=seq, run=run, nodes=1, limit=30, want=want, back=given, report=report)
        said.append(ask)
        answer = once.draw(ask, now_ms, "1")
        assert not answer.anew
        run = answer.run
        twice.draw(ask, now_ms, "1")
        for late in said:
            assert twice.draw(late, now_ms, "1").granted == 0
        assert twice.drawn == once.drawn
