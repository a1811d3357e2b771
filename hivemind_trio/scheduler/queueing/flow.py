"""Waiting lines, from the inside out: one agent's calls, and a team's lines among those of equal priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap, Rank

from .agent import AgentState
from .fair_share import Flow

if TYPE_CHECKING:
    from .wait_queue import WaitQueue


@final
@attrs.define(eq=False)
class AgentFlow:
    """One agent's calls in one queue, best first. What blocks one of them blocks all, so only the first counts.

    It is ready while it has calls and its agent has room, and only then in any heap. It stands among those of its team;
    or where its agent is its own team, in the queue itself.
    """

    agent: AgentState
    share: Flow
    _queue: WaitQueue
    first: WaitingCall = attrs.field(init=False)
    oldest: WaitingCall = attrs.field(init=False)
    calls: int = attrs.field(default=0, init=False)
    overdue_ns: int = attrs.field(default=0, init=False)
    """None of them has arrived before."""
    rank: Rank = attrs.field(init=False)
    """Its order where it stands, while it is ready."""
    _party: TeamFlow | None = attrs.field(default=None, init=False)
    """Where it stands among others; None: it is not ready, or alone."""
    _number: int | None = attrs.field(default=None, init=False)
    """Its class of priority, where it stands alone; None: it is not ready, or among others."""
    _several: tuple[IndexedHeap[WaitingCall], IndexedHeap[WaitingCall]] | None = attrs.field(default=None, init=False)
    """Its calls by rank, and by age; None: there has been one at a time, as most agents have."""

    def __contains__(self, waiter: WaitingCall) -> bool:
        return waiter in self._several[0] if self._several is not None else self.calls == 1 and self.first is waiter

    @property
    def ready(self) -> bool:
        return self._party is not None or self._number is not None

    def put(self, waiter: WaitingCall) -> None:
        self.calls += 1
        if self.calls == 1:
            self.first = self.oldest = waiter
            self.overdue_ns = waiter.overdue_ns
            self.agent.lines[self] = None
        else:
            self._put_beside(waiter)
        if (self.first is waiter or self.oldest is waiter) and self.agent.slots.has_room:
            self.unpark()

    def _put_beside(self, waiter: WaitingCall) -> None:
        """There are others: behind them, before them or between."""
        if self._several is None:
            self._several = IndexedHeap[WaitingCall](), IndexedHeap[WaitingCall]()
            by_rank, by_age = self._several
            by_rank.put(self.first, self.first.rank)
            by_age.put(self.first, (self.first.seq,))
        self.overdue_ns = min(self.overdue_ns, waiter.overdue_ns)
        by_rank, by_age = self._several
        by_rank.put(waiter, waiter.rank)
        by_age.put(waiter, (waiter.seq,))
        self._look()

    def remove(self, waiter: WaitingCall) -> None:
        self.calls -= 1
        if not self.calls:
            self.agent.lines.pop(self)
            self.park()
            return
        assert self._several is not None, "one is left"
        for heap in self._several:
            heap.discard(waiter)
        if self.first is waiter or self.oldest is waiter:
            self._look()
            if self.agent.slots.has_room:
                self.unpark()

    def park(self) -> None:
        """It cannot move."""
        queue = self._queue
        if self._party is not None:
            self._party.remove(self)
            self._party = None
        elif self._number is not None:
            queue.parties.discard(self)
            self._number = None
        else:
            return
        if queue.aged is not None:
            queue.aged.discard(self)
        if queue.sized.first is not None:
            queue.sized.discard(self)
        self.share.leave(self)

    def unpark(self) -> None:
        """Take the place among the others that its first call deserves."""
        queue, first = self._queue, self.first
        team = self.share.alone_in
        if team is None:
            party = queue.party(self.share, first)
            if self._party is not None and self._party is not party:
                self._party.remove(self)
            self._party = party
        elif self._number != first.rank[0]:
            if self._number is not None:
                # That is another place: a team that goes from its only one to another is lifted.
                team.leave(self)
                team.enter(self)
            self._number = first.rank[0]
        self.share.enter(self)
        if queue.aged is not None:
            queue.aged.put(self, (self.oldest.seq,))
        if queue.quotas.counted:
            queue.sized.put(self, (queue.quotas.share_ns(first.place.cost), first.seq))
        self.move()

    def move(self) -> None:
        """Its share has had more, or less, or its first call is another."""
        tag, team = self.share.tag if self.first.fair else 0, self.share.alone_in
        if self._party is not None:
            self.rank = (tag, *self.first.rank)
            self._party.put(self)
        elif self._number is not None and team is not None:
            self.rank = (self._number, team.tag, tag, *self.first.rank)
            self._queue.parties.put(self, self.rank)

    def _look(self) -> None:
        assert self._several is not None, "there have been several"
        by_rank, by_age = self._several
        first, oldest = by_rank.first, by_age.first
        assert first is not None, "an empty line is in no heap"
        assert oldest is not None, "every call has both"
        self.first, self.oldest = first, oldest


@final
@attrs.define(eq=False)
class TeamFlow:
    """Lines of one team in one queue, whose first calls have the same priority."""

    team: Flow
    number: int
    """Its class of priority: the lowest goes first."""
    _queue: WaitQueue
    first: WaitingCall = attrs.field(init=False)
    rank: Rank = attrs.field(init=False)
    """Its order within its queue, down to the call."""
    _lines: IndexedHeap[AgentFlow] = attrs.field(factory=IndexedHeap, init=False)

    def put(self, line: AgentFlow) -> None:
        if self._lines.first is None:
            self.team.enter(self)
        self._lines.put(line, line.rank)
        self.move()

    def remove(self, line: AgentFlow) -> None:
        self._lines.discard(line)
        if self._lines.first is not None:
            self.move()
        else:
            self.team.leave(self)
            self._queue.dismiss(self)

    def move(self) -> None:
        """Its team has had more, or less, or its first line is another."""
        line = self._lines.first
        assert line is not None, "an empty party is in no heap"
        self.first = line.first
        self.rank = (self.number, self.team.tag, *line.rank)
        self._queue.parties.put(self, self.rank)
