"""A heap whose entries can be moved and removed.

Most heaps of a scheduler hold one item, so one is kept by itself. From the second on it is `heapq` with lazy deletion:
a removed or moved entry stays where it is, dead, until it comes to the top or until the dead outnumber the living, when
they are swept out together. So every operation is O(log n) amortised, and a heap never takes more than about twice the
memory of what is in it, whatever is cancelled.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar, cast, final

import attrs

T = TypeVar("T", bound=Hashable)

Rank = tuple[int, ...]
"""Lowest first; tuples in one heap have the same length."""

SWEEP_MIN = 16
"""Below so many dead entries a sweep costs more than it saves."""

_Entry = list[Any]
"""[rank, which put it was, item]; the item is `DEAD` once it has been removed or moved. Two never compare their items.
"""
DEAD: Final = object()
"""In the place of an item that is gone; known by identity."""


@final
@attrs.define(eq=False)
class IndexedHeap(Generic[T]):
    """Items by rank, lowest first; among equal ranks the one that came there first."""

    first: T | None = attrs.field(default=None, init=False)
    """Kept, not looked up: it is read far more often than it changes. None: the heap is empty."""
    dead: int = attrs.field(default=0, init=False)
    """Entries that only take space."""
    _rank: Rank = attrs.field(default=(), init=False)
    """Rank of the only item, while there is no other."""
    _live: dict[T, _Entry] | None = attrs.field(default=None, init=False)
    """Item -> its one live entry; None or empty: there is one item at most. Never iterated: its order would depend on
    hashes."""
    _entries: list[_Entry] = attrs.field(init=False)
    """The one on top is alive."""
    _puts: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._live) if self._live else int(self.first is not None)

    def __contains__(self, item: T) -> bool:
        return item in self._live if self._live else self.first is not None and self.first == item

    def find(self, item: object) -> T | None:
        """Return the item that equals this one; None: there is none."""
        if not self._live:
            return self.first if self.first == item else None
        live: dict[Any, _Entry] = self._live
        entry = live.get(item)
        return None if entry is None else cast("T", entry[2])

    def put(self, item: T, rank: Rank) -> None:
        """Insert it, or move it to a new rank."""
        live = self._live
        if not live:
            if self.first is None or self.first == item:
                self.first, self._rank = item, rank
                return
            live = self._live = {self.first: [self._rank, 0, self.first]}
            self._entries = [live[self.first]]
        before = live.get(item)
        if before is not None:
            if before[0] == rank:
                return
            before[2] = DEAD
            self.dead += 1
        self._puts += 1
        live[item] = entry = [rank, self._puts, item]
        heappush(self._entries, entry)
        if self._entries[0] is entry:
            self.first = item
        if before is not None and (self._entries[0] is before or self.dead > SWEEP_MIN):
            self._bury()

    def discard(self, item: T) -> None:
        """Remove it if it is there."""
        if not self._live:
            if self.first == item:
                self.first = None
            return
        gone = self._live.pop(item, None)
        if gone is not None:
            gone[2] = DEAD
            self.dead += 1
            if self._entries[0] is gone or self.dead > SWEEP_MIN:
                self._bury()

    def _bury(self) -> None:
        """Drop the dead on top; all of them, if they outnumber the living."""
        entries, live = self._entries, self._live
        assert live is not None
        while entries and entries[0][2] is DEAD:
            heappop(entries)
            self.dead -= 1
        self.first = entries[0][2] if entries else None
        if self.dead > SWEEP_MIN and self.dead > SWEEP_MIN + len(live):
            self._entries = [entry for entry in entries if entry[2] is not DEAD]
            heapify(self._entries)
            self.dead = 0
