"""Time for which answers of the shared store are waited for, and word of a store that is slow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

import attrs
import trio

from hivemind_trio.store.fleet.interface import StoreUnreachable

LEAST_S: Final = 0.25
"""Longest wait for an answer of a store that answers within half of it."""

MOST_S: Final = 2.0
"""Longest wait at all: a store that takes longer is taken for one that is away."""

Answer = TypeVar("Answer")


@final
@attrs.define(eq=False)
class StoreAnswers:
    """Questions to the store, which are given up in time.

    One that is given up costs more than a wait: what the store has granted is not used. So after one that was given up
    the next ones are waited for twice as long. After each answer it is half the time, but twice what the answer took.

    Args:
        say_slow: Told how long an answer took, once it is longer than usual.
    """

    _say_slow: Callable[[float], None]
    within_s: float = attrs.field(init=False, default=LEAST_S)
    """Longest wait for an answer now."""
    slow_s: float | None = attrs.field(init=False, default=None)
    """Time of the last answer of a store that is slow; None: it is not."""

    async def of(self, question: Callable[[], Awaitable[Answer]], trips: int = 1) -> Answer:
        """Return the answer to a question.

        Args:
            question: Asks it.
            trips: Round trips that it may take; only those of one tell how slow the store is.

        Raises:
            StoreUnreachable: There was none in time, or the store cannot be used.
        """
        asked_s, within_s = trio.current_time(), self.within_s
        with trio.move_on_after(trips * within_s):
            answer = await question()
            if trips == 1:
                self._came(trio.current_time() - asked_s)
            return answer
        self.within_s = max(self.within_s, min(MOST_S, 2 * within_s))
        raise StoreUnreachable(f"no answer in {trips * within_s:g} s")

    def _came(self, after_s: float) -> None:
        self.within_s = min(MOST_S, max(LEAST_S, self.within_s / 2, 2 * after_s))
        if after_s > LEAST_S:
            if self.slow_s is None:
                self._say_slow(after_s)
            self.slow_s = after_s
        elif self.slow_s is not None:
            self.slow_s = after_s if after_s > LEAST_S / 2 else None
