"""Any sequence of events, under any small policy and any sequence of reloads, against the ledger.

The ledger predicts every command but two things: which lane is next where several could go (`test_weights.py`), and
which agent (`test_shares.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hivemind_trio.model import Request
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Draining,
    Event,
    PolicyLoaded,
    Scheduler,
    TimePassed,
)
from tests.scheduler.models.drawn import CALLERS, programs, wishes
from tests.scheduler.models.ledger import Ledger
from tests.support.ends import ENDS, IGNORED, SUCCEEDED
from tests.support.programs import wish

ends = st.sampled_from(ENDS)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(program=programs(), seed=st.integers(0, 3), drain=st.booleans(), most=st.sampled_from([50, 1, 2]))
    def start(self, program: Program, seed: int, drain: bool, most: int) -> None:
        self.first, self.seed, self.drain, self.most = program, seed, drain, most
        self.scheduler = Scheduler(program, seed, most=most)
        self.ledger = Ledger(program)
        self.now_ns = 0
        self.calls = 0
        self.journal: list[tuple[int, Event, list[Command]]] = []

    def post(self, event: Event) -> list[Command]:
        commands = self.scheduler.handle(event, self.now_ns)
        self.journal.append((self.now_ns, event, list(commands)))
        while self.scheduler.state.behind:  # calls are decided again in slices; the driver goes on at once
            more = self.scheduler.handle(TimePassed(), self.now_ns)
            self.journal.append((self.now_ns, TimePassed(), list(more)))
            commands += more
        return commands

    def next_call(self, request: Request, caller: str, *, needs_slot: bool) -> Call:
        self.calls += 1
        return Call(id=CallId(self.calls), request=request, caller=caller, needs_slot=needs_slot)

    def pick(self, ids: Mapping[CallId, object], pick: int) -> CallId:
        return list(ids)[pick % len(ids)]

    # ---- what can happen ----

    @rule(request=wishes, caller=st.sampled_from(CALLERS), needs_slot=st.sampled_from([True] * 9 + [False]))
    def arrive(self, request: Request, caller: str, *, needs_slot: bool = True) -> None:
        call = self.next_call(request, caller, needs_slot=needs_slot)
        self.ledger.arrived(call, self.now_ns, self.post(CallArrived(call)))

    @rule(crowd=st.lists(st.tuples(wishes, st.sampled_from(CALLERS)), min_size=3, max_size=8))
    def arrive_together(self, crowd: list[tuple[Request, str]]) -> None:
        for request, caller in crowd:
            self.arrive(request, caller)

    @rule(request=wishes, caller=st.sampled_from(CALLERS), times=st.integers(2, 6))
    def arrive_alike(self, request: Request, caller: str, times: int) -> None:
        for _ in range(times):
            self.arrive(request, caller)

    @precondition(lambda self: self.ledger.running)
    @rule(pick=st.integers(0, 9), ended=ends)
    def end(self, pick: int, ended: AttemptResult) -> None:
        call_id = self.pick(self.ledger.running, pick)
        self.ledger.ended(call_id, self.now_ns, self.post(AttemptEnded(call_id, ended)))

    @precondition(lambda self: self.ledger.waiting)
    @rule(pick=st.integers(0, 9))
    def cancel_before_the_grant(self, pick: int) -> None:
        call_id = self.pick(self.ledger.waiting, pick)
        self.ledger.cancelled(call_id, self.now_ns, self.post(CallCancelled(call_id)))

    @precondition(lambda self: self.ledger.running and self.ledger.waiting)
    @rule(pick=st.integers(0, 9), ended=ends)
    def cancel_at_the_grant(self, pick: int, ended: AttemptResult) -> None:
        # The agent hangs up in the very instant in which a slot comes back; whoever got it, gives it back at once.
        first = self.pick(self.ledger.running, pick)
        before = set(self.ledger.running)
        self.ledger.ended(first, self.now_ns, self.post(AttemptEnded(first, ended)))
        for call_id in [each for each in self.ledger.running if each not in before]:
            self.ledger.cancelled(call_id, self.now_ns, self.post(CallCancelled(call_id)))
            self.ledger.ended(call_id, self.now_ns, self.post(AttemptEnded(call_id, IGNORED)))

    @precondition(lambda self: self.ledger.running)
    @rule(pick=st.integers(0, 9))
    def cancel_after_the_grant(self, pick: int) -> None:
        call_id = self.pick(self.ledger.running, pick)
        self.ledger.cancelled(call_id, self.now_ns, self.post(CallCancelled(call_id)))
        self.check()
        self.ledger.ended(call_id, self.now_ns, self.post(AttemptEnded(call_id, IGNORED)))

    @rule(passed_ns=st.integers(1, 4), noticed=st.booleans())
    def time_passes(self, passed_ns: int, noticed: bool) -> None:
        # Unnoticed when the driver is late: the next event finds deadlines that are over.
        self.now_ns += passed_ns
        if noticed:
            self.ledger.passed(self.now_ns, self.post(TimePassed()))

    @precondition(lambda self: self.scheduler.wakeup_ns() is not None)
    @rule()
    def wake_up(self) -> None:
        self.now_ns = max(self.now_ns, self.scheduler.wakeup_ns() or 0)
        self.ledger.passed(self.now_ns, self.post(TimePassed()))

    @rule(program=programs())
    def load(self, program: Program) -> None:
        self.ledger.loaded(program, self.now_ns, self.post(PolicyLoaded(program)))

    @rule(call_id=st.integers(0, 200))
    def a_driver_gone_wrong_is_told_and_changes_nothing(self, call_id: int) -> None:
        # Not in the journal: the replay at the end would differ if any of it had left a trace.
        if call_id not in self.ledger.waiting:
            # This it may do, of a call that is in flight, is over or never was.
            self.ledger.cancelled(CallId(call_id), self.now_ns, self.post(CallCancelled(CallId(call_id))))
        if call_id not in self.ledger.running:
            with pytest.raises(ValueError, match="no attempt in flight"):
                self.scheduler.handle(AttemptEnded(CallId(call_id), IGNORED), self.now_ns + 3)
        for known in (*self.ledger.running.values(), *self.ledger.waiting.values()):
            with pytest.raises(ValueError, match="twice"):
                self.scheduler.handle(CallArrived(known.call), self.now_ns + 3)
        if self.journal and self.now_ns:
            with pytest.raises(ValueError, match="backwards"):
                self.scheduler.handle(Draining(), self.journal[-1][0] - 1)

    # ---- what must hold ----

    @invariant()
    def check(self) -> None:
        self.ledger.check_rest(self.scheduler.snapshot())

    @invariant()
    def the_alarm_is_set_for_the_first_deadline(self) -> None:
        deadlines = [each.deadline_ns for each in self.ledger.waiting.values() if each.deadline_ns is not None]
        assert self.scheduler.wakeup_ns() == min(deadlines, default=None)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler") or sys.exception() is not None:
            return  # what has failed before is the news, and this would hide it
        if self.drain:
            self.ledger.drained(self.now_ns, self.post(Draining()))
            self.check()
            self.arrive(wish(), "x")
        # Whatever waits is served or refused in the end, and then nothing is left of anybody.
        while self.ledger.running:
            call_id = next(iter(self.ledger.running))
            self.ledger.ended(call_id, self.now_ns, self.post(AttemptEnded(call_id, SUCCEEDED)))
            self.check()
        rest = self.scheduler.snapshot()
        assert (rest.inflight, rest.waiting, rest.agents) == (0, 0, 0)
        assert self.scheduler.wakeup_ns() is None

        again = Scheduler(self.first, self.seed, most=self.most)
        for now_ns, event, commands in self.journal:
            assert again.handle(event, now_ns) == commands, "the same history gave other commands"


TestScheduler = pytest.mark.slow(SchedulerMachine.TestCase)
