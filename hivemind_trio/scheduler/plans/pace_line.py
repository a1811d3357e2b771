"""Bound on how fast a paced lane catches up: a window is used at a multiple of the even rate at most."""

from __future__ import annotations

from math import ceil
from typing import Final, final

import attrs

from hivemind_trio.model.plan import WHOLE

TOLERANCE: Final = WHOLE // 100
"""Growth beyond the line that is no burst: providers report whole percents."""


@final
@attrs.define
class PaceLine:
    """Highest line of that slope which no reading so far has been below, as a token bucket that readings fill."""

    share: float
    """In millionths, at the last reading."""
    read_ns: int
    per_ns: float
    """Growth in millionths a nanosecond: a multiple of the even rate."""

    def on_read(self, used: int, now_ns: int, *, anew: bool) -> None:
        """Take a reading.

        Args:
            anew: The window is another one.
        """
        self.share = used if anew else min(self._at(now_ns), used)
        self.read_ns = now_ns

    def opens_ns(self, used: int, now_ns: int) -> int:
        """Return when so much may be used: `now_ns` or later."""
        over = used - TOLERANCE - self._at(now_ns)
        return now_ns + ceil(over / self.per_ns) if over > 0 else now_ns

    def _at(self, now_ns: int) -> float:
        return self.share + self.per_ns * (now_ns - self.read_ns)
