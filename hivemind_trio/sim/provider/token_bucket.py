"""Token bucket: a limit per window that is refilled continuously, as most providers count.

Anthropic: "continuously replenished up to your maximum limit, rather than being reset at fixed intervals" (API docs,
"Rate limits", 2026). OpenAI's `x-ratelimit-reset-*` headers count down to a full bucket as well. A bucket with a small
`burst` is what GCRA comes to (the same admissions, kept as one time instead of one level). Who counts otherwise is in
`windows.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

import attrs

MINUTE_NS: Final = 60_000_000_000


@final
class Metered(StrEnum):
    """Unit that a limit counts. The value is what people call it."""

    REQUESTS = "requests"
    INPUT = "input tokens"
    OUTPUT = "output tokens"
    TOKENS = "tokens"
    """Input and output in one figure."""


@final
class Counting(StrEnum):
    """Kind of window in which a provider counts."""

    BUCKET = "bucket"
    """Refilled all the time."""
    FIXED = "fixed"
    """From nothing again at the end of each window."""
    SLIDING = "sliding"
    """All that was taken within the last window, at every moment."""


@final
@attrs.frozen(kw_only=True)
class Quota:
    """So much per window, and so much at once."""

    limit: int = attrs.field(validator=attrs.validators.gt(0))
    """Refill of a window; the figure in headers."""
    window_ns: int = attrs.field(default=MINUTE_NS, validator=attrs.validators.gt(0))
    burst: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0)))
    """Depth of the bucket; None: a whole window's limit. The other ways of counting know none."""
    counting: Counting = Counting.BUCKET
    phase_ns: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Part of the first fixed window that is over at the beginning."""
    lazy: bool = False
    """A fixed window begins with the first request after the end of the one before, as in the HiveMind paper's mock."""

    def __attrs_post_init__(self) -> None:
        assert self.phase_ns < self.window_ns, "a phase is a part of its window"

    @property
    def capacity(self) -> int:
        """The most that can be taken at once."""
        return self.limit if self.burst is None or self.counting is not Counting.BUCKET else self.burst

    def allowed(self, now_ns: int) -> int:
        """All that there has been since the beginning."""
        if self.counting is Counting.BUCKET:
            return self.capacity + self.limit * now_ns // self.window_ns
        phase_ns = self.phase_ns if self.counting is Counting.FIXED else 0
        return self.limit * ((now_ns + phase_ns) // self.window_ns + 1)


@final
@attrs.frozen(kw_only=True)
class Reading:
    """Header reading of a bucket."""

    limit: int
    remaining: int
    """Whole units left; 0 where more has been taken than there was."""
    full_ns: int
    """Time until the bucket is full again, which Anthropic and OpenAI call its reset."""


@attrs.define(eq=False)
class ProviderBucket:
    """One bucket, full at first. Whole numbers throughout, so that what it lets pass can be checked to the unit."""

    quota: Quota
    _full: int = attrs.field(init=False)
    _level: int = attrs.field(init=False)
    """Units times `window_ns`: in these terms a nanosecond refills exactly `limit`."""
    _at_ns: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._level = self._full = self.quota.capacity * self.quota.window_ns

    def wait_ns(self, amount: int, now_ns: int) -> int | None:
        """Return the time until `amount` is available: 0 if it is now, None if it never will be."""
        level = amount * self.quota.window_ns
        if level > self._full:
            return None
        if now_ns != self._at_ns:
            self._refill(now_ns)
        return self._until(level) if level > self._level else 0

    def take(self, amount: int, now_ns: int) -> None:
        """Take what is there, or more: tokens that have been generated cannot be refused any more."""
        if now_ns != self._at_ns:
            self._refill(now_ns)
        self._level -= amount * self.quota.window_ns

    def penalise(self, amount: int, now_ns: int) -> None:
        """Count a refused request: who asks all the time is never let in, and nothing is owed beyond that."""
        self._refill(now_ns)
        self._level = min(self._level, max(0, self._level - amount * self.quota.window_ns))

    def reading(self, now_ns: int) -> Reading:
        """Return the reading."""
        self._refill(now_ns)
        return Reading(
            limit=self.quota.limit,
            remaining=self._level // self.quota.window_ns if self._level > 0 else 0,
            full_ns=self._until(self._full),
        )

    def _until(self, level: int) -> int:
        """Return the time until the level rises to `level`."""
        return -((self._level - level) // self.quota.limit)

    def _refill(self, now_ns: int) -> None:
        level = self._level + (now_ns - self._at_ns) * self.quota.limit
        self._level = level if level < self._full else self._full
        self._at_ns = now_ns
