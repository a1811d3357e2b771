"""The way through us: the scheduler of the proxy, and around it what the door and the engine do, in virtual time.

`proxy/exchange.py`, `proxy/attempt.py`, `proxy/hold.py` and `runtime/ticket.py` do the same over sockets; what a
client is told, and when, is theirs. No byte takes time on its way but on a `Road`, and no client reads slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, assert_never, final

import attrs

from hivemind_trio.dialects import DIALECTS
from hivemind_trio.model import REJECTIONS, Decision, Outcome, Reason, Request
from hivemind_trio.policy import Failure, Program, ProviderSettings, Server
from hivemind_trio.scheduler import (
    ALL_PARTS,
    AskBudgets,
    AskLearning,
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Circuit,
    Command,
    Correction,
    Draw,
    DrawWindow,
    Event,
    Features,
    Finish,
    Grant,
    LimitChanged,
    PlanChanged,
    Reject,
    ResponseStarted,
    Scheduler,
    Snapshot,
    Spend,
    StreamsReceived,
    TimePassed,
)
from hivemind_trio.sim.agents.client import ClientReply
from hivemind_trio.sim.agents.request import Asking
from hivemind_trio.sim.provider import wire_format
from hivemind_trio.sim.provider.latency_and_faults import Ask
from hivemind_trio.sim.provider.profile import SECOND_NS
from hivemind_trio.sim.provider.provider import Provider
from hivemind_trio.sim.results.recorder import RunRecorder

from .attempt import End, How, SimulatedAttempt
from .event_queue import Agenda, Due
from .invariants import Audit
from .overhead_model import Road

Observe = Callable[[int, Event, Sequence[Command]], None]
"""Callback: time, event and the scheduler's commands."""

IN_TIME: Final = 0.9
"""Share of the client's timeout after which it is rejected."""

RETRY_AFTER_MAX_NS: Final = 60 * SECOND_NS

REPORT_NS: Final = SECOND_NS // 2
"""Time between two reports of what streams have received."""


def _own_error(reason: Reason, retry_after_ns: int | None = None) -> ClientReply:
    status = REJECTIONS[reason].status
    return ClientReply(status=status, retry_after_ns=retry_after_ns, why=f"{status} {reason}")


HELD: Final = attrs.evolve(_own_error(Reason.HELD_TOO_LONG, 30 * SECOND_NS), why="held-too-long")

_FAILED: Final = {
    How.UNREACHABLE: (Outcome.UNREACHABLE, Failure.CONNECT),
    How.RESET: (Outcome.FAILED, Failure.RESET),
    How.FIRST_BYTE: (Outcome.FAILED, Failure.FIRST_BYTE),
    How.IDLE: (Outcome.FAILED, Failure.IDLE),
    How.TOTAL: (Outcome.FAILED, Failure.TIMEOUT),
}


def _keeps_alive(request: Request) -> bool:
    """Return True if its dialect has an event that says nothing."""
    if not request.apis:
        return False
    dialect = DIALECTS[request.apis[0]]
    return dialect.keep_alive(request.path, "", request.model, request.headers) is not None


