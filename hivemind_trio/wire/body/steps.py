"""Long work in steps, so that a caller with an event loop can serve others in between.

Nothing here knows a loop: a generator yields after each step, and whoever drives it decides what happens then.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that yields after each step and returns its result."""

Text: TypeAlias = bytes | bytearray
"""A body. A `bytearray` is one that was put together from pieces; it is not changed any more."""

STEP_BYTES: Final = 64 * 1024
"""Bytes that one step reads: about a millisecond of work for the densest text."""


def done(steps: Steps[T]) -> T:
    """Do all steps at once and return the result: for a body that is short, or a caller without a loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
