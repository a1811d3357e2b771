"""Result of an attempt: evidence about the provider, and about a retry."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import AnswerFacts, Dimension, Outcome, Usage
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
"""Outcomes that the circuit breaker counts. A quota, and a request that was wrong, are signs of health."""


@final
@attrs.frozen(kw_only=True)
class AttemptResult:
    """Result of one attempt."""

    outcome: Outcome
    status: int = 0
    """Status of the provider's answer; 0: there was none."""
    failure: Failure | None = None
    """Why there was none, or none to its end."""
    retry_after_ns: int | None = None
    """The provider's word on when to come back."""
    by_reset: bool = False
    """`retry_after_ns` is when a rate limit is reset, by its headers: it is no more certain than they are."""
    error_types: tuple[str, ...] = ()
    """Types and codes of the provider's error."""
    used_up: tuple[Dimension, ...] = ()
    """Rate limits that it was refused for, as far as the provider named them."""
    final: bool = False
    """The provider says that trying again is of no use, whatever the status."""
    usage: Usage | None = None
    """Usage; None: unknown."""
    facts: AnswerFacts | None = None
    """Model that answered and why it stopped, for traces; None: unknown."""
    first_byte_ns: int | None = None
    """Time until a good answer began, or waited in vain; None: unknown, or no evidence."""
    silence_ns: int | None = None
    """The longest between two pieces of a good answer, or before it was given up; None: the same."""
    unsent: bool = False
    """True if it was not sent, for this node's share had ended. It counts for nothing, and another is granted."""
    committed: bool = False
    """The agent has had something of the answer: from then on a retry would be seen."""
    headed: bool = False
    """True if the agent got a status 200 and keep-alive events while its call waited. Its SDK does not retry an error
    that comes after them, so only the proxy can."""

    @property
    def began_ns(self) -> int | None:
        """Time until the answer began; None: it did not, or that is unknown."""
        return None if self.failure is Failure.FIRST_BYTE else self.first_byte_ns
