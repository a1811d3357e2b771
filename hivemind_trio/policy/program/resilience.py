"""Settings for failing attempts: AIMD, circuit breaker, retries.

Every default is the language's own: what a policy does not say is what a fleet needs to live through an incident.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

import attrs

SECOND_NS: Final = 1_000_000_000

BREAKER_MEMORY: Final = 4_096
"""Attempts that a breaker remembers at most; at more within its window the oldest go early, which changes no share
noticeably."""

DEFAULT_RETRY: Final = "default"
"""The retry class of a call that no rule and no provider gives one."""


@final
@attrs.frozen(kw_only=True)
class AimdSettings:
    """Settings of AIMD: additive increase, multiplicative decrease of a provider's concurrency."""

    low: int
    start: int
    increase: int = 1
    """Slots gained for each round of successes, a round being as many as the limit."""
    decrease: float = 0.5
    """The share that an overloaded provider takes away; milder signals take a part of it."""
    cooldown_ns: int = 5 * SECOND_NS
    """Between two cuts at least."""
    slow_ns: int | None = None
    """A first byte that takes longer is a mild signal; None: latency is none."""


@final
@attrs.frozen(kw_only=True)
class CircuitBreakerSettings:
    """When to leave a provider alone: the share `trip` of `of` attempts failed, of the latest `of` within `over_ns`."""

    trip: float = 0.5
    of: int = 20
    over_ns: int = 30 * SECOND_NS
    open_ns: int = 5 * SECOND_NS
    """Longest pause between two probes. A pause is a sixth of the time since the circuit opened, at least a second."""
    probes: int = 1
    """Successes in a row that close it."""


@final
@attrs.frozen(kw_only=True)
class Reaper:
    """When an attempt is taken to hang: so many times what 99 of 100 attempts of its kind have needed."""

    first_byte: float = 4.0
    idle: float = 10.0


class Jitter(StrEnum):
    """Jitter of a back-off: from zero, from half of it, or none."""

    FULL = "full"
    EQUAL = "equal"
    NONE = "none"


class Failure(StrEnum):
    """Failure without an answer; the words of `retry { on [...] }`."""

    CONNECT = "connect"
    RESET = "reset"
    FIRST_BYTE = "first-byte"
    TIMEOUT = "timeout"
    IDLE = "idle"


@final
@attrs.frozen(kw_only=True)
class RetrySettings:
    """Settings of retries: which attempts, how often, and when."""

    name: str = DEFAULT_RETRY
    statuses: frozenset[int] = frozenset({429, 500, 502, 503, 504, *range(520, 525), 529})
    failures: frozenset[Failure] = frozenset({Failure.CONNECT, Failure.RESET, Failure.FIRST_BYTE})
    error_types: frozenset[str] = frozenset()
    """Types and codes of the provider's errors, exact."""
    attempts: int = 8
    """In all, the first one included."""
    first_ns: int = SECOND_NS // 2
    last_ns: int = 5 * SECOND_NS
    jitter: Jitter = Jitter.FULL
    honor_max_ns: int = 600 * SECOND_NS
    """A `retry-after` up to this is waited for; beyond it the answer goes to the agent."""
    ratio: float = 0.2
    """Retries that a call adds to what its provider may be sent again."""
    at: str = ""


class WhileOpen(StrEnum):
    """Behaviour of calls while the circuit of their provider is open."""

    HOLD = "hold"
    FALLBACK = "fallback"
    """They go where the policy says instead, as long as that is there and takes them; else they are held."""
    REFUSE = "refuse"
