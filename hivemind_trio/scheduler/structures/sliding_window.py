"""Sliding window sum."""

from __future__ import annotations

from collections import deque
from typing import Final, final

import attrs

SLICES: Final = 64
"""A window is kept in so many pieces. What was taken counts until the whole piece that it fell into has passed: a
window is at most a sixty-fourth longer than it says, on the safe side."""


@final
@attrs.define
class _Slice:
    until_ns: int
    """When it began, rounded up to where it ends."""
    taken: int


@final
@attrs.define(eq=False)
class SlidingWindow:
    """The sum over one window that slides."""

    window_ns: int
    _length_ns: int = attrs.field(init=False)
    """Length of a slice."""
    _slices: deque[_Slice] = attrs.field(factory=deque, init=False)
    _sum: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._length_ns = max(1, self.window_ns // SLICES)

    def sum(self, now_ns: int) -> int:
        """Return the sum within the window that ends now."""
        while self._slices and self._slices[0].until_ns + self.window_ns <= now_ns:
            self._sum -= self._slices.popleft().taken
        return self._sum

    def add(self, amount: int, now_ns: int) -> None:
        """Add an amount taken now."""
        until_ns = self._until_ns(now_ns)
        if not self._slices or self._slices[-1].until_ns != until_ns:
            self._slices.append(_Slice(until_ns, 0))
        self._slices[-1].taken += amount
        self._sum += amount

    def correct(self, more: int, taken_ns: int, now_ns: int) -> None:
        """Correct an amount that was taken at `taken_ns`. What the window has forgotten, or never knew, is over."""
        self.sum(now_ns)
        until_ns = self._until_ns(taken_ns)
        for piece in reversed(self._slices):
            if piece.until_ns > until_ns:
                continue
            # No other: to give back of a later one would be to forget what others have taken since.
            if piece.until_ns == until_ns and piece.taken >= -more:
                piece.taken += more
                self._sum += more
            return

    def ages(self, now_ns: int) -> tuple[tuple[int, int], ...]:
        """Return (age, amount) of what counts now, oldest first."""
        self.sum(now_ns)
        return tuple((max(0, now_ns - piece.until_ns), piece.taken) for piece in self._slices if piece.taken)

    def _until_ns(self, now_ns: int) -> int:
        """Return the end of the slice of that moment."""
        return now_ns - now_ns % self._length_ns + self._length_ns

    def at_most_ns(self, amount: int, now_ns: int) -> int:
        """When no more than `amount` will count, if nothing is added: `now_ns`, or later."""
        over = self.sum(now_ns) - amount
        if over <= 0:
            return now_ns
        at_ns = now_ns
        for piece in self._slices:
            if over <= 0:
                break
            over -= piece.taken
            at_ns = max(at_ns, piece.until_ns + self.window_ns)
        return at_ns
