"""State of one provider, learned from its attempts: concurrency limit, circuit, retries, usual times, accounts."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome, Reason, Request
from hivemind_trio.policy import AimdSettings, DegradedSettings, FinishedAnswer, ProviderSettings
from hivemind_trio.policy import CircuitBreakerSettings as BreakerSettings
from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk, SharedVerdict
from hivemind_trio.scheduler.learning.pool_learning import MS, LearningRole
from hivemind_trio.scheduler.protocol.attempt_result import HEALTHY, AttemptResult
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.protocol.circuit import Circuit
from hivemind_trio.scheduler.protocol.snapshot import AimdSnapshot

from .adaptive_timeout import AdaptiveTimeout
from .aimd import Aimd
from .billing import BillingExhausted
from .circuit_breaker import CircuitBreaker
from .learned_together import AttemptStep, LearnedTogether, result_of
from .retry import RetryBudget

VERDICT_LATE_NS: Final = 500 * MS
"""Time after which a verdict that is due is looked for again."""


@final
@attrs.define(eq=False)
class ProviderHealth:
    """Learns from every attempt, and says how many slots there are and why there may be none."""

    _random: Random
    breaker: CircuitBreaker = attrs.field(init=False)
    retries: RetryBudget = attrs.field(factory=RetryBudget, init=False)
    spent: BillingExhausted = attrs.field(factory=BillingExhausted, init=False)
    limit: int = attrs.field(default=0, init=False)
    """Concurrency limit: the policy's, or within its bounds AIMD's. It and the next two are kept, not derived: every
    event asks."""
    closed: Reason | None = attrs.field(default=None, init=False)
    """Reason for which no slot is free, however few are held; None: slots are free."""
    wakes_ns: int | None = attrs.field(default=None, init=False)
    """When time alone will open something."""
    _fixed: int = attrs.field(default=0, init=False)
    _aimd: Aimd | None = attrs.field(default=None, init=False)
    _before: int = attrs.field(default=0, init=False)
    """Limit from before the circuit opened."""
    progress: AdaptiveTimeout = attrs.field(factory=AdaptiveTimeout, init=False)
    degraded: DegradedSettings | None = attrs.field(default=None, init=False)
    """Condition under which a good answer counts as a failure."""
    _accepted: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Attempts in flight whose answer has begun."""
    shared: LearnedTogether | None = attrs.field(default=None, init=False)
    """Part of this node in what several nodes learn together; None: it is the only node."""
    _alone: AimdSettings | None = attrs.field(default=None, init=False)
    """Bounds of the limit while this node learns for itself, of several; None: those of the policy."""
    _whole: AimdSettings | None = attrs.field(default=None, init=False)
    """Bounds of the policy; None: the limit is fixed."""
    _probe: CallId | None = attrs.field(default=None, init=False)
    """The one call in flight that a half-open circuit has let through."""
    _failed_probe: CallId | None = attrs.field(default=None, init=False)
    """The probe of the circuit that failed last; None: none has since it was closed."""

    _verdict: SharedVerdict | None = attrs.field(default=None, init=False)
    """As it was asked for last."""

    def __attrs_post_init__(self) -> None:
        self.breaker = CircuitBreaker(BreakerSettings(), self._random)

    def _look(self) -> None:
        circuit = self.breaker.circuit
        together = self._together
        may_probe = self._probe is None if together is None else together.may_probe
        shut = circuit is Circuit.OPEN or (circuit is Circuit.HALF_OPEN and not may_probe)
        self.closed = Reason.BREAKER_OPEN if shut else None
        self.limit = self._fixed if self._aimd is None else self._aimd.limit
        self.wakes_ns, ends_ns = self.breaker.opens_ns, self._aimd.probe_ends_ns if self._aimd is not None else None
        if ends_ns is not None and (self.wakes_ns is None or ends_ns < self.wakes_ns):
            self.wakes_ns = ends_ns

    @property
    def _together(self) -> LearnedTogether | None:
        """Part of this node in what several nodes learn; None: it learns for itself."""
        return None if self.shared is None or self.shared.link.is_alone else self.shared

    @property
    def up(self) -> bool:
        """True if a call that goes there now is tried, if only as a probe."""
        return self.closed is None

    def load(self, provider: ProviderSettings | None, alone: AimdSettings | None = None) -> None:
        """Take the settings of a new policy; what has been learned stays. None: no new attempts will begin.

        Args:
            alone: Bounds of the limit while this node learns for itself, of several.
        """
        self.spent.clear()
        if provider is None:
            self._fixed, self._aimd = 0, None
            self._look()
            return
        self._fixed, self.degraded = provider.limit, provider.degraded
        self.breaker.settings = provider.breaker
        self._whole, self._alone = provider.aimd, alone
        bounds = self._bounds
        if bounds is None:
            self._aimd = None
        elif self._aimd is None:
            self._aimd = Aimd(bounds, provider.limit)
        else:
            self._aimd.load(bounds, provider.limit)
        self._look()

    @property
    def _bounds(self) -> AimdSettings | None:
        return self._alone if self._together is None and self._alone is not None else self._whole

    @property
    def learned(self) -> tuple[int, bool] | None:
        """Concurrency limit, and whether no cut has shown it yet; None: it is fixed."""
        return (self._aimd.lasting, self._aimd.doubling) if self._aimd is not None else None

    def hint(self, limit: int, *, doubling: bool) -> None:
        """Begin with the concurrency limit of an earlier process."""
        if self._aimd is not None:
            self._aimd.hint(limit, doubling=doubling)
            self._look()

    def aimd(self, now_ns: int) -> AimdSnapshot | None:
        """Return what is believed of the concurrency; None: the limit is fixed."""
        return self._aimd.snapshot(now_ns) if self._aimd is not None else None

    def on_granted(self, call_id: CallId, inflight: int, now_ns: int) -> bool:
        """Count an attempt that begins, itself among `inflight`. Return True if it is the probe of the circuit."""
        if (together := self._together) is not None:
            is_probe = self.breaker.circuit is Circuit.HALF_OPEN
            together.on_granted(call_id, now_ns, is_probe=is_probe, learns=self._aimd is not None)
            self._look()
            return is_probe
        return self._begins(call_id, inflight, now_ns)

    def _begins(self, call_id: CallId, inflight: int, now_ns: int) -> bool:
        if self.breaker.circuit is Circuit.HALF_OPEN:
            self._probe = call_id
            self._look()
            return True
        self.breaker.on_granted(call_id, now_ns)
        if self._aimd is not None:
            self._aimd.on_granted(call_id, inflight, now_ns)
        return False

    def judged(self, ended: AttemptResult, request: Request) -> AttemptResult:
        """Return the end as the policy counts it: a good answer may be worth nothing.

        Args:
            request: As it was sent.
        """
        if self.degraded is None or ended.outcome not in HEALTHY or not 200 <= ended.status < 300:
            return ended
        answer = FinishedAnswer(status=ended.status, model=request.model, stream=request.stream, usage=ended.usage)
        return attrs.evolve(ended, outcome=Outcome.DEGRADED) if self.degraded.counts(answer) else ended

    def excuses(self, call_id: CallId) -> bool | None:
        """Return True if a failure of this probe of the circuit is the provider's: another call failed before it.

        Else one call that always fails would be the probe for good. None: it is no such probe.
        """
        together = self._together
        probe = self._probe if together is None else together.probe
        failed = self._failed_probe if together is None else together.failed_probe
        return call_id != failed if call_id == probe else None

    def serves_others(self, call_id: CallId) -> bool:
        """Return True if the provider answers other calls meanwhile."""
        accepted = self._accepted if (together := self._together) is None else together.begun
        return len(accepted) > (call_id in accepted)

    def on_good(self, call_id: CallId, now_ns: int, *, inflight: int, limit_is_binding: bool) -> bool:
        """Learn that an answer has begun well. Return True if there may be other slots now.

        Args:
            inflight: As in `on_ended`.
            limit_is_binding: As in `on_ended`.
        """
        if (together := self._together) is not None:
            together.on_good(call_id, now_ns)
            return False
        return self._accepts(call_id, now_ns, inflight=inflight, limit_is_binding=limit_is_binding)

    def _accepts(self, call_id: CallId, now_ns: int, *, inflight: int, limit_is_binding: bool) -> bool:
        self._accepted[call_id] = None
        news = self._aimd is not None and self._aimd.on_good(
            call_id, now_ns, inflight=inflight, limit_is_binding=limit_is_binding
        )
        if self.degraded is None:  # else the end says what it is worth
            probe = call_id == self._probe
            if self.breaker.on_good(call_id, probe=probe, now_ns=now_ns):
                self._closed(now_ns)
            if probe:
                self._probe, news = None, True
        news |= self._aimd is not None and self._aimd.limit != self.limit  # a grant may have changed it
        if news:
            self._look()
        return news

    def on_received(self, received: Mapping[CallId, int], now_ns: int, *, inflight: int) -> bool:
        """Learn from what streams have received. Return True if there may be other slots now.

        Args:
            received: Bytes of each call that received any.
            inflight: Attempts in flight now.
        """
        if self._together is not None or self._aimd is None:
            return False  # of the streams of other nodes nothing is known
        news = self._aimd.on_received(received, now_ns, inflight=inflight)
        if news:
            self._look()
        return news

    def on_ended(
        self,
        call_id: CallId,
        ended: AttemptResult,
        *,
        granted_ns: int,
        now_ns: int,
        inflight: int,
        limit_is_binding: bool,
    ) -> bool:
        """Learn from one attempt. Return True if there may be other slots now.

        Args:
            granted_ns: When it began.
            inflight: Attempts in flight when it ended, itself included.
            limit_is_binding: See `ProviderQueue.limit_is_binding`.
        """
        if (together := self._together) is not None:
            was_probe = together.on_ended(call_id, ended, granted_ns, now_ns)
            self._look()
            return was_probe
        return self._ends(
            call_id,
            ended,
            granted_ns=granted_ns,
            now_ns=now_ns,
            inflight=inflight,
            limit_is_binding=limit_is_binding,
        )

    def _ends(
        self,
        call_id: CallId,
        ended: AttemptResult,
        *,
        granted_ns: int,
        now_ns: int,
        inflight: int,
        limit_is_binding: bool,
    ) -> bool:
        probe = call_id == self._probe
        if probe:
            self._probe = None
        self._accepted.pop(call_id, None)
        if self._aimd is not None:
            self._aimd.gone(call_id)
        outcome = ended.outcome
        if outcome is Outcome.OVERLOADED and not probe and self._accepted:
            outcome = (
                Outcome.IGNORED
            )  # for the circuit: it serves others, so it is the number at once that is in question
        before = self.breaker.circuit
        uncut = self._aimd.uncut(now_ns) if self._aimd is not None else 0
        # Only a closed circuit teaches concurrency, and only attempts that began since it was closed.
        teaches = before is Circuit.CLOSED and granted_ns >= self.breaker.closed_ns
        news = self.breaker.on_ended(call_id, outcome, probe=probe, now_ns=now_ns, said_ns=ended.retry_after_ns)
        if self._aimd is not None and (teaches or ended.outcome is Outcome.SUCCEEDED):
            tokens = ended.usage.output if ended.usage is not None else 0
            news |= self._aimd.on_ended(
                call_id,
                ended.outcome,
                granted_ns=granted_ns,
                now_ns=now_ns,
                inflight=inflight,
                limit_is_binding=limit_is_binding,
                tokens=tokens,
            )
        circuit = self.breaker.circuit
        if probe and circuit is Circuit.OPEN:
            self._failed_probe = call_id
        if before is Circuit.CLOSED and circuit is Circuit.OPEN:
            self._before = uncut
        elif before is Circuit.HALF_OPEN and circuit is Circuit.CLOSED:
            self._closed(now_ns)
        if news or probe:
            self._look()
        return news or probe

    def on_time(self, now_ns: int) -> bool:
        """Return True if time has opened something."""
        if self.shared is not None and self.shared.link.role is LearningRole.FOLLOWS:
            if self.breaker.opens_ns is not None and now_ns >= self.breaker.opens_ns:
                self.breaker.opens_ns = now_ns + VERDICT_LATE_NS  # the node that leads will say
                self._look()
            return False
        opened = self.breaker.on_time(now_ns)
        if self._aimd is not None:
            opened |= self._aimd.on_time(now_ns)
        if opened or (self.wakes_ns is not None and self.wakes_ns <= now_ns):
            self._look()
        return opened

    def _closed(self, now_ns: int) -> None:
        self._failed_probe = None
        if self._aimd is not None:
            self._aimd.restart(self._before, now_ns)

    # ---- several nodes ----

    def verdict(self, now_ns: int) -> SharedVerdict:
        """Return what is believed of the provider, for the other nodes."""
        opens_ns = self.breaker.opens_ns
        limit = 0 if self._aimd is None else self._aimd.limit
        if limit and self._whole is not None and self._together is None:
            limit = max(limit, self._whole.start)  # what one of several nodes begins with is its part
        doubling, circuit = self._aimd is not None and self._aimd.doubling, self.breaker.circuit
        opens_ms = max(0, opens_ns - now_ns) // MS if opens_ns is not None else 0
        last = self._verdict
        if last is None or (last.limit, last.doubling, last.circuit, last.opens_ms) != (
            *(limit, doubling, circuit, opens_ms),
        ):
            last = SharedVerdict(limit=limit, doubling=doubling, circuit=circuit, opens_ms=opens_ms)
            self._verdict = last
        return last

    def report(self, now_ns: int, *, held: int, binds: bool, waits: bool) -> LearnAsk | None:
        """Return what is to be told the store now; None: nothing.

        Args:
            held: Attempts in flight.
            binds: Calls wait for a higher limit.
            waits: Calls wait.
        """
        if self.shared is None:
            return None
        circuit = self.breaker.circuit
        return self.shared.ask(
            self.verdict(now_ns),
            now_ns,
            held=held,
            binds=binds and circuit is Circuit.CLOSED,
            wants_probe=waits and circuit is Circuit.HALF_OPEN,
            learns=self._aimd is not None,
        )

    def told(self, answer: LearnAnswer, now_ns: int) -> None:
        """Take the store's answer to a report."""
        shared = self.shared
        if shared is None:
            return
        before = shared.link.role
        own = shared.link.answered(answer)
        if own is None:
            return
        shared.link.has_token = answer.probe and shared.probe is None
        if shared.link.role is LearningRole.LEADS and before is LearningRole.LEADS:
            binds = own.binds or any(report.binds for report in answer.reports)
            for step in shared.steps(answer, own, now_ns):
                self._learn(step, binds=binds)
            for call_id in shared.lost(answer, own):
                self._accepted.pop(call_id, None)
                self.breaker.forget(call_id)
                if self._aimd is not None:
                    self._aimd.gone(call_id)
        elif answer.verdict is not None:
            self._follow(answer.verdict, now_ns, anew=shared.link.role is not before)
        self._look()

    def unheard(self, share: int, now_ns: int) -> bool:
        """Return True if this node learns for itself from now on, for the store is away.

        Args:
            share: Slots that it may use.
        """
        if self.shared is None or not self.shared.link.ends(now_ns):
            return False
        limit, self._probe = self.limit, self.shared.probe
        self.shared.leave()
        bounds = self._bounds
        if bounds is not None:
            self._aimd = Aimd(bounds, self._fixed)
            self._aimd.hint(min(limit, share), doubling=False)
        self._look()
        return True

    def _follow(self, verdict: SharedVerdict, now_ns: int, *, anew: bool) -> None:
        bounds = self._bounds
        if bounds is not None:
            if anew or self._aimd is None:
                self._aimd = Aimd(bounds, self._fixed)
            if verdict.limit:
                self._aimd.hint(verdict.limit, doubling=verdict.doubling)
        opens_ns = now_ns + verdict.opens_ms * MS if verdict.circuit == Circuit.OPEN else None
        self.breaker.follow(Circuit(verdict.circuit), opens_ns, now_ns)
        if anew:
            self._probe = None
            self._accepted.clear()

    def _learn(self, step: AttemptStep, *, binds: bool) -> None:
        """Learn from a step of some node's attempt as the only node learns from its own."""
        lesson, circuit = step.lesson, self.breaker.circuit
        # A call may wait for its node's share to grow while others have slots to spare.
        binds &= 2 * step.inflight >= self.limit
        match lesson.kind:
            case "granted":
                # An attempt granted before the circuit changed is neither its probe nor news of it.
                if lesson.is_probe is (circuit is Circuit.HALF_OPEN) and circuit is not Circuit.OPEN:
                    self._begins(step.call_id, step.inflight, step.at_ns)
            case "accepted":
                self._accepts(step.call_id, step.at_ns, inflight=step.inflight, limit_is_binding=binds)
            case _:
                granted_ns = step.at_ns - lesson.lasted_ms * MS
                if lesson.kind == "served" and circuit is Circuit.CLOSED and granted_ns >= self.breaker.closed_ns:
                    self._begins(step.call_id, step.inflight, step.at_ns)
                self._ends(
                    step.call_id,
                    result_of(lesson),
                    granted_ns=granted_ns,
                    now_ns=step.at_ns,
                    inflight=step.inflight,
                    limit_is_binding=binds,
                )
