"""The second keeper of every cap: Trio's capacity limiters, by the names of the policy.

The core decides who goes; a grant is then taken from these without waiting. Should the core ever grant too many, Trio
raises, and that is a bug. The first keeper's counts and these are asserted to agree (`audit`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Final, TypeVar, final

import attrs
import trio

from hivemind_trio.policy import Program, Renames
from hivemind_trio.scheduler import CallId, Permit, Snapshot

K = TypeVar("K", bound=Hashable)

AgentKey = tuple[bool, str]
"""`Permit.declared` and `Permit.agent`."""


_BEYOND: Final = (1, 3)
"""Places of lane and agent among the limiters of a permit: an operator may let a call go beyond these."""


def _acquire_beyond(limiter: trio.CapacityLimiter, borrower: object) -> None:
    """Take one token, whether or not the limiter has one left; what is beyond its total drains."""
    total = limiter.total_tokens
    limiter.total_tokens = max(total, limiter.borrowed_tokens + 1)
    limiter.acquire_on_behalf_of_nowait(borrower)
    limiter.total_tokens = total


@final
@attrs.define(eq=False)
class _ProviderCaps:
    pool: trio.CapacityLimiter
    lanes: dict[str, trio.CapacityLimiter] = attrs.field(init=False, factory=dict)
    groups: dict[str | None, trio.CapacityLimiter] = attrs.field(init=False, factory=dict)


def _held(limiters: Mapping[K, trio.CapacityLimiter]) -> dict[K, trio.CapacityLimiter]:
    """Those of which anything is held."""
    return {name: limiter for name, limiter in limiters.items() if limiter.borrowed_tokens}


@final
@attrs.define(eq=False)
class Caps:
    """Limiters for what is declared, and for what no longer is and was held when the policy was loaded.

    What has no cap has a limiter without bound: it counts, so that a cap which a reload introduces knows what is held.
    """

    _program: Program
    providers: dict[str, _ProviderCaps] = attrs.field(init=False, factory=dict)
    agents: dict[AgentKey, trio.CapacityLimiter] = attrs.field(init=False, factory=dict)
    _permits: dict[CallId, Permit] = attrs.field(init=False, factory=dict)
    """Permits that are held, under today's names: a reload may have renamed any since the grant."""
    _limits: dict[str, int] = attrs.field(init=False, factory=dict)
    """Provider -> its slots now, where AIMD has moved them within the policy's bounds."""

    def load(self, program: Program) -> None:
        """Resize to a new policy. What is held stays held; a cap below it drains."""
        renames = Renames.between(self._program, program)
        if renames:
            self._rename(renames)
        self._program = program
        self._limits.clear()
        for name, caps in list(self.providers.items()):
            provider = program.pools.get(name)
            if provider is None:
                if not caps.pool.borrowed_tokens:
                    del self.providers[name]
                continue  # else it keeps its last limits until it is empty
            caps.pool.total_tokens = provider.limit
            caps.lanes, caps.groups = _held(caps.lanes), _held(caps.groups)
            for lane, limiter in caps.lanes.items():
                limiter.total_tokens = self._lane_cap(name, lane)
            for group, limiter in caps.groups.items():
                limiter.total_tokens = self._group_cap(name, group)
        self.agents = _held(self.agents)
        for agent, limiter in self.agents.items():
            limiter.total_tokens = self._agent_cap(agent)

    def _rename(self, renames: Renames) -> None:
        self.providers = renames.rekeyed("provider", self.providers)
        for caps in self.providers.values():
            caps.lanes = renames.rekeyed("lane", caps.lanes)
        self.agents = {renames.agent_key(agent): limiter for agent, limiter in self.agents.items()}
        for call_id, permit in self._permits.items():
            declared, agent = renames.agent_key((permit.declared, permit.agent))
            self._permits[call_id] = attrs.evolve(
                permit,
                provider=renames.swapped("provider", permit.provider),
                lane=renames.swapped("lane", permit.lane),
                agent=agent,
                declared=declared,
            )

    def adapt(self, provider: str, limit: int) -> None:
        """Set the slots that the provider is trusted with; those held beyond them drain."""
        self._limits[provider] = limit
        caps = self.providers.get(provider)
        if caps is not None and provider in self._program.pools:
            caps.pool.total_tokens = limit
            for lane, limiter in caps.lanes.items():
                limiter.total_tokens = self._lane_cap(provider, lane)

    def take(self, permit: Permit, borrower: object) -> None:
        """Take one of each that the permit names; all or nothing.

        Raises:
            AssertionError: One of them is full: the core granted too many.
        """
        taken: list[trio.CapacityLimiter] = []
        try:
            for place, limiter in enumerate(self._limiters(permit)):
                if permit.beyond and place in _BEYOND:
                    _acquire_beyond(limiter, borrower)
                else:
                    limiter.acquire_on_behalf_of_nowait(borrower)
                taken.append(limiter)
        except trio.WouldBlock as error:
            for limiter in taken:
                limiter.release_on_behalf_of(borrower)
            raise AssertionError(f"the scheduler granted {permit} beyond a cap") from error
        self._permits[permit.call_id] = permit

    def provider(self, permit: Permit) -> str:
        """Return the provider, under its present name, of a permit that is held."""
        return self._permits[permit.call_id].provider

    def give_back(self, permit: Permit, borrower: object) -> None:
        """Give back what `take` took.

        Limiters of names that a policy has declared stay until the next one; there are a handful of them, and a limiter
        costs more to make than to keep. Those of callers that nobody declares, of which there is no end, go with their
        last permit.
        """
        permit = self._permits.pop(permit.call_id)
        for limiter in self._limiters(permit):
            limiter.release_on_behalf_of(borrower)
        agent = permit.declared, permit.agent
        if not permit.declared and not self.agents[agent].borrowed_tokens:
            del self.agents[agent]
        caps = self.providers[permit.provider]
        if not caps.pool.borrowed_tokens and permit.provider not in self._program.pools:
            del self.providers[permit.provider]

    def audit(self, snapshot: Snapshot) -> None:
        """Assert that the core counts as we do. O(size of the policy)."""
        for name, pool in snapshot.pools.items():
            caps = self.providers.get(name)
            held = caps.pool.borrowed_tokens if caps is not None else 0
            assert held == pool.inflight, f"{name}: {held} held, the scheduler counts {pool.inflight}"
            for lane, inflight in pool.lanes_inflight.items():
                limiter = caps.lanes.get(lane) if caps is not None else None
                held = limiter.borrowed_tokens if limiter is not None else 0
                assert held == inflight, f"{name}, lane {lane}: {held} held, the scheduler counts {inflight}"
            for group, inflight in pool.groups_inflight.items():
                limiter = caps.groups.get(group) if caps is not None else None
                held = limiter.borrowed_tokens if limiter is not None else 0
                assert held == inflight, f"{name}, limits {group}: {held} held, the scheduler counts {inflight}"

    def _limiters(self, permit: Permit) -> tuple[trio.CapacityLimiter, ...]:
        name, lane, group, agent = permit.provider, permit.lane, permit.group, (permit.declared, permit.agent)
        caps = self.providers.get(name)
        if caps is None:
            caps = self.providers[name] = _ProviderCaps(trio.CapacityLimiter(self._limit(name)))
        if lane not in caps.lanes:
            caps.lanes[lane] = trio.CapacityLimiter(self._lane_cap(name, lane))
        if group not in caps.groups:
            caps.groups[group] = trio.CapacityLimiter(self._group_cap(name, group))
        if agent not in self.agents:
            self.agents[agent] = trio.CapacityLimiter(self._agent_cap(agent))
        return caps.pool, caps.lanes[lane], caps.groups[group], self.agents[agent]

    def _lane_cap(self, provider: str, lane: str) -> float:
        declared = self._program.lanes.get(lane)
        if declared is None or declared.max is None:
            return math.inf
        return max(1, declared.max.of(self._limit(provider)))

    def _limit(self, provider: str) -> int:
        return self._limits.get(provider, self._program.pools[provider].limit)

    def _group_cap(self, provider: str, glob: str | None) -> float:
        for group in self._program.pools[provider].groups:
            if group.glob == glob and group.concurrency is not None:
                return group.concurrency
        return math.inf

    def _agent_cap(self, agent: AgentKey) -> float:
        declared, name = agent
        cap = (self._program.agent(name) if declared else self._program.unknown).concurrency
        return math.inf if cap is None else cap
