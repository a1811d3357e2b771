"""Bound on the request bodies of all calls together."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.wire import STEP_BYTES

BODIES_BYTES: Final = 1 << 30
"""Default of the bound."""


@final
@attrs.define(eq=False)
class BodyMemory:
    """Counts the bytes of bodies that calls hold, from their arrival to the end of the call.

    A call keeps its body for its next attempt, so what waits is held too. Short bodies are always taken: the bound on
    connections bounds them, and a few callers with long ones must not shut out all others.
    """

    limit: int = BODIES_BYTES
    held: int = attrs.field(init=False, default=0)

    def take(self, before: int, more: int) -> bool:
        """Count another piece of a body; False: there is no room for it.

        Args:
            before: Bytes of the body that were taken already.
            more: Bytes of the piece.
        """
        if before + more > STEP_BYTES and self.held + more > self.limit:
            return False
        self.held += more
        return True

    def give_back(self, count: int) -> None:
        """Forget the body of a call that is over."""
        self.held -= count
