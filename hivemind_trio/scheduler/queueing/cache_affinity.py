"""Calls of one queue that belong together: they are cheapest one after the other, while a provider's cache is warm.

A `sticky` lane goes on with those of the thread that it has just served, where the order among agents would take
another; only among calls of equal priority, for a while, and only as long as the other's queue is short (`steal`). And
where input tokens are scarce, a call goes first in its team whose prompt would soon have to be read anew.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap

from .entry import QueueEntry

SECOND_NS: Final = 1_000_000_000

STREAK_NS: Final = 90 * SECOND_NS
"""For so long a lane goes on with one thread at a time."""

FADING_NS: Final = 45 * SECOND_NS
"""Before a provider forgets a prompt, its calls hurry."""


@final
@attrs.define(eq=False)
class AffinityIndex:
    """Index of queued calls by thread."""

    _by_name: dict[str, IndexedHeap[QueueEntry]] = attrs.field(factory=dict, init=False)
    fading: IndexedHeap[QueueEntry] = attrs.field(factory=IndexedHeap, init=False)
    """By when the provider will forget their prompt."""

    def put(self, waiter: QueueEntry) -> None:
        """Add a queued call."""
        if waiter.thread:
            mates = self._by_name.get(waiter.thread)
            if mates is None:
                mates = self._by_name[waiter.thread] = IndexedHeap()
            mates.put(waiter, waiter.rank)
        if waiter.warm_until_ns is not None:
            self.fading.put(waiter, (waiter.warm_until_ns, waiter.seq))

    def remove(self, waiter: QueueEntry) -> None:
        """Remove a call that left the queue."""
        if waiter.warm_until_ns is not None:
            self.fading.discard(waiter)
        mates = self._by_name.get(waiter.thread)
        if mates is not None:
            mates.discard(waiter)
            if mates.first is None:
                del self._by_name[waiter.thread]

    def count(self, thread: str) -> int:
        """Return the number of calls of a thread."""
        return len(self._by_name.get(thread, ()))

    def mate(self, thread: str, instead_of: QueueEntry, steal_above: int) -> QueueEntry | None:
        """Return a call of that thread to go in place of another; None without one, or if the other's queue is long."""
        mates = self._by_name.get(thread)
        if mates is None or len(self._by_name.get(instead_of.thread, ())) > steal_above:
            return None
        return _equal(mates.first, instead_of)

    def hurried(self, instead_of: QueueEntry, now_ns: int) -> QueueEntry | None:
        """Return a call of the same team whose prompt the provider is about to forget; None: there is none."""
        while (waiter := self.fading.first) is not None and (waiter.warm_until_ns or 0) <= now_ns:
            self.fading.discard(waiter)  # it has been forgotten
        if waiter is None or (waiter.warm_until_ns or 0) > now_ns + FADING_NS:
            return None
        if waiter.place.share.peers is not instead_of.place.share.peers:
            return None
        return _equal(waiter, instead_of)


def _equal(waiter: QueueEntry | None, other: QueueEntry) -> QueueEntry | None:
    """Return the call, if it is another one of the same priority and its agent has room."""
    if waiter is None or waiter is other or waiter.rank[0] != other.rank[0] or not waiter.place.agent.slots.has_room:
        return None
    return waiter
