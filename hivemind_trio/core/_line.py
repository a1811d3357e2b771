"""Waiting lines, from the inside out: one agent's calls, and all agents of a lane and limits group at a provider."""

from __future__ import annotations

from typing import final

import attrs

from ._agent import AgentKey, AgentSlots
from ._group import Group
from ._heap import Heap
from ._waiter import Waiter


@final
@attrs.define(eq=False)
class Line:
    """One agent's calls in one queue, best first. What blocks one of them blocks all, so only the first counts."""

    agent: AgentSlots
    _ready: Heap[Line]
    """The queue's lines that can move: this one is among them while it has calls and its agent has room."""
    _calls: Heap[Waiter] = attrs.field(factory=Heap, init=False)

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, waiter: Waiter) -> bool:
        return waiter in self._calls

    def first(self) -> Waiter:
        waiter = self._calls.first()
        assert waiter is not None, "an empty line is in no heap"
        return waiter

    def put(self, waiter: Waiter) -> None:
        self._calls.put(waiter, waiter.rank)
        self.agent.lines.setdefault(self)
        if self.agent.slots.has_room and self.first() is waiter:
            self.unpark()

    def remove(self, waiter: Waiter) -> None:
        was_first = self.first() is waiter
        self._calls.discard(waiter)
        if not self._calls:
            self.agent.lines.pop(self)
            self.park()
        elif was_first and self.agent.slots.has_room:
            self.unpark()

    def park(self) -> None:
        self._ready.discard(self)

    def unpark(self) -> None:
        """Take the place among the others that its first call deserves."""
        self._ready.put(self, self.first().rank)


@final
@attrs.define(eq=False)
class Queue:
    """What waits for one provider in one lane and one limits group."""

    group: Group
    _ready: Heap[Line] = attrs.field(factory=Heap, init=False)
    _lines: dict[AgentKey, Line] = attrs.field(factory=dict, init=False)

    def first(self, now_ns: int) -> Waiter | int | None:
        """The best call whose agent has room, if the group has room and its quotas too; or when they will have."""
        if not self.group.slots.has_room:
            return None
        line = self._ready.first()
        if line is None:
            return None
        waiter = line.first()
        due = self.group.quotas.due(now_ns)
        if due is not None and due.place.agent.slots.has_room and due in self._lines.get(due.place.agent.key, ()):
            waiter = due
        opens_ns = self.group.quotas.opens_ns(waiter.place.cost, now_ns, waiter)
        return waiter if opens_ns <= now_ns else opens_ns

    def put(self, waiter: Waiter) -> None:
        agent = waiter.place.agent
        line = self._lines.get(agent.key)
        if line is None:
            line = self._lines[agent.key] = Line(agent, self._ready)
        line.put(waiter)

    def remove(self, waiter: Waiter) -> None:
        self.group.quotas.leave(waiter)
        key = waiter.place.agent.key
        line = self._lines[key]
        line.remove(waiter)
        if not line:
            del self._lines[key]
