"""Fair shares of one provider, in one lane: teams first, then the agents of a team.

Start-time fair queueing (Goyal, Vin and Cheng, 1996). Every contender has a virtual time, its `tag`, which each of its
calls moves on by cost/weight; among those who could go the lowest tag is next. Cost is the *dominant share* (Ghodsi et
al., "Dominant Resource Fairness", 2011): of what the provider has of slots, requests and tokens, the scarcest, as the
time for which the call takes all of it. It is estimated when the call goes and settled when it has ended.

Who could not go for a while, because it asked for nothing or was at a cap of its own, is lifted to where the others
are: idleness earns no claim on them. Who goes away and comes back at once finds its tag where it was. Where the others
are is what they have had by calls that are settled: estimates order those who wait, and never lift a newcomer, who
would stand behind a wrong one long after it has been taken back.

An agent that belongs to no team stands among the teams, with its own weight: it is a team of its own. Where a lane's
objective compares jobs whosever they are, those without a team are one of weight 1: else there would be nobody to
compare them with.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol, final

import attrs

from hivemind_trio.policy import Renames
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap

SCALE: Final = 1 << 20
"""One nanosecond of a provider to a contender of weight 1. A power of two, so that no weight is rounded noticeably."""

GONE_MAX: Final = 256
"""Contenders that are remembered though they ask for nothing. Every caller that gives itself a name is one."""


class Movable(Protocol):
    """A place in a queue whose order follows a virtual time."""

    def move(self) -> None:
        """Take the place that the changed virtual time gives."""


@final
@attrs.define(eq=False)
class Flow:
    """One contender, a team or an agent, in one lane of one provider."""

    peers: FlowGroup
    key: Hashable
    weight: int
    members: FlowGroup | None = attrs.field(default=None, init=False)
    """Agents of a team."""
    sole: Flow | None = attrs.field(default=None, init=False)
    """Flow of the only member, for an agent that is its own team."""
    alone_in: Flow | None = attrs.field(default=None, init=False)
    """Team of such an agent, which stands where the agent stands."""
    tag: int = attrs.field(default=0, init=False)
    """Virtual time: what it has had and what its calls in flight are thought to take, per weight."""
    _claimed_ns: int = attrs.field(default=0, init=False)
    """Part of the tag that is estimated, for calls in flight."""
    ready: dict[Movable, None] = attrs.field(factory=dict, init=False)
    """Positions in queues from which it could be served; moved when its tag moves."""

    def enter(self, place: Movable) -> None:
        """Mark a position from which it can be served. Lifts it to its peers, if it could go from nowhere else."""
        if not self.ready and self.tag < self.peers.virtual:
            self.tag = self.peers.virtual
        self.ready[place] = None
        if (team := self.alone_in) is not None:
            if not team.ready and team.tag < team.peers.virtual:
                team.tag = team.peers.virtual
            team.ready[place] = None

    def leave(self, place: Movable) -> None:
        """Remove a position from which it can no longer be served."""
        self.ready.pop(place, None)
        if self.alone_in is not None:
            self.alone_in.ready.pop(place, None)

    def begin(self, cost_ns: int) -> None:
        """One of its calls goes, which is thought to take so much; its team's, too."""
        share: Flow | None = self
        while share is not None:
            peers = share.peers
            if not share.ready and share.tag < peers.virtual:
                share.tag = peers.virtual
            had = share.tag - share._claimed_ns * SCALE // share.weight
            if had > peers.virtual:
                peers.virtual = had
            if peers.gone.first is not None:
                peers.forget_who_was_passed()
            share._claimed_ns += cost_ns
            share.tag += cost_ns * SCALE // share.weight
            for place in share.ready:
                place.move()
            share = peers.team

    def settle(self, cost_ns: int, taken_ns: int) -> None:
        """One of its calls, which was thought to take `cost_ns`, has taken `taken_ns`."""
        share: Flow | None = self
        while share is not None:
            share._claimed_ns -= cost_ns
            share.tag += (taken_ns - cost_ns) * SCALE // share.weight
            for place in share.ready:
                place.move()
            share = share.peers.team

    def reweigh(self, weight: int) -> None:
        """Take the weight of a new policy, which counts for calls in flight, too. Nobody stands in a queue."""
        had = self.tag - self._claimed_ns * SCALE // self.weight
        self.weight = weight
        self.tag = had + self._claimed_ns * SCALE // weight

    def retire(self) -> None:
        """Retire a contender without calls."""
        gone = self.alone_in or self
        gone.peers.retire(gone)


@final
@attrs.define(eq=False)
class FlowGroup:
    """Those who share by their weights: the teams of a lane, or the agents of a team."""

    team: Flow | None = None
    """Team of these agents; None: these are the teams."""
    virtual: int = attrs.field(default=0, init=False)
    """Most that a contender which went had had by then, by settled calls."""
    gone: IndexedHeap[Flow] = attrs.field(factory=IndexedHeap, init=False)
    """Those who ask for nothing, by tag: once the others have come to where they are, they need not be remembered."""
    _shares: dict[Hashable, Flow] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._shares)

    def rename(self, renames: Renames) -> None:
        """Teams and agents are called otherwise from now on."""
        for share in self._shares.values():
            share.key = renames.contender(share.key)
            if share.members is not None:
                share.members.rename(renames)
        self._shares = {share.key: share for share in self._shares.values()}

    def load(self) -> None:
        """Nobody stands in a queue at this moment."""
        for share in self._shares.values():
            share.ready.clear()
            if share.members is not None:
                share.members.load()

    def share(self, key: Hashable, weight: int) -> Flow:
        """Return the contender of that name."""
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = Flow(self, key, weight)
        else:
            self.gone.discard(share)
            if weight != share.weight:
                share.reweigh(weight)
        return share

    def team_of(self, key: Hashable, weight: int) -> FlowGroup:
        """Return the agents of that team."""
        team = self.share(key, weight)
        if team.members is None:
            team.members = FlowGroup(team)
        return team.members

    def sole(self, key: Hashable, weight: int) -> Flow:
        """Return an agent that is its own team."""
        team = self.share(key, weight)
        if team.sole is None:
            team.members = FlowGroup(team)
            team.sole = team.members.share(key, weight)
            team.sole.alone_in = team
        if weight != team.sole.weight:
            team.sole.reweigh(weight)
        return team.sole

    def retire(self, share: Flow) -> None:
        """Keep a contender while it is ahead of the others, up to a bound."""
        self.gone.put(share, (share.tag,))
        if len(self._shares) > GONE_MAX and len(self.gone) > GONE_MAX:
            self._forget()

    def forget_who_was_passed(self) -> None:
        """Somebody goes who is ahead of them."""
        while (share := self.gone.first) is not None and share.tag <= self.virtual:
            self._forget()

    def _forget(self) -> None:
        """Forget the idle one with the least service."""
        share = self.gone.first
        assert share is not None
        self.gone.discard(share)
        del self._shares[share.key]
