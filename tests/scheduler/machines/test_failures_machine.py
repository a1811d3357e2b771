"""Any sequence of events while providers fail, under any small policy, against the books of `incident.py`.

`test_scheduler_machine.py` is for queues, lanes and shares; here calls are alike, and attempts are not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hivemind_trio.model import Decision, Outcome, Request
from hivemind_trio.policy import (
    DEFAULT_RETRY,
    UNKNOWN_AGENT,
    AimdSettings,
    CircuitBreakerSettings,
    Failure,
    Jitter,
    Program,
    RetrySettings,
    WhileOpen,
)
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Circuit,
    Command,
    Draining,
    Event,
    PolicyLoaded,
    ResponseStarted,
    Scheduler,
    TimePassed,
)
from tests.scheduler.models.drawn import settings
from tests.scheduler.models.incident import Incident
from tests.support.ends import IGNORED, SUCCEEDED
from tests.support.programs import SECOND_NS, agent, lane, program, provider, treatment, wish

CALLERS = ("x", "y")
LAST_RESORT = 200
"""Steps in which everything comes to an end once nothing more arrives, beyond two for each call that is left."""

providers = settings(
    declared=[True] * 5 + [False],
    limit=[2, 4, 1, 3, 8],
    groups=[{}, {"opus*": 1}, {"opus*": None, None: 2}],
    aimd=[None, (1, 1), (1, 2), (2, 4)],
    increase=[1, 3],
    decrease=[0.5, 1.0],
    cooldown_ns=[0, 5 * SECOND_NS],
    breaker=[
        CircuitBreakerSettings(of=1_000),
        CircuitBreakerSettings(of=2),
        CircuitBreakerSettings(of=4, probes=1),
        CircuitBreakerSettings(of=3, trip=1.0, over_ns=2 * SECOND_NS),
    ],
    open_ns=[5 * SECOND_NS, 100 * SECOND_NS, 10],
    while_open=[WhileOpen.HOLD, WhileOpen.REFUSE],
    retry=[DEFAULT_RETRY, "other"],
)
retries = settings(
    attempts=[100, 1, 2, 4],
    first_ns=[SECOND_NS, 0, 3],
    last_ns=[4 * SECOND_NS, 0],
    jitter=list(Jitter),
    honor_max_ns=[60 * SECOND_NS, 2 * SECOND_NS],
    ratio=[0.2, 0.0, 1.0],
    statuses=[RetrySettings().statuses, frozenset({529})],
)
whole = settings(
    deadline_ns=[None, None, 3 * SECOND_NS, 30 * SECOND_NS],
    concurrency=[None, None, 1, 2],
    fails_over=[False, True],
    attempts_allowed=[100, 100, 100, 1, 2],
)

STATUS = {Outcome.SUCCEEDED: 200, Outcome.SLOW: 200, Outcome.OVERLOADED: 529, Outcome.FAILED: 500, Outcome.IGNORED: 400}
outcomes = st.sampled_from(list(Outcome)).map(
    lambda outcome: AttemptResult(outcome=outcome, status=STATUS.get(outcome, 429))
)
ends = st.one_of(
    st.sampled_from([SUCCEEDED, IGNORED, AttemptResult(outcome=Outcome.SLOW, status=200, committed=True)]),
    outcomes,
    st.builds(
        attrs.evolve, outcomes, retry_after_ns=st.sampled_from([0, 1, SECOND_NS, 5 * SECOND_NS, 300 * SECOND_NS])
    ),
    st.builds(attrs.evolve, outcomes, committed=st.booleans(), final=st.booleans()),
    st.builds(attrs.evolve, outcomes, headed=st.just(True)),
    st.just(AttemptResult(outcome=Outcome.FAILED, status=500, headed=True)),
    st.sampled_from(Failure).map(lambda failure: AttemptResult(outcome=Outcome.FAILED, failure=failure)),
    st.just(AttemptResult(outcome=Outcome.UNREACHABLE, failure=Failure.CONNECT)),
)
bad = st.sampled_from(
    [
        AttemptResult(outcome=Outcome.OVERLOADED, status=529),
        AttemptResult(outcome=Outcome.FAILED, status=500),
        AttemptResult(outcome=Outcome.UNREACHABLE, failure=Failure.CONNECT),
        AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=5 * SECOND_NS),
        AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=50 * SECOND_NS),
        AttemptResult(outcome=Outcome.TOO_FAST, status=429),
        AttemptResult(outcome=Outcome.CONCURRENCY, status=429),
    ]
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Two providers, one lane, callers whom the policy does not know, two retry classes."""
    told = draw(whole)
    drawn = {name: draw(providers) for name in ("p", "q")}
    declared = []
    for name, each in drawn.items():
        increase, decrease, cooldown_ns = each.pop("increase"), each.pop("decrease"), each.pop("cooldown_ns")
        if each["aimd"] is not None:
            low, start = (min(bound, each["limit"]) for bound in each["aimd"])
            each["aimd"] = AimdSettings(
                low=low, start=start, increase=increase, decrease=decrease, cooldown_ns=cooldown_ns
            )
        each["breaker"] = attrs.evolve(each["breaker"], open_ns=each.pop("open_ns"))
        if each.pop("declared"):
            declared.append(provider(name, **each))
    wanted = program(
        providers=declared,
        lanes=[lane(deadline_ns=told["deadline_ns"])],
        unknown=agent(UNKNOWN_AGENT, concurrency=told["concurrency"]),
        retries=[RetrySettings(name=name, **draw(retries)) for name in (DEFAULT_RETRY, "other")],
    )

    def decide(request: Request) -> Decision:
        if request.attempt > told["attempts_allowed"]:
            return treatment(provider=None)
        if told["fails_over"] and request.attempt % 2 == 0:
            other = {"p": "q", "q": "p"}[request.headers["x-provider"]]
            request = attrs.evolve(request, headers={**request.headers, "x-provider": other})
        return wanted.decide(request)

    return attrs.evolve(wanted, decide=decide)


