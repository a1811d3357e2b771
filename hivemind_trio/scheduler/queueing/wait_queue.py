"""Wait queue for one provider, lane, limits group and rate limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs

from hivemind_trio.model import Reason
from hivemind_trio.scheduler.limits.limit_group import LimitGroup
from hivemind_trio.scheduler.limits.rate_limits import RateLimits, RateLimitUser
from hivemind_trio.scheduler.plans.plan_gate import PlanGate
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap, Rank

from .agent import AgentState
from .cache_affinity import AffinityIndex
from .entry import EntryPlacement, QueueEntry
from .fair_share import Flow

_OVERDUE: Final[Rank] = (-1 << 62,)
"""Such a call goes before all that go by their rank."""

_NEVER_NS: Final = 1 << 62


@final
@attrs.define(eq=False)
class WaitQueue:
    """By priority, then by what teams and their agents have had, then by what the lane is for."""

    group: LimitGroup
    quotas: RateLimits
    plan: PlanGate | None = None
    """None: the policy keeps no part of a plan from these calls."""
    parties: IndexedHeap[TeamFlow | AgentFlow] = attrs.field(factory=IndexedHeap, init=False)
    """Flows in the queue: teams, and agents that are their own team."""
    aged: IndexedHeap[AgentFlow] | None = attrs.field(default=None, init=False)
    """The lines that can move, by their call that is overdue first. None: none has been overdue yet, as is usual."""
    sized: IndexedHeap[AgentFlow] = attrs.field(factory=IndexedHeap, init=False)
    """The same, where there are quotas, by what their first call takes of them."""
    empty: bool = attrs.field(default=True, init=False)
    """Nobody waits here."""
    opens_ns: int | None = attrs.field(default=None, init=False)
    """When a quota will let somebody go who could go otherwise, as of the last look."""
    rank: Rank = attrs.field(default=(), init=False)
    """Among the queues of its lane, lowest first, as of the last look."""
    early: bool = attrs.field(default=False, init=False)
    """The call that was found then goes before its time."""
    _overdue_ns: int = attrs.field(default=_NEVER_NS, init=False)
    """No call that waits here is overdue before."""
    _threads: AffinityIndex = attrs.field(factory=AffinityIndex, init=False)
    _parties: dict[tuple[Flow, int], TeamFlow] = attrs.field(factory=dict, init=False)
    _lines: dict[AgentKey, AgentFlow] = attrs.field(factory=dict, init=False)

    def party(self, share: Flow, first: QueueEntry) -> TeamFlow:
        """Return the team flow for a line with such a first call."""
        team = share.peers.team
        assert team is not None
        key = team, first.rank[0]
        party = self._parties.get(key)
        if party is None:
            party = self._parties[key] = TeamFlow(team, first.rank[0], self)
        return party

    def dismiss(self, party: TeamFlow) -> None:
        """Nobody stands there any more."""
        self.parties.discard(party)
        del self._parties[party.team, party.number]

    def first(self, now_ns: int, *, overdue: bool | None, thread: str, steal_above: int) -> QueueEntry | None:
        """Return the best call whose agent has room, if the group has room and its quotas too. Nothing has changed yet.

        `rank` and `early` say more of it; or `opens_ns`, when they will have room.

        Args:
            overdue: One that is overdue may go before the others, whoever its agent is; None: none may. Else only one
                whose agent has been granted nothing since it arrived.
            thread: Calls of it may go before others, as long as no more than `steal_above` of those wait.
        """
        self.opens_ns = None
        best = self.parties.first
        if best is None or not self.group.slots.has_room:
            return None
        if self.plan is not None and (plan_ns := self.plan.opens_ns(now_ns)) > now_ns:
            self.opens_ns = plan_ns
            return None
        found, self.rank, self.early = best.first, best.rank, False
        counted = self.quotas.restricts
        due = self.quotas.due(now_ns) if counted else None
        passed = self._passed(due) if due is not None else None
        if passed is not None:
            found = passed
        elif (
            self._overdue_ns <= now_ns
            and overdue is not None
            and (oldest := self._overdue(now_ns)) is not None
            and _may_start(oldest)
            and (overdue or oldest.place.agent.granted_ns < oldest.arrived_ns)
        ):
            found, self.rank, self.early = oldest, (*_OVERDUE, oldest.seq), True
        else:
            instead = self._threads.mate(thread, found, steal_above) if thread else None
            if instead is None and self._threads.fading.first is not None:
                instead = self._threads.hurried(found, now_ns)
            if instead is not None and _may_start(instead):
                found = instead
        return self._within_quotas(found, now_ns) if counted else found

    def heads(self) -> Iterator[QueueEntry]:
        """Yield the call that is next and the smallest of those that are first in their lines."""
        best, small = self.parties.first, self.sized.first
        if best is not None:
            yield best.first
        if small is not None and (best is None or small.first is not best.first):
            yield small.first

    def mates(self, thread: str) -> int:
        """Return the number of calls of a thread that wait here."""
        return self._threads.count(thread)

    def _overdue(self, now_ns: int) -> QueueEntry | None:
        """Return the call that has been overdue for longest and can move. O(lines) the first time, then O(1)."""
        if self.aged is None:
            self._overdue_ns = min(line.overdue_ns for line in self._lines.values())
            if self._overdue_ns > now_ns:
                return None
            self.aged = IndexedHeap()
            for line in self._lines.values():
                if line.ready:
                    self.aged.put(line, (line.oldest.overdue_ns, line.oldest.seq))
        first = self.aged.first
        return first.oldest if first is not None and first.oldest.overdue_ns <= now_ns else None

    def _passed(self, due: RateLimitUser) -> QueueEntry | None:
        """Return the call that others have passed for too long, if it waits here and its agent has room."""
        line = self._lines.get(due.agent_key)
        found = line.find(due) if line is not None and line.ready else None
        if line is None or found is None or not _may_start(found):
            return None
        if found is line.first:
            return found
        return line.first if self.quotas.cede(line.first) else found  # its agent's calls keep their order

    def _within_quotas(self, found: QueueEntry, now_ns: int) -> QueueEntry | None:
        opens_ns = self.quotas.opens_ns(found.place.cost, now_ns, found)
        if opens_ns <= now_ns:
            return found
        # What does not fit is passed by what does, until it has been passed for too long.
        line = self.sized.first
        small = line.first if line is not None else found
        if small is not found:
            fits_ns = self.quotas.opens_ns(small.place.cost, now_ns, small)
            if fits_ns <= now_ns:
                self.early = False
                return small
            opens_ns = min(opens_ns, fits_ns)
        self.opens_ns = opens_ns
        return None

    def lacks(self, now_ns: int) -> Reason:
        """Return the reason for which no call of it goes."""
        if self.plan is not None and (reason := self.plan.reason(now_ns)) is not Reason.NONE:
            return reason
        if self.opens_ns is not None:
            return self.quotas.reason(now_ns)
        return next(iter(self._lines.values())).first.place.lacks()

    def put(self, waiter: QueueEntry) -> None:
        """Add a waiting call."""
        agent = waiter.place.agent
        line = self._lines.get(agent.key)
        if line is None:
            line = self._lines[agent.key] = AgentFlow(agent, waiter.place.share, self)
            self.empty = False
        if waiter.overdue_ns < self._overdue_ns:
            self._overdue_ns = waiter.overdue_ns
        line.put(waiter)
        if waiter.thread or waiter.warm_until_ns is not None:
            self._threads.put(waiter)

    def remove(self, waiter: QueueEntry) -> None:
        """Remove a waiting call."""
        if self.quotas.restricts:
            self.quotas.leave(waiter)
        if waiter.thread or waiter.warm_until_ns is not None:
            self._threads.remove(waiter)
        key = waiter.place.agent.key
        line = self._lines[key]
        line.remove(waiter)
        if not line.calls:
            del self._lines[key]
            self.empty = not self._lines


def _may_start(call: QueueEntry) -> bool:
    """Return True if the limits of its agent let a call start that is not the first in its line."""
    return call.place.agent.admits(call.place)


@final
@attrs.define(eq=False)
class AgentFlow:
    """One agent's calls in one queue, best first. What blocks the first of them blocks all.

    It is ready while it has calls and its agent has room, and only then in any heap. It stands among those of its team;
    or where its agent is its own team, in the queue itself.
    """

    agent: AgentState
    share: Flow
    _queue: WaitQueue
    first: QueueEntry = attrs.field(init=False)
    oldest: QueueEntry = attrs.field(init=False)
    """The one of them that is overdue first."""
    calls: int = attrs.field(default=0, init=False)
    overdue_ns: int = attrs.field(default=0, init=False)
    """None of them has arrived before."""
    rank: Rank = attrs.field(init=False)
    """Its order where it stands, while it is ready."""
    _party: TeamFlow | None = attrs.field(default=None, init=False)
    """Team flow that it stands in; None: it is not ready, or stands alone."""
    _number: int | None = attrs.field(default=None, init=False)
    """Its class of priority, where it stands alone; None: it is not ready, or among others."""
    _several: tuple[IndexedHeap[QueueEntry], IndexedHeap[QueueEntry]] | None = attrs.field(default=None, init=False)
    """Its calls by rank, and by age; None: there has been one at a time, as most agents have."""

    def find(self, waiter: object) -> QueueEntry | None:
        """Return this call if it is one of the line's."""
        if self._several is not None:
            return self._several[0].find(waiter)
        return self.first if self.calls == 1 and self.first is waiter else None

    @property
    def first_id(self) -> CallId:
        """Id of the call that is next."""
        return self.first.call.id

    @property
    def first_start(self) -> EntryPlacement:
        """Placement of the call that is next."""
        return self.first.place

    @property
    def first_order(self) -> tuple[int, int]:
        """Order of that call among those of its agent: by priority, then by arrival."""
        return -self.first.treatment.priority, self.first.seq

    @property
    def ready(self) -> bool:
        """True if a call of it can be dispatched."""
        return self._party is not None or self._number is not None

    def put(self, waiter: QueueEntry) -> None:
        """Add a waiting call."""
        self.calls += 1
        if self.calls == 1:
            self.first = self.oldest = waiter
            self.overdue_ns = waiter.overdue_ns
            self.agent.lines[self] = None
        else:
            self._put_beside(waiter)
        self.agent.change()
        if self.first is waiter or self.oldest is waiter:
            self._stand()

    def _put_beside(self, waiter: QueueEntry) -> None:
        """There are others: behind them, before them or between."""
        if self._several is None:
            self._several = IndexedHeap[QueueEntry](), IndexedHeap[QueueEntry]()
            by_rank, by_age = self._several
            by_rank.put(self.first, self.first.rank)
            by_age.put(self.first, (self.first.overdue_ns, self.first.seq))
        self.overdue_ns = min(self.overdue_ns, waiter.overdue_ns)
        by_rank, by_age = self._several
        by_rank.put(waiter, waiter.rank)
        by_age.put(waiter, (waiter.overdue_ns, waiter.seq))
        self._look()

    def remove(self, waiter: QueueEntry) -> None:
        """Remove a waiting call."""
        self.calls -= 1
        self.agent.change()
        if not self.calls:
            self.agent.lines.pop(self)
            self.park()
            return
        assert self._several is not None, "one is left"
        for heap in self._several:
            heap.discard(waiter)
        if self.first is waiter or self.oldest is waiter:
            self._look()
            self._stand()

    def _stand(self) -> None:
        """Stand in the queue, or not, as the first call has room at the agent."""
        if self.agent.admits(self.first.place):
            self.unpark()
        else:
            self.park()

    def park(self) -> None:
        """Leave the queue: it cannot be served."""
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
            queue.aged.put(self, (self.oldest.overdue_ns, self.oldest.seq))
        if queue.quotas.has_limits:
            queue.sized.put(self, (queue.quotas.share_ns(first.place.cost), first.seq))
        self.move()

    def move(self) -> None:
        """Its share has had more, or less, or its first call is another."""
        tag, team = self.share.tag if self.first.is_fair else 0, self.share.alone_in
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
    first: QueueEntry = attrs.field(init=False)
    rank: Rank = attrs.field(init=False)
    """Its order within its queue, down to the call."""
    _lines: IndexedHeap[AgentFlow] = attrs.field(factory=IndexedHeap, init=False)

    def put(self, line: AgentFlow) -> None:
        """Add an agent with waiting calls."""
        if self._lines.first is None:
            self.team.enter(self)
        self._lines.put(line, line.rank)
        self.move()

    def remove(self, line: AgentFlow) -> None:
        """Remove an agent without waiting calls."""
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
