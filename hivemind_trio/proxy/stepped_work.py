"""Long work beside calls that are short: one step of it in a few turns of the loop, whoever asks."""

from __future__ import annotations

from typing import Final, TypeVar, final

import attrs
import trio

from hivemind_trio.wire import STEP_BYTES, Steps, Text, done

T = TypeVar("T")

TURNS_PER_STEP: Final = 4
"""Turns of the loop for each step. A short call takes ten to twenty turns, and so meets few steps."""

SHORT_BYTES_MAX: Final = STEP_BYTES
"""A body up to this size is read at once."""


@final
@attrs.define(eq=False)
class StepQueue:
    """Shared by all calls of a door, so that many long bodies hold up the others no more than one does."""

    _turn: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    async def of(self, steps: Steps[T], *, long: bool) -> T:
        """Do the work. A checkpoint only if it is long; the loop runs between two steps, and steps of others too.

        Args:
            long: It may take more than a step.
        """
        if not long:
            return done(steps)
        while True:
            async with self._turn:
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                for _ in range(TURNS_PER_STEP - 1):
                    await trio.lowlevel.checkpoint()


def is_long(body: Text, encoding: str) -> bool:
    """Return True if to read this body may take more than a step: a short one may unfold to a long one."""
    return len(body) > SHORT_BYTES_MAX or encoding.strip().lower() not in ("", "identity")
