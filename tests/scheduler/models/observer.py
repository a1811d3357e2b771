"""Watches a scheduler from outside: what it was told, what it said, and what must never follow from the one and the
other, whatever the policy. It predicts nothing; `ledger.py` and `incident.py` do, of smaller policies.

Only the messages of `hivemind_trio.scheduler` are used here, except in `held_back`, which says so. What providers
teach is kept by `trouble.py`, as long as they have been there all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import attrs

from hivemind_trio.model import Api, Dimension, Outcome, QuotaReading, Reason, Request, Verdict
from hivemind_trio.policy import (
    DEFAULT_RETRY,
    UNKNOWN_AGENT,
    FinishedAnswer,
    Program,
    RateLimitSettings,
    RetrySettings,
    WhileOpen,
    Window,
)
from hivemind_trio.scheduler import (
    AttemptResult,
    Call,
    CallId,
    Circuit,
    Command,
    Finish,
    Grant,
    LimitChanged,
    Permit,
    Reject,
    Scheduler,
    Snapshot,
)
from hivemind_trio.scheduler.limits.cost import DOUBT

from .trouble import (
    HEALTHY,
    OBEYED_NS,
    ROUNDED,
    SAVED_UP,
    SOON_NS,
    TOO_OFTEN,
    TURNED_AWAY,
    Sample,
    Trouble,
    Word,
    pause,
)

SAMPLES = 20
"""Answers before which no window is taken for one of a kind."""
NOBODY = Permit(call_id=CallId(-1), provider="", group=None, lane="", agent="", declared=False)

Cost = dict[Dimension, int]


@attrs.define(eq=False)
class Life:
    """One call, from its arrival to its end."""

    call: Call
    arrived_ns: int
    since_ns: int
    state: str = "waiting"
    """Or `running`, or `over`."""
    attempts: int = 0
    """That have begun."""
    waited_ns: int = 0
    permit: Permit = NOBODY
    """Of the last attempt."""
    retry: str | None = None
    """The class of its last attempt."""
    model: str = ""
    """With which that was sent."""
    granted_ns: int = 0
    probe: bool = False
    """Of a circuit that is half open."""
    tries: bool = False
    """It may have been granted to find out whether the provider accepts calls again."""
    uncounted: int = 0
    """Attempts that may not count against its retry class."""
    began: bool = False
    sample: Sample = attrs.field(factory=lambda: Sample(0, 0))
    word: Word = attrs.field(factory=Word)
    cost: Cost = attrs.field(factory=dict)
    rests_ns: tuple[int, int] = (0, 0)
    """Its next attempt is due no earlier than the one, where the last has failed, and no later than the other."""
    backs_off: bool = False
    """Because nobody has said how long."""
    left: bool = False
    """Its next attempt may have been sent elsewhere when the last had failed, by a rule or for its budgets' sake."""

    def request(self) -> Request:
        return attrs.evolve(self.call.request, attempt=self.attempts + 1)


@attrs.define
class Taken:
    """What one attempt took of one quota: as it was thought, or as it turned out."""

    life: Life
    attempt: int
    at_ns: int
    amount: int


@attrs.define(eq=False)
class Kept:
    """One quota of one limits group, with everything that was ever taken of it."""

    quota: RateLimitSettings
    taken: list[Taken] = attrs.field(factory=list)

    @property
    def most(self) -> int:
        """Upper bound on what all calls of one window take."""
        return max(1, self.quota.amount - int(self.quota.amount * (self.quota.headroom or 0)))

    def within(self, now_ns: int) -> int:
        return sum(each.amount for each in self.taken if now_ns - each.at_ns < self.quota.window_ns)

    def level(self, now_ns: int) -> Fraction:
        """Of a bucket that holds `most` and is full again after a window."""
        level, at_ns, rate = Fraction(self.most), 0, Fraction(self.most, self.quota.window_ns)
        for each in self.taken:
            level = min(Fraction(self.most), level + (each.at_ns - at_ns) * rate) - each.amount
            at_ns = each.at_ns
        return min(Fraction(self.most), level + (now_ns - at_ns) * rate)


