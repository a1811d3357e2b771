"""Changes of providers' circuits, and attempts of the last hour by provider and model."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Self, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    CallArrived,
    CallCancelled,
    CallId,
    Circuit,
    Command,
    Event,
    Finish,
    Grant,
    LimitChanged,
    Reject,
)

from .provider_silence import Silences
from .time_series import DOWN, RATE

MINUTE_NS: Final = 60_000_000_000
MINUTES: Final = 60
TURNS_MAX: Final = 100
"""Changes of one circuit that are kept, the newest."""
MODELS_MAX: Final = 200
"""Models of the last hour with sums of their own: names are the callers'. Those of more are counted as `OTHER`."""
OTHER: Final = "other"


@final
@attrs.frozen
class CircuitTurn:
    """A change of a circuit."""

    at_ns: int
    """Since the engine began."""
    circuit: Circuit
    because: Outcome | None
    """Outcome that caused it; None: time did."""


@final
@attrs.define(eq=False)
class AttemptSum:
    """Sums over attempts that have ended."""

    attempts: int = 0
    refused: int = 0
    """For the rate, as 429 says."""
    failed: int = 0
    """Overloaded, 5xx, unreachable."""
    tokens_in: int = 0
    """Cached ones included."""
    cached: int = 0
    tokens_out: int = 0
    first_bytes: int = 0
    """Attempts whose answer has begun."""
    first_bytes_ns: int = 0
    """Sum of their times to the first byte."""

    def add(self, other: Self, sign: int = 1) -> None:
        """Add other sums, or take them away."""
        self.attempts += sign * other.attempts
        self.refused += sign * other.refused
        self.failed += sign * other.failed
        self.tokens_in += sign * other.tokens_in
        self.cached += sign * other.cached
        self.tokens_out += sign * other.tokens_out
        self.first_bytes += sign * other.first_bytes
        self.first_bytes_ns += sign * other.first_bytes_ns


_Key = tuple[str, str]


@final
@attrs.define(eq=False)
class ProviderHistory:
    """Told of every event of the scheduler; O(1) each, and bounded."""

    turns: dict[str, deque[CircuitTurn]] = attrs.field(factory=dict, init=False)
    """Provider -> changes of its circuit, oldest first."""
    sums: dict[_Key, AttemptSum] = attrs.field(factory=dict, init=False)
    """(Provider, model) -> sums of the last hour, to the minute."""
    inflight: dict[CallId, _Key] = attrs.field(factory=dict, init=False)
    """(Provider, model) of each attempt in flight."""
    asked: dict[CallId, str] = attrs.field(factory=dict, init=False)
    """Model that each call that is not over asks for."""
    silences: Silences = attrs.field(factory=Silences, init=False)
    """Providers that are sent calls and answer none."""
    _circuits: dict[str, Circuit] = attrs.field(factory=dict, init=False)
    _minutes: deque[tuple[int, dict[_Key, AttemptSum]]] = attrs.field(factory=deque, init=False)
    """(Minute since the engine began, sums of its attempts), oldest first."""

    def observe(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Note an event; an engine's `journal`."""
        self.silences.observe(now_ns, event, commands)
        match event:
            case CallArrived(call=call) if call.needs_slot:
                self.asked[call.id] = call.request.model
            case CallCancelled(call_id=call_id):
                self.asked.pop(call_id, None)
            case AttemptEnded(call_id=call_id, ended=ended):
                key = self.inflight.pop(call_id, None)
                if key is not None and not ended.unsent:
                    self._count(key, ended, now_ns)
                if ended.committed:
                    self.asked.pop(call_id, None)
            case _:
                pass
        for command in commands:
            match command:
                case Grant(call_id=call_id, permit=permit, treatment=treatment) if permit is not None:
                    self.inflight[call_id] = permit.provider, treatment.model or self.asked.get(call_id, "")
                case Reject(call_id=call_id) | Finish(call_id=call_id):
                    self.asked.pop(call_id, None)
                case LimitChanged():
                    self._limit_changed(command, now_ns)
                case _:
                    pass

    def of_hour(self, provider: str, now_ns: int) -> Mapping[str, AttemptSum]:
        """Return the sums of each model, those with the most attempts first."""
        self._forget(now_ns)
        found = [(model, one) for (name, model), one in self.sums.items() if name == provider]
        return dict(sorted(found, key=lambda one: (-one[1].attempts, one[0])))

    def _limit_changed(self, change: LimitChanged, now_ns: int) -> None:
        known = self._circuits.get(change.provider, Circuit.CLOSED)
        if change.circuit is not known:
            self._circuits[change.provider] = change.circuit
            turns = self.turns.setdefault(change.provider, deque(maxlen=TURNS_MAX))
            turns.append(CircuitTurn(now_ns, change.circuit, change.because))

    def _count(self, key: _Key, ended: AttemptResult, now_ns: int) -> None:
        self._forget(now_ns)
        if key not in self.sums and len(self.sums) >= MODELS_MAX:
            key = key[0], OTHER
        minute = now_ns // MINUTE_NS
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, {}))
        one = AttemptSum(attempts=1, refused=ended.outcome in RATE, failed=ended.outcome in DOWN)
        if ended.usage is not None:
            usage = ended.usage
            one.tokens_in = (usage.input or 0) + usage.cache_read + usage.cache_write
            one.cached, one.tokens_out = usage.cache_read, usage.output
        if ended.began_ns is not None and ended.status:
            one.first_bytes, one.first_bytes_ns = 1, ended.began_ns
        for sums in (self._minutes[-1][1], self.sums):
            sums.setdefault(key, AttemptSum()).add(one)

    def _forget(self, now_ns: int) -> None:
        """Take away what is older than an hour."""
        first = now_ns // MINUTE_NS - MINUTES + 1
        while self._minutes and self._minutes[0][0] < first:
            for key, gone in self._minutes.popleft()[1].items():
                kept = self.sums[key]
                kept.add(gone, -1)
                if not kept.attempts:
                    del self.sums[key]