wishes = settings(provider=["p", "p", "q"], model=["haiku-1", "opus-1"]).map(lambda picked: wish(**picked))


class FailuresMachine(RuleBasedStateMachine):
    @initialize(program=programs(), seed=st.integers(0, 3), drain=st.booleans(), most=st.sampled_from([50, 1, 2]))
    def start(self, program: Program, seed: int, drain: bool, most: int) -> None:
        self.first, self.seed, self.drain, self.most = program, seed, drain, most
        self.scheduler = Scheduler(program, seed, most=most)
        self.incident = Incident(program)
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
        self.incident.advance(self.now_ns)
        return commands

    def check(self) -> None:
        self.incident.check(self.scheduler.snapshot(), self.scheduler.wakeup_ns())

    def end_one(self, call_id: CallId, ended: AttemptResult) -> None:
        late = (self.scheduler.wakeup_ns() or self.now_ns + 1) <= self.now_ns
        self.incident.ended(call_id, ended, self.post(AttemptEnded(call_id, ended)), late=late)
        self.check()

    def pick(self, ids: Mapping[CallId, object], pick: int) -> CallId:
        return list(ids)[pick % len(ids)]

    # ---- what can happen ----

    @rule(request=wishes, caller=st.sampled_from(CALLERS), times=st.integers(1, 4))
    def arrive(self, request: Request, caller: str, times: int) -> None:
        for _ in range(times):
            self.calls += 1
            call = Call(id=CallId(self.calls), request=request, caller=caller)
            self.incident.arrived(call, self.post(CallArrived(call)))
            self.check()

    @precondition(lambda self: self.incident.running)
    @rule(pick=st.integers(0, 9), ended=ends)
    def end(self, pick: int, ended: AttemptResult) -> None:
        self.end_one(self.pick(self.incident.running, pick), ended)

    @precondition(lambda self: self.incident.running)
    @rule(pick=st.integers(0, 9))
    def answer_begins(self, pick: int) -> None:
        self.notice()
        call_id = self.pick(self.incident.running, pick)
        self.incident.answered(call_id, self.post(ResponseStarted(call_id, ())))
        self.check()

    @precondition(lambda self: self.incident.running)
    @rule(ended=bad, times=st.integers(1, 12))
    def fail_together(self, ended: AttemptResult, times: int) -> None:
        for call_id in list(self.incident.running)[:times]:
            self.end_one(call_id, ended)

    @precondition(lambda self: self.incident.running)
    @rule(pick=st.integers(0, 9), ended=ends, times=st.integers(2, 16))
    def fail_again_and_again(self, pick: int, ended: AttemptResult, times: int) -> None:
        # As often as it is tried again at once, or as soon as the alarm says.
        call_id = self.pick(self.incident.running, pick)
        for _ in range(times):
            if call_id in self.incident.running:
                self.end_one(call_id, ended)
            if call_id in self.incident.waiting and self.scheduler.wakeup_ns() is not None:
                self.wake_up()

    @rule(times=st.integers(1, 3))
    def a_storm_passes(self, times: int) -> None:
        # Opened and closed again; then one failure alone must not open it.
        for _ in range(4):
            self.arrive(wish(provider="p", model="haiku-1"), "x", 1)
            if self.incident.running:
                self.end_one(next(iter(self.incident.running)), AttemptResult(outcome=Outcome.FAILED, status=500))
        for _ in range(6):
            if self.scheduler.wakeup_ns() is not None:
                self.wake_up()
            if self.incident.running:
                self.end_one(next(iter(self.incident.running)), SUCCEEDED)
        self.arrive(wish(provider="p", model="haiku-1"), "x", times)
        if self.incident.running:
            self.end_one(next(iter(self.incident.running)), AttemptResult(outcome=Outcome.FAILED, status=500))

    @rule(after_ns=st.sampled_from([None, 5 * SECOND_NS, 50 * SECOND_NS]))
    def all_are_refused(self, after_ns: int | None) -> None:
        self.arrive(wish(provider="p", model="haiku-1"), "x", 2)
        for call_id in list(self.incident.running):
            self.end_one(call_id, AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=after_ns))

    @precondition(lambda self: self.incident.running)
    @rule(times=st.integers(2, 8))
    def all_is_well(self, times: int) -> None:
        for _ in range(times):
            if self.incident.running:
                self.end_one(next(iter(self.incident.running)), SUCCEEDED)

    @precondition(lambda self: self.incident.waiting)
    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        call_id = self.pick(self.incident.waiting, pick)
        self.incident.cancelled(call_id, self.post(CallCancelled(call_id)))
        self.check()

    @precondition(lambda self: self.incident.running)
    @rule(pick=st.integers(0, 9))
    def cancel_in_flight(self, pick: int) -> None:
        call_id = self.pick(self.incident.running, pick)
        self.incident.cancelled(call_id, self.post(CallCancelled(call_id)))
        self.check()
        self.end_one(call_id, IGNORED)

    @rule(
        passed_ns=st.sampled_from([1, SECOND_NS // 2, 2 * SECOND_NS, 10 * SECOND_NS, 40 * SECOND_NS]),
        noticed=st.booleans(),
    )
    def time_passes(self, passed_ns: int, noticed: bool) -> None:
        # Unnoticed when the driver is late: the next event finds what has become due meanwhile.
        until_ns = self.now_ns + passed_ns
        while noticed and (wakeup_ns := self.scheduler.wakeup_ns()) is not None and wakeup_ns < until_ns:
            self.now_ns = max(self.now_ns, wakeup_ns)
            self.notice()
        self.now_ns = until_ns
        if noticed:
            self.notice()

    @precondition(lambda self: self.scheduler.wakeup_ns() is not None)
    @rule()
    def wake_up(self) -> None:
        self.now_ns = max(self.now_ns, self.scheduler.wakeup_ns() or 0)
        self.notice()

    def notice(self) -> None:
        self.incident.heard(self.post(TimePassed()))
        self.check()

    @rule(program=programs())
    def load(self, program: Program) -> None:
        self.notice()  # so that all that is said next is said under the new policy
        commands = self.post(PolicyLoaded(program))
        self.incident.loaded(program, self.scheduler.snapshot(), commands)
        self.check()

    # ---- what must hold ----

    @invariant()
    def a_provider_that_is_tried_again_is_tried_with_one_call(self) -> None:
        for name, pool in self.scheduler.snapshot().pools.items():
            probes = sum(entry.probe and entry.provider == name for entry in self.incident.running.values())
            assert probes <= (pool.circuit is Circuit.HALF_OPEN)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler") or sys.exception() is not None:
            return  # what has failed before is the news, and this would hide it
        if self.drain:
            self.incident.drained(self.post(Draining()))
            self.check()
            self.arrive(wish(provider="p"), "x", 1)
        # Every call comes to an end once providers are well, and then nothing is left of anybody.
        for _ in range(LAST_RESORT + 2 * len(self.incident.waiting)):
            if self.incident.running:
                self.end_one(next(iter(self.incident.running)), SUCCEEDED)
            elif self.scheduler.wakeup_ns() is not None:
                self.wake_up()
        rest = self.scheduler.snapshot()
        assert (rest.inflight, rest.waiting, rest.agents) == (0, 0, 0)
        assert self.scheduler.wakeup_ns() is None
        assert self.incident.over == set(range(1, self.calls + 1))

        again = Scheduler(self.first, self.seed, most=self.most)
        for now_ns, event, commands in self.journal:
            assert again.handle(event, now_ns) == commands, "the same history gave other commands"


TestFailures = pytest.mark.slow(FailuresMachine.TestCase)
