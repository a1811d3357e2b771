"""Waits at several nodes beside one scheduler, on the same arrivals: what sharing costs without any CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import attrs
import pytest

from bench.several import CAP, LOAD, SERVICE_S, TARGET_OPERATIONS, arrivals, ideal_waits, p95
from hivemind_trio.scheduler.sharing.node_law import NodeLaw
from hivemind_trio.scheduler.sharing.node_shares import NodeShares
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms, RowNotice, ShareAnswer
from hivemind_trio.scheduler.sharing.shared_pool import SharedPool

from .fleet import MS, Fleet

NODES = 4
LASTS_S = 40.0
JOINS_MS = 8_500
TERMS = LeaseTerms()
MOST = 1.25
"""Six seeds have 1.04 to 1.22, 1.13 in all; the target is 1.2. Without notices they have more than 5."""


class Deaf(NodeLaw):  # knows of other nodes what the store last answered it
    def told(self, notice: RowNotice) -> bool:
        return False


def waits_beside_ideal(seed: int, make_law: Callable[..., NodeLaw]) -> tuple[float, float, float]:
    """Return the 95th percentile of the wait, that of one queue before all slots, and the requests for each call."""

    def law(name: str, epoch: int, cap: int, nodes: int, local: int, _: LeaseTerms) -> NodeLaw:
        return make_law(name, epoch, cap, nodes, local, TERMS)

    calls = arrivals(Random(seed), NODES, LASTS_S, LOAD * CAP / SERVICE_S, SERVICE_S)
    fleet = Fleet(Random(seed), size=NODES, cap=CAP, loss=0.0, trip_ms=(1, 2), pool=SharedPool(TERMS), make_law=law)
    while fleet.now_ms < JOINS_MS:
        fleet.step()
    began_ms, asks, coming = fleet.now_ms, fleet.asks, deque(enumerate(calls))
    lines: list[deque[int]] = [deque() for _ in fleet.nodes]
    waits_s: dict[int, float] = {}
    while coming or any(lines):
        fleet.now_ms += 1
        while coming and began_ms + coming[0][1].at_s * 1_000 <= fleet.now_ms:
            number, one = coming.popleft()
            lines[one.node].append(number)
        fleet.deliver()
        for node, line in zip(fleet.nodes, lines, strict=True):
            node.ends_ms = [end for end in node.ends_ms if end > fleet.now_ms]
            while line and node.held < node.law.allowance(fleet.local_ns(node), node.held, node.held + len(line)):
                number = line.popleft()
                node.ends_ms.append(fleet.now_ms + round(calls[number].service_s * 1_000))
                waits_s[number] = (fleet.now_ms - began_ms) / 1_000 - calls[number].at_s
            if node.law.is_due(fleet.local_ns(node), node.held, node.held + len(line)):
                node.waiting = len(line)
                fleet.sync(node)
        assert sum(node.held for node in fleet.nodes) <= CAP
    return p95([*waits_s.values()]), p95(ideal_waits(calls, CAP)), (fleet.asks - asks) / len(calls)


@pytest.mark.slow
def test_a_moving_hot_node_waits_little_longer_than_in_one_queue() -> None:
    found = [waits_beside_ideal(seed, NodeLaw) for seed in range(7, 10)]

    assert sum(ours for ours, _, _ in found) <= MOST * sum(ideal for _, ideal, _ in found)
    assert sum(asks for _, _, asks in found) / len(found) <= TARGET_OPERATIONS


@pytest.mark.slow
def test_it_waits_longer_where_nodes_do_not_hear_of_each_other_at_once() -> None:
    waits, ideal, _ = waits_beside_ideal(7, Deaf)

    assert waits > MOST * ideal


def test_a_notice_tells_who_waits_and_the_row_of_another_node_gives_no_slot() -> None:
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    one, other = (NodeLaw(name, 1, CAP, 2, 250, TERMS) for name in "ab")
    for law, calls in ((one, 2), (other, 0), (one, 2)):
        law.answered(pool.sync(law.request(0, 0, calls), 1_000, "1", "ab"))
    has, row = one.share, pool.rows["b"]
    waits = RowNotice(pool="p", node="b", run="1", row=attrs.evolve(row, seq=3, demand=CAP))

    assert not one.told(attrs.evolve(waits, run="2"))  # what the store knew before it was emptied
    assert not one.told(attrs.evolve(waits, node="a"))
    assert not one.told(attrs.evolve(waits, row=attrs.evolve(waits.row, seq=1)))  # late
    assert one.told(waits)
    assert one.rows["b"].demand == CAP
    assert one.told(attrs.evolve(waits, row=attrs.evolve(row, seq=4, demand=0)))
    assert not one.told(waits)
    assert one.allowance(0, 0, 2) == has


def waiting_law() -> tuple[SharedPool, NodeLaw, NodeLaw]:
    """Return a pool, a law that has all its slots, and one that waits for four."""
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    one, other = (NodeLaw(name, 1, CAP, 2, 250, TERMS) for name in "ab")
    for law, calls in ((one, CAP), (other, 4), (other, 4)):
        law.answered(pool.sync(law.request(0, 0, calls), 1_000, "1", "ab"))
    return pool, one, other


def test_slots_of_a_notice_are_used_if_the_store_had_the_last_report() -> None:
    pool, one, other = waiting_law()
    row = attrs.evolve(pool.rows["b"], share=2, changes=1)
    notice = RowNotice(pool="p", node="a", run="1", row=attrs.evolve(pool.rows["a"], share=6, seq=2))
    given = attrs.evolve(notice, granted={"b": row})
    assert other.allowance(0, 0, 4) == 0

    assert not one.told(attrs.evolve(given, granted={"a": attrs.evolve(row, share=CAP)}))  # its own report
    assert not other.told(attrs.evolve(given, run="2"))
    other.told(attrs.evolve(given, granted={"b": attrs.evolve(row, seq=row.seq + 1)}))
    other.told(attrs.evolve(given, granted={"b": attrs.evolve(row, epoch=0)}))
    assert other.allowance(0, 0, 4) == 0
    assert not other.is_due(100 * MS, 0, 4)
    _, _, other = waiting_law()
    assert other.told(given)
    assert other.allowance(0, 0, 4) == 2
    other.told(attrs.evolve(given, granted={"b": attrs.evolve(row, share=1)}))  # again, or late
    assert other.allowance(0, 0, 4) == 2


def test_slots_of_a_notice_that_comes_before_the_answer_stay() -> None:
    pool, one, other = waiting_law()
    on_its_way = pool.sync(other.request(0, 0, 4), 1_000, "1", "ab")
    back = attrs.evolve(one.request(0, 0, CAP), keep=5, target=5, parts=(("b", 3),))
    assert other.told(pool.sync(back, 1_001, "1", "ab").notice("p", "a"))

    other.answered(on_its_way)
    assert other.allowance(0, 0, 4) == other.share == pool.rows["b"].share == 3


def test_a_node_that_got_too_little_asks_again_where_it_hears_of_a_free_slot() -> None:
    pool, one, other = waiting_law()
    later = 100 * MS
    assert not other.is_due(later, 0, 4)
    answer = pool.sync(attrs.evolve(one.request(0, 0, 4), keep=7, target=7, parts=()), 1_001, "1", "ab")
    assert other.told(answer.notice("p", "a"))
    assert other.is_due(later, 0, 4)


def test_calls_beyond_the_share_are_not_calls_that_begin_to_wait() -> None:
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    law = NodeLaw("a", 1, CAP, 2, 250, TERMS)
    law.answered(pool.sync(law.request(0, 0, CAP), 1_000, "1", "ab"))
    ask = attrs.evolve(law.request(0, CAP, CAP), keep=3, target=3)
    law.answered(pool.sync(ask, 1_001, "1", "ab"))
    assert (law.share, law.is_due(100 * MS, CAP, CAP)) == (3, False)
    assert law.is_due(100 * MS, CAP, CAP + 1)


def test_an_answer_that_was_made_before_a_notice_and_comes_after_it_takes_nothing_back() -> None:
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    one, other = (NodeLaw(name, 1, CAP, 2, 250, TERMS) for name in "ab")
    for law, calls in ((one, 2), (other, 1)):
        law.answered(pool.sync(law.request(0, 0, calls), 1_000, "1", "ab"))
    on_its_way = pool.sync(one.request(0, 0, 2), 1_000, "1", "ab")
    told = pool.sync(other.request(0, 1, CAP), 1_001, "1", "ab")
    # The request under way says all itself: none is due.
    assert one.told(RowNotice(pool="p", node="b", run=told.run, row=told.rows["b"]))
    assert not one.is_due(100 * MS, 0, 2)

    one.answered(on_its_way)
    assert one.rows["b"].demand == CAP
    one.answered(pool.sync(one.request(0, 0, 2), 1_002, "1", "ab"))
    assert one.rows["b"].demand == CAP
    assert one.rows["b"].seq == 2


def test_a_node_gives_back_what_another_one_waits_for_without_being_asked() -> None:
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    busy, poor = (NodeLaw(name, 1, 4, 2, 250, TERMS) for name in ("busy", "poor"))

    def report(law: NodeLaw, held: int, demand: int) -> ShareAnswer:
        answer = pool.sync(law.request(0, held, demand), 1_000, "1", ("busy", "poor"))
        law.answered(answer)
        return answer

    for law, demand in [(poor, 0), (busy, 9)] * 3:
        report(law, 0, demand)
    later = 1_000 * MS
    assert busy.allowance(later, 4, 9) == busy.share == 4
    told = [report(poor, 0, 2) for _ in range(2)]
    assert [answer.tell for answer in told] == [("busy",)] * 2  # again, though nothing has changed

    assert busy.told(told[0].notice("p", "poor"))
    # No call begins in the place of one that ends, though many wait here; and the slot goes back at once.
    assert busy.allowance(later, 4, 9) == 3
    assert not busy.is_due(later, 4, 9)
    assert busy.is_due(later, 3, 8)
    served = attrs.evolve(told[1], rows=told[1].rows | {"poor": attrs.evolve(told[1].rows["poor"], seq=9, demand=0)})
    # No call waits any more, and nothing has been given back: the slots stay with the node.
    assert busy.told(served.notice("p", "poor"))
    assert busy.allowance(later, 4, 9) == 4


def test_a_share_that_ends_by_time_falls_to_no_more_than_what_may_be_used_now() -> None:
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    shares, poor = NodeShares("rich", 1, TERMS), NodeLaw("poor", 1, 4, 2, 1_000, TERMS)
    rich = shares.laws["p"] = NodeLaw("rich", 1, 4, 2, 1_000, TERMS)
    for law, demand in [(poor, 0), (rich, 9)] * 3 + [(poor, 9)]:
        law.answered(answer := pool.sync(law.request(0, 0, demand), 1_000, "1", ("rich", "poor")))
    assert rich.told(answer.notice("p", "poor"))
    usable = shares.usable(0, {"p": (0, 1)})
    assert usable is not None
    assert rich.share > rich.floor > usable.shares["p"]
    assert usable.until_ns is not None
    assert usable.then == usable.shares


def test_slots_that_a_node_has_given_back_are_not_used_before_the_store_has_answered() -> None:
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    one, other = (NodeLaw(name, 1, CAP, 2, 250, TERMS) for name in "ab")
    for law, calls in ([(other, 0), (one, CAP)] * 3) + [(other, CAP)]:
        law.answered(answer := pool.sync(law.request(0, 0, calls), 1_000, "1", "ab"))
    one.told(answer.notice("p", "b"))
    reported = one.request(0, 0, CAP)
    done = attrs.evolve(answer.rows["b"], seq=9, demand=0)
    assert one.told(RowNotice(pool="p", node="b", run="1", row=done))  # what may be used has to be looked at

    assert not one.others_wait()
    assert one.allowance(0, 0, CAP) == reported.keep < one.share
    one.failed(0)  # it may be on its way to the store
    assert one.allowance(0, 0, CAP) == reported.keep


def test_a_lower_limit_holds_also_after_slots_have_come_in_a_notice() -> None:
    pool = SharedPool(TERMS)
    pool.life.begin("1")
    one, other = (NodeLaw(name, 1, CAP, 2, 250, TERMS) for name in "ab")
    for law, calls in ([(other, 0), (one, CAP)] * 3) + [(other, CAP)]:
        law.answered(pool.sync(law.request(0, 0, calls), 1_000, "1", "ab"))
    half = CAP // 2
    ask = attrs.evolve(one.request(0, 0, CAP), keep=half, target=half, parts=(("b", half),))
    back = pool.sync(ask, 1_001, "1", "ab")
    other.limited(2)
    assert other.told(back.notice("p", "a"))
    assert other.share == half
    assert other.allowance(0, 0, CAP) == 0  # more is held than there is
    assert other.allowance(0, 3, CAP) <= 1