@attrs.define(eq=False)
class Watched:
    """One provider."""

    trouble: Trouble = attrs.field(factory=Trouble)
    known: bool = True
    """It has been declared all the time, so `trouble` is right."""
    limit: int = 0
    circuit: Circuit = Circuit.CLOSED
    """As was told last, both."""
    answers: int = 0
    """Whose headers were heard."""
    retries: Fraction = Fraction(SAVED_UP)
    """That it may still be sent, at the most."""
    earned_ns: int = 0

    def earn(self, now_ns: int, more: float = 0.0) -> None:
        self.retries = min(Fraction(SAVED_UP), self.retries + Fraction(now_ns - self.earned_ns, 10**10))
        self.retries = min(Fraction(SAVED_UP), self.retries + Fraction(more))
        self.earned_ns = now_ns


@attrs.define(eq=False)
class Observer:
    program: Program
    now_ns: int = 0
    draining: bool = False
    lives: dict[CallId, Life] = attrs.field(factory=dict)
    at: dict[str, Watched] = attrs.field(factory=dict)
    windows: dict[tuple[str, str | None, Dimension, int], Kept] = attrs.field(factory=dict)
    let_through: dict[CallId, None] = attrs.field(factory=dict)
    """Calls that an operator lets through, until their next grant."""
    late: bool = False
    """The event came when time alone had opened something already."""

    def __attrs_post_init__(self) -> None:
        self._declare(self.program)

    def of(self, state: str) -> dict[CallId, Life]:
        return {call_id: life for call_id, life in self.lives.items() if life.state == state}

    def held(self, where: Callable[[Permit], bool]) -> int:
        return sum(life.state == "running" and where(life.permit) for life in self.lives.values())

    # ---- events ----

    def advance(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for watched in self.at.values():
            watched.trouble.advance(now_ns)

    def arrived(self, call: Call, commands: list[Command]) -> None:
        assert call.id not in self.lives
        self.lives[call.id] = Life(call, self.now_ns, self.now_ns)
        self.heard(commands)

    def heard(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case LimitChanged():
                    assert command.because is None, "an attempt is said to have ended"
                    self.told(command)
                case Grant():
                    self.granted(command)
                case Reject():
                    self.refused(command)
                case Finish():
                    raise AssertionError("nothing but the end of an attempt settles a call")

    def received(self, commands: Iterable[Command]) -> None:
        """Streams have told their speeds: that may change the limit of their provider, and nothing else of it."""
        for command in commands:
            if isinstance(command, LimitChanged) and command.because is not None:
                assert command.because is Outcome.SUCCEEDED
                assert command.circuit is self.at[command.provider].circuit
                self.told(command)
            else:
                self.heard([command])

    def told(self, adapted: LimitChanged) -> None:
        watched = self.at[adapted.provider]
        watched.limit, watched.circuit = adapted.limit, adapted.circuit

    def granted(self, grant: Grant) -> None:
        life = self.lives[grant.call_id]
        self.exactly_once(life, "waiting")
        life.attempts += 1
        assert grant.attempt == life.attempts
        assert grant.waited_ns == life.waited_ns + self.now_ns - life.since_ns
        if grant.permit is None:
            assert not life.call.needs_slot
            life.state = "over"
            return
        permit = grant.permit
        self.caps(permit)
        self.let_through.pop(grant.call_id, None)  # a retry waits as any other call
        self.breaker(permit.provider)
        self.retry(life, permit)
        life.cost = self.cost_of(grant)
        self.quotas(life, permit)
        watched = self.at[permit.provider]
        life.probe, life.began = watched.circuit is Circuit.HALF_OPEN, False
        life.state, life.permit, life.granted_ns, life.waited_ns = "running", permit, self.now_ns, grant.waited_ns
        life.retry = grant.treatment.retry
        life.model = grant.treatment.model or life.call.request.model
        life.sample = watched.trouble.granted(self.held(lambda other: other.provider == permit.provider), self.now_ns)
        life.word = self.word(permit.provider, permit.group, life.model)
        life.tries = life.word.granted(life.call.id, self.now_ns, late=self.late) or life.probe
        assert not watched.trouble.shut(life.model, self.now_ns) or not watched.known, (
            "nothing is left there to pay with"
        )
        if grant.attempt == 1:
            watched.earn(self.now_ns, self.class_of(life).ratio)

    def refused(self, refuse: Reject) -> None:
        life = self.lives[refuse.call_id]
        self.exactly_once(life, "waiting")
        life.state = "over"
        assert refuse.waited_ns == life.waited_ns + self.now_ns - life.since_ns
        its = refuse.treatment
        assert its is not None
        match refuse.reason:
            case Reason.DEADLINE:
                assert its.deadline_ns is not None
                assert self.now_ns >= life.arrived_ns + its.deadline_ns
            case Reason.DRAINING:
                assert self.draining
            case Reason.BREAKER_OPEN:
                assert self.program.providers[its.provider or ""].while_open is WhileOpen.REFUSE
                assert self.at[its.provider or ""].circuit is not Circuit.CLOSED
            case Reason.DENIED:
                assert its.verdict is Verdict.DENY
            case Reason.NO_PROVIDER:
                assert its.provider is None
            case Reason.UNKNOWN_AGENT:
                assert self.program.server.refuse_unknown
            case Reason.CLIENT_PATIENCE | Reason.PLAN_RESERVE | Reason.PLAN_PACE:
                assert life.call.patience_ns is not None
            case Reason.BUDGET:
                assert its.budgets
            case Reason.OVER_LIMITS:
                windows = [window for key, window in self.windows.items() if key[:2] == (its.provider, its.group)]
                cost = self._cost(life.call.request, self.program.providers[its.provider or ""].api)
                assert any(
                    cost[window.quota.dimension]
                    > window.quota.amount * (1 if window.quota.dimension is Dimension.REQUESTS else DOUBT)
                    for window in windows
                )
            case Reason.PROVIDER_SPENT:
                watched = self.at[its.provider or ""]
                assert (its.model or life.call.request.model) in watched.trouble.spent or not watched.known
            case reason:
                assert reason in (Reason.QUEUE_FULL, Reason.SHED_OLDEST)

    def cancelled(self, call_id: CallId, commands: list[Command]) -> None:
        life = self.lives.get(call_id)
        if life is not None and life.state == "waiting":
            life.state = "over"
        self.heard(commands)

    def answered(self, call_id: CallId, readings: tuple[QuotaReading, ...], commands: list[Command]) -> None:
        life = self.lives.get(call_id)
        if life is None or life.state != "running":
            self.heard(commands)
            return
        watched = self.at[life.permit.provider]
        watched.answers += bool(readings)
        told = next((each for each in commands if isinstance(each, LimitChanged) and each.because is not None), None)
        self.heard(commands[: commands.index(told)] if told is not None else [])
        life.word.accepted(call_id)
        provider = self.program.providers.get(life.permit.provider)
        if provider is not None and provider.degraded is None:
            if watched.known:
                watched.trouble.began(life.sample, told, self.now_ns, probe=life.probe)
            life.began, life.probe = True, False
        if told is not None:
            self.told(told)
        self.heard(commands[commands.index(told) + 1 :] if told is not None else commands)

    def ended(self, call_id: CallId, ended: AttemptResult, commands: list[Command]) -> None:
        life = self.lives[call_id]
        provider = life.permit.provider
        watched = self.at[provider]
        settled = commands.count(Finish(call_id))
        # What comes before is of time alone that has passed, and so may be what the attempt is one of.
        inflight = self.held(lambda other: other.provider == provider)
        began = sum(life.began and life.permit.provider == provider for life in self.of("running").values())
        judged, was = self._judged(life, ended), attrs.evolve(life)  # it may go again within this event
        told = next((each for each in commands if isinstance(each, LimitChanged) and each.because is not None), None)
        self._end(life, ended, settled)
        if watched.known and provider in self.program.providers:
            watched.trouble.learn(
                judged,
                was.sample,
                told,
                probe=was.probe,
                now_ns=self.now_ns,
                inflight=inflight,
                others=began - was.began,
            )
        for command in commands:
            match command:
                case Finish():
                    assert command.call_id == call_id, "nothing but the end of its attempt settles a call"
                case LimitChanged(because=because) if because is not None:
                    assert command.provider == provider
                    self.told(command)
                case _:
                    self.heard([command])

    def loaded(self, program: Program, snapshot: Snapshot, commands: list[Command]) -> None:
        """Also (12): what was held is held on, what was taken is taken, and all else goes on being watched."""
        before = self.program
        self.program = program
        self._declare(program, before, snapshot)
        for name, watched in self.at.items():
            if not watched.known and name in snapshot.pools:
                watched.circuit, watched.limit = snapshot.pools[name].circuit, snapshot.pools[name].limit
        self.heard(commands)

    def drained(self, commands: list[Command]) -> None:
        self.draining = True
        self.heard(commands)
        assert not self.of("waiting")

    # ---- the invariants, by their numbers in the list of the scheduler's design ----

    def caps(self, permit: Permit) -> None:
        """1: in flight no more than the cap, per provider, limits group, lane and agent, at every instant."""
        watched, provider = self.at[permit.provider], self.program.providers[permit.provider]
        assert self.held(lambda other: other.provider == permit.provider) < watched.limit
        cap = next((group.concurrency for group in provider.groups if group.glob == permit.group), None)
        here = self.held(lambda other: (other.provider, other.group) == (permit.provider, permit.group))
        assert cap is None or here < cap
        if permit.beyond:
            assert permit.call_id in self.let_through, "no operator let it through"
            return  # past the limits of its lane and its agent
        lane = self.program.lanes[permit.lane]
        in_lane = self.held(lambda other: (other.provider, other.lane) == (permit.provider, permit.lane))
        assert lane.max is None or in_lane < max(1, lane.max.of(watched.limit))
        agent = self.program.agents[permit.agent] if permit.declared else self.program.unknown
        by_agent = self.held(lambda other: (other.declared, other.agent) == (permit.declared, permit.agent))
        assert agent.concurrency is None or by_agent < agent.concurrency

    def quotas(self, life: Life, permit: Permit) -> None:
        """2: no window holds more than its limit without the headroom; a bucket's level is no less than nothing."""
        answers = self.at[permit.provider].answers
        for key, window in self.windows.items():
            if key[:2] != (permit.provider, permit.group):
                continue
            # One that is larger than what the headroom leaves goes when all of it is there.
            quota, amount = window.quota, min(life.cost[window.quota.dimension], window.most)
            assert life.cost[quota.dimension] <= max(1, quota.amount * DOUBT)
            if not amount:
                continue
            kind = quota.window
            if kind in (Window.FIXED, Window.LEARN):
                # Once answers have shown where a window ends, or of which kind it is, that alone is kept.
                kept = answers == 0 if kind is Window.FIXED else answers < SAMPLES
                kind = Window.SLIDING if kept else kind
            if kind is Window.SLIDING:
                assert window.within(self.now_ns) + amount <= window.most, "the window is used up"
            if kind is Window.BUCKET and answers == 0:
                # A nanosecond for each that integers round away.
                earned = Fraction(window.most * len(window.taken), quota.window_ns)
                assert window.level(self.now_ns) + earned >= amount, "the bucket holds less"
            window.taken.append(Taken(life, life.attempts, self.now_ns, life.cost[quota.dimension]))

    def exactly_once(self, life: Life, state: str) -> None:
        """4: each call is granted, settled and refused from where it is, and never after its end."""
        assert life.state == state, f"call {life.call.id} is {life.state}"

    def nothing_reserved(self, scheduler: Scheduler) -> None:
        """4: when all is over, nothing is held, claimed or remembered to be in flight."""
        rest, books = scheduler.snapshot(), scheduler.state
        assert (rest.inflight, rest.waiting, rest.agents) == (0, 0, 0)
        assert scheduler.wakeup_ns() is None
        assert not any(rest.lanes_waiting.values())
        for pool in rest.pools.values():
            assert pool.inflight == pool.waiting == sum(pool.lanes_inflight.values()) == 0
            assert not any(pool.groups_inflight.values())
        assert not any(account.claimed or account.held for account in books.budgets.accounts.values())
        for group in [group for pool in books.pools.values() for group in pool.groups.values()]:
            assert not any(quotas.inflight for quotas in group.rate_limits())

    def work_conservation(self, life: Life) -> None:
        """5: at rest no call waits that fits everywhere and is due; of those for which that can be said from here."""
        its = self.program.decide(life.request())
        provider = self.program.providers[its.provider or ""]
        watched = self.at[provider.name]
        group = next((group for group in provider.groups if group.glob == its.group), None)
        if (
            its.budgets
            or provider.while_open is WhileOpen.FALLBACK
            or (group is not None and group.quotas)
            or (provider.learns and watched.answers)
            or any(lane.reserve.of(watched.limit) for lane in self.program.lanes.values())
            or self.word(provider.name, its.group, its.model or life.call.request.model).heard
            or self.now_ns < life.rests_ns[1]
            or (watched.circuit is Circuit.HALF_OPEN and self._probes(provider.name))
            or watched.circuit is Circuit.OPEN
        ):
            return
        declared = its.agent != UNKNOWN_AGENT
        agent = its.agent if declared else life.call.caller
        try:
            self.caps(
                Permit(
                    call_id=life.call.id,
                    provider=provider.name,
                    group=its.group,
                    lane=its.lane,
                    agent=agent,
                    declared=declared,
                )
            )
        except AssertionError:
            return
        raise AssertionError(f"call {life.call.id} fits everywhere and waits")

    def held_back(self, scheduler: Scheduler) -> None:
        """5: nobody waits in line who would be let in, had he come just now, by the scheduler's own word; but for calls
        behind others of the quotas that they share: of those the first and the smallest are looked at, no more."""
        books = scheduler.state
        in_line = [waiter for waiter in books.room if waiter.in_line]
        short = {id(waiter.place.quotas) for waiter in in_line if waiter.place.blocked(self.now_ns) is Reason.LIMITS}
        for waiter in in_line:
            if id(waiter.place.quotas) not in short:
                assert waiter.place.blocked(self.now_ns) is not Reason.NONE, f"call {waiter.call.id} could go"

    def standstill(self, life: Life, wakeup_ns: int | None) -> None:
        """16: while a call waits in line and none is in flight there, one goes within seconds; of those for which that
        can be said from here."""
        its = self.program.decide(life.request())
        provider = self.program.providers[its.provider or ""]
        watched = self.at[provider.name]
        word = self.word(provider.name, its.group, its.model or life.call.request.model)
        group = next((group for group in provider.groups if group.glob == its.group), None)
        agent = self.program.agent(its.agent) if its.agent != UNKNOWN_AGENT else self.program.unknown
        if (
            its.budgets
            or (group is not None and group.quotas)
            or provider.while_open is WhileOpen.FALLBACK
            or watched.circuit is not Circuit.CLOSED
            or self.held(lambda other: other.provider == provider.name)
            or word.inflight
            or self.now_ns < life.rests_ns[1]
            or (agent.concurrency is not None and self.of("running"))
            or word.goes_by_ns() < life.since_ns
        ):
            return
        goes_by_ns = max(word.goes_by_ns(), life.rests_ns[1] + SOON_NS)
        assert self.now_ns < goes_by_ns, "calls wait in line, none is in flight, and no probe goes"
        assert wakeup_ns is not None
        assert wakeup_ns <= goes_by_ns, "nothing wakes it for the next probe"

    def breaker(self, provider: str) -> None:
        """10: OPEN sends nothing, HALF_OPEN one call at a time."""
        circuit = self.at[provider].circuit
        assert circuit is not Circuit.OPEN
        assert circuit is Circuit.CLOSED or not self._probes(provider)

    def retry(self, life: Life, permit: Permit) -> None:
        """11: never before the provider's word; the rest of it is looked at when the attempt ends."""
        # A back-off of one's own is only for who stays: it may have gone elsewhere, and come back.
        moves = any(provider.while_open is WhileOpen.FALLBACK for provider in self.program.providers.values())
        if life.permit.provider == permit.provider and not ((moves or life.left) and life.backs_off):
            assert self.now_ns >= life.rests_ns[0], "its retry is not due"

    def timers(self, wakeup_ns: int | None) -> None:
        """4, 15: whoever waits will be looked at, and never is there an alarm for what is over."""
        assert wakeup_ns is None or wakeup_ns > self.now_ns
        assert wakeup_ns is not None or not self.of("waiting") or self.of("running")

    def at_rest(self, scheduler: Scheduler) -> None:
        """After every event: 1 to 5, 10 and 15."""
        snapshot, wakeup_ns = scheduler.snapshot(), scheduler.wakeup_ns()
        running, waiting = self.of("running"), self.of("waiting")
        assert (snapshot.inflight, snapshot.waiting) == (len(running), len(waiting))
        agents = {(life.permit.declared, life.permit.agent) for life in running.values()}
        assert len(agents) <= snapshot.agents <= len(running) + len(waiting)
        for name, pool in snapshot.pools.items():
            watched = self.at[name]
            here = [life.permit for life in running.values() if life.permit.provider == name]
            assert pool.inflight == len(here)
            for lane, held in pool.lanes_inflight.items():
                assert held == sum(permit.lane == lane for permit in here)
            for group, held in pool.groups_inflight.items():
                assert held == sum(permit.group == group for permit in here)
            if name in self.program.providers:
                assert (pool.limit, pool.circuit) == (watched.limit, watched.circuit)
                if watched.known and watched.circuit is Circuit.OPEN and watched.trouble.opens_ns is None:
                    assert pool.opens_ns is not None
                    watched.trouble.opened(pool.opens_ns)
                assert not watched.known or pool.opens_ns == watched.trouble.opens_ns
        self.timers(wakeup_ns)
        self.held_back(scheduler)
        for life in waiting.values():
            deadline_ns = self.program.decide(life.request()).deadline_ns
            late_ns = None if deadline_ns is None else life.arrived_ns + deadline_ns
            assert late_ns is None or (wakeup_ns is not None and wakeup_ns <= late_ns)
            self.work_conservation(life)
            self.standstill(life, wakeup_ns)

    # ---- the books ----

    def _end(self, life: Life, ended: AttemptResult, settled: int) -> None:
        self.exactly_once(life, "running")
        provider = life.permit.provider
        watched = self.at[provider]
        self._settle(life, ended)
        retry = self.class_of(life)
        life.word.ended(life.call.id, self._judged(life, ended), self.now_ns)
        watched.trouble.pay(life.model, self._judged(life, ended), life.granted_ns, self.now_ns)
        life.state, life.since_ns = "over", self.now_ns
        if ended.committed:
            assert not settled, "there is nothing left to be given"
            return
        assert settled <= 1
        if settled:
            return
        # 11: never after the first byte, never beyond the budget, never where the provider has said no.
        assert not self.draining
        if ended.outcome in (*TOO_OFTEN, Outcome.CONCURRENCY) or (ended.outcome in TURNED_AWAY and life.tries):
            life.uncounted += 1
        assert life.attempts - life.uncounted < retry.attempts
        if ended.outcome is not Outcome.TERMINAL:  # without money there it may go elsewhere, whatever was said
            assert not ended.final
            assert ended.status in retry.statuses or ended.failure in retry.failures
            assert (ended.retry_after_ns or 0) <= retry.honor_max_ns
        if ended.outcome not in TURNED_AWAY and watched.known:
            watched.earn(self.now_ns)
            assert watched.retries >= 1 - ROUNDED, "there is no retry left for it"
            watched.retries -= 1
        low_ns = 0 if life.tries else pause(retry, ended, max(1, life.attempts - life.uncounted))[0]
        high_ns = max(pause(retry, ended, life.attempts)[1], min(ended.retry_after_ns or 0, OBEYED_NS))
        life.backs_off = ended.retry_after_ns is None
        again = self.program.decide(life.request())
        life.left = again.provider != provider or bool(again.budgets)
        life.rests_ns = self.now_ns + low_ns, self.now_ns + high_ns
        life.state = "waiting"

    def class_of(self, life: Life) -> RetrySettings:
        """The retry class of its last attempt, by the policy of now."""
        provider = self.program.providers.get(life.permit.provider)
        name = life.retry or (provider.retry if provider is not None else DEFAULT_RETRY)
        return self.program.retries.get(name) or self.program.retries[DEFAULT_RETRY]

    def _probes(self, provider: str) -> int:
        return sum(
            life.state == "running" and life.probe and life.permit.provider == provider for life in self.lives.values()
        )

    def _judged(self, life: Life, ended: AttemptResult) -> AttemptResult:
        """What it is taken for: a good answer may be worth nothing."""
        provider = self.program.providers.get(life.permit.provider)
        good = ended.outcome in HEALTHY and 200 <= ended.status < 300
        if provider is None or provider.degraded is None or not good:
            return ended
        answer = FinishedAnswer(status=ended.status, model=life.model, stream=False, usage=ended.usage)
        return attrs.evolve(ended, outcome=Outcome.DEGRADED) if provider.degraded.counts(answer) else ended

    def word(self, provider: str, group: str | None, model: str) -> Word:
        """Return the gate that such a call waits for."""
        declared = self.program.providers.get(provider)
        has_block = declared is not None and any(each.glob == group for each in declared.groups)
        return self.at[provider].trouble.word(group, "" if has_block else model)

    def _declare(self, program: Program, before: Program | None = None, snapshot: Snapshot | None = None) -> None:
        for name, provider in program.providers.items():
            watched = self.at.get(name)
            if watched is None:
                watched = self.at[name] = Watched()
                watched.earned_ns = self.now_ns
                watched.known = before is None
            elif before is not None and name not in before.providers:
                watched.known = False
            watched.trouble.load(provider, self.now_ns)
            if snapshot is not None:
                watched.trouble.loaded(snapshot.pools[name].limit)
            watched.limit = watched.trouble.limit if watched.known else watched.limit
        windows = {}
        for name, provider in program.providers.items():
            for group in provider.groups:
                for quota in group.quotas:
                    key = name, group.glob, quota.dimension, quota.window_ns
                    old = self.windows.get(key)
                    # Another amount of a bucket says nothing of what it holds now.
                    if old is None or (quota.window is Window.BUCKET and old.quota != quota):
                        old = Kept(quota)
                    windows[key] = old
                    old.quota = quota
        self.windows = windows

    def cost_of(self, grant: Grant) -> Cost:
        provider = self.program.providers[grant.treatment.provider or ""]
        return self._cost(self.lives[grant.call_id].call.request, provider.api)

    def _cost(self, request: Request, api: Api) -> Cost:
        """What it is thought to take: nothing is ever learned here."""
        tokens_in, output = request.tokens_in, min(1_024, request.tokens_max_out)
        tokens = max(tokens_in, request.tokens_max_out) if api is Api.OPENAI else tokens_in + output
        return {
            Dimension.REQUESTS: 1,
            Dimension.INPUT: tokens_in,
            Dimension.OUTPUT: output,
            Dimension.TOKENS: tokens,
        }

    def _settle(self, life: Life, ended: AttemptResult) -> None:
        """What it has really taken of its quotas."""
        provider = self.program.providers.get(life.permit.provider)
        api = provider.api if provider is not None else Api.GENERIC
        actual = dict(life.cost)
        if ended.usage is not None:
            usage = ended.usage
            if usage.input is not None:
                actual[Dimension.INPUT] = usage.input + usage.cache_write
                actual[Dimension.INPUT] += 0 if api is Api.ANTHROPIC else usage.cache_read
            actual[Dimension.OUTPUT] = usage.output
            if api is not Api.OPENAI:
                actual[Dimension.TOKENS] = actual[Dimension.INPUT] + actual[Dimension.OUTPUT]
        elif ended.outcome is Outcome.UNREACHABLE:
            actual = dict.fromkeys(actual, 0)
        elif ended.outcome in TURNED_AWAY:
            actual = {**dict.fromkeys(actual, 0), Dimension.REQUESTS: 1}
        for key, window in self.windows.items():
            for taken in window.taken:
                if taken.life is life and taken.attempt == life.attempts:
                    taken.amount = actual[key[2]]
