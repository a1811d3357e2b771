"""What becomes of calls while providers are in trouble, kept a second time: who waits, who rests, who is in flight.

Chance leaves a range: a call rests until some moment between two. It must not go before the earlier one, and once the
later one has come it must not wait if it fits.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from hivemind_trio.model import Decision, Outcome, Reason, Verdict
from hivemind_trio.policy import DEFAULT_RETRY, Program, RetrySettings, WhileOpen
from hivemind_trio.scheduler import (
    AttemptResult,
    Call,
    CallId,
    Circuit,
    Command,
    Finish,
    Grant,
    LimitChanged,
    Reject,
    Snapshot,
)

from .trouble import BROKEN, OBEYED_NS, ROUNDED, TOO_OFTEN, TURNED_AWAY, Range, Sample, Trouble, Word, pause


@attrs.define(eq=False)
class Entry:
    """One call that waits or is in flight."""

    call: Call
    order: int
    arrived_ns: int
    treatment: Decision
    since_ns: int
    waited_ns: int = 0
    attempts: int = 0
    """That have ended."""
    rests_ns: Range = (0, 0)
    unasked_ns: int | None = None
    """When it might be due at the earliest, had its provider not asked for a longer pause; None: it has not."""
    unpaid_ns: int = 0
    """When it might be due at the earliest, did it not wait for the retry budget."""
    paid_ns: int = 0
    """When the budget has one for it, at the earliest; until then it goes only if one is lent."""
    yields: bool = False
    """It was a probe of the circuit and failed, so that another call is the next one."""
    """It is due no earlier than the one, and no later than the other."""
    probe: bool = False
    """Of a circuit that is half open."""
    tries: bool = False
    """It was granted to find out whether the provider accepts calls again: surely, if `probe` was True."""
    maybe_tries: bool = False
    """The same, as far as can be said from here."""
    uncounted: Range = (0, 0)
    """Attempts that do not count against its retry class: at least, and at most."""
    asked: tuple[str, int] = ("", 0)
    """Provider, and until when it has asked this call to stay away: a reload keeps to that."""
    began: bool = False
    sample: Sample = attrs.field(factory=lambda: Sample(0, 0))
    word: Word = attrs.field(factory=Word)

    @property
    def provider(self) -> str:
        assert self.treatment.provider is not None
        return self.treatment.provider

    @property
    def deadline_ns(self) -> int | None:
        patience_ns = self.treatment.deadline_ns
        return None if patience_ns is None else self.arrived_ns + patience_ns


@attrs.define(eq=False)
class Incident:
    program: Program
    now_ns: int = 0
    draining: bool = False
    waiting: dict[CallId, Entry] = attrs.field(factory=dict)
    running: dict[CallId, Entry] = attrs.field(factory=dict)
    over: set[CallId] = attrs.field(factory=set)
    """Settled, refused, cancelled, or answered: of these nothing more is ever said."""
    at: dict[str, Trouble] = attrs.field(factory=dict)
    """By provider, as long as the scheduler knows of it."""
    arrivals: int = 0

    def __attrs_post_init__(self) -> None:
        for name, provider in self.program.providers.items():
            self.at[name] = Trouble()
            self.at[name].load(provider)

    # ---- what is allowed ----

    def fits(self, entry: Entry) -> bool:
        """Whether it could begin now, were it due."""
        its, trouble = entry.treatment, self.at[entry.provider]
        here = [other for other in self.running.values() if other.provider == entry.provider]
        caps = {group.glob: group.concurrency for group in self.program.providers[entry.provider].groups}
        group_cap, agent_cap = caps.get(its.group), self.program.unknown.concurrency
        by_agent = sum(other.call.caller == entry.call.caller for other in self.running.values())
        return (
            trouble.circuit is not Circuit.OPEN
            and not (trouble.circuit is Circuit.HALF_OPEN and any(other.probe for other in here))
            and len(here) < trouble.limit
            and (group_cap is None or sum(other.treatment.group == its.group for other in here) < group_cap)
            and (agent_cap is None or by_agent < agent_cap)
        )

    def word(self, entry: Entry) -> Word:
        """Return the gate that it waits for."""
        its, provider = entry.treatment, self.program.providers[entry.provider]
        has_block = any(group.glob == its.group for group in provider.groups)
        return self.at[entry.provider].word(its.group, "" if has_block else entry.call.request.model)

    def outright(self, treatment: Decision) -> Reason | None:
        if self.draining:
            return Reason.DRAINING
        if treatment.verdict is Verdict.DENY:
            return Reason.DENIED
        return Reason.NO_PROVIDER if treatment.provider is None else None

    def retry_of(self, entry: Entry) -> RetrySettings:
        provider = self.program.providers.get(entry.provider)
        return self.program.retries[provider.retry if provider is not None else DEFAULT_RETRY]

    # ---- commands ----

    def heard(self, commands: Iterable[Command], *, late: bool = False) -> None:
        """Hold each against the books, in order, and enter it.

        Args:
            late: Some of it may have come of time alone, before the event.
        """
        for command in commands:
            match command:
                case LimitChanged():
                    self.told(command)
                case Grant():
                    self.granted(command, late=late)
                case Reject():
                    self.refused(command)
                case Finish():
                    raise AssertionError("only the end of its attempt settles a call")

    def told(self, adapted: LimitChanged) -> None:
        trouble = self.at[adapted.provider]
        if adapted.because is None and trouble.opens_ns is None and adapted.provider not in self.program.providers:
            trouble.try_again()  # it was gone when it opened, and no snapshot says until when
        assert adapted.circuit is trouble.circuit
        assert adapted.because is not None or adapted.limit == trouble.limit, "time changes no limit"
        trouble.limit = adapted.limit

    def granted(self, grant: Grant, *, late: bool) -> None:
        entry = self.waiting.pop(grant.call_id)
        assert self.now_ns >= entry.rests_ns[0], "its retry is not due"
        assert self.fits(entry), "granted without room"
        if self.now_ns < entry.paid_ns:
            self.at[entry.provider].lent -= 1
            assert self.at[entry.provider].lent >= 0, "a retry more than its provider has served"
        for other in self.waiting.values():
            earlier = other.call.caller == entry.call.caller and other.order < entry.order
            if earlier and other.provider == entry.provider and other.rests_ns[1] <= self.now_ns:
                paced = self.word(other) is not self.word(entry) and self.word(other).heard
                paced |= other.yields and self.at[entry.provider].circuit is Circuit.HALF_OPEN
                assert paced or not self.fits(other), "passed a call of the same agent that has been here for longer"
        assert (grant.attempt, grant.treatment) == (entry.attempts + 1, entry.treatment)
        assert grant.waited_ns == entry.waited_ns + self.now_ns - entry.since_ns
        assert grant.permit is not None
        assert (grant.permit.provider, grant.permit.agent) == (entry.provider, entry.call.caller)
        trouble = self.at[entry.provider]
        if grant.attempt == 1:
            trouble.earn(self.now_ns, self.retry_of(entry).ratio)
        entry.waited_ns, entry.began = grant.waited_ns, False
        entry.probe = entry.tries = trouble.circuit is Circuit.HALF_OPEN
        self.running[grant.call_id] = entry
        entry.sample = trouble.granted(self.inflight(entry.provider), self.now_ns)
        entry.word = self.word(entry)
        entry.maybe_tries = entry.word.granted(grant.call_id, self.now_ns, late=late) or entry.tries

    def refused(self, refuse: Reject) -> None:
        entry = self.waiting.pop(refuse.call_id)
        self.over.add(refuse.call_id)
        assert refuse.waited_ns == entry.waited_ns + self.now_ns - entry.since_ns
        if refuse.reason is Reason.DEADLINE:
            assert entry.deadline_ns is not None
            assert entry.deadline_ns <= self.now_ns
        elif refuse.reason is Reason.BREAKER_OPEN:
            assert self.program.providers[entry.provider].while_open is WhileOpen.REFUSE
            assert self.at[entry.provider].circuit is not Circuit.CLOSED
            assert not self.fits(entry)
        elif refuse.reason is Reason.PROVIDER_SPENT:
            assert self.at[entry.provider].shut(entry.call.request.model, self.now_ns)
        else:
            assert refuse.reason is self.outright(entry.treatment)

    def inflight(self, provider: str) -> int:
        return sum(other.provider == provider for other in self.running.values())

    # ---- events ----

    def advance(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for trouble in self.at.values():
            trouble.advance(now_ns)

    def arrived(self, call: Call, commands: list[Command]) -> None:
        entry = Entry(call, self.arrivals, self.now_ns, self.program.decide(call.request), self.now_ns)
        self.arrivals += 1
        self.waiting[call.id] = entry
        trouble = self.at.get(entry.treatment.provider or "")
        shut = trouble is not None and trouble.shut(call.request.model, self.now_ns)
        self.heard(commands)
        assert (self.outright(entry.treatment) is None and not shut) or call.id in self.over
        if trouble is not None and call.id not in self.over:
            trouble.ask(call.request.model, self.now_ns)

    def cancelled(self, call_id: CallId, commands: list[Command]) -> None:
        if self.waiting.pop(call_id, None) is not None:
            self.over.add(call_id)
        self.heard(commands)

    def answered(self, call_id: CallId, commands: list[Command]) -> None:
        """The answer to an attempt in flight has begun, and is no error."""
        told = next((each for each in commands if isinstance(each, LimitChanged) and each.because is not None), None)
        before = commands[: commands.index(told)] if told is not None else []
        self.heard(before, late=True)
        entry = self.running[call_id]
        entry.word.accepted(call_id)
        self.at[entry.provider].began(entry.sample, told, self.now_ns, probe=entry.probe)
        self._disprove(entry)
        entry.began, entry.probe, entry.tries = True, False, False  # what fails after this rests like any other
        self.heard(commands[len(before) + (told is not None) :], late=True)

    def ended(self, call_id: CallId, ended: AttemptResult, commands: list[Command], *, late: bool) -> None:
        """Whatever time has opened comes first; then what the attempt has taught; then its slot is somebody else's."""
        entry = self.running[call_id]
        provider, model = entry.provider, entry.call.request.model
        settled = commands.count(Finish(call_id))
        told = next((each for each in commands if isinstance(each, LimitChanged) and each.because is not None), None)
        taught = False
        for command in commands:
            if not taught and not (late and self._comes_before(call_id, command)):
                self._teach(call_id, ended, told, settled=settled)
                taught = True
            if command != Finish(call_id) and command is not told:
                self.heard([command], late=late)
        if not taught:
            self._teach(call_id, ended, told, settled=settled)
        if ended.outcome is Outcome.TERMINAL:
            assert not any((one.provider, one.call.request.model) == (provider, model) for one in self.waiting.values())

    def _comes_before(self, call_id: CallId, command: Command) -> bool:
        """Whether a command can come of the time alone that has passed."""
        match command:
            case LimitChanged(because=because):
                return because is None
            case Reject(reason=reason):
                return reason is Reason.DEADLINE
            case Grant(call_id=granted_id):
                return granted_id != call_id and self.fits(self.waiting[granted_id])
            case _:
                return False

    def _teach(self, call_id: CallId, ended: AttemptResult, told: LimitChanged | None, *, settled: int) -> None:
        entry = self.running[call_id]
        trouble = self.at[entry.provider]
        others = sum(
            other.began and other.provider == entry.provider for other in self.running.values() if other is not entry
        )
        assert told is None or told.provider == entry.provider
        excused = entry.probe and ended.outcome in BROKEN and trouble.failed_probe != call_id
        trouble.learn(
            ended,
            entry.sample,
            told,
            probe=entry.probe,
            now_ns=self.now_ns,
            inflight=self.inflight(entry.provider),
            others=others,
        )
        if entry.probe and trouble.circuit is Circuit.OPEN:
            trouble.failed_probe = call_id
        entry.word.ended(call_id, ended, self.now_ns)
        trouble.pay(entry.call.request.model, ended, entry.sample.granted_ns, self.now_ns)
        del self.running[call_id]
        if ended.outcome is Outcome.SUCCEEDED:
            self._lend(entry)
        if ended.committed:
            assert not settled, "there is nothing left to be given"
            self.over.add(call_id)
            return
        beyond = ended.outcome is Outcome.OVERLOADED and others > 0
        rests_ns, may_settle = self._verdict(entry, ended, trouble, excused=excused, beyond=beyond)
        if settled:
            assert settled == 1
            assert may_settle, "given up though there was a retry left for it"
            self.over.add(call_id)
            return
        assert rests_ns is not None, "tried again though it must not be"
        trouble.take(ended)
        if ended.retry_after_ns:
            entry.asked = entry.provider, self.now_ns + min(ended.retry_after_ns, OBEYED_NS)
        entry.attempts += 1
        entry.call = attrs.evolve(entry.call, request=attrs.evolve(entry.call.request, attempt=entry.attempts + 1))
        entry.treatment = self.program.decide(entry.call.request)
        entry.yields = entry.probe and ended.outcome in BROKEN
        entry.since_ns, entry.rests_ns, entry.probe = self.now_ns, rests_ns, False
        self.waiting[call_id] = entry

    def _disprove(self, served: Entry) -> None:
        """Pauses that the provider asked for are over: it serves one that was granted since."""
        for entry in self.waiting.values():
            here = entry.provider == served.provider and entry.call.request.model == served.call.request.model
            if here and entry.unasked_ns is not None and entry.since_ns <= served.sample.granted_ns:
                entry.rests_ns = min(entry.rests_ns[0], max(self.now_ns, entry.unasked_ns)), entry.rests_ns[1]
                entry.asked, entry.paid_ns = ("", 0), 0

    def _lend(self, served: Entry) -> None:
        """One of those that wait for the retry budget may go on: which of them is left open here."""
        short = [
            entry
            for entry in self.waiting.values()
            if entry.provider == served.provider
            and entry.since_ns <= served.sample.granted_ns
            and entry.paid_ns > self.now_ns
        ]
        for entry in short:
            entry.rests_ns = max(self.now_ns, entry.unpaid_ns), entry.rests_ns[1]
        self.at[served.provider].lent += bool(short)

    def _verdict(
        self, entry: Entry, ended: AttemptResult, trouble: Trouble, *, excused: bool, beyond: bool
    ) -> tuple[Range | None, bool]:
        """Between when its next attempt may be due, if there may be one; and whether it may be given up."""
        retry, attempt = self.retry_of(entry), entry.attempts + 1
        free, maybe_free = (True, True) if excused or beyond else self._uncounted(entry, ended)
        entry.uncounted = entry.uncounted[0] + free, entry.uncounted[1] + maybe_free
        at_least, at_most = attempt - entry.uncounted[1], attempt - entry.uncounted[0]
        listed = ended.status in retry.statuses or ended.failure in retry.failures
        too_long = (ended.retry_after_ns or 0) > retry.honor_max_ns
        treatment = self.program.decide(attrs.evolve(entry.call.request, attempt=attempt + 1))
        hopeless = (
            self.outright(treatment) is not None
            or self._given_up(treatment.provider)
            or self.at[treatment.provider or ""].shut(entry.call.request.model, self.now_ns)
        )
        # Without money there it may go elsewhere, whatever the class says.
        poor = ended.outcome is Outcome.TERMINAL and treatment.provider != entry.provider
        unwanted = not poor and (ended.final or not listed or too_long or retry.attempts == 1)
        if unwanted or at_least >= retry.attempts or hopeless:
            return None, True
        used_up = at_most >= retry.attempts
        at_a_cap = beyond or ended.outcome is Outcome.CONCURRENCY
        tries = (attempt, attempt) if at_a_cap else (max(1, at_least), max(1, at_most))
        rests_ns = trouble.rest(retry, ended, tries, self.now_ns)
        # The scheduler reckons retries in floats: of one that is just earned either may be said.
        at_the_bound = abs(trouble.budget - 1 + trouble.borrows(ended)) <= ROUNDED
        used_up |= trouble.pays(ended) and not trouble.must(ended) and at_the_bound
        entry.unasked_ns = None
        if ended.retry_after_ns and treatment.provider == entry.provider:
            entry.unasked_ns = self.now_ns + pause(retry, attrs.evolve(ended, retry_after_ns=None), tries[0])[0]
        if rests_ns is not None and (treatment.provider != entry.provider or entry.tries):
            rests_ns = self.now_ns, self.now_ns  # another provider has asked for no rest; a probe keeps its place
        elif rests_ns is not None and entry.maybe_tries:
            rests_ns = self.now_ns, rests_ns[1]
        if rests_ns is not None and entry.probe and ended.outcome in BROKEN and treatment.provider == entry.provider:
            # Another call is the next probe, if one waits.
            rests_ns = trouble.to_open_ns[0] + 1, trouble.to_open_ns[1] + 1
        entry.unpaid_ns = entry.paid_ns = 0
        if rests_ns is not None and trouble.pays(ended):
            earned_ns = trouble.earned_ns(self.now_ns)
            entry.unpaid_ns, entry.paid_ns = rests_ns[0], earned_ns[0]
            rests_ns = max(rests_ns[0], earned_ns[0]), max(rests_ns[1], earned_ns[1])
        if rests_ns is None or treatment.deadline_ns is None:
            return rests_ns, rests_ns is None or used_up
        earliest_ns, latest_ns = rests_ns
        deadline_ns = entry.arrived_ns + treatment.deadline_ns
        if earliest_ns >= deadline_ns:
            return None, True
        return (earliest_ns, min(latest_ns, deadline_ns - 1)), used_up or latest_ns >= deadline_ns

    def _uncounted(self, entry: Entry, ended: AttemptResult) -> tuple[bool, bool]:
        """Return if the attempt surely, and if it may, not count: a refusal for going too often, or of a probe."""
        away = ended.outcome in TURNED_AWAY
        free = ended.outcome in (*TOO_OFTEN, Outcome.CONCURRENCY) or (away and entry.tries)
        return free, free or (away and entry.maybe_tries)

    def _given_up(self, provider: str | None) -> bool:
        assert provider is not None
        refuses = self.program.providers[provider].while_open is WhileOpen.REFUSE
        return refuses and self.at[provider].circuit is Circuit.OPEN

    def drained(self, commands: list[Command]) -> None:
        self.draining = True
        self.heard(commands)
        assert not self.waiting

    def loaded(self, program: Program, snapshot: Snapshot, commands: list[Command]) -> None:
        self.program = program
        held = {entry.provider for entry in self.running.values()}
        known = self.at
        self.at = {name: known.get(name) or Trouble() for name in program.providers}
        self.at |= {name: trouble for name, trouble in known.items() if name not in self.at and name in held}
        for name, trouble in self.at.items():
            trouble.load(program.providers.get(name), self.now_ns)
            if name in program.providers:
                trouble.loaded(snapshot.pools[name].limit)
        for entry in self.waiting.values():
            entry.treatment = program.decide(entry.call.request)
            asked_by, until_ns = entry.asked
            if entry.treatment.provider == asked_by:
                entry.rests_ns = entry.rests_ns[0], max(entry.rests_ns[1], until_ns)
        self.heard(commands)

    # ---- after every event ----

    def check(self, snapshot: Snapshot, wakeup_ns: int | None) -> None:
        """Nobody who is due and fits waits, and whoever could go later will be looked at by then."""
        assert not self.over & {*self.waiting, *self.running}
        for name, pool in snapshot.pools.items():
            trouble = self.at[name]
            if trouble.circuit is Circuit.OPEN and trouble.opens_ns is None:
                assert pool.opens_ns is not None
                trouble.opened(pool.opens_ns)
            assert (pool.circuit, pool.limit, pool.opens_ns) == (trouble.circuit, trouble.limit, trouble.opens_ns)
            here = [entry.treatment for entry in self.running.values() if entry.provider == name]
            assert pool.inflight == len(here)
            assert sum(pool.groups_inflight.values()) == sum(pool.lanes_inflight.values()) == len(here)
        assert (snapshot.inflight, snapshot.waiting) == (len(self.running), len(self.waiting))
        assert snapshot.agents == len({each.call.caller for each in (*self.running.values(), *self.waiting.values())})

        assert wakeup_ns is None or wakeup_ns > self.now_ns, "an alarm for what is over"
        assert not self.waiting or self.running or wakeup_ns is not None, "nobody will ever come back to who waits"
        for entry in self.waiting.values():
            assert self.outright(entry.treatment) is None
            assert entry.deadline_ns is None or (wakeup_ns is not None and wakeup_ns <= entry.deadline_ns)
            assert not self._given_up(entry.provider), "waits for a provider that the policy gives up"
            if self.fits(entry) and not self._paced(entry, wakeup_ns):
                latest_ns = entry.rests_ns[1]
                assert latest_ns > self.now_ns, "due, fits everywhere and waits"
                assert wakeup_ns is not None
                assert wakeup_ns <= latest_ns
        for trouble in self.at.values():
            assert trouble.opens_ns is None or (wakeup_ns is not None and wakeup_ns <= trouble.opens_ns)

    def _paced(self, entry: Entry, wakeup_ns: int | None) -> bool:
        """Check that nothing stands. Return True if its gate may hold it."""
        word = self.word(entry)
        if not word.heard:
            return False
        if not word.inflight and entry.rests_ns[1] <= self.now_ns:
            assert self.now_ns < word.goes_by_ns(), "calls wait in line, none is in flight, and no probe goes"
            assert wakeup_ns is not None
            assert wakeup_ns <= word.goes_by_ns(), "nothing wakes it for the next probe"
        return True
