"""What the end of an attempt says: about the provider, and about whether to try again."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Dimension, Outcome, Usage
from hivemind_trio.policy import Failure

NOT_EXECUTED: Final = frozenset(
    {
        *(Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST, Outcome.CONCURRENCY, Outcome.OVERLOADED),
        Outcome.UNREACHABLE,
    }
)
"""The provider turned it away at the door: it can be sent again as if it had never been."""

TOO_OFTEN: Final = frozenset({Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST})
"""Refused for going too often, whatever the number at once: the gate of its limits group says when the next may go."""

HEALTHY: Final = frozenset({Outcome.SUCCEEDED, Outcome.SLOW})
BROKEN: Final = frozenset({Outcome.OVERLOADED, Outcome.FAILED, Outcome.DEGRADED, Outcome.UNREACHABLE})
"""What the circuit breaker counts. A quota, and a request that was wrong, are signs of health."""


@final
@attrs.frozen(kw_only=True)
class AttemptResult:
    """How one attempt ended."""

    outcome: Outcome
    status: int = 0
    """Of the provider's answer; 0: there was none."""
    failure: Failure | None = None
    """Why there was none, or none to its end."""
    retry_after_ns: int | None = None
    """The provider's word on when to come back."""
    used_up: tuple[Dimension, ...] = ()
    """Which quotas it was refused for, as far as the provider has named them."""
    final: bool = False
    """The provider says that trying again is of no use, whatever the status."""
    usage: Usage | None = None
    """What it has taken; None: nothing is known of that."""
    first_byte_ns: int | None = None
    """How long a good answer took to begin, or was waited for in vain; None: that is not known, or says nothing."""
    silence_ns: int | None = None
    """The longest between two pieces of a good answer, or before it was given up; None: the same."""
    committed: bool = False
    """The agent has had something of the answer: from then on a retry would be seen."""
