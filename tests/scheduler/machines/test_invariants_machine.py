"""Any sequence of events, under any policy with everything in it at once, watched from outside (`observer.py`).

The two other machines know what must come next, of smaller policies. This one knows what must never come, whatever was
drawn: the sixteen invariants of the scheduler's design.

| | invariant | held here by | and, with what must come instead, by |
|---|---|---|---|
| 1 | caps | `Observer.caps`, `at_rest` | `test_scheduler_machine.py` |
| 2 | windows of quotas | `Observer.quotas` | `test_quota.py`, `test_mirror.py` |
| 3 | all or nothing | `arrive`, `without_those_who_were_turned_away` | `test_scheduler_machine.py` |
| 4 | exactly once, and nothing left | `Observer.exactly_once`, `nothing_reserved` | both machines |
| 5 | work conservation | `Observer.work_conservation`, `held_back` | `test_scheduler_machine.py` |
| 6 | a bounded wait | the end of every history | `test_waits.py` |
| 7 | bounded inversion | | `test_waits.py` |
| 8 | fairness | | `test_shares.py`, `test_weights.py` |
| 9 | AIMD | `Trouble.learn`, `began` | `test_aimd.py`, `test_failures_machine.py` |
| 10 | breaker | `Observer.breaker`, `Trouble.learn` | `test_breaker.py`, `test_failures_machine.py` |
| 11 | retry | `Observer.retry`, `_end` | `test_retry.py`, `test_failures_machine.py` |
| 12 | reload | `load`: all of these go on | `test_scheduler_machine.py` |
| 13 | headers | `hear`: any reading at any time | `test_mirror.py` |
| 14 | determinism | `the_same_again` | both machines |
| 15 | timers | `Observer.timers`, `wake_up` | `test_scheduler_machine.py` |
| 16 | no standstill | `Observer.standstill`, `Word.granted` | `test_standstill.py`, `test_failures_machine.py` |
"""

from __future__ import annotations

import sys
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hivemind_trio.model import QuotaReading, Reason, Request
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
    LetThrough,
    PolicyLoaded,
    Reject,
    ResponseStarted,
    Scheduler,
    Snapshot,
    StreamsReceived,
    TimePassed,
)
from tests.scheduler.models.everything import MINUTE_NS, bad, calls, ends, programs, readings
from tests.scheduler.models.observer import Observer
from tests.support.ends import IGNORED, SUCCEEDED
from tests.support.programs import SECOND_NS

LAST_RESORT = 300
"""Steps in which everything comes to an end once nothing more arrives, beyond three for each call that is left."""
IDLE_WAKE_UPS = 40
"""In a row, of which nothing comes: each look at a quota may find another one in the way."""

DRAWS = frozenset({Reason.QUEUE_FULL, Reason.CLIENT_PATIENCE})
"""Refusals that say when to come back, with a spread: what is left to chance comes out otherwise without them."""


