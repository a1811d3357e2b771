"""The waiting room: every call that waits, by id, by lane oldest first, by deadline, and its bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import final

import attrs

from hivemind_trio.model import Reason, rejection_text
from hivemind_trio.policy import LaneSettings
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap

from .placement import Placement
from .waiting_call import WaitingCall


@final
@attrs.define(eq=False)
class WaitingCalls:
    """Keeps the counts of who waits and the queues of the pools in step. Entering and leaving cost O(log n)."""

    waiters: dict[CallId, WaitingCall] = attrs.field(factory=dict, init=False)
    _in_lane: defaultdict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    """Lane -> how many of its calls wait, at all providers."""
    _by_age: dict[str, IndexedHeap[WaitingCall]] = attrs.field(factory=dict, init=False)
    """The same calls by order of arrival, of lanes that shed the oldest."""
    _deadlines: IndexedHeap[WaitingCall] = attrs.field(factory=IndexedHeap, init=False)
    _resting: IndexedHeap[WaitingCall] = attrs.field(factory=IndexedHeap, init=False)
    """Those whose next attempt is not due yet, and held calls with a time at which they are looked at again."""
    held: dict[CallId, WaitingCall] = attrs.field(factory=dict, init=False)
    """Those that a rule holds, as they came to be held."""

    def __len__(self) -> int:
        return len(self.waiters)

    def __iter__(self) -> Iterator[WaitingCall]:
        """In order of arrival."""
        return iter(sorted(self.waiters.values(), key=lambda waiter: waiter.seq))

    def __contains__(self, call_id: CallId) -> bool:
        return call_id in self.waiters

    def get(self, call_id: CallId) -> WaitingCall | None:
        """Return a waiting call; None if there is none of this id."""
        return self.waiters.get(call_id)

    def in_lane(self, name: str) -> int:
        """Return the number of waiting calls of a lane."""
        return self._in_lane.get(name, 0)

    def enter(self, waiter: WaitingCall) -> None:
        """Stand in line, or rest first."""
        place, name = waiter.place, waiter.treatment.lane
        self.waiters[waiter.call.id] = waiter
        self._in_lane[name] += 1
        if place.lane.sheds:
            if name not in self._by_age:
                self._by_age[name] = IndexedHeap()
            self._by_age[name].put(waiter, (waiter.seq,))
        if waiter.deadline_ns is not None:
            self._deadlines.put(waiter, (waiter.deadline_ns, waiter.seq))
        place.pool.waiting += 1
        place.lane.waiting += 1
        place.agent.waiting += 1
        if waiter.rests_until_ns is not None:
            self._resting.put(waiter, (waiter.rests_until_ns, waiter.seq))
            if waiter.unasked_due_ns is not None and waiter.stays_away_ns(place.pool):
                place.pool.asked_to_wait[waiter.call.id] = None
            if waiter.unbudgeted_due_ns is not None:
                place.pool.short_of_retries[waiter.call.id] = None
        if waiter.is_held:
            self.held[waiter.call.id] = waiter
        elif waiter.held_in is not None:
            waiter.held_in.held.put(waiter, waiter.rank)
        elif waiter.rests_until_ns is None:
            place.lane.put(waiter)

    def wake(self, now_ns: int) -> WaitingCall | None:
        """One whose rest is over, now in line unless a budget or a rule holds it; None: there is none."""
        waiter = self._resting.first
        if waiter is None or waiter.rests_until_ns is None or waiter.rests_until_ns > now_ns:
            return None
        self._resting.discard(waiter)
        waiter.rests_until_ns = None
        if waiter.in_line:
            waiter.place.lane.put(waiter)
        return waiter

    def wake_early(self, waiter: WaitingCall, at_ns: int) -> None:
        """Its rest is over earlier than it was thought."""
        if waiter.rests_until_ns is not None:
            waiter.rests_until_ns = at_ns
            self._resting.put(waiter, (at_ns, waiter.seq))

    def leave(self, waiter: WaitingCall) -> None:
        """Remove a waiting call from all indexes."""
        place, name = waiter.place, waiter.treatment.lane
        del self.waiters[waiter.call.id]
        self._in_lane[name] -= 1
        if not self._in_lane[name]:
            del self._in_lane[name]
        if place.lane.sheds:
            self._by_age[name].discard(waiter)
        if waiter.deadline_ns is not None:
            self._deadlines.discard(waiter)
        place.pool.waiting -= 1
        if place.pool.asked_to_wait:
            place.pool.asked_to_wait.pop(waiter.call.id, None)
        if place.pool.short_of_retries:
            place.pool.short_of_retries.pop(waiter.call.id, None)
        place.lane.waiting -= 1
        if not place.lane.waiting:
            place.lane.turns.rest()
        place.agent.waiting -= 1
        if waiter.rests_until_ns is not None:
            self._resting.discard(waiter)
        if waiter.is_held:
            del self.held[waiter.call.id]
        elif waiter.held_in is not None:
            waiter.held_in.held.discard(waiter)
        elif waiter.rests_until_ns is None:
            place.lane.remove(waiter)

    def oldest(self, lane: str) -> WaitingCall | None:
        """Return the call of this lane, which sheds, that has waited longest."""
        calls = self._by_age.get(lane)
        return calls.first if calls is not None else None

    def wakeup_ns(self) -> int | None:
        """Return the next deadline, or the next end of a rest."""
        late, rested = self._deadlines.first, self._resting.first
        late_ns = late.deadline_ns if late is not None else None
        rested_ns = rested.rests_until_ns if rested is not None else None
        if late_ns is None or rested_ns is None:
            return rested_ns if late_ns is None else late_ns
        return min(late_ns, rested_ns)

    def expired(self, now_ns: int) -> WaitingCall | None:
        """Return the call whose deadline came first, if it has come."""
        waiter = self._deadlines.first
        if waiter is None or waiter.deadline_ns is None or waiter.deadline_ns > now_ns:
            return None
        return waiter

    def full_for(self, place: Placement) -> str | None:
        """Return the bound of its agent or provider that one more call would exceed, in words; None: there is room."""
        agent, pool = place.agent, place.pool
        if agent.queue is not None and agent.waiting >= agent.queue:
            return _full("agent", agent.waiting, agent.queue, agent.name)
        if pool.queue is not None and pool.waiting >= pool.queue:
            return _full("provider", pool.waiting, pool.queue, pool.name)
        return None

    def full_lane(self, lane: LaneSettings, waiting_max: int) -> str | None:
        """Return the same for the bounds that a dropped call of the lane would loosen: the lane's and the room's."""
        if lane.queue is not None and (waiting := self.in_lane(lane.name)) >= lane.queue:
            return _full("lane", waiting, lane.queue, lane.name)
        if len(self.waiters) >= waiting_max:
            return _full("server", len(self), waiting_max)
        return None


def _full(bound: str, waiting: int, limit: int, name: str = "") -> str:
    return rejection_text(Reason.QUEUE_FULL, bound, waiting=waiting, limit=limit, name=name)
