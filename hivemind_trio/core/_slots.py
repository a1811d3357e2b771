"""A cap and what is held of it: the one kind of counter that admission knows."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Reason


@final
@attrs.define(eq=False)
class Slots:
    """At most `limit` held at once. Lowering the limit under what is held revokes nothing: it drains."""

    limit: int | None = None
    """None: no cap; what is held is counted all the same."""
    held: int = attrs.field(default=0, init=False)
    closed: Reason | None = attrs.field(default=None, init=False)
    """Why none is to be had for now, however few are held."""
    has_room: bool = attrs.field(default=True, init=False)
    """Kept, not reckoned: every call is held against five of these, and asks each of them several times."""

    def resize(self, limit: int | None) -> None:
        self.limit = limit
        self._look()

    def close(self, closed: Reason | None) -> None:
        """None: open."""
        self.closed = closed
        self._look()

    def take(self) -> None:
        assert self.has_room
        self.held += 1
        self.has_room = self.limit is None or self.held < self.limit

    def give_back(self) -> None:
        assert self.held > 0
        self.held -= 1
        self.has_room = self.closed is None and (self.limit is None or self.held < self.limit)

    def _look(self) -> None:
        self.has_room = self.closed is None and (self.limit is None or self.held < self.limit)
