"""What the end of an attempt says about its provider."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What an attempt says about its provider."""

    SUCCEEDED = "succeeded"
    IGNORED = "ignored"
    """Nothing: the agent hung up, or the request itself was wrong."""
    SLOW = "slow"
    """It succeeded, and took longer to begin than the policy likes."""
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
    """It broke: a 5xx, a connection that was lost, silence."""
    DEGRADED = "degraded"
    """It answered well, and the policy says that such an answer is worth nothing."""
    UNREACHABLE = "unreachable"
    """No connection."""
    TERMINAL = "terminal"
    """Billing: money or plan is used up, and waiting does not help."""
