"""Counters and histograms of calls, for metrics; told of every call and every attempt, and bounded.

Labels are names of the policy: lanes, providers, agents, and reasons of the proxy. Callers, models, sessions and ids
of calls are none of them: there is no end of those.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Generic, TypeVar, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.proxy import CallRecord
from hivemind_trio.scheduler import AttemptEnded, CallId, Command, Event, Grant

NONE: Final = "none"
"""Label of a call without such a thing."""
OTHER: Final = "other"
"""Label of agents beyond the bound."""
AGENTS_MAX: Final = 500
"""Agents with labels of their own; reloads may name ever new ones."""

WAITS_S: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
"""Upper bounds of the buckets of waits."""
DURATIONS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""The same of calls, and of times to the first byte."""

L = TypeVar("L", bound=tuple[str, ...])


@final
@attrs.define(eq=False)
class Distribution(Generic[L]):
    """Histogram for each set of labels."""

    bounds: Sequence[float]
    series: dict[L, list[float]] = attrs.field(factory=dict, init=False)
    """Labels -> counts of each bucket, one more for what is above all bounds, and the sum."""

    def add(self, labels: L, value: float) -> None:
        """Count a value."""
        counts = self.series.get(labels)
        if counts is None:
            counts = self.series[labels] = [0.0] * (len(self.bounds) + 2)
        counts[bisect_left(self.bounds, value)] += 1
        counts[-1] += value


@final
@attrs.define(eq=False)
class CallMetrics:
    """Counts since the start of the process. Times are in seconds."""

    calls: defaultdict[tuple[str, str, str, str], int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    """(Lane, provider, agent, outcome): `served`, `failed`, `rejected` or `left`."""
    rejections: defaultdict[tuple[str, str], int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    """(Lane, reason)."""
    attempts: defaultdict[tuple[str, str], int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    """(Provider, outcome)."""
    tokens: defaultdict[tuple[str, str, str], int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    """(Provider, agent, kind): `input`, `cache_read`, `cache_write` or `output`."""
    cost: defaultdict[tuple[str, str], int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    """(Provider, agent): millionths of a dollar."""
    waits: Distribution[tuple[str, str]] = attrs.field(factory=lambda: Distribution(WAITS_S), init=False)
    """(Lane, reason) of calls that reached a provider."""
    durations: Distribution[tuple[str, str]] = attrs.field(factory=lambda: Distribution(DURATIONS_S), init=False)
    """(Lane, provider) of calls that reached a provider, from the arrival to the end."""
    first_bytes: Distribution[tuple[str]] = attrs.field(factory=lambda: Distribution(DURATIONS_S), init=False)
    """Provider: time from the request to the first byte, of attempts that had one."""
    _agents: set[str] = attrs.field(factory=set, init=False)
    _at: dict[CallId, str] = attrs.field(factory=dict, init=False)
    """Provider of each attempt in flight."""

    def over(self, record: CallRecord, program: Program) -> None:
        """Count a call that is over, by the prices of the policy in force."""
        lane, provider, agent = record.lane or NONE, record.sender or NONE, self._agent(record.agent)
        if record.rejected:
            outcome = "rejected"
            self.rejections[lane, str(record.reason)] += 1
        elif record.status == 0:
            outcome = "left"
        elif record.status >= 400 or record.upstream_error is not None:
            outcome = "failed"
        else:
            outcome = "served"
        self.calls[lane, provider, agent, outcome] += 1
        if record.attempts:
            self.waits.add((lane, str(record.reason)), record.waited_ms / 1_000)
            self.durations.add((lane, provider), record.duration_ms / 1_000)
        usage = record.usage
        if usage is not None:
            counts = (usage.input, usage.cache_read, usage.cache_write, usage.output)
            for kind, count in zip(("input", "cache_read", "cache_write", "output"), counts, strict=True):
                if count:
                    self.tokens[provider, agent, kind] += count
            price = program.price(record.sent_model or record.model, record.provider)
            if price is not None and price.has_price and usage.input is not None:
                self.cost[provider, agent] += price.cost_of(usage)

    def observe(self, _now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Count attempts; an engine's `journal`."""
        if isinstance(event, AttemptEnded):
            provider = self._at.pop(event.call_id, None)
            if provider is not None:
                self.attempts[provider, str(event.ended.outcome)] += 1
                if event.ended.began_ns is not None:
                    self.first_bytes.add((provider,), event.ended.began_ns / 1e9)
        for command in commands:
            if isinstance(command, Grant) and command.permit is not None:
                self._at[command.call_id] = command.treatment.sender or NONE

    def _agent(self, name: str) -> str:
        if name not in self._agents:
            if len(self._agents) >= AGENTS_MAX:
                return OTHER
            self._agents.add(name)
        return name
