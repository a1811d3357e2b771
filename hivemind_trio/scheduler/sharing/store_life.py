"""Life of what a store knows. Another one begins with another process of the store, and when it is emptied.

A store that knows nothing asks the nodes, which may use what an earlier life has granted: it grants nothing more until
all have told it, or until there was time enough, in which a long silence of all does not count. A message tells this
life only what its node has said after it had heard of it; one from before may be late or doubled, and be overtaken by
what the node has been granted since.

This is the model of the functions that scripts of Redis begin with (`store/fleet/life_script.py`).
"""

from __future__ import annotations

from typing import Final, final

import attrs

SILENT: Final = 4
"""A silence of a fourth of the time to learn is longer than nodes are silent by themselves: the store was away."""


@final
@attrs.define(eq=False)
class StoreLife:
    """Name of the life, and how long it learns.

    Args:
        learning_ms: Longest time for which it learns, unless it is extended.
        longest_ms: The same where the store is away meanwhile; 0: that changes nothing.
    """

    learning_ms: int
    longest_ms: int = 0
    name: str = attrs.field(init=False, default="")
    """Process of the store, and when this life began."""
    _since_ms: int = attrs.field(init=False, default=0)
    _heard_ms: int = attrs.field(init=False, default=0)
    """When any node was heard last."""
    _until_ms: int | None = attrs.field(init=False, default=None)
    """When there has been time enough to learn; None: there is nothing more to learn."""

    def begin(self, run: str) -> None:
        """Begin with nothing that a node may use: there is nothing to learn of them."""
        self.name = run

    def turns(self, run: str, now_ms: int) -> bool:
        """Take note of a message; return True if another life begins: what is known of one before may be outdated."""
        silent_ms, self._heard_ms = now_ms - self._heard_ms, now_ms
        if run != self.name.partition("/")[0]:
            self.name, self._since_ms, self._until_ms = f"{run}/{now_ms}", now_ms, now_ms + self.learning_ms
            return True
        if silent_ms > self.learning_ms // SILENT:
            self.extend(now_ms + self.learning_ms, self.longest_ms)
        return False

    def extend(self, until_ms: int, longest_ms: int) -> None:
        """Learn until then if that is later, but no longer than that in all."""
        if self._until_ms is not None:
            self._until_ms = max(self._until_ms, min(until_ms, self._since_ms + longest_ms))

    @property
    def is_learning(self) -> bool:
        """True if the store had something to learn at the last look."""
        return self._until_ms is not None

    def learns(self, known: int, nodes: int, now_ms: int) -> bool:
        """Return True while the store grants nothing.

        Args:
            known: Nodes that have told this life what they have.
            nodes: Most nodes that there may be.
            now_ms: On the store's clock.
        """
        if self._until_ms is not None and now_ms < self._until_ms and known < nodes:
            return True
        self._until_ms = None
        return False
