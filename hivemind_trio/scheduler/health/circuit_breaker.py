"""Circuit breaker of one provider, over its latest attempts: open, half-open with one probe at a time, closed.

The state follows the last seconds. Samples are the latest attempts in the order in which they were granted, so that
what ends late does not speak for now; and a pause is a fraction of the outage so far, so that a breaker never prolongs
an outage by more than that fraction.

A provider that refuses one call while it serves another has a limit, and no outage. So an overload does not count while
an attempt that was granted no later is in flight, and is a sign of health if that one is answered.
"""

from __future__ import annotations

from bisect import insort
from math import ceil
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.policy import BREAKER_MEMORY
from hivemind_trio.policy import CircuitBreakerSettings as Settings
from hivemind_trio.scheduler.protocol.attempt_result import BROKEN, HEALTHY
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.protocol.circuit import Circuit

SECOND_NS: Final = 1_000_000_000


PAUSE_SHARE: Final = 6
"""A pause is this fraction of the time since the circuit opened."""
PAUSE_MIN_NS: Final = SECOND_NS

IN_A_ROW: Final = 5
"""Attempts that fail one after the other open it, whatever the policy's share."""

RETRY_AFTER_MAX_NS: Final = 15 * SECOND_NS
"""A provider's own word extends a pause up to this: many say a minute and are back in two seconds."""

SERVED_MAX_NS: Final = 30 * SECOND_NS
"""An attempt in flight for longer may hang: it is no sign that the provider serves it."""

SPREAD: Final = (0.8, 1.2)
"""Jitter of each pause: proxies that lost a provider together should not come back together."""


@final
@attrs.define(eq=False)
class _AttemptSample:
    grant: int
    """Its number in the order of grants."""
    granted_ns: int
    failed: bool = False
    overloaded: bool = False
    """True if it was refused: attempts granted before it may be what the provider serves instead."""
    known_ns: int | None = None
    """When that was learned; None: it is not known yet."""


