"""State of one provider, learned from its attempts: concurrency limit, circuit, retries, usual times, accounts."""

from __future__ import annotations

from random import Random
from typing import final

import attrs

from hivemind_trio.model import Outcome, Reason, Request
from hivemind_trio.policy import CircuitBreakerSettings as BreakerSettings
from hivemind_trio.policy import DegradedSettings, FinishedAnswer, ProviderSettings
from hivemind_trio.scheduler.protocol.attempt_result import HEALTHY, AttemptResult
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.protocol.circuit import Circuit
from hivemind_trio.scheduler.protocol.snapshot import AimdSnapshot

from .adaptive_timeout import AdaptiveTimeout
from .aimd import Aimd
from .billing import BillingExhausted
from .circuit_breaker import CircuitBreaker
from .retry import RetryBudget


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
    _probe: CallId | None = attrs.field(default=None, init=False)
    """The one call in flight that a half-open circuit has let through."""
    _failed_probe: CallId | None = attrs.field(default=None, init=False)
    """The probe of the circuit that failed last; None: none has since it was closed."""

    def __attrs_post_init__(self) -> None:
        self.breaker = CircuitBreaker(BreakerSettings(), self._random)

    def _look(self) -> None:
        circuit = self.breaker.circuit
        shut = circuit is Circuit.OPEN or (circuit is Circuit.HALF_OPEN and self._probe is not None)
        self.closed = Reason.BREAKER_OPEN if shut else None
        self.limit = self._fixed if self._aimd is None else self._aimd.limit
        self.wakes_ns = self.breaker.opens_ns

    @property
    def up(self) -> bool:
        """True if a call that goes there now is tried, if only as a probe."""
        return self.closed is None

    def load(self, provider: ProviderSettings | None) -> None:
        """Take the settings of a new policy; what has been learned stays. None: no new attempts will begin."""
        self.spent.clear()
        if provider is None:
            self._fixed, self._aimd = 0, None
            self._look()
            return
        self._fixed, self.degraded = provider.limit, provider.degraded
        self.breaker.settings = provider.breaker
        if provider.aimd is None:
            self._aimd = None
        elif self._aimd is None:
            self._aimd = Aimd(provider.aimd, provider.limit)
        else:
            self._aimd.load(provider.aimd, provider.limit)
        self._look()

    @property
    def learned(self) -> tuple[int, bool] | None:
        """Concurrency limit, and whether no cut has shown it yet; None: it is fixed."""
        return (self._aimd.limit, self._aimd.doubling) if self._aimd is not None else None

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
        return call_id != self._failed_probe if call_id == self._probe else None

    def serves_others(self, call_id: CallId) -> bool:
        """Return True if the provider answers other calls meanwhile."""
        return len(self._accepted) > (call_id in self._accepted)

    def on_good(self, call_id: CallId, now_ns: int, *, inflight: int, limit_is_binding: bool) -> bool:
        """Learn that an answer has begun well. Return True if there may be other slots now.

        Args:
            inflight: As in `on_ended`.
            limit_is_binding: As in `on_ended`.
        """
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
        probe = call_id == self._probe
        if probe:
            self._probe = None
        self._accepted.pop(call_id, None)
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
        opened = self.breaker.on_time(now_ns)
        if opened:
            self._look()
        return opened

    def _closed(self, now_ns: int) -> None:
        self._failed_probe = None
        if self._aimd is not None:
            self._aimd.restart(self._before, now_ns)
