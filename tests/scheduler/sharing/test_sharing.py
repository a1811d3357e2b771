"""Slots of one account at several nodes: never more than there are, and none idle while a call waits elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Container
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.scheduler.sharing.fair_shares import fair_shares
from hivemind_trio.scheduler.sharing.node_law import NodeLaw
from hivemind_trio.scheduler.sharing.share_row import (
    FencedNode,
    LeaseTerms,
    ShareAnswer,
    ShareRequest,
    ShareRow,
)
from hivemind_trio.scheduler.sharing.shared_pool import SharedPool

from .fleet import TERMS, Fleet

STEPS = 1_200


def lossy(fleet: Fleet) -> Fleet:
    """Kill nodes, start them anew, take the store away and wipe it; links lose, double and delay, but cut nobody."""
    random = fleet.random
    for _ in range(STEPS):
        fleet.arrive()
        luck = random.random()
        if luck < 0.002:
            fleet.kill(random.randrange(fleet.size))
        elif luck < 0.006:
            dead = [i for i, node in enumerate(fleet.nodes) if not node.alive]
            if dead:
                fleet.restart(random.choice(dead))
        elif luck < 0.008:
            fleet.away = not fleet.away
        elif luck < 0.009:
            fleet.wipe()
        fleet.step()
        if fleet.peak > fleet.cap:
            break
    return fleet


def made(seed: int, **planted: object) -> Fleet:
    random = Random(seed)
    return Fleet(random, size=random.randrange(2, 6), cap=random.randrange(2, 25), **planted)  # type: ignore[arg-type]


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_I1_whatever_is_lost_killed_or_wiped_no_more_calls_are_in_flight_than_the_cap(seed: int) -> None:
    fleet = lossy(made(seed))
    assert fleet.peak <= fleet.cap


def test_I1_slots_of_a_node_stand_that_a_wiped_store_has_not_heard_before_it_went_away() -> None:
    fleet = lossy(made(11140))
    assert fleet.peak <= fleet.cap


def test_time_in_which_no_node_reaches_a_wiped_store_is_no_time_to_learn() -> None:
    pool = SharedPool(TERMS)

    def asks(node: str, seq: int, keep: int, now_ms: int) -> ShareAnswer:
        ask = ShareRequest(
            node=node, epoch=1, seq=seq, cap=4, nodes=3, keep=keep, held=0, demand=4, target=4, owed=0, floor=0
        )
        return pool.sync(ask, now_ms, "1", ("first", "late"))

    assert asks("first", 1, 1, 1_000).learning
    # The store is away; the node that reaches it first after that gets nothing that the other one may have.
    back_ms = 1_000 + 10 * TERMS.learning_ms
    assert (asks("first", 2, 1, back_ms).share, asks("late", 1, 3, back_ms + 100).share) == (1, 3)
    # A third node never reports: one that asks no more often than it must gets what is free after the learning time.
    times_ms = range(back_ms + 300, back_ms + TERMS.learning_ms + 300, TERMS.renew_ms)
    assert [asks("late", 2 + i, 0, at_ms).share for i, at_ms in enumerate(times_ms)] == [0] * 6 + [3, 3]


class Unfenced(SharedPool):  # a late report counts like a new one
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Container[str]) -> ShareAnswer:
        own = self.rows.get(ask.node)
        if own is not None:
            own.seq = -1
        return super().sync(ask, now_ms, run, present)


class Unclamped(SharedPool):  # grants what is asked
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Container[str]) -> ShareAnswer:
        answer = super().sync(ask, now_ms, run, present)
        self.rows[ask.node].share = share = max(answer.share, ask.target)
        return attrs.evolve(answer, share=share)


class Forgetful(SharedPool):  # takes what a node has as soon as it is silent for two renewals
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Container[str]) -> ShareAnswer:
        for name, row in list(self.rows.items()):
            if name != ask.node and now_ms - row.seen_ms > 2 * self.terms.renew_ms:
                del self.rows[name]
        return super().sync(ask, now_ms, run, present)


class Unlearned(SharedPool):  # a store that is wiped grants at once
    def learns(self, nodes: int, now_ms: int) -> bool:
        return False


class BornRich(NodeLaw):  # a node that has heard nothing yet serves by the policy's cap
    def allowance(self, now_ns: int) -> int:
        return self.cap if self.answered_ns is None else super().allowance(now_ns)


class Raising(NodeLaw):  # reports that it lowers its share, and goes on as before
    def allowance(self, now_ns: int) -> int:
        return max(super().allowance(now_ns), self.share if self.pending is not None else 0)


@pytest.mark.parametrize("store", [Unfenced, Unclamped, Forgetful, Unlearned])
def test_I1_fails_with_a_bug_in_the_store(store: Callable[[LeaseTerms], SharedPool]) -> None:
    assert any((fleet := lossy(made(seed, pool=store(TERMS)))).peak > fleet.cap for seed in range(80))


@pytest.mark.parametrize("law", [BornRich, Raising])
def test_I1_fails_with_a_bug_in_the_node(law: Callable[..., NodeLaw]) -> None:
    assert any((fleet := lossy(made(seed, make_law=law))).peak > fleet.cap for seed in range(80))


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_I2_a_node_that_is_cut_off_exceeds_the_cap_by_no_more_than_it_has(seed: int) -> None:
    fleet = made(seed)
    cut = fleet.nodes[0]
    for step in range(STEPS):
        fleet.arrive()
        cut.cut = 300 <= step < 900
        fleet.step()
        others = sum(node.held for node in fleet.nodes if node is not cut)
        assert others <= fleet.cap
        assert others + cut.held <= fleet.cap + (max(cut.held, cut.law.floor) if step >= 300 else 0)
        if 300 + (TERMS.gone_ms + TERMS.grace_ms + 600) // 5 <= step < 900:
            # Its calls in flight have ended meanwhile: what is left is what it may use without the store.
            assert cut.held <= cut.law.floor


def stopped_for_long(fleet: Fleet) -> Fleet:
    """Stop a node for longer than its lease, and let it go on."""
    node = fleet.nodes[0]
    for step in range(2_600):
        fleet.arrive()
        if step == 500:
            node.stopped = True
        elif step == 2_000:
            fleet.resume(node)
        fleet.step()
        if fleet.peak > fleet.cap:
            break
    return fleet


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_I1_a_node_that_was_stopped_for_longer_than_its_lease_keeps_within_the_cap(seed: int) -> None:
    fleet = stopped_for_long(made(seed))
    assert fleet.peak <= fleet.cap


class Timeless(NodeLaw):  # a share has no end
    def allowance(self, now_ns: int) -> int:
        return 0 if self.answered_ns is None else self.share


def test_I1_fails_with_a_stopped_node_whose_share_does_not_end() -> None:
    assert any((fleet := stopped_for_long(made(seed, make_law=Timeless))).peak > fleet.cap for seed in range(60))


asks = st.builds(
    ShareRequest,
    node=st.sampled_from("abcd"),
    epoch=st.integers(1, 2),
    seq=st.integers(1, 30),
    cap=st.just(12),
    nodes=st.just(4),
    keep=st.integers(0, 30),
    held=st.just(0),
    demand=st.integers(0, 30),
    target=st.integers(0, 30),
    owed=st.just(0),
    floor=st.just(1),
)


def shares(pool: SharedPool) -> dict[str, int]:
    return {name: row.share for name, row in pool.rows.items()}


@given(st.lists(st.tuples(asks, st.integers(0, 3_000), st.sets(st.sampled_from("abcd"))), max_size=60))
def test_I3_and_I4_the_store_grants_no_more_than_the_cap_and_a_message_counts_once(
    history: list[tuple[ShareRequest, int, set[str]]],
) -> None:
    pool = SharedPool(TERMS)
    now_ms = 0
    # Nodes that have nothing are all that this store has to learn of.
    for name in "abcd":
        born = ShareRequest(
            node=name, epoch=1, seq=0, cap=12, nodes=4, keep=0, held=0, demand=0, target=0, owed=0, floor=1
        )
        pool.sync(born, now_ms, "1", "abcd")
    for ask, later_ms, present in history:
        now_ms += later_ms
        try:
            pool.sync(ask, now_ms, "1", present)
        except FencedNode:
            continue
        after = shares(pool)
        assert sum(after.values()) <= 12
        pool.sync(ask, now_ms, "1", present)
        assert shares(pool) == after


def longest_idle_ms(fleet: Fleet) -> int:
    idle_ms, longest_ms = 0, 0
    for step in range(STEPS):
        fleet.arrive()
        before = fleet.idle_while_waiting_ms
        fleet.step()
        idle_ms = idle_ms + 5 if fleet.idle_while_waiting_ms > before else 0
        if step * 5 > TERMS.learning_ms:
            longest_ms = max(longest_ms, idle_ms)
    return longest_ms


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_I7_on_a_quiet_network_slots_go_to_where_calls_wait_within_a_few_renewals(seed: int) -> None:
    # Some slot, not always the same one, is free for so long while some call waits: two moves in a row, at worst.
    random = Random(seed)
    fleet = Fleet(random, size=random.randrange(2, 6), cap=random.randrange(2, 9), loss=0.0)
    assert longest_idle_ms(fleet) <= 4 * TERMS.renew_ms


class Keeping(NodeLaw):  # gives nothing back while it has calls
    def others_wait(self) -> bool:
        return False


def test_I7_fails_with_a_node_that_gives_nothing_back() -> None:
    fleets = [Fleet(Random(seed), size=4, cap=6, loss=0.0, make_law=Keeping) for seed in range(10)]
    assert any(longest_idle_ms(fleet) > 4 * TERMS.renew_ms for fleet in fleets)


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(-2_000, 2_000)), min_size=1, max_size=8),
)
def test_a_node_is_due_what_its_calls_are_of_all_calls(cap: int, nodes: list[tuple[int, int, int]]) -> None:
    rows = {
        f"n{i}": ShareRow(epoch=1, seq=1, cap=cap, share=share, held=0, demand=demand, owed=owed, floor=0, seen_ms=0)
        for i, (demand, share, owed) in enumerate(nodes)
    }
    found = fair_shares(cap, rows)
    total = sum(demand for demand, _, _ in nodes)
    assert sum(one.whole for one in found.values()) <= cap
    for name, row in rows.items():
        if total <= cap:
            assert found[name].whole >= row.demand
        else:
            assert abs(found[name].whole - cap * row.demand / total) < 1.001
    if total >= cap:
        assert sum(one.whole for one in found.values()) >= cap - len(rows) // 2


def test_nodes_that_always_want_more_take_turns_at_the_last_slot() -> None:
    fleet = Fleet(Random(4), size=4, cap=2, loss=0.0, load=0.0)
    for _ in range(8_000):
        for node in fleet.nodes:
            node.waiting = 3
        fleet.step()
    begun = sorted(node.begun for node in fleet.nodes)
    assert begun[0] * 1.5 >= begun[-1] > 40


@pytest.mark.parametrize(("silent_ms", "called"), [(TERMS.stale_ms - 1, ()), (TERMS.stale_ms, ("busy",))])
def test_a_node_that_has_not_reported_for_a_while_is_asked_whether_it_needs_its_slots(
    silent_ms: int, called: tuple[str, ...]
) -> None:
    pool = SharedPool(TERMS)
    pool.begin("1")

    def asks(node: str, seq: int, held: int, demand: int, now_ms: int) -> ShareAnswer:
        ask = ShareRequest(
            node=node, epoch=1, seq=seq, cap=4, nodes=2, keep=held, held=held, demand=demand, target=2, owed=0, floor=0
        )
        return pool.sync(ask, now_ms, "1", ("busy", "poor"))

    asks("poor", 1, 0, 0, 900)
    asks("busy", 1, 0, 2, 1_000)
    asks("busy", 2, 2, 2, 1_000)
    asks("poor", 2, 2, 2, 1_000)
    # Each has its part; whether the calls of the other run still, only that one knows.
    assert asks("poor", 3, 2, 3, 1_000 + silent_ms).wake == called


def test_a_node_that_ends_in_order_leaves_its_slots_at_once() -> None:
    fleet = Fleet(Random(1), size=2, cap=8, loss=0.0)
    for _ in range(400):
        fleet.arrive()
        fleet.step()
    gone, stays = fleet.nodes
    while gone.law.pending is not None:  # it ends once its last report is answered
        fleet.step()
    fleet.kill(0)
    fleet.pool.bye(gone.law.node, gone.law.epoch)
    stays.waiting = 8
    for _ in range(90):
        fleet.step()
    assert stays.held > 6 or not stays.waiting


@pytest.mark.slow
@pytest.mark.parametrize("busy", [[0, 1, 2], [1], [2]])
def test_during_a_rolling_deploy_the_lower_cap_holds_at_every_node(busy: list[int]) -> None:
    fleet = Fleet(Random(3), size=3, cap=12, loss=0.0, load=0.0)

    def served(steps: int) -> int:
        fleet.peak = 0
        for _ in range(steps):
            for number in busy:
                fleet.nodes[number].waiting = 12
            fleet.step()
        return fleet.peak

    assert served(600) > 6
    for node in fleet.nodes:
        node.law.load(6, 3, 250)
        served(200)  # calls in flight end, and are not replaced
        assert served(300) <= 6
    for node in fleet.nodes[:-1]:
        node.law.load(12, 3, 250)
        assert served(300) <= 6
    fleet.nodes[-1].law.load(12, 3, 250)
    served(200)
    assert served(300) > 6
