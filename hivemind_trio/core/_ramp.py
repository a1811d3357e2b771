"""How fast the load on one provider may grow, once it has said that it grew too fast.

Providers answer 429 to a load that rises suddenly though every quota has room ("Acceleration limits", Anthropic, *Rate
limits*), and do not say how fast is fast enough. So nothing is held back until one complains; from then on for a while
no more begins in a second than a few times what was usual, and less of that each time it complains again.
"""

from __future__ import annotations

from typing import Final, final

import attrs

SECOND_NS: Final = 1_000_000_000

OVER_NS: Final = 45 * SECOND_NS
"""What is usual is a mean over so long, recent attempts counting most."""

GROWTH: Final = 3.0
"""Of what is usual, what may begin in a second; multiplied by `EASE` for each complaint."""

EASE: Final = 0.7
EASE_MIN: Final = 0.4
"""At which it is still a growth, by a fifth."""

FLOOR: Final = 2.0
"""Attempts in a second that may always begin: a fleet has to start somehow."""

MEMORY_NS: Final = 900 * SECOND_NS
"""After the last complaint; then all is forgiven."""


@final
@attrs.define(eq=False)
class Ramp:
    """Told of every attempt that begins; says when the next may."""

    _usual: float = attrs.field(default=0.0, init=False)
    """Attempts per second."""
    _at_ns: int = attrs.field(default=0, init=False)
    _ease: float = attrs.field(default=1.0, init=False)
    complained_ns: int | None = attrs.field(default=None, init=False)
    """When, the last time; None: it never has, and nothing holds anybody up."""
    _earned_ns: int = attrs.field(default=0, init=False)
    """When all that has begun since will have been earned; a second's worth may begin at once."""

    def opens_ns(self, now_ns: int) -> int:
        """When another may begin: `now_ns`, or later."""
        if self.complained_ns is None or now_ns >= self.complained_ns + MEMORY_NS:
            return now_ns
        return max(now_ns, self._earned_ns + self._gap_ns(now_ns) - SECOND_NS)

    def on_granted(self, now_ns: int) -> None:
        """One begins."""
        if self.complained_ns is not None:
            self._earned_ns = max(self._earned_ns, now_ns) + self._gap_ns(now_ns)
        self._usual = self._usual * OVER_NS / (OVER_NS + now_ns - self._at_ns) + SECOND_NS / OVER_NS
        self._at_ns = now_ns

    def on_complaint(self, granted_ns: int, now_ns: int) -> None:
        """The provider says that it was too much at once, to an attempt that began at `granted_ns`.

        Attempts that were in flight together tell one piece of news.
        """
        if self.complained_ns is not None and now_ns >= self.complained_ns + MEMORY_NS:
            self._ease = 1.0
        elif self.complained_ns is not None and granted_ns <= self.complained_ns:
            return
        self._ease = max(EASE_MIN, self._ease * EASE)
        self.complained_ns = now_ns
        self._earned_ns = max(self._earned_ns, now_ns)

    def _now(self, now_ns: int) -> float:
        """What is usual, as of now."""
        return self._usual * OVER_NS / (OVER_NS + now_ns - self._at_ns)

    def _gap_ns(self, now_ns: int) -> int:
        return int(SECOND_NS / max(FLOOR, GROWTH * self._ease * self._now(now_ns)))
