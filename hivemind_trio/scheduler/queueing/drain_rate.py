"""Drain rate of a provider's queue, the basis of an honest `retry-after`."""

from __future__ import annotations

from typing import final

import attrs

GAP_NS = 1_000_000_000
"""Assumed time between two dispatches until two were seen: calls of ten seconds over ten slots."""

MEMORY = 8
"""Turns after which what was measured before weighs about a third."""

RETRY_MIN_NS = 1_000_000_000
RETRY_MAX_NS = 54_000_000_000
"""With a tenth of spread on top it stays within 60 s, beyond which the SDKs ignore `retry-after`."""


EVIDENCE_TURNS = 16
EVIDENCE_NS = 20 * 1_000_000_000
"""Time for which a queue must have been observed, never empty, before a call is rejected for its length."""

TURNS_MAX = 128
"""Seen, after which half of them are forgotten: what was long ago says little."""

CAUTION = 0.75
"""Share of the estimate that is used: a rejected call is gone, a queued one can still be rejected."""


@final
@attrs.define(eq=False)
class QueueDrain:
    """Movement of a queue since it was last empty.

    A mean over all of that, and not the smoothed gap: quotas let calls go in bunches, and the pause behind one bunch
    is no measure of how long each call of the next will take.
    """

    _began_ns: int | None = attrs.field(default=None, init=False)
    _last_ns: int = attrs.field(default=0, init=False)
    _turns: int = attrs.field(default=0, init=False)

    def on_turn(self, now_ns: int, waiting: int) -> None:
        """One call has left the queue for the provider, and `waiting` are still in it."""
        if not waiting:
            return  # what follows is idleness and measures nothing
        if self._began_ns is None:
            self._began_ns = now_ns
            return
        self._last_ns = now_ns
        self._turns += 1
        if self._turns > TURNS_MAX:
            self._began_ns += (now_ns - self._began_ns) // 2
            self._turns //= 2

    def rest(self) -> None:
        """Note that the queue is empty."""
        self._began_ns, self._turns = None, 0

    def least_ns(self, ahead: int) -> int | None:
        """Return the least time that a queue of `ahead` calls takes; None: too little was observed."""
        if self._began_ns is None or self._turns < EVIDENCE_TURNS or self._last_ns - self._began_ns < EVIDENCE_NS:
            return None
        return int(ahead * CAUTION * (self._last_ns - self._began_ns)) // self._turns


@final
@attrs.define(eq=False)
class DrainRate:
    """The smoothed time between two calls that leave the same queue."""

    _gap_ns: int | None = attrs.field(default=None, init=False)
    _turn_ns: int | None = attrs.field(default=None, init=False)
    """The last turn; None if the queue was empty after it: what follows is idleness and measures nothing."""

    def on_turn(self, now_ns: int, waiting: int) -> None:
        """One call has left the queue for the provider, and `waiting` are still in it."""
        if self._turn_ns is not None:
            gap_ns = now_ns - self._turn_ns
            self._gap_ns = gap_ns if self._gap_ns is None else self._gap_ns + (gap_ns - self._gap_ns) // MEMORY
        self._turn_ns = now_ns if waiting else None

    def wait_ns(self, ahead: int, now_ns: int) -> int:
        """Return the time that a queue of `ahead` calls takes, between `RETRY_MIN_NS` and `RETRY_MAX_NS`."""
        gap_ns = GAP_NS if self._gap_ns is None else self._gap_ns
        if self._turn_ns is not None:
            # A provider that has stopped answering is slower than anything measured while it did.
            gap_ns = max(gap_ns, now_ns - self._turn_ns)
        return min(max(ahead * gap_ns, RETRY_MIN_NS), RETRY_MAX_NS)
