"""Counts of the calls that are over, and the last of them."""

from __future__ import annotations

from collections import deque
from typing import Final, final

import attrs

from hivemind_trio.proxy import CallRecord

SECOND_NS: Final = 1_000_000_000
SPAN_S: Final = 60
"""The rate is that of the last minute."""
RECENT_MAX: Final = 500


@final
@attrs.frozen
class EndedCall:
    """A call that is over."""

    ended_ns: int
    """Since the engine began."""
    record: CallRecord


@final
@attrs.frozen
class Unreached:
    """A provider that the last call could not reach, for a cause that an operator can mend."""

    since_ns: int
    """Since the engine began: the first call of those in a row."""
    cause: str


@final
@attrs.define(eq=False)
class Tally:
    """Told of every call that is over; O(1) each, and bounded."""

    ended: int = attrs.field(init=False, default=0)
    rejected: int = attrs.field(init=False, default=0)
    """By the proxy."""
    failed: int = attrs.field(init=False, default=0)
    """The provider answered with an error, or not at all, and the agent was given that."""
    left: int = attrs.field(init=False, default=0)
    """The agent hung up before it had an answer."""
    recent: deque[EndedCall] = attrs.field(init=False, factory=lambda: deque(maxlen=RECENT_MAX))
    """The last, oldest first."""
    unreached: dict[str, Unreached] = attrs.field(init=False, factory=dict)
    """Providers, also those that no policy has any more."""
    _seconds: deque[tuple[int, int]] = attrs.field(init=False, factory=deque)
    """(Second since the engine began, calls that ended in it), oldest first."""

    def over(self, record: CallRecord, now_ns: int) -> None:
        """Count a call."""
        self.ended += 1
        if record.rejected:
            self.rejected += 1
        elif record.status == 0:
            self.left += 1
        elif record.status >= 400 or record.upstream_error is not None:
            self.failed += 1
        self._reach(record, now_ns)
        self.recent.append(EndedCall(now_ns, record))
        second = now_ns // SECOND_NS
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = (second, self._seconds[-1][1] + 1)
        else:
            self._seconds.append((second, 1))
            self._forget(second)

    def moved(self, provider: str) -> None:
        """Forget that a provider could not be reached: it has another base URL now."""
        self.unreached.pop(provider, None)

    def per_minute(self, now_ns: int) -> int:
        """Return the number of calls that ended in the last minute."""
        self._forget(now_ns // SECOND_NS)
        return sum(count for _, count in self._seconds)

    def _reach(self, record: CallRecord, now_ns: int) -> None:
        if record.provider is None:
            return
        if record.upstream_cause:
            known = self.unreached.get(record.provider)
            since_ns = known.since_ns if known is not None else now_ns
            self.unreached[record.provider] = Unreached(since_ns, record.upstream_cause)
        elif record.status and not record.rejected:
            self.unreached.pop(record.provider, None)  # what it answered does not matter

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - SPAN_S:
            self._seconds.popleft()
