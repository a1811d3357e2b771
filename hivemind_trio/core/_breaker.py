"""The circuit breaker of one provider: after too many failures it is left alone, then tried with one call at a time."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.policy import BREAKER_MEMORY
from hivemind_trio.policy import Breaker as Settings

from ._outcome import BROKEN, HEALTHY


class Circuit(StrEnum):
    """CLOSED lets calls through, OPEN none, HALF_OPEN one at a time."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


UNREACHABLE_IN_A_ROW: Final = 5
"""Connections that fail one after the other trip it, however few attempts there were."""

OPEN_MAX_NS: Final = 30 * 1_000_000_000
"""Its longest pause, unless the provider itself asks for more. A probe costs next to nothing, and calls that wait are
held for about four minutes: after an outage of three a pause of two would outlast them all."""

_TELLING: Final = HEALTHY | BROKEN

SPREAD: Final = (0.8, 1.2)
"""Of each pause, drawn: proxies that lost a provider together should not come back together."""


@final
@attrs.define(eq=False)
class Breaker:
    """Told how attempts ended; says whether another may begin."""

    settings: Settings
    _random: Random
    circuit: Circuit = attrs.field(default=Circuit.CLOSED, init=False)
    opens_ns: int | None = attrs.field(default=None, init=False)
    """While OPEN: when it will let a probe through."""
    trips: int = attrs.field(default=0, init=False)
    """In all."""
    _samples: deque[tuple[int, bool]] = attrs.field(factory=lambda: deque(maxlen=BREAKER_MEMORY), init=False)
    """(when it ended, whether it failed), within `over_ns` of the last."""
    _failures: int = attrs.field(default=0, init=False)
    _unreachable: int = attrs.field(default=0, init=False)
    """In a row."""
    _round: int = attrs.field(default=0, init=False)
    """Pauses since it was last closed."""
    _probes: int = attrs.field(default=0, init=False)
    """Successes in a row while HALF_OPEN."""

    def on_ended(self, outcome: Outcome, *, probe: bool, now_ns: int, retry_after_ns: int | None) -> bool:
        """Learn from one attempt; whether the circuit has changed.

        Args:
            probe: It was let through while HALF_OPEN. Others that end then began before it tripped and are old news.
        """
        if self.circuit is Circuit.HALF_OPEN:
            return probe and self._on_probe(outcome, now_ns, retry_after_ns)
        if self.circuit is Circuit.OPEN or outcome not in _TELLING:
            return False
        self._sample(now_ns, outcome in BROKEN)
        self._unreachable = self._unreachable + 1 if outcome is Outcome.UNREACHABLE else 0
        if outcome in HEALTHY:
            return False  # a success is no moment to give up, whatever share of its elders failed
        enough = len(self._samples) >= self.settings.of
        tripped = enough and self._failures >= self.settings.trip * len(self._samples)
        if tripped or self._unreachable >= UNREACHABLE_IN_A_ROW:
            self._open(now_ns, retry_after_ns)
            return True
        return False

    def on_time(self, now_ns: int) -> bool:
        """Whether its pause is over now, so that one call may try."""
        if self.circuit is Circuit.OPEN and self.opens_ns is not None and now_ns >= self.opens_ns:
            self.circuit, self.opens_ns, self._probes = Circuit.HALF_OPEN, None, 0
            return True
        return False

    def _on_probe(self, outcome: Outcome, now_ns: int, retry_after_ns: int | None) -> bool:
        if outcome in BROKEN:
            self._open(now_ns, retry_after_ns)
            return True
        if outcome in HEALTHY:
            self._probes += 1
        if self._probes < self.settings.probes:
            return False
        self.circuit, self._round, self._unreachable = Circuit.CLOSED, 0, 0
        self._samples.clear()
        self._failures = 0
        return True

    def _open(self, now_ns: int, retry_after_ns: int | None) -> None:
        pause_ns = min(self.settings.open_ns << min(self._round, 16), max(OPEN_MAX_NS, self.settings.open_ns))
        drawn_ns = int(pause_ns * self._random.uniform(*SPREAD))
        self.circuit = Circuit.OPEN
        self.opens_ns = now_ns + max(drawn_ns, retry_after_ns or 0)
        self._round += 1
        self.trips += 1

    def _sample(self, now_ns: int, failed: bool) -> None:
        if len(self._samples) == BREAKER_MEMORY:
            self._failures -= self._samples.popleft()[1]
        self._samples.append((now_ns, failed))
        self._failures += failed
        while self._samples and self._samples[0][0] <= now_ns - self.settings.over_ns:
            self._failures -= self._samples.popleft()[1]
