"""Any order of requests, renewals, releases, reloads and restarts: what must hold of leases after each step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from .desk import Desk

AGENTS = ("a", "b", "c")


def policy(capacity: int, queue: int, lease_s: int, allow: bool, removed: bool) -> str:
    agents = "team t { weight 2 }\nagent a { token env(A); team t }\nagent b { token env(B); team t; weight 3 }\n"
    agents += "agent c { token env(C) }\n"
    if removed:
        return agents
    extra = "; allow [a, b]" if allow else ""
    return f"{agents}resource gpu {{ capacity {capacity}; queue {queue}; lease {lease_s}s max 90s{extra} }}\n"


POLICIES = st.builds(
    policy,
    capacity=st.integers(1, 4),
    queue=st.integers(0, 5),
    lease_s=st.sampled_from([10, 30, 60]),
    allow=st.booleans(),
    removed=st.sampled_from([False, False, False, True]),
)


class LeaseMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.text = policy(2, 3, 30, False, False)
        self.desk = Desk(self.text)
        self.priorities: dict[int, int] = {}
        self.gone: set[int] = set()

    @rule(agent=st.sampled_from(AGENTS), priority=st.integers(0, 2), ttl_s=st.none() | st.integers(1, 80))
    def ask(self, agent: str, priority: int, ttl_s: int | None) -> None:
        before = len(self.in_line())
        self.priorities[self.desk.next_id + 1] = priority
        number = self.desk.ask(agent, priority=priority, ttl_s=ttl_s)
        queue = self.desk.table.queues.get("gpu")
        if number in self.in_line():
            assert queue is not None
            assert before < queue.settings.queue

    def in_line(self) -> list[int]:
        return self.desk.in_line() if "gpu" in self.desk.table.queues else []

    @precondition(lambda self: self.in_line())
    @rule(data=st.data())
    def withdraw(self, data: Any) -> None:
        number = data.draw(st.sampled_from(self.in_line()))
        self.gone.add(number)
        self.desk.withdraw(number)

    @precondition(lambda self: self.desk.held())
    @rule(data=st.data(), renews=st.booleans())
    def end_or_renew(self, data: Any, renews: bool) -> None:
        number = data.draw(st.sampled_from(self.desk.held()))
        waiting, count = self.in_line(), len(self.desk.order)
        if renews:
            before = self.desk.leases[number]
            self.desk.renew(number)
            after = self.desk.leases[number]
            assert after.expires_ns >= min(before.expires_ns, self.desk.now_ns + 10**9)
            assert after.expires_ns <= after.granted_ns + 90 * 10**9
        else:
            self.desk.release(number)
            assert number not in self.desk.held()
            # The time that it took is known now, so the line may have another order; the priorities stand.
            served = self.desk.order[count:]
            assert set(served) <= set(waiting)
            assert [self.priorities[one] for one in served] == [self.priorities[one] for one in waiting[: len(served)]]

    @rule(seconds=st.integers(0, 40))
    def pass_time(self, seconds: int) -> None:
        self.desk.pass_s(seconds)

    @rule(text=POLICIES)
    def load(self, text: str) -> None:
        waiting = set(self.in_line())
        self.text = text
        self.desk.load(text)
        lost = waiting - set(self.in_line()) - set(self.desk.order)
        assert lost <= set(self.desk.refused)

    @rule()
    def restart(self) -> None:
        self.gone |= set(self.in_line())
        self.desk.restart(self.text)

    @invariant()
    def nothing_waits_beside_room_and_nothing_is_held_beyond_capacity_but_by_reloads(self) -> None:
        queue = self.desk.table.queues.get("gpu")
        if queue is None:
            return
        assert not (queue.has_room and queue.waiting)
        assert not (queue.is_removed and queue.waiting)

    @invariant()
    def fencing_tokens_only_grow(self) -> None:
        fences = self.desk.fences.get("gpu", [])
        assert fences == sorted(set(fences))

    @invariant()
    def no_lease_outlives_its_time(self) -> None:
        assert all(self.desk.leases[number].expires_ns > self.desk.now_ns for number in self.desk.held())

    @invariant()
    def every_request_has_one_fate(self) -> None:
        fates = [set(self.desk.order), set(self.desk.refused), set(self.in_line()), self.gone]
        assert sum(map(len, fates)) == len(set().union(*fates)) == self.desk.next_id

    @invariant()
    def higher_priorities_stand_first(self) -> None:
        line = [self.priorities[number] for number in self.in_line()]
        assert line == sorted(line, reverse=True)

    @invariant()
    def what_has_ended_is_over_once(self) -> None:
        ended = [lease for lease, _ in self.desk.ended]
        assert len(ended) == len(set(ended))


class BoundedByCapacity(LeaseMachine):
    """Without reloads no more than `capacity` are held."""

    @rule(text=st.just(""))
    def load(self, text: str) -> None:
        """Load nothing."""

    @invariant()
    def no_more_than_capacity(self) -> None:
        assert len(self.desk.held()) <= 2


TestLeases = pytest.mark.slow(LeaseMachine.TestCase)
TestLeases.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCapacity = pytest.mark.slow(BoundedByCapacity.TestCase)
TestCapacity.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
