"""What waits for one provider in one lane, limits group and quotas, and who of them is next."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Reason
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.limits.limit_group import LimitGroup
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap, Rank

from .cache_affinity import AffinityIndex
from .fair_share import Flow
from .flow import AgentFlow, TeamFlow

_OVERDUE: Final[Rank] = (-1 << 62,)
"""Such a call goes before all that go by their rank."""

_NEVER_NS: Final = 1 << 62


@final
@attrs.define(eq=False)
class WaitQueue:
    """By priority, then by what teams and their agents have had, then by what the lane is for."""

    group: LimitGroup
    quotas: RateLimits
    parties: IndexedHeap[TeamFlow | AgentFlow] = attrs.field(factory=IndexedHeap, init=False)
    """Who stands here: teams, and agents that are their own."""
    aged: IndexedHeap[AgentFlow] | None = attrs.field(default=None, init=False)
    """The lines that can move, by their oldest call. None: nobody has been here for half as long as would make it
    matter, as is usual."""
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

    def party(self, share: Flow, first: WaitingCall) -> TeamFlow:
        """Where a line with such a first call stands."""
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

    def first(self, now_ns: int, *, overdue: bool | None, thread: str, steal_above: int) -> WaitingCall | None:
        """The best call whose agent has room, if the group has room and its quotas too. Nothing has changed yet.

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
        found, self.rank, self.early = best.first, best.rank, False
        counted = self.quotas.restricts
        due = self.quotas.due(now_ns) if counted else None
        if due is not None and due.place.agent.slots.has_room and due in self._lines.get(due.place.agent.key, ()):
            found = due
        elif (
            self._overdue_ns <= now_ns
            and overdue is not None
            and (oldest := self._overdue(now_ns)) is not None
            and (overdue or oldest.place.agent.granted_ns < oldest.arrived_ns)
        ):
            found, self.rank, self.early = oldest, (*_OVERDUE, oldest.seq), True
        else:
            instead = self._threads.mate(thread, found, steal_above) if thread else None
            if instead is None and self._threads.fading.first is not None:
                instead = self._threads.hurried(found, now_ns)
            if instead is not None:
                found = instead
        return self._within_quotas(found, now_ns) if counted else found

    def _overdue(self, now_ns: int) -> WaitingCall | None:
        """Return the oldest call that can move, if it is overdue. O(lines) the first time, and O(1) from then on."""
        if self.aged is None:
            self._overdue_ns = min(line.overdue_ns for line in self._lines.values())
            if self._overdue_ns > now_ns:
                return None
            self.aged = IndexedHeap()
            for line in self._lines.values():
                if line.ready:
                    self.aged.put(line, (line.oldest.seq,))
        first = self.aged.first
        return first.oldest if first is not None and first.oldest.overdue_ns <= now_ns else None

    def _within_quotas(self, found: WaitingCall, now_ns: int) -> WaitingCall | None:
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
        if self.opens_ns is not None:
            return self.quotas.reason(now_ns)
        return next(iter(self._lines.values())).first.place.lacks()

    def put(self, waiter: WaitingCall) -> None:
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

    def remove(self, waiter: WaitingCall) -> None:
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
