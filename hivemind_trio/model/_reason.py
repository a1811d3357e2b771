"""Why a call waited, was refused or was let go: stable public codes."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A public code. It stands in `x-hivemind-reason`, in refusals and in the journal; a code is never reused."""

    NONE = "none"
    """It did not wait."""

    # what a call waits for
    PROVIDER_FULL = "provider-concurrency"
    GROUP_FULL = "limits-concurrency"
    LANE_FULL = "lane-max"
    LANE_RESERVED = "lane-reserve"
    AGENT_FULL = "agent-concurrency"
    MODEL_RESIDENT = "model-resident"
    """Its provider had other models in memory, and calls of them in flight or before it."""
    QUOTA = "limits"
    """A limit of its provider, per window, was used up."""
    RAMP = "growth"
    """Its provider has complained of a load that grew too fast, and no more begins at once than it is used to."""
    BUDGET = "budget"
    """A budget was used up, or claimed by calls that are on their way."""
    BREAKER_OPEN = "breaker-open"
    """Its provider is left alone for a while."""
    PROVIDER_QUOTA = "provider-quota"
    """The provider said that a quota was used up, and until when."""
    PREFIX = "prompt-cache"
    """Another call had its prompt read first, so that it need not be read twice."""
    RETRY = "retry"
    """An attempt failed, and the next one is not due yet."""
    TURN = "turn"
    """Room there was, and others went first."""

    # why a call was refused
    QUEUE_FULL = "queue-full"
    SHED = "shed-oldest"
    DEADLINE = "deadline"
    SPENT = "provider-spent"
    """The provider says that the account's money or plan is used up."""
    PATIENCE = "client-patience"
    """Its turn is further away than its client waits, so it was told at once."""
    HELD_TOO_LONG = "held-too-long"
    """Its client would have given up before its turn came."""
    OVER_QUOTA = "over-limits"
    """It is larger than a limit of its provider allows in a whole window."""
    JOURNAL = "journal-behind"
    """What happens cannot be written down as fast as it does, and nothing is done that is not."""
    DENIED = "denied"
    UNKNOWN_AGENT = "unknown-agent"
    NO_PROVIDER = "no-provider"
    BODY_TOO_LARGE = "body-too-large"
    BAD_REQUEST = "bad-request"
    UPGRADE = "upgrade-refused"
    DRAINING = "draining"
    UPSTREAM_UNREACHABLE = "upstream-unreachable"
    UPSTREAM_TIMEOUT = "upstream-timeout"
    UPSTREAM_BROKE = "upstream-broke"
    UPSTREAM_REFUSED = "upstream-refused"
    """The provider answered with an error, inside a stream that had been begun while the call waited."""
