"""Quotas that are counted in windows, and the meter of any quota.

Azure OpenAI adds what a request may take "to a running count that is reset each minute" (its page on quotas, November
2026): a fixed window. Gemini's figures behave like a sliding one.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, assert_never, final

import attrs

from .token_bucket import Counting, ProviderBucket, Quota, Reading


class WindowMeter(Protocol):
    """Counter of one dimension of one quota. Told the time, which never goes backwards."""

    quota: Quota

    def wait_ns(self, amount: int, now_ns: int) -> int | None:
        """Return the time until `amount` is available: 0 if it is now, None if it never will be."""

    def take(self, amount: int, now_ns: int) -> None:
        """Take what is there, or more."""

    def penalise(self, amount: int, now_ns: int) -> None:
        """Count a refused request."""

    def reading(self, now_ns: int) -> Reading:
        """Return the reading."""


def meter(quota: Quota) -> WindowMeter:
    """One that counts as the quota says, and has counted nothing."""
    match quota.counting:
        case Counting.BUCKET:
            return ProviderBucket(quota)
        case Counting.FIXED:
            return FixedWindow(quota)
        case Counting.SLIDING:
            return RollingWindow(quota)
        case _:
            assert_never(quota.counting)


@final
@attrs.define(eq=False)
class FixedWindow:
    """Windows one after another; what was taken beyond one is forgiven at its end."""

    quota: Quota
    _began_ns: int = attrs.field(init=False)
    _used: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._began_ns = -self.quota.phase_ns

    def wait_ns(self, amount: int, now_ns: int) -> int | None:
        """Return the time until `amount` is available: 0 if it is now, None if it never will be."""
        self._turn(now_ns, asked=True)  # one that asks for more than a window holds begins one too
        if amount > self.quota.limit:
            return None
        return 0 if self._used + amount <= self.quota.limit else self._left_ns(now_ns)

    def take(self, amount: int, now_ns: int) -> None:
        """Take what is there, or more."""
        self._turn(now_ns)
        self._used += amount

    def penalise(self, amount: int, now_ns: int) -> None:
        """Count a refused request."""
        self.take(amount, now_ns)

    def reading(self, now_ns: int) -> Reading:
        """Return the reading; `full_ns` is the end of the window."""
        self._turn(now_ns)
        return Reading(
            limit=self.quota.limit,
            remaining=max(0, self.quota.limit - self._used),
            full_ns=self._left_ns(now_ns) if self._used else 0,
        )

    def _left_ns(self, now_ns: int) -> int:
        return max(1, self._began_ns + self.quota.window_ns - now_ns)

    def _turn(self, now_ns: int, *, asked: bool = False) -> None:
        over, window_ns = now_ns - self._began_ns, self.quota.window_ns
        if over < window_ns or (self.quota.lazy and not asked):
            return
        self._began_ns = now_ns if self.quota.lazy else now_ns - over % window_ns
        self._used = 0


@final
@attrs.define(eq=False)
class RollingWindow:
    """Rolling window: each amount counts for one window."""

    quota: Quota
    _taken: deque[tuple[int, int]] = attrs.field(init=False, factory=deque)
    """When, and how much; oldest first. As long as what one window can hold."""
    _used: int = attrs.field(init=False, default=0)

    def wait_ns(self, amount: int, now_ns: int) -> int | None:
        """Return the time until `amount` is available: 0 if it is now, None if it never will be."""
        if amount > self.quota.limit:
            return None
        self._age(now_ns)
        over = self._used + amount - self.quota.limit
        if over <= 0:
            return 0
        for at_ns, taken in self._taken:
            over -= taken
            if over <= 0:
                return at_ns + self.quota.window_ns - now_ns
        raise AssertionError("more is used than was taken")

    def take(self, amount: int, now_ns: int) -> None:
        """Take what is there, or more."""
        self._age(now_ns)
        self._used += amount
        if self._taken and self._taken[-1][0] == now_ns:
            amount += self._taken.pop()[1]
        self._taken.append((now_ns, amount))

    def penalise(self, amount: int, now_ns: int) -> None:
        """Count a refused request."""
        self.take(amount, now_ns)

    def reading(self, now_ns: int) -> Reading:
        """Return the reading."""
        self._age(now_ns)
        return Reading(
            limit=self.quota.limit,
            remaining=max(0, self.quota.limit - self._used),
            full_ns=self._taken[-1][0] + self.quota.window_ns - now_ns if self._taken else 0,
        )

    def _age(self, now_ns: int) -> None:
        taken, since_ns = self._taken, now_ns - self.quota.window_ns
        while taken and taken[0][0] <= since_ns:
            self._used -= taken.popleft()[1]
