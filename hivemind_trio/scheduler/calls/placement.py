"""Placement of a call: every counter that it takes a slot of."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Reason, Request
from hivemind_trio.policy import Objective, RateLimitSettings
from hivemind_trio.scheduler.caching.prompt_cache import PromptCacheModel
from hivemind_trio.scheduler.limits.concurrency_limit import give_back, take, take_beyond
from hivemind_trio.scheduler.limits.cost import NOTHING, Cost
from hivemind_trio.scheduler.limits.limit_group import LimitGroup
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.plans.plan_gate import PlanGate
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.queueing.agent import AgentState, Parkable
from hivemind_trio.scheduler.queueing.fair_share import Flow
from hivemind_trio.scheduler.queueing.lane import ProviderLane
from hivemind_trio.scheduler.queueing.provider import ProviderQueue


@final
@attrs.define(eq=False)
class Placement:
    """The counters that a call is held against. A call that cannot have a slot of each takes none. It never changes.

    An attempt in flight keeps the place that it was granted, whatever policies are loaded meanwhile: the counters are
    found by name and live on, so what was taken is given back to the same ones.
    """

    pool: ProviderQueue
    lane: ProviderLane
    group: LimitGroup
    quotas: RateLimits
    agent: AgentState
    share: Flow
    """Service that its agent has had here."""
    cost: Cost
    """Estimated cost in each rate limit."""
    request: Request
    """As it is sent: it may be with another model than it came with."""
    model: str
    """Model that it is sent with, as `LoadedModels` knows it."""
    prompts: PromptCacheModel | None
    """Prompt cache that tracks its prefix; None: the prompt is short."""
    objective: Objective
    """Objective that orders jobs where it waits."""
    plan: PlanGate | None = None
    """None: the policy keeps no part of its account's plan from it."""
    start_cost: Cost = NOTHING
    """Estimated cost in the limits of its agent; `NOTHING`: they have counted it, or there are none."""

    @property
    def prefixes(self) -> PromptCacheModel | None:
        """Prompt cache, where it matters; None: the prompt is short, or input is not scarce."""
        return self.prompts if self.quotas.limits_input else None

    def too_large(self) -> RateLimitSettings | None:
        """Return the rate limit that no wait could make the call fit; None: none, as far as is sure."""
        return self.quotas.too_large(self.cost, exact=self.request.tokens_counted > 0)

    def blocked(self, now_ns: int) -> Reason:
        """Return the limit that blocks the call now, the widest first; `NONE`: it fits."""
        lacks = self.lacks()
        if lacks is not Reason.NONE:
            return lacks
        if self.quotas.restricts and self.quotas.opens_ns(self.cost, now_ns) > now_ns:
            return self.quotas.reason(now_ns)
        return Reason.NONE if self.plan is None else self.plan.reason(now_ns)

    def lacks(self) -> Reason:
        """Return the slot that is missing; `NONE`: one of each kind is free."""
        pool = self.pool
        if not pool.slots.has_room:
            return pool.slots.closed or Reason.PROVIDER_CONCURRENCY
        if pool.residents.enabled and not pool.residents.may(self.model):
            return Reason.MODEL_RESIDENT
        if not self.group.slots.has_room:
            return self.group.slots.closed or Reason.LIMITS_CONCURRENCY
        if not self.lane.slots.has_room:
            return self.lane.slots.closed or Reason.LANE_MAX
        if not pool.may_take(self.lane):
            return Reason.LANE_RESERVE
        if not self.agent.slots.has_room:
            return self.agent.slots.closed or Reason.AGENT_CONCURRENCY
        return Reason.NONE if self.agent.admits(self) else Reason.AGENT_LIMIT

    @property
    def is_paused(self) -> bool:
        """True if an operator holds back its lane or agent."""
        return self.lane.slots.closed is not None or self.agent.slots.closed is not None

    def opens_beyond_ns(self, now_ns: int) -> int | None:
        """Return when it fits past the limits of lane, agent and plan reserves; None: when an attempt ends."""
        pool = self.pool
        if self.is_paused or not pool.slots.has_room or not self.group.slots.has_room:
            return None
        if pool.residents.enabled and not pool.residents.may(self.model):
            return None
        opens_ns = self.quotas.opens_ns(self.cost, now_ns) if self.quotas.restricts else now_ns
        if self.plan is not None and self.plan.reason(now_ns) is Reason.PLAN_USED_UP:
            opens_ns = max(opens_ns, self.plan.opens_ns(now_ns))
        return opens_ns

    def take(self, call_id: CallId, now_ns: int, *, beyond: bool = False) -> None:
        """Take of everything; each slot asserts that it is there, those of lane and agent unless it goes `beyond`."""
        pool, agent = self.pool, self.agent
        take(pool.slots, self.group.slots)
        (take_beyond if beyond else take)(self.lane.slots, agent.slots)
        if pool.residents.enabled:
            pool.residents.take(self.model, now_ns)
        self.quotas.take(call_id, self.cost, now_ns)
        if agent.windows is not None:
            if self.start_cost is not NOTHING:
                agent.windows.advance(now_ns)
                agent.windows.take(self.start_cost, beyond=beyond)
            agent.look(now_ns)
        if not agent.slots.has_room:
            agent.park()

    def give_back(self, now_ns: int) -> list[Parkable]:
        """Return the lines of its agent, at any provider, that can move again."""
        pool, agent = self.pool, self.agent
        capped = not agent.slots.has_room
        give_back(pool.slots, self.group.slots, self.lane.slots, agent.slots)
        if pool.residents.enabled:
            pool.residents.give_back(self.model, now_ns)
        return agent.unpark() if capped and agent.slots.has_room else []
