"""Retries: the decision, the pause, and the retry budget.

It holds no slot meanwhile, and keeps its place in the line.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.policy import Jitter, RetrySettings
from hivemind_trio.scheduler.protocol.attempt_result import NOT_EXECUTED, AttemptResult
from hivemind_trio.scheduler.protocol.events import Unretried

BUDGET_MAX: Final = 10.0
"""Retries that can be saved up."""
BUDGET_REFILL_NS: Final = 10 * 1_000_000_000
"""One retry more for each such time, so that a provider with few calls is retried at all (Finagle's `RetryBudget`)."""

BORROWED_MAX: Final = 3.0
"""Retries that may be taken before they are there: a call waits for its own. An agent that is given the error instead
tries again sooner than that, at its provider's cost and without a budget."""
BORROWED_NS: Final = int((1 + BORROWED_MAX) * BUDGET_REFILL_NS)
"""Longest wait for a retry that is borrowed."""

LATE: Final = 0.1
"""A `retry-after` is waited for and up to this share longer: those who were told the same should not come together."""


@final
@attrs.define(eq=False)
class RetryBudget:
    """Retry budget of one provider: a share of its calls, and one per ten seconds."""

    full: bool = attrs.field(default=True, init=False)
    """Nothing can be added. Kept: in good times it always is, and every call asks."""
    _level: float = attrs.field(default=BUDGET_MAX, init=False)
    _at_ns: int = attrs.field(default=0, init=False)

    def deposit(self, ratio: float, now_ns: int) -> None:
        """Note that a call is sent for the first time."""
        self._refill(now_ns)
        self._level = min(BUDGET_MAX, self._level + ratio)
        self.full = self._level >= BUDGET_MAX

    def take(self, now_ns: int, *, deadline_ns: int | None, waits: bool, headed: bool = False) -> int | None:
        """Take one, and return when it is there; None: too many wait for one, or it would be there too late.

        Args:
            waits: False if it must be there now.
            headed: With `waits`, True if the agent cannot retry. Then the number of those who wait is no bound: an
                error would end the agent, not spare the provider an attempt.
        """
        self._refill(now_ns)
        at_ns = now_ns + min(BORROWED_NS, max(0, ceil((1 - self._level) * BUDGET_REFILL_NS)))
        least = -BORROWED_MAX if waits else 0.0
        full = self._level - 1 < least and not (waits and headed)
        if full or (deadline_ns is not None and at_ns >= deadline_ns):
            return None
        self._level = max(self._level - 1, -BORROWED_MAX)
        self.full = False
        return at_ns

    def _refill(self, now_ns: int) -> None:
        self._level = min(BUDGET_MAX, self._level + (now_ns - self._at_ns) / BUDGET_REFILL_NS)
        self._at_ns = now_ns


def wants_retry(retry: RetrySettings, ended: AttemptResult, attempts: int) -> bool:
    """Return True if the class says so. A class of one attempt wants none, though what has ended did not count.

    Args:
        attempts: That count, with the one that has just ended.
    """
    if ended.committed or ended.final or retry.attempts == 1 or attempts >= retry.attempts:
        return False
    if (ended.retry_after_ns or 0) > retry.honor_max_ns:
        return False
    listed = ended.status in retry.statuses or ended.failure in retry.failures
    return listed or not retry.error_types.isdisjoint(ended.error_types)


def unwanted(retry: RetrySettings, ended: AttemptResult, attempts: int) -> Unretried | None:
    """Return why the class wants no retry; None if the attempt itself was final, whatever the class says."""
    if ended.final:
        return None
    if (ended.retry_after_ns or 0) > retry.honor_max_ns:
        return Unretried.RETRY_AFTER
    listed = ended.status in retry.statuses or ended.failure in retry.failures
    listed = listed or not retry.error_types.isdisjoint(ended.error_types)
    is_last = retry.attempts == 1 or attempts >= retry.attempts
    return Unretried.ATTEMPTS if listed and is_last else Unretried.CLASS


def pause_ns(retry: RetrySettings, ended: AttemptResult, attempts: int, random: Random) -> int:
    """Return the pause before the next attempt: the provider's word, or a back-off drawn anew."""
    if ended.retry_after_ns is not None:
        return int(ended.retry_after_ns * (1 + random.uniform(0, LATE)))
    ceiling_ns = min(retry.last_ns, retry.first_ns << min(attempts - 1, 32))
    match retry.jitter:
        case Jitter.FULL:
            return random.randrange(ceiling_ns + 1)
        case Jitter.EQUAL:
            return ceiling_ns // 2 + random.randrange(ceiling_ns // 2 + 1)
        case Jitter.NONE:
            return ceiling_ns


def turned_away(ended: AttemptResult) -> bool:
    """Return True if the provider did no work for it: another attempt adds only a refusal to its load."""
    return ended.outcome in NOT_EXECUTED
