"""Slots of one account at several nodes: never more than there are, and none idle while a call waits elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
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

from .fleet import MS, TERMS, Fleet, hard_life

STEPS = 1_200


def made(seed: int, **planted: object) -> Fleet:
    random = Random(seed)
    return Fleet(random, size=random.randrange(2, 6), cap=random.randrange(2, 25), **planted)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(st.integers(0, 2**32))
def test_I1_whatever_is_lost_killed_or_wiped_no_more_calls_are_in_flight_than_the_cap(seed: int) -> None:
    fleet = hard_life(made(seed))
    assert fleet.peak <= fleet.cap


NODES = ("first", "late", "third")


def says(pool: SharedPool, present: Collection[str] = NODES) -> Callable[..., ShareAnswer]:
    """Return how a node reports to a pool of four slots."""
    seqs: Counter[str] = Counter()

    def ask(node: str, keep: int, now_ms: int, run: str = "", seq: int = 0, **more: Any) -> ShareAnswer:
        seqs[node] = seq or seqs[node] + 1
        wish = ShareRequest(
            node=node, epoch=1, seq=seqs[node], cap=4, nodes=3, run=run, keep=keep, held=0, demand=4, target=4, owed=0,
            floor=0,
        )  # fmt: skip
        return pool.sync(attrs.evolve(wish, **more), now_ms, "1", present)

    return ask


def test_I1_a_report_from_before_a_store_was_wiped_is_not_that_of_its_node() -> None:
    ask = says(SharedPool(TERMS))
    life = ask("first", 1, 1_000).run
    # It was sent before the wipe, and has come twice: the earlier store has granted three slots to its node since.
    late = ask("late", 0, 1_010)
    assert late.learning
    for now_ms in (1_100, 1_200, 1_300):
        ask("third", 0, now_ms, life)
        assert ask("first", 1, now_ms, life).share == 1
    # The report that its node sends now is heard, for it knows of this life.
    assert ask("late", 3, 1_400, late.run).share == 3
    assert [ask("first", 1, 1_500, life).share, ask("late", 3, 1_600, life).share] == [1, 3]
    assert not ask("first", 1, 1_700, life).learning


def test_I1_a_node_that_is_connected_and_not_heard_may_use_its_share_for_a_lease() -> None:
    ask = says(SharedPool(TERMS), ("first", "late"))
    life = ask("first", 1, 1_000).run
    times_ms = range(1_200, 1_000 + TERMS.lease_ms, TERMS.renew_ms)
    assert {ask("first", 1, at_ms, life).share for at_ms in times_ms} == {1}
    assert ask("first", 1, 1_000 + TERMS.lease_ms, life).share == 4


def test_I1_a_node_whose_connection_ends_while_a_store_learns_has_a_grace() -> None:
    pool = SharedPool(TERMS)
    there, gone = says(pool, ("first", "late")), says(pool, ("first",))
    life = there("first", 1, 1_000).run
    last_ms = 1_000 + TERMS.learning_ms - 1
    there("first", 1, last_ms, life, 2)
    assert gone("first", 1, last_ms + 100, life, 3).share == 1
    assert gone("first", 1, last_ms + 100 + TERMS.grace_ms, life, 4).share == 4


def test_I1_a_node_that_another_name_has_replaced_is_no_longer_one_of_them() -> None:
    pool = SharedPool(TERMS)
    ask = says(pool, ("first", "new", "late"))
    life = ask("first", 1, 1_000).run
    for node in ("first", "killed", "new"):
        ask(node, 1, 1_100, life)
    assert ask("first", 1, 1_200, life).learning
    ask("late", 1, 1_300, life)
    assert not ask("first", 1, 1_400, life).learning


class Unfenced(SharedPool):  # a late report counts like a new one
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Collection[str]) -> ShareAnswer:
        own = self.rows.get(ask.node)
        if own is not None:
            own.seq = -1
        return super().sync(ask, now_ms, run, present)


class Unclamped(SharedPool):  # grants what is asked
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Collection[str]) -> ShareAnswer:
        answer = super().sync(ask, now_ms, run, present)
        self.rows[ask.node].share = share = max(answer.share, ask.target)
        return attrs.evolve(answer, share=share)


class Forgetful(SharedPool):  # takes what a node has as soon as it is silent for two renewals
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Collection[str]) -> ShareAnswer:
        for name, row in list(self.rows.items()):
            if name != ask.node and now_ms - row.seen_ms > 2 * self.terms.renew_ms:
                del self.rows[name]
        return super().sync(ask, now_ms, run, present)


class Unlearned(SharedPool):  # a store that is wiped grants at once
    def _learns(self, ask: ShareRequest, now_ms: int, present: Collection[str]) -> bool:
        return False


class BornRich(NodeLaw):  # a node that has heard nothing yet serves by the policy's cap
    def allowance(self, now_ns: int, held: int, demand: int) -> int:
        return self.cap if self.answered_ns is None else super().allowance(now_ns, held, demand)


class Raising(NodeLaw):  # reports that it lowers its share, and goes on as before
    def allowance(self, now_ns: int, held: int, demand: int) -> int:
        return max(super().allowance(now_ns, held, demand), self.share if self.pending is not None else 0)


class Gullible(SharedPool):  # believes that a report from before it was wiped tells what its node has now
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Collection[str]) -> ShareAnswer:
        answer = super().sync(ask, now_ms, run, present)
        self.rows[ask.node].heard = True
        return answer


class Outdated(NodeLaw):  # takes slots of a row that does not have its last report
    def _is_up_to_date(self, own: ShareRow) -> bool:
        return True


class Lavish(SharedPool):  # gives a waiting node one slot more than there are
    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Collection[str]) -> ShareAnswer:
        answer = super().sync(ask, now_ms, run, present)
        for name in answer.granted:
            self.rows[name].share += 1
        return attrs.evolve(answer, rows={name: attrs.evolve(row) for name, row in self.rows.items()})


def breaks(first_seed: int, **planted: Callable[[], object]) -> bool:
    """Return True if some life shows a bug; the first one has, when the bug was planted last.

    Each life has a store of its own: what a store knows of the life before it breaks without any bug.
    """
    lives = (made(seed, **{name: make() for name, make in planted.items()}) for seed in (first_seed, *range(300)))
    return any(hard_life(fleet).peak > fleet.cap for fleet in lives)


@pytest.mark.parametrize(
    ("store", "seed"), [(Unfenced, 43), (Unclamped, 33), (Forgetful, 8), (Unlearned, 4), (Gullible, 6)]
)
def test_I1_fails_with_a_bug_in_the_store(store: Callable[[LeaseTerms], SharedPool], seed: int) -> None:
    assert breaks(seed, pool=lambda: store(TERMS))


@pytest.mark.parametrize(("law", "seed"), [(BornRich, 0), (Raising, 0), (Outdated, 82)])
def test_I1_fails_with_a_bug_in_the_node(law: Callable[..., NodeLaw], seed: int) -> None:
    assert breaks(seed, make_law=lambda: law)


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
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
@settings(max_examples=settings().max_examples // 4)
@given(st.integers(0, 2**32))
def test_I1_a_node_that_was_stopped_for_longer_than_its_lease_keeps_within_the_cap(seed: int) -> None:
    fleet = stopped_for_long(made(seed))
    assert fleet.peak <= fleet.cap


class Timeless(NodeLaw):  # a share has no end
    def allowance(self, now_ns: int, held: int, demand: int) -> int:
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
    run=st.just("1"),
    keep=st.integers(0, 30),
    held=st.just(0),
    demand=st.integers(0, 30),
    target=st.integers(0, 30),
    owed=st.just(0),
    floor=st.just(1),
    parts=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 30)), max_size=4).map(tuple),
)


def shares(pool: SharedPool) -> dict[str, int]:
    return {name: row.share for name, row in pool.rows.items()}


histories = st.lists(
    st.tuples(asks, st.integers(0, 3_000), st.sets(st.sampled_from("abcd")), st.integers(0, 59)), max_size=60
)


def answer_all(pool: SharedPool, history: list[tuple[ShareRequest, int, set[str], int]]) -> None:
    """Let a store answer a history, each time followed by a message of before; it holds I3 and I4."""
    pool.life.begin("1")
    now_ms, said = 0, []
    for ask, later_ms, present, back in history:
        now_ms += later_ms
        with suppress(FencedNode):
            pool.sync(ask, now_ms, "1", present)
            said.append(ask)
        after = shares(pool)
        assert sum(after.values()) <= 12
        late = said[-1 - back % len(said)] if said else ask
        if late.node in pool.rows:  # one that is forgotten would be born again
            with suppress(FencedNode):
                pool.sync(late, now_ms, "1", present)
        assert shares(pool) == after


@given(histories)
def test_I3_and_I4_the_store_grants_no_more_than_the_cap_and_a_message_counts_once(
    history: list[tuple[ShareRequest, int, set[str], int]],
) -> None:
    answer_all(SharedPool(TERMS), history)


@pytest.mark.parametrize("store", [Unclamped, Unfenced, Lavish])
def test_I3_and_I4_fail_with_a_bug_in_the_store(store: Callable[[LeaseTerms], SharedPool]) -> None:
    one = ShareRequest(
        node="a", epoch=1, seq=1, cap=12, nodes=2, run="1", keep=0, held=0, demand=12, target=8, owed=0, floor=1
    )
    wishes = [one, attrs.evolve(one, seq=2, target=4), attrs.evolve(one, node="b")]
    wishes.append(attrs.evolve(one, seq=3, keep=2, demand=2, target=2, parts=(("b", 12),)))  # the rest is for `b`
    history = [(wish, 1, set("ab"), 1) for wish in wishes]
    answer_all(SharedPool(TERMS), history)
    with pytest.raises(AssertionError):
        answer_all(store(TERMS), history)


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
@settings(max_examples=settings().max_examples // 4)
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


def seen_late_ms(terms: LeaseTerms, random: Random, *, wiped: bool = False) -> tuple[int, int]:
    """Let two nodes idle, one of whose messages are lost now and then.

    Returns:
        The longest silence of one that the other sees, and when the store last learned.
    """
    pool = SharedPool(terms)
    if not wiped:
        pool.life.begin("1")
    laws = [NodeLaw(name, 1, 8, 2 + wiped, 250, terms) for name in "ab"]
    longest_ms, learned_ms, lost = 0, 0, False
    for now_ms in range(1_000, 1_000 + 5 * terms.gone_ms, 50):
        for law in laws:
            now_ns = now_ms * MS
            if law.pending is not None and now_ns >= law.pending[1] + 250 * MS:
                law.failed(now_ns)
            if not law.is_due(now_ns, 0, 0):
                continue
            ask = law.request(now_ns, 0, 0)
            if law is laws[0]:
                lost = not lost and random.random() < 0.5  # never two in a row
            if law is laws[1] or not lost:
                answer = pool.sync(ask, now_ms, "1", "ab")
                law.answered(answer)
                learned_ms = now_ms if answer.learning else learned_ms
        if now_ms > 1_000 + terms.gone_ms:
            for law, other in zip(laws, "ba", strict=True):
                assert law.answered_ns is not None  # as `FellowNodes` has it
                at_ms = law.answered_ns // MS - (law.rows[law.node].seen_ms - law.rows[other].seen_ms)
                longest_ms = max(longest_ms, now_ms - at_ms)
    return longest_ms, learned_ms - 1_000


lease_terms = st.builds(
    lambda renew_ms, gone: LeaseTerms(lease_ms=8 * gone * renew_ms, renew_ms=renew_ms, gone_ms=gone * renew_ms),
    st.sampled_from([1_000, 2_000, 3_000]),
    st.integers(4, 8),
)


@settings(max_examples=15)
@given(lease_terms, st.integers(0, 2**32))
def test_an_idle_node_speaks_often_enough_not_to_be_called_silent(terms: LeaseTerms, seed: int) -> None:
    assert seen_late_ms(terms, Random(seed))[0] < terms.gone_ms


def test_idle_nodes_fail_with_a_bug_in_when_they_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = LeaseTerms(lease_ms=60_000, renew_ms=2_000, gone_ms=8_000)
    monkeypatch.setattr(LeaseTerms, "idle_ms", 4_000)
    assert any(seen_late_ms(terms, Random(seed))[0] >= terms.gone_ms for seed in range(5))


@settings(max_examples=5)
@given(lease_terms, st.integers(0, 2**32))
def test_idle_nodes_do_not_make_a_store_learn_for_longer(terms: LeaseTerms, seed: int) -> None:
    assert seen_late_ms(terms, Random(seed), wiped=True)[1] <= terms.learning_ms


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
