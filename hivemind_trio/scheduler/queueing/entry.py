"""Queued calls, as far as queues and lanes need them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from hivemind_trio.model import Decision, Reason
from hivemind_trio.scheduler.limits.cost import Cost
from hivemind_trio.scheduler.limits.limit_group import LimitGroup
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.plans.plan_gate import PlanGate
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.structures.indexed_heap import Rank

from .agent import AgentState
from .fair_share import Flow


class EntryPlacement(Protocol):
    """The counters that a queued call is held against."""

    @property
    def agent(self) -> AgentState:
        """State of the agent."""
        ...

    @property
    def share(self) -> Flow:
        """Flow that the call is counted for."""
        ...

    @property
    def cost(self) -> Cost:
        """Estimated cost per rate-limit dimension."""
        ...

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def group(self) -> LimitGroup:
        """Limits group of the model."""
        ...

    @property
    def quotas(self) -> RateLimits:
        """Rate limits of the group."""
        ...

    @property
    def plan(self) -> PlanGate | None:
        """Gate of its account's plan; None: the policy keeps nothing from it."""
        ...

    @property
    def start_cost(self) -> Cost:
        """Estimated cost in the limits of its agent."""
        ...

    def lacks(self) -> Reason:
        """Return the reason for which it has to wait."""
        ...


class QueueEntry(Hashable, Protocol):
    """A queued call. `calls.WaitingCall` is one; `call.id` finds it in the waiting room."""

    @property
    def call(self) -> Call:
        """The call."""
        ...

    @property
    def seq(self) -> int:
        """Sequence number of the arrival."""
        ...

    @property
    def arrived_ns(self) -> int:
        """Time of arrival."""
        ...

    @property
    def treatment(self) -> Decision:
        """Decision of the policy."""
        ...

    @property
    def place(self) -> EntryPlacement:
        """Place among the queues."""
        ...

    @property
    def agent_key(self) -> AgentKey:
        """Key of the agent for fair queueing."""
        ...

    @property
    def rank(self) -> Rank:
        """Rank in the queue."""
        ...

    @property
    def is_fair(self) -> bool:
        """True if it takes part in fair queueing."""
        ...

    @property
    def overdue_ns(self) -> int:
        """Time from which it is overdue."""
        ...

    @property
    def thread(self) -> str:
        """Conversation that it continues."""
        ...

    @property
    def warm_until_ns(self) -> int | None:
        """Time until which its prompt is cached; None if it is not."""
        ...
