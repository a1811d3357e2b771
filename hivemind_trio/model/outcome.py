"""Outcomes of an attempt: the evidence that it gives about its provider."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """Evidence of one attempt about its provider."""

    SUCCEEDED = "succeeded"
    IGNORED = "ignored"
    """Nothing: the agent hung up, or the request itself was wrong."""
    SLOW = "slow"
    """Success that took longer to begin than the policy's `slow` bound."""
    QUOTA = "quota"
    """A quota was used up. Concurrency has no part in it."""
    BURST = "burst"
    """Too much at once, though no quota was used up."""
    TOO_FAST = "too-fast"
    """The load has grown faster than the provider likes, whatever its level."""
    CONCURRENCY = "concurrency"
    """Too many requests at the same time."""
    OVERLOADED = "overloaded"
    """The provider as a whole has too much to do."""
    FAILED = "failed"
    """Failure: a 5xx, a lost connection or a timeout."""
    DEGRADED = "degraded"
    """Good answer that the policy's `degraded` condition calls worthless."""
    UNREACHABLE = "unreachable"
    """No connection."""
    TERMINAL = "terminal"
    """Billing: money or plan is used up, and waiting does not help."""
