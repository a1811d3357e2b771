"""Usage of the last hour by team, agent and session: sums that grow with calls and shrink with minutes."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Final, Self, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.proxy import CallRecord

MINUTE_NS: Final = 60_000_000_000
MINUTES: Final = 60
KEYS_MAX: Final = 2_000
"""Different callers and sessions with a line of their own; the calls of more are counted as `OTHER`."""
OTHER: Final = "other"

_STEP: Final = 1.1
"""Waits are counted in steps of a tenth: a percentile is at most so much too high."""
_LEAST_S: Final = 0.001


@final
@attrs.frozen
class UsageKey:
    """Caller and session that calls are summed for."""

    team: str
    agent: str
    """Name of a declared agent, or of a caller as the log has it."""
    session: str
    """Empty: the calls told of none."""


@final
@attrs.define(eq=False)
class UsageSum:
    """Sums over calls."""

    calls: int = 0
    failed: int = 0
    """With an error of the provider."""
    rejected: int = 0
    """By the proxy."""
    tokens_in: int = 0
    """Cached ones included."""
    cached: int = 0
    """Read from the provider's cache."""
    tokens_out: int = 0
    cost: int = 0
    """Millionths of a dollar."""
    waits: Counter[int] = attrs.field(factory=Counter)
    """Bucket -> calls that reached a provider and waited so long."""

    def add(self, other: Self, sign: int = 1) -> None:
        """Add other sums, or take them away."""
        self.calls += sign * other.calls
        self.failed += sign * other.failed
        self.rejected += sign * other.rejected
        self.tokens_in += sign * other.tokens_in
        self.cached += sign * other.cached
        self.tokens_out += sign * other.tokens_out
        self.cost += sign * other.cost
        for bucket, count in other.waits.items():
            self.waits[bucket] += sign * count
            if not self.waits[bucket]:
                del self.waits[bucket]

    def wait_s(self, part: float) -> float | None:
        """Return the wait, in seconds, that this part of the calls did not exceed; None: none reached a provider."""
        wanted, seen = part * sum(self.waits.values()), 0
        for bucket in sorted(self.waits):
            seen += self.waits[bucket]
            if seen >= wanted:
                return _bound_s(bucket)
        return None

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.tokens_in + self.tokens_out


def _bucket(wait_s: float) -> int:
    return 0 if wait_s < _LEAST_S else 1 + math.floor(math.log(wait_s / _LEAST_S, _STEP))


def _bound_s(bucket: int) -> float:
    """Return the upper bound of a bucket, to three digits."""
    return float(f"{_LEAST_S * _STEP**bucket:.3g}") if bucket else 0.0


@final
@attrs.define(eq=False)
class HourUsage:
    """Told of every call that is over; O(1) each, and bounded by `KEYS_MAX`."""

    sums: dict[UsageKey, UsageSum] = attrs.field(factory=dict, init=False)
    """Sums of the last hour, to the minute."""
    _minutes: deque[tuple[int, dict[UsageKey, UsageSum]]] = attrs.field(factory=deque, init=False)
    """(Minute since the engine began, sums of its calls), oldest first."""

    def over(self, record: CallRecord, now_ns: int, program: Program) -> None:
        """Count a call, by the prices and teams of the policy in force."""
        self.forget(now_ns)
        key, one = self._key(record, program), _sum_of(record, program)
        minute = now_ns // MINUTE_NS
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, {}))
        for sums in (self._minutes[-1][1], self.sums):
            sums.setdefault(key, UsageSum()).add(one)

    def forget(self, now_ns: int) -> None:
        """Take away what is older than an hour."""
        first = now_ns // MINUTE_NS - MINUTES + 1
        while self._minutes and self._minutes[0][0] < first:
            for key, gone in self._minutes.popleft()[1].items():
                kept = self.sums[key]
                kept.add(gone, -1)
                if not kept.calls:
                    del self.sums[key]

    def _key(self, record: CallRecord, program: Program) -> UsageKey:
        declared = program.agents.get(record.agent)
        team = record.team or program.agent(record.agent).team
        agent = record.agent if declared is not None else record.caller or record.agent
        key = UsageKey(team, agent, record.job)
        return key if key in self.sums or len(self.sums) < KEYS_MAX else UsageKey(team, OTHER, "")


def _sum_of(record: CallRecord, program: Program) -> UsageSum:
    found = UsageSum(calls=1)
    if record.rejected:
        found.rejected = 1
    elif record.status >= 400 or record.upstream_error is not None:
        found.failed = 1
    if record.attempts:
        found.waits[_bucket(record.waited_ms / 1_000)] = 1
    usage = record.usage
    if usage is not None:
        found.tokens_in = (usage.input or 0) + usage.cache_read + usage.cache_write
        found.cached, found.tokens_out = usage.cache_read, usage.output
        price = program.price(record.sent_model or record.model, record.provider)
        if price is not None and price.has_price and usage.input is not None:
            found.cost = price.cost_of(usage)
    return found
