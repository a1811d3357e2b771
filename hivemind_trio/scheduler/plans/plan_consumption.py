"""Consumption of a plan's window: the share that calls take, learned by regression over the steps of its readings.

Providers do not say how large a window is; they report its used share in whole percents. Between two steps of the
reading the used share has grown by exactly these steps, for the calls that ended meanwhile. So each pair of steps is
one sample of `steps = share * weight`, and the share is found by least squares with exponential forgetting (Haykin,
"Adaptive Filter Theory", on recursive least squares). A step that somebody else on the account has caused comes with
little weight of ours, and so hardly counts.
"""

from __future__ import annotations

from typing import Final, final

import attrs

STEP: Final = 10_000
"""Resolution of readings, in millionths of a window."""

MEMORY: Final = 0.97
"""Weight of a sample for each that came after it: about the last thirty count."""

SAMPLES_MIN: Final = 2
"""Samples before which nothing is believed."""


@final
@attrs.define(eq=False)
class ConsumptionLearner:
    """Samples of one window of one account."""

    learned: float | None = attrs.field(default=None, init=False)
    """Share for each unit of weight, in millionths; None: too little is known."""
    weight: float = attrs.field(default=0.0, init=False)
    """Weight of all calls that have ended."""
    inflight: float = attrs.field(default=0.0, init=False)
    """Expected weight of the calls in flight."""
    _samples: int = attrs.field(default=0, init=False)
    _used: int | None = attrs.field(default=None, init=False)
    """Reading that the current sample began with; None: there was none."""
    _weight: float = attrs.field(default=0.0, init=False)
    """`weight` at that time."""
    _is_edge: bool = attrs.field(default=False, init=False)
    """True if the used share had just come up to that reading."""
    _squares: float = attrs.field(default=0.0, init=False)
    """Sum of squared weights."""
    _products: float = attrs.field(default=0.0, init=False)
    """Sum of weights times steps."""

    def on_granted(self, expected: float) -> None:
        """Count a call that is sent."""
        self.inflight += expected

    def on_ended(self, expected: float, weight: float) -> None:
        """Count a call that has ended; of one that was sent before the first reading nothing was expected."""
        self.inflight = max(0.0, self.inflight - expected)
        self.weight += weight

    def on_read(self, used: int, *, anew: bool) -> None:
        """Take a reading of the used share, in millionths.

        Args:
            anew: The window is another one than at the reading before.
        """
        before = self._used
        if before is None or anew or used < before:
            self._begin(used, is_edge=False)
        elif used > before:
            if self._is_edge:
                self._add(self.weight - self._weight, used - before)
            self._begin(used, is_edge=True)

    def unread(self) -> int:
        """Return what is used beyond the reading: since it last changed, less than a step, and by calls in flight."""
        if self.learned is None or self._used is None:
            return 0
        since = round(self.learned * (self.weight - self._weight))
        return min(STEP - 1, since) + round(self.learned * self.inflight)

    def _begin(self, used: int, *, is_edge: bool) -> None:
        self._used, self._weight, self._is_edge = used, self.weight, is_edge

    def _add(self, weight: float, used: int) -> None:
        self._samples += 1
        self._squares = MEMORY * self._squares + weight * weight
        self._products = MEMORY * self._products + weight * used
        if self._samples >= SAMPLES_MIN and self._squares > 0:
            self.learned = self._products / self._squares