@attrs.define(eq=False)
class _Talk:
    """One call, from its arrival until its client has an answer."""

    asking: Asking
    silent_ns: int
    """When its client is sent a 200 and keep-alive events, if the call is streamed and its dialect has any."""
    gives_up_ns: int
    """When it is sent away, if it waits."""
    alive: bool
    treatment: Decision | None = None
    attempt: SimulatedAttempt | None = None
    end: End | None = None
    """End of its latest attempt, of which the client has received nothing."""
    waited_ns: int = 0
    alarm: Due | None = None
    over: bool = False

    @classmethod
    def of(cls, asking: Asking, server: Server) -> _Talk:
        """Return a call that arrives now. How long it is held and when it is spoken to is `proxy/hold.py`'s."""
        request, known_ns = asking.request, asking.client.known_ns
        alive = request.stream and _keeps_alive(request)
        held_ns, silent_ns = server.silent_ns + server.hold_ns, server.silent_ns
        if known_ns is not None and alive:
            silent_ns = min(silent_ns, known_ns // 2)
        elif known_ns is not None:
            held_ns = min(held_ns, int(known_ns * IN_TIME))
        return cls(asking, asking.sent_ns + silent_ns, asking.sent_ns + held_ns, alive)

    def call(self, call_id: CallId) -> Call:
        """Return the call as the scheduler is told of it."""
        asking, client = self.asking, self.asking.client
        held_ns = self.gives_up_ns - asking.sent_ns
        patience_ns = None
        if not client.limits_are_fatal:
            tries = 0 if self.alive else client.known_tries - min(asking.retried, client.known_tries)
            patience_ns = held_ns * (1 + tries)
        turn, recorded = asking.turn, asking.turn.recorded
        job = turn.conversation if client.says_job else ""
        return Call(
            id=call_id,
            request=asking.request,
            caller=asking.caller,
            prefix=turn.prefix,
            job=job if recorded is None else recorded.job,
            credential="" if recorded is None else recorded.credential,
            again=f"{asking.caller} {turn.prompt}",
            patience_ns=patience_ns,
            held_ns=held_ns,
        )

    def committed(self, now_ns: int) -> bool:
        """Return True if the client got a 200 of the proxy while the call waited."""
        return self.alive and now_ns >= self.silent_ns

    def leaves_ns(self, now_ns: int) -> int:
        """When the client will have had no byte for longer than it bears."""
        asking = self.asking
        heard_ns = now_ns if self.alive and self.committed(now_ns) else asking.sent_ns
        return heard_ns + asking.client.silence_ns


@final
@attrs.define(eq=False)
class Proxied:
    """Keeps the scheduler's time and carries out its commands."""

    program: Program
    seed: int
    agenda: Agenda
    providers: Mapping[tuple[str, str | None], Provider]
    books: RunRecorder
    audited: bool = False
    parts: Features = ALL_PARTS
    road: Road | None = None
    observe: Observe | None = None
    store: Callable[[DrawWindow | AskBudgets | AskLearning], None] | None = None
    """Callback with what the scheduler asks the store that several nodes share; None: it is the only node."""
    stirred: Callable[[], None] | None = None
    """Callback after each event of the scheduler's."""
    shares: bool = False
    """True if it is one of several nodes."""
    snapshot: Callable[[], Snapshot] | None = None
    """Returns the state of all nodes; None: of this one."""
    down: bool = False
    """The process has ended: nothing is sent or answered any more."""
    attempts: int = attrs.field(init=False, default=0)
    """Attempts that it has sent."""
    scheduler: Scheduler = attrs.field(init=False)
    audit: Audit | None = attrs.field(init=False, default=None)
    _talks: dict[CallId, _Talk] = attrs.field(init=False, factory=dict)
    _ids: int = attrs.field(init=False, default=0)
    _streaming: dict[CallId, int] = attrs.field(init=False, factory=dict)
    """Tokens of each stream that were reported."""
    _alarm_ns: int | None = attrs.field(init=False, default=None)
    """The earliest time at which the scheduler's clock is looked at, as far as that is in the agenda."""
    circuits: dict[str, Circuit] = attrs.field(init=False, factory=dict)
    """Provider -> its circuit as it was last told; all nodes that share it have one."""

    def __attrs_post_init__(self) -> None:
        self.scheduler = Scheduler(self.program, self.seed, parts=self.parts)
        if self.audited:
            self.audit = Audit(self.program, self.scheduler, self.shares)

    def send(self, asking: Asking) -> None:
        """Send the request of a client now."""
        self._ids += 1
        call_id = CallId(self._ids)
        talk = self._talks[call_id] = _Talk.of(asking, self.program.server)
        self.post(CallArrived(talk.call(call_id)))
        waiting = self.scheduler.waiting(call_id, self.agenda.now_ns)
        if waiting is not None and waiting.reason is Reason.HELD:
            self.books.held[asking.load] += 1
        if talk.attempt is None and not talk.over:
            self._watch(call_id, talk)

    @property
    def calls(self) -> int:
        """Requests of clients that it has had."""
        return self._ids

    def kill(self) -> None:
        """End the process: its attempts break off, and its clients see their connections reset."""
        self.down = True
        for call_id, talk in list(self._talks.items()):
            if talk.attempt is not None:
                talk.attempt.drop()
            self._reply(call_id, ClientReply(status=0, why="the proxy has ended"), served=False)

    # ---- the scheduler's side ----

    def post(self, event: Event) -> None:
        """Tell the scheduler what happened, and carry out what it answers."""
        if self.down:
            return
        now_ns = self.agenda.now_ns
        commands = self.scheduler.handle(event, now_ns)
        if self.audit is not None:
            self.audit.handled(event, commands, now_ns)
        if self.observe is not None:
            self.observe(now_ns, event, commands)
        for command in commands:
            match command:
                case Grant():
                    self._begin(command, now_ns)
                case Finish():
                    self._settle(command.call_id)
                case Reject():
                    self._reject(command, now_ns)
                case LimitChanged():
                    self._adapted(command)
                case PlanChanged():
                    pass
                case DrawWindow() | AskBudgets() | AskLearning():
                    assert self.store is not None, "it is the only node"
                    self.store(command)
                case Draw() | Spend() | Correction():
                    raise AssertionError("no ledger was opened")
                case _:
                    assert_never(command)
        wakeup_ns = self.scheduler.wakeup_ns()
        if wakeup_ns is not None and (self._alarm_ns is None or wakeup_ns < self._alarm_ns):
            self._arm(wakeup_ns, now_ns)
        if now_ns >= self.books.series.next_ns:
            self.books.series.add((self.snapshot or self.scheduler.snapshot)(), self.providers)
        if self.stirred is not None:
            self.stirred()

    def _adapted(self, command: LimitChanged) -> None:
        if command.circuit is Circuit.OPEN and self.circuits.get(command.provider) is not Circuit.OPEN:
            self.books.trips[command.provider] += 1
        self.circuits[command.provider] = command.circuit

    def _arm(self, wakeup_ns: int, now_ns: int) -> None:
        self._alarm_ns = max(wakeup_ns, now_ns)
        self.agenda.at(self._alarm_ns, self._ring, self._alarm_ns)

    def _ring(self, alarm_ns: int) -> None:
        if alarm_ns != self._alarm_ns or self.down:
            return  # an earlier one was asked for since, and has rung
        self._alarm_ns = None
        wakeup_ns = self.scheduler.wakeup_ns()
        if wakeup_ns is not None and wakeup_ns <= alarm_ns:
            self.post(TimePassed())
        elif wakeup_ns is not None:
            self._arm(wakeup_ns, alarm_ns)

    # ---- attempts ----

    def _begin(self, grant: Grant, now_ns: int) -> None:
        talk, treatment = self._talks[grant.call_id], grant.treatment
        assert treatment.provider is not None
        self._hush(talk)
        self.attempts += 1
        talk.treatment, talk.waited_ns = treatment, grant.waited_ns
        self.books.decided(now_ns, grant.call_id, treatment.provider)
        asking = talk.asking
        settings = self.program.pools[treatment.provider]
        timeouts = grant.timeouts or settings.timeouts
        provider = self.providers[treatment.provider, treatment.group]
        talk.attempt = SimulatedAttempt(
            self.agenda,
            provider,
            _sent(asking.turn.ask, treatment, settings),
            timeouts=timeouts,
            leaves_ns=talk.leaves_ns(now_ns),
            silence_ns=asking.client.silence_ns,
            over=partial(self._ended, grant.call_id),
            headed=partial(self._hear, grant.call_id, True),
            road=self.road,
        )
        talk.attempt.begin()

    def _hear(self, call_id: CallId, good: bool) -> None:
        """Note the head of an answer."""
        talk, now_ns = self._talks[call_id], self.agenda.now_ns
        assert talk.treatment is not None
        api = self.program.pools[talk.treatment.provider or ""].api
        provider = self._provider(talk)
        readings = wire_format.told(api, provider.readings(now_ns), now_ns) if provider.tells else ()
        tells_plan = provider.has_plans and provider.tells and wire_format.tells_plan(api)
        plan = provider.plan(talk.asking.turn.ask, now_ns) if tells_plan else None
        if good and talk.asking.request.stream and self.program.pools[talk.treatment.provider or ""].aimd is not None:
            if not self._streaming:
                self.agenda.at(now_ns + REPORT_NS, self._report)
            self._streaming[call_id] = 0
        if readings or plan is not None or good:
            self.post(ResponseStarted(call_id, readings, good, plan))

    def _report(self) -> None:
        """Tell the scheduler what streams have received."""
        received = {}
        for call_id, before in list(self._streaming.items()):
            talk = self._talks.get(call_id)
            if talk is None or talk.attempt is None:
                del self._streaming[call_id]
                continue
            generated = talk.attempt.generated()
            if generated > before:
                received[call_id] = generated - before
                self._streaming[call_id] = generated
        if self._streaming and not self.down:
            self.agenda.at(self.agenda.now_ns + REPORT_NS, self._report)
        if received:
            self.post(StreamsReceived(received))

    def _provider(self, talk: _Talk) -> Provider:
        """Return the provider of its attempt."""
        assert talk.treatment is not None
        assert talk.treatment.provider is not None
        return self.providers[talk.treatment.provider, talk.treatment.group]

    def _ended(self, call_id: CallId, end: End) -> None:
        talk = self._talks[call_id]
        treatment = talk.treatment
        assert treatment is not None
        if end.refused is not None and end.refused.tells_limits and self._provider(talk).tells:
            self._hear(call_id, False)
        talk.attempt, talk.end = None, end
        if end.usage is not None:
            self.books.spend(treatment, treatment.model or talk.asking.request.model, end.usage)
        ended = attrs.evolve(self._said(end, treatment), headed=talk.committed(self.agenda.now_ns))
        self.post(AttemptEnded(call_id, ended))
        if ended.committed:
            self._deliver(call_id, end)
        elif talk.attempt is None and not talk.over:
            self._watch(call_id, talk)

    def _said(self, end: End, treatment: Decision) -> AttemptResult:
        """Return the result as the scheduler is told of it."""
        assert treatment.provider is not None
        provider = self.program.pools[treatment.provider]
        match end.how:
            case How.WHOLE:
                slow_ns = provider.aimd.slow_ns if provider.aimd is not None else None
                slow = slow_ns is not None and end.waited_ns > slow_ns
                outcome = Outcome.SLOW if slow else Outcome.SUCCEEDED
                return AttemptResult(
                    outcome=outcome,
                    status=200,
                    committed=True,
                    usage=end.usage,
                    first_byte_ns=end.waited_ns,
                    silence_ns=end.silence_ns,
                )
            case How.REFUSED:
                assert end.refused is not None
                return wire_format.ended(provider.api, end.refused)
            case How.LEFT:
                return AttemptResult(outcome=Outcome.IGNORED, committed=True, usage=end.usage)
            case _:
                outcome, failure = _FAILED[end.how]
                # What hung says what is usual as well: how long it was waited for.
                hung = end.how in (How.FIRST_BYTE, How.IDLE)
                return AttemptResult(
                    outcome=outcome,
                    status=200 if end.begun else 0,
                    failure=failure,
                    committed=end.begun,
                    usage=end.usage,
                    first_byte_ns=end.waited_ns if hung else None,
                    silence_ns=end.silence_ns if hung else None,
                )

    # ---- the client's side ----

    def _watch(self, call_id: CallId, talk: _Talk) -> None:
        """While it waits: it is sent away after a time, or goes by itself."""
        if talk.alarm is not None:
            return
        now_ns = self.agenda.now_ns
        patient_ns = talk.gives_up_ns
        if not talk.alive or talk.asking.sent_ns + talk.asking.client.silence_ns < talk.silent_ns:
            patient_ns = min(patient_ns, talk.asking.sent_ns + talk.asking.client.silence_ns)
        talk.alarm = self.agenda.at(max(now_ns, patient_ns), self._tired, call_id, patient_ns < talk.gives_up_ns)

    def _hush(self, talk: _Talk) -> None:
        """Stop the alarm of a call that waits no more, or not for now."""
        if talk.alarm is not None:
            self.agenda.forget(talk.alarm)
            talk.alarm = None

    def _tired(self, call_id: CallId, left: bool) -> None:
        talk = self._talks[call_id]
        talk.alarm = None
        talk.waited_ns = self.agenda.now_ns - talk.asking.sent_ns
        if talk.treatment is None:
            talk.treatment = self.program.decide(talk.asking.request)  # whose wait it was
        if not left:
            self.books.refused[talk.asking.load, Reason.HELD_TOO_LONG] += 1
        held = attrs.evolve(HELD, status=503) if talk.asking.client.limits_are_fatal else HELD
        reply = ClientReply(status=0, timed_out=True, why="no byte for too long") if left else held
        self._reply(call_id, reply, served=False)
        self.post(CallCancelled(call_id))

    def _deliver(self, call_id: CallId, end: End) -> None:
        match end.how:
            case How.WHOLE:
                reply = ClientReply(status=200, whole=True, tokens=end.tokens)
            case How.LEFT:
                why = "no byte for too long"
                reply = ClientReply(status=0, timed_out=True, broken=end.begun, tokens=end.tokens, why=why)
            case _:
                why = f"the stream broke ({end.how.name.lower()})"
                reply = ClientReply(status=200, broken=True, tokens=end.tokens, why=why)
        self._reply(call_id, reply)

    def _settle(self, call_id: CallId) -> None:
        talk = self._talks[call_id]
        end = talk.end
        assert end is not None
        match end.how:
            case How.REFUSED:
                assert end.refused is not None
                assert talk.treatment is not None
                assert talk.treatment.provider is not None
                said = wire_format.ended(self.program.pools[talk.treatment.provider].api, end.refused)
                reply = ClientReply(
                    status=said.status, retry_after_ns=said.retry_after_ns, why=f"{said.status} {end.refused.kind}"
                )
            case How.FIRST_BYTE | How.IDLE | How.TOTAL:
                reply = _own_error(Reason.UPSTREAM_TIMEOUT)
            case _:
                reply = _own_error(Reason.UPSTREAM_UNREACHABLE, 5 * SECOND_NS)
        self._reply(call_id, attrs.evolve(reply, tokens=end.tokens))

    def _reject(self, reject: Reject, now_ns: int) -> None:
        talk = self._talks[reject.call_id]
        if reject.treatment is not None:
            talk.treatment = reject.treatment
        talk.waited_ns = reject.waited_ns
        self.books.decided(now_ns, reject.call_id, str(reject.reason))
        self.books.refused[talk.asking.load, reject.reason] += 1
        if reject.reason is Reason.HELD:
            self.books.held[talk.asking.load] += 1
        row = REJECTIONS[reject.reason]
        status = row.status
        if status == 429 and talk.asking.client.limits_are_fatal and not row.is_final:
            status = 503  # what one takes for a word to come back is the end of another
        after_ns = None if reject.retry_after_ns is None else min(RETRY_AFTER_MAX_NS, reject.retry_after_ns)
        if after_ns is not None:
            after_ns = max(1, -(-after_ns // SECOND_NS)) * SECOND_NS  # as the header has it
        reply = ClientReply(
            status=status, retry_after_ns=after_ns, final=row.is_final, why=f"rejected: {reject.reason}"
        )
        self._reply(reject.call_id, reply, served=False)

    def _reply(self, call_id: CallId, reply: ClientReply, *, served: bool = True) -> None:
        talk = self._talks.pop(call_id)
        self._hush(talk)
        talk.over = True
        if not (reply.whole or reply.timed_out or reply.broken) and talk.committed(self.agenda.now_ns):
            # The status is gone: what it is told is an error event within its stream.
            reply = attrs.evolve(reply, status=200, broken=True)
        self.books.call_over(talk.asking.load, talk.treatment, talk.waited_ns if served else None)
        talk.asking.replied(reply)


def _sent(ask: Ask, treatment: Decision, provider: ProviderSettings) -> Ask:
    """Return what a provider is asked: a rule may limit the output, and with a key all calls are of its account."""
    most = treatment.max_output
    if most is not None:
        taken = ask.taken
        if taken is not None and taken.tokens_out is not None:
            taken = attrs.evolve(taken, tokens_out=min(taken.tokens_out, most))
        ask = attrs.evolve(ask, tokens_max_out=min(ask.tokens_max_out, most), taken=taken)
    return attrs.evolve(ask, account="") if provider.keys else ask
