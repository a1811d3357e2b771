"""Reports of many attempts in flight keep what has ended."""

from __future__ import annotations

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import AttemptResult, CallId
from hivemind_trio.scheduler.health.learned_together import LearnedTogether
from hivemind_trio.scheduler.learning.learn_record import LearnRecord
from hivemind_trio.scheduler.learning.lesson import LESSONS_MAX, LearnAsk, Lesson, SharedVerdict
from hivemind_trio.scheduler.learning.pool_learning import PoolLearning
from tests.support.programs import SECOND_NS

MANY = 1_400
FAILED = AttemptResult(outcome=Outcome.FAILED)
BELIEF = SharedVerdict(limit=0, doubling=False, circuit="closed")


@attrs.define
class Node:
    """A node at a fixed limit, and its reports to a store in memory."""

    name: str
    store: LearnRecord
    now_ns: int = 0
    shared: LearnedTogether = attrs.field(
        factory=lambda: LearnedTogether(PoolLearning(renew_ns=SECOND_NS // 5, alone_ns=60 * SECOND_NS))
    )
    heard: list[Lesson] = attrs.field(factory=list)
    """Lessons of other nodes."""

    def asked(self) -> LearnAsk:
        self.now_ns += SECOND_NS
        ask = self.shared.ask(BELIEF, self.now_ns, held=MANY, binds=False, wants_probe=False, learns=False)
        assert ask is not None
        return ask

    def report(self) -> tuple[Lesson, ...]:
        ask = self.asked()
        answer = self.store.learn(attrs.evolve(ask, node=self.name), self.now_ns // 1_000_000)
        self.shared.link.answered(answer)
        self.heard += [lesson for report in answer.reports for lesson in report.lessons]
        return ask.lessons

    def begin_many_of_which_one_fails(self) -> None:
        for number in range(MANY):
            self.shared.on_granted(CallId(number), self.now_ns, is_probe=False, learns=False)
            if number % 2:
                self.shared.on_good(CallId(number), self.now_ns)
        self.shared.on_ended(CallId(0), FAILED, self.now_ns, self.now_ns)


def two_nodes() -> tuple[Node, Node]:
    """Return the one that leads and one that follows."""
    store = LearnRecord(lead_ms=60_000, gone_ms=60_000)
    leads, follows = Node("a", store), Node("b", store)
    leads.report()
    follows.report()
    return leads, follows


def failures(lessons: tuple[Lesson, ...] | list[Lesson]) -> list[int]:
    return [one.call for one in lessons if one.outcome == Outcome.FAILED]


def test_a_failure_is_reported_however_many_attempts_are_in_flight() -> None:
    _, node = two_nodes()
    node.begin_many_of_which_one_fails()

    assert failures(node.report()) == [0]


def test_attempts_that_one_report_has_no_room_for_are_in_later_ones() -> None:
    _, node = two_nodes()
    node.begin_many_of_which_one_fails()

    reports = [node.report() for _ in range(10)]

    told = [(one.call, one.kind) for report in reports for one in report]
    assert max(len(report) for report in reports) <= LESSONS_MAX
    assert sorted(call for call, kind in told if kind == "granted") == list(range(MANY))
    assert sorted(call for call, kind in told if kind == "accepted") == list(range(1, MANY, 2))


def test_an_attempt_that_ends_well_before_it_was_told_is_told_as_a_whole() -> None:
    _, node = two_nodes()
    node.begin_many_of_which_one_fails()
    node.report()

    node.shared.on_ended(CallId(MANY - 1), AttemptResult(outcome=Outcome.SUCCEEDED), 0, node.now_ns)

    assert [one.kind for one in node.report() if one.call == MANY - 1] == ["served"]


def test_the_store_keeps_a_failure_over_the_next_report() -> None:
    leads, follows = two_nodes()
    follows.begin_many_of_which_one_fails()
    follows.report()
    follows.report()

    leads.now_ns = follows.now_ns
    leads.report()

    assert failures(leads.heard) == [0]


def test_a_leader_keeps_a_failure_over_a_report_without_an_answer() -> None:
    node, _ = two_nodes()
    node.begin_many_of_which_one_fails()
    lost = node.asked()
    node.shared.link.unanswered(lost.seq, node.now_ns)

    assert failures(node.report()) == [0]
