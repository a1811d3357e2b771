"""Leases and waiting requests of one resource."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import final

import attrs

from hivemind_trio.policy import Program, ResourceSettings

from .lease import Lease, LeaseRequest
from .lease_shares import Contender, LeaseShares, Pedigree, add_claim, claims


@final
@attrs.define(eq=False)
class LeaseQueue:
    """One resource: leases in hand, requests in line, and who is next."""

    settings: ResourceSettings
    fence: int
    """Fencing token of the latest lease; never falls."""
    shares: LeaseShares = attrs.field(init=False)
    held: dict[str, Lease] = attrs.field(factory=dict, init=False)
    """By id, in the order of their begin."""
    waiting: dict[int, LeaseRequest] = attrs.field(factory=dict, init=False)
    """By id, in the order of their arrival."""
    is_removed: bool = attrs.field(default=False, init=False)
    """No longer in the policy: its leases run out."""

    def __attrs_post_init__(self) -> None:
        self.shares = LeaseShares(self.settings.lease_ns)

    @property
    def has_room(self) -> bool:
        """True if a lease may begin."""
        return not self.is_removed and len(self.held) < self.settings.capacity

    def enter(self, request: LeaseRequest, program: Program) -> None:
        """Put a request in line."""
        self.shares.enter(Pedigree.of(program, request.holder))
        self.waiting[request.id] = request

    def begin(self, request: LeaseRequest, now_ns: int) -> Lease:
        """Turn a request into a lease."""
        self.waiting.pop(request.id, None)
        self.fence += 1
        ttl_ns = self.settings.lease_ns if request.ttl_ns is None else min(request.ttl_ns, self.settings.lease_ns)
        lease = Lease(
            id=f"{self.settings.name}-{self.fence}",
            resource=self.settings.name,
            fence=self.fence,
            agent=request.agent,
            caller=request.caller,
            purpose=request.purpose,
            granted_ns=now_ns,
            expires_ns=self._end_ns(now_ns, now_ns, ttl_ns),
            ttl_ns=ttl_ns,
            waited_ns=now_ns - request.since_ns,
            estimate_ns=self.shares.mean_ns,
        )
        self.held[lease.id] = lease
        return lease

    def renew(self, lease: Lease, now_ns: int) -> Lease:
        """Move the end of a lease on; a removed resource moves none."""
        if self.is_removed:
            return lease
        ttl_ns = min(lease.ttl_ns, self.settings.lease_ns)
        renewed = attrs.evolve(lease, expires_ns=self._end_ns(lease.granted_ns, now_ns, ttl_ns))
        self.held[lease.id] = renewed
        return renewed

    def _end_ns(self, granted_ns: int, now_ns: int, ttl_ns: int) -> int:
        most_ns = self.settings.lease_max_ns
        return now_ns + ttl_ns if most_ns is None else min(now_ns + ttl_ns, granted_ns + most_ns)

    def end(self, lease: Lease, program: Program, now_ns: int) -> None:
        """End a lease, and count the time that it took."""
        del self.held[lease.id]
        self.shares.settle(Pedigree.of(program, lease.holder), now_ns - lease.granted_ns)

    def advance(self, program: Program) -> None:
        """Bring the shares in line with those that hold or ask now."""
        active: dict[Contender, None] = {}
        holders = [one.holder for one in self.held.values()] + [one.holder for one in self.waiting.values()]
        for holder in dict.fromkeys(holders):
            pedigree = Pedigree.of(program, holder)
            active[pedigree.team] = active[pedigree.agent] = None
        self.shares.advance(active)

    def order(self, program: Program, now_ns: int) -> Iterator[LeaseRequest]:
        """Yield the waiting requests in the order in which they would be served, if no other came."""
        claimed = claims(program, list(self.held.values()), now_ns)
        for priority in sorted({one.priority for one in self.waiting.values()}, reverse=True):
            lines: dict[Contender, deque[LeaseRequest]] = {}
            pedigrees: dict[Contender, Pedigree] = {}
            for request in self.waiting.values():
                if request.priority == priority:
                    pedigree = Pedigree.of(program, request.holder)
                    lines.setdefault(pedigree.agent, deque()).append(request)
                    pedigrees[pedigree.agent] = pedigree
            while lines:
                # The team with the lowest virtual time, then the agent of it; the oldest request of two alike.
                teams: dict[Contender, int] = {}
                for agent, line in lines.items():
                    team = pedigrees[agent].team
                    teams[team] = min(teams.get(team, line[0].id), line[0].id)
                team = min(teams, key=lambda one: (self.shares.tag(one, claimed), teams[one]))
                agents = [agent for agent in lines if pedigrees[agent].team == team]
                agent = min(agents, key=lambda one: (self.shares.tag(one, claimed), lines[one][0].id))
                yield lines[agent].popleft()
                add_claim(claimed, pedigrees[agent], self.shares.mean_ns)
                if not lines[agent]:
                    del lines[agent]
