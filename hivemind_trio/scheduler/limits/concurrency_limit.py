"""A cap and what is held of it: the one kind of counter that admission knows."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Reason


@final
@attrs.define(eq=False)
class ConcurrencyLimit:
    """At most `limit` held at once. Lowering the limit under what is held revokes nothing: it drains."""

    limit: int | None = None
    """None: no cap; what is held is counted all the same."""
    held: int = attrs.field(default=0, init=False)
    closed: Reason | None = attrs.field(default=None, init=False)
    """Why none is to be had for now, however few are held."""
    has_room: bool = attrs.field(default=True, init=False)
    """Kept, not reckoned: every call is held against four of these, and asks each of them several times."""

    def resize(self, limit: int | None) -> None:
        """Set another limit; None for no limit."""
        self.limit = limit
        self._look()

    def close(self, closed: Reason | None) -> None:
        """None: open."""
        self.closed = closed
        self._look()

    def _look(self) -> None:
        self.has_room = self.closed is None and (self.limit is None or self.held < self.limit)


def take(*each: ConcurrencyLimit) -> None:
    """One of each; every one is there."""
    for slots in each:
        assert slots.has_room
        slots.held += 1
        slots.has_room = slots.limit is None or slots.held < slots.limit


def take_beyond(*each: ConcurrencyLimit) -> None:
    """One of each, whether or not there is room; none is closed."""
    for slots in each:
        assert slots.closed is None
        slots.held += 1
        slots.has_room = slots.limit is None or slots.held < slots.limit


def give_back(*each: ConcurrencyLimit) -> None:
    """One of each."""
    for slots in each:
        assert slots.held > 0
        slots.held -= 1
        slots.has_room = slots.closed is None and (slots.limit is None or slots.held < slots.limit)