class InvariantsMachine(RuleBasedStateMachine):
    @initialize(program=programs(), seed=st.integers(0, 3), drain=st.booleans(), most=st.sampled_from([50, 1, 2]))
    def start(self, program: Program, seed: int, drain: bool, most: int) -> None:
        self.first, self.seed, self.drain, self.most = program, seed, drain, most
        self.scheduler = Scheduler(program, seed, most=most)
        self.observer = Observer(program)
        self.now_ns = 0
        self.calls = 0
        self.journal: list[tuple[int, Event, list[Command]]] = []
        self.turned_away: set[int] = set()
        """Of the journal: arrivals that were refused at once."""

    def post(self, event: Event) -> list[Command]:
        self.observer.advance(self.now_ns)
        self.observer.late = (self.scheduler.wakeup_ns() or self.now_ns + 1) <= self.now_ns
        commands = self.scheduler.handle(event, self.now_ns)
        self.journal.append((self.now_ns, event, list(commands)))
        while self.scheduler.state.behind:  # calls are decided again in slices; the driver goes on at once
            more = self.scheduler.handle(TimePassed(), self.now_ns)
            self.journal.append((self.now_ns, TimePassed(), list(more)))
            commands += more
        return commands

    def check(self) -> None:
        self.observer.at_rest(self.scheduler)

    def end_one(self, call_id: CallId, ended: AttemptResult) -> None:
        self.observer.ended(call_id, ended, self.post(AttemptEnded(call_id, ended)))
        self.check()

    def some(self, state: str, pick: int) -> CallId:
        ids = list(self.observer.of(state))
        return ids[pick % len(ids)]

    def standing(self) -> Snapshot:
        """How things stand, without the groups of which nothing is held: some are only then known of.

        Nor where those wait whom a budget holds: what a refused call has claimed for a moment comes back, and they are
        asked again, and may be sent elsewhere by what has changed meanwhile.
        """
        rest = self.scheduler.snapshot()
        pools = {
            name: attrs.evolve(
                pool, waiting=0, groups_inflight={group: held for group, held in pool.groups_inflight.items() if held}
            )
            for name, pool in rest.pools.items()
        }
        return attrs.evolve(rest, pools=pools, lanes_waiting={})

    def notice(self) -> list[Command]:
        commands = self.post(TimePassed())
        self.observer.heard(commands)
        self.check()
        return commands

    # ---- what can happen ----

    @rule(call=calls, times=st.integers(1, 4))
    def arrive(self, call: tuple[Request, dict[str, Any]], times: int) -> None:
        self.notice()
        request, more = call
        for _ in range(times):
            self.calls += 1
            before = self.standing()
            one = Call(id=CallId(self.calls), request=request, **more)
            commands = self.post(CallArrived(one))
            self.observer.arrived(one, commands)
            self.check()
            match commands:
                case [Reject(call_id=call_id, reason=reason)] if call_id == one.id and reason is not Reason.DEADLINE:
                    # 3: who is turned away has changed nothing.
                    assert self.standing() == before
                    if reason not in DRAWS:
                        self.turned_away.add(len(self.journal) - 1)

    @precondition(lambda self: self.observer.of("running"))
    @rule(pick=st.integers(0, 9), ended=ends)
    def end(self, pick: int, ended: AttemptResult) -> None:
        self.end_one(self.some("running", pick), ended)

    @precondition(lambda self: self.observer.of("running"))
    @rule(ended=bad, times=st.integers(1, 9))
    def fail_together(self, ended: AttemptResult, times: int) -> None:
        for call_id in list(self.observer.of("running"))[:times]:
            self.end_one(call_id, ended)

    @precondition(lambda self: self.observer.of("running"))
    @rule(pick=st.integers(0, 9), ended=bad, times=st.integers(2, 9))
    def fail_again_and_again(self, pick: int, ended: AttemptResult, times: int) -> None:
        call_id = self.some("running", pick)
        for _ in range(times):
            if call_id in self.observer.of("running"):
                self.end_one(call_id, ended)
            if call_id in self.observer.of("waiting") and self.scheduler.wakeup_ns() is not None:
                self.wake_up(1)

    @precondition(lambda self: self.observer.of("running"))
    @rule(times=st.integers(2, 8))
    def all_is_well(self, times: int) -> None:
        for _ in range(times):
            if self.observer.of("running"):
                self.end_one(self.some("running", 0), SUCCEEDED)

    @precondition(lambda self: self.observer.of("running"))
    @rule(pick=st.integers(0, 9), told=readings)
    def hear(self, pick: int, told: list[QuotaReading]) -> None:
        # 13: whatever a header says, whenever it says it.
        call_id = self.some("running", pick)
        self.observer.answered(call_id, tuple(told), self.post(ResponseStarted(call_id, tuple(told))))
        self.check()

    @precondition(lambda self: self.observer.of("running"))
    @rule(speeds=st.lists(st.integers(0, 10_000), min_size=1, max_size=5), times=st.integers(1, 30))
    def streams_receive(self, speeds: list[int], times: int) -> None:
        for _ in range(times):
            self.now_ns += SECOND_NS // 2
            running = [*self.observer.of("running"), CallId(10**6)]
            received = {call_id: speeds[number % len(speeds)] for number, call_id in enumerate(running)}
            self.observer.received(self.post(StreamsReceived(received)))
            self.check()

    @precondition(lambda self: self.observer.of("waiting"))
    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        self.hang_up(self.some("waiting", pick))

    @precondition(lambda self: self.observer.of("running"))
    @rule(pick=st.integers(0, 9), ended=ends)
    def cancel_in_flight(self, pick: int, ended: AttemptResult) -> None:
        call_id = self.some("running", pick)
        self.hang_up(call_id)
        # It may have ended by itself before it could be broken off.
        self.end_one(call_id, attrs.evolve(ended, committed=True))

    @precondition(lambda self: self.observer.of("running"))
    @rule(pick=st.integers(0, 9), ended=ends)
    def cancel_at_the_grant(self, pick: int, ended: AttemptResult) -> None:
        before = set(self.observer.of("running"))
        self.end_one(self.some("running", pick), ended)
        for call_id in [each for each in self.observer.of("running") if each not in before]:
            self.hang_up(call_id)
            self.end_one(call_id, IGNORED)

    @rule(call_id=st.integers(0, 60))
    def cancel_or_hear_of_anybody(self, call_id: int) -> None:
        self.hang_up(CallId(call_id)) if call_id not in self.observer.of("running") else None
        self.observer.heard(self.post(ResponseStarted(CallId(call_id), ())))
        self.check()

    @precondition(lambda self: self.observer.of("waiting"))
    @rule(pick=st.integers(0, 9))
    def let_through(self, pick: int) -> None:
        self.notice()
        call_id = self.some("waiting", pick) if self.observer.of("waiting") else CallId(0)
        self.observer.let_through[call_id] = None
        self.observer.heard(self.post(LetThrough(call_id)))
        self.check()

    def hang_up(self, call_id: CallId) -> None:
        self.observer.cancelled(call_id, self.post(CallCancelled(call_id)))
        self.check()

    @rule(
        passed_ns=st.sampled_from(
            [1, SECOND_NS // 2, 5 * SECOND_NS, 30 * SECOND_NS, 130 * SECOND_NS, 60 * MINUTE_NS, 10**6]
        ),
        noticed=st.booleans(),
    )
    def time_passes(self, passed_ns: int, noticed: bool) -> None:
        # Unnoticed when the driver is late: the next event finds what has become due meanwhile.
        self.now_ns += passed_ns
        if noticed:
            self.notice()

    @precondition(lambda self: self.scheduler.wakeup_ns() is not None)
    @rule(times=st.integers(1, 5))
    def wake_up(self, times: int) -> None:
        for _ in range(times):
            self.now_ns = max(self.now_ns, self.scheduler.wakeup_ns() or 0)
            self.notice()

    @rule(program=programs())
    def load(self, program: Program) -> None:
        self.notice()  # so that all that is said next is said under the new policy
        commands = self.post(PolicyLoaded(program))
        self.observer.loaded(program, self.scheduler.snapshot(), commands)
        self.check()

    # ---- at the end ----

    def teardown(self) -> None:
        if not hasattr(self, "scheduler") or sys.exception() is not None:
            return  # what has failed before is the news, and this would hide it
        if self.drain:
            self.observer.drained(self.post(Draining()))
            self.check()
        self.all_comes_to_an_end()
        self.observer.nothing_reserved(self.scheduler)
        self.the_same_again()
        self.without_those_who_were_turned_away()

    def all_comes_to_an_end(self) -> None:
        """4, 6, 10, 15: once providers are well every call is served or refused, and no alarm goes off for nothing."""
        idle = 0
        for _ in range(LAST_RESORT + 3 * len(self.observer.of("waiting"))):
            if self.observer.of("running"):
                self.end_one(self.some("running", 0), SUCCEEDED)
            elif (wakeup_ns := self.scheduler.wakeup_ns()) is not None:
                self.now_ns = max(self.now_ns, wakeup_ns)
                before = self.scheduler.snapshot()
                idle = 0 if self.notice() or before.pools != self.scheduler.snapshot().pools else idle + 1
                assert idle <= IDLE_WAKE_UPS, "it is woken again and again for nothing"

    def the_same_again(self) -> None:
        """14: the same policy, seed and sequence of events give the same commands."""
        again = Scheduler(self.first, self.seed, most=self.most)
        for now_ns, event, commands in self.journal:
            assert again.handle(event, now_ns) == commands

    def without_those_who_were_turned_away(self) -> None:
        """3: had they never come, all others would have been told the same."""
        again = Scheduler(self.first, self.seed, most=self.most)
        for number, (now_ns, event, commands) in enumerate(self.journal):
            if number not in self.turned_away:
                assert again.handle(event, now_ns) == commands


TestInvariants = pytest.mark.slow(InvariantsMachine.TestCase)