@final
@attrs.define(eq=False)
class CircuitBreaker:
    """Told when attempts begin and how they end; says whether another may begin."""

    settings: Settings
    _random: Random
    circuit: Circuit = attrs.field(default=Circuit.CLOSED, init=False)
    opens_ns: int | None = attrs.field(default=None, init=False)
    """While OPEN: when it lets a probe through."""
    opened_ns: int = attrs.field(default=0, init=False)
    """When it was last opened from CLOSED."""
    closed_ns: int = attrs.field(default=-1, init=False)
    """When it was last closed: attempts from before say nothing about now."""
    trips: int = attrs.field(default=0, init=False)
    """Number of times that it was opened from CLOSED."""
    _latest: list[_AttemptSample] = attrs.field(factory=list, init=False)
    """The latest `of` attempts of which something is known, in the order of their grants."""
    _inflight: dict[CallId, _AttemptSample] = attrs.field(factory=dict, init=False)
    _grants: int = attrs.field(default=0, init=False)
    _successes: int = attrs.field(default=0, init=False)
    """Number of successful probes in a row."""

    def on_granted(self, call_id: CallId, now_ns: int) -> None:
        """Count an attempt that begins."""
        if self.circuit is not Circuit.CLOSED:
            return
        self._grants += 1
        self._inflight[call_id] = _AttemptSample(self._grants, now_ns)

    def on_ended(self, call_id: CallId, outcome: Outcome, *, probe: bool, now_ns: int, said_ns: int | None) -> bool:
        """Learn from one attempt. Return True if the circuit has changed.

        Args:
            probe: It was let through while HALF_OPEN. Others that end then began before it opened and are stale.
            said_ns: The provider's `retry-after`; None: it has none.
        """
        if self.circuit is not Circuit.CLOSED:
            return probe and self._on_probe(outcome, now_ns, said_ns)
        sample = self._inflight.pop(call_id, None)
        if sample is None:
            return False
        if outcome in HEALTHY:
            self._served(sample, now_ns)
        if outcome not in BROKEN:
            return False  # a refusal for a quota is no sign of health either way
        sample.overloaded = outcome is Outcome.OVERLOADED and sample.known_ns is None  # not after its answer had begun
        self._learn(sample, failed=True, now_ns=now_ns)
        if self._trips(now_ns):
            self.opened_ns = now_ns
            self.trips += 1
            self._pause(now_ns, said_ns)
            return True
        return False

    def on_good(self, call_id: CallId, *, probe: bool, now_ns: int) -> bool:
        """Learn that an answer has begun well. Return True if the circuit has changed."""
        if probe and self.circuit is Circuit.HALF_OPEN:
            return self._on_probe(Outcome.SUCCEEDED, now_ns, None)
        sample = self._inflight.get(call_id)
        if sample is not None:
            self._served(sample, now_ns)
        return False

    def forget(self, call_id: CallId) -> None:
        """Forget an attempt whose end will not be heard of."""
        self._inflight.pop(call_id, None)

    def follow(self, circuit: Circuit, opens_ns: int | None, now_ns: int) -> None:
        """Be in the state that another node has found."""
        if circuit is not self.circuit:
            if self.circuit is Circuit.CLOSED:
                self.opened_ns = now_ns
                self.trips += 1
            if circuit is Circuit.CLOSED:
                self.closed_ns = now_ns
            self.circuit, self._successes = circuit, 0
            self._latest.clear()
            self._inflight.clear()
        self.opens_ns = opens_ns

    def on_time(self, now_ns: int) -> bool:
        """Return True if its pause is over now, so that one call may try."""
        if self.circuit is Circuit.OPEN and self.opens_ns is not None and now_ns >= self.opens_ns:
            self.circuit, self.opens_ns = Circuit.HALF_OPEN, None
            return True
        return False

    def _on_probe(self, outcome: Outcome, now_ns: int, said_ns: int | None) -> bool:
        if outcome in BROKEN:
            self._pause(now_ns, said_ns)
            return True
        if outcome in HEALTHY:
            self._successes += 1
        if self._successes < self.settings.probes:
            return False
        self.circuit, self.closed_ns = Circuit.CLOSED, now_ns
        return True

    def _pause(self, now_ns: int, said_ns: int | None) -> None:
        longest_ns = self.settings.open_ns
        pause_ns = max(min(PAUSE_MIN_NS, longest_ns), min(longest_ns, (now_ns - self.opened_ns) // PAUSE_SHARE))
        drawn_ns = int(pause_ns * self._random.uniform(*SPREAD))
        self.circuit = Circuit.OPEN
        self.opens_ns = now_ns + max(drawn_ns, min(said_ns or 0, RETRY_AFTER_MAX_NS))
        self._successes = 0
        self._latest.clear()
        self._inflight.clear()

    def _served(self, sample: _AttemptSample, now_ns: int) -> None:
        """Learn from an attempt that was answered; what was refused meanwhile was one too many at once."""
        for one in self._latest:
            if one.overloaded and one.granted_ns >= sample.granted_ns:
                one.failed = False
        self._learn(sample, failed=False, now_ns=now_ns)

    def _learn(self, sample: _AttemptSample, *, failed: bool, now_ns: int) -> None:
        """Put an attempt in the order of grants, and drop the oldest beyond `of`."""
        if sample.known_ns is None:
            insort(self._latest, sample, key=lambda one: one.grant)
        sample.failed, sample.known_ns = failed, now_ns
        del self._latest[: -min(self.settings.of, BREAKER_MEMORY)]

    def _trips(self, now_ns: int) -> bool:
        """Return True if enough of the latest attempts have failed, or all of the very latest.

        What was learned longer ago than `over` does not count, and leaves its place to no attempt granted earlier.
        """
        oldest_ns = now_ns - self.settings.over_ns
        inflight_ns = (one.granted_ns for one in self._inflight.values())
        served_ns = next((each_ns for each_ns in inflight_ns if now_ns - each_ns < SERVED_MAX_NS), now_ns + 1)
        failed = [
            one.failed
            for one in self._latest
            if one.known_ns is not None
            and one.known_ns > oldest_ns
            and not (one.failed and one.overloaded and one.granted_ns >= served_ns)
        ]
        enough = max(1, ceil(self.settings.trip * self.settings.of))
        return sum(failed) >= enough or (len(failed) >= IN_A_ROW and all(failed[-IN_A_ROW:]))
