"""Local time where the policy lives, as the engine and arriving calls tell of it.

The scheduler reads no clock. Between two tellings it counts on from the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

import attrs

from hivemind_trio.model import Moment
from hivemind_trio.policy import seconds_to

SECOND_NS: Final = 1_000_000_000

TOLD_EVERY_NS: Final = 15 * 60 * SECOND_NS
"""Clocks are set, and jump twice a year: whoever waits for a time of day looks at it at least so often."""


@final
@attrs.define(eq=False)
class WallClock:
    """The last moment that was told, and when that was."""

    _moment: Moment | None = attrs.field(default=None, init=False)
    _told_ns: int = attrs.field(default=0, init=False)

    def tell(self, moment: Moment, now_ns: int) -> None:
        """Set the clock."""
        self._moment, self._told_ns = moment, now_ns

    def at(self, time_ns: int) -> Moment | None:
        """Return the local time of a time of the engine, now or later; None: nothing was told yet."""
        if self._moment is None:
            return None
        return self._moment.after((time_ns - self._told_ns) // SECOND_NS)

    def edges(self, minutes: Sequence[int], now_ns: int) -> Iterator[int]:
        """Yield, without end, the times of the engine at which these minutes of the day begin; none if it is unset."""
        if self._moment is None:
            return
        # From the moment that was told: its fraction of a second is the same for all of them.
        for seconds in seconds_to(minutes, self._moment.second):
            time_ns = self._told_ns + seconds * SECOND_NS
            if time_ns > now_ns:
                yield time_ns
