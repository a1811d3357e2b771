"""Queued calls, as far as queues and lanes need them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from hivemind_trio.model import Decision, Reason
from hivemind_trio.scheduler.limits.cost import Cost
from hivemind_trio.scheduler.limits.limit_group import LimitGroup
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.structures.indexed_heap import Rank

from .agent import AgentState
from .fair_share import Flow


class EntryPlacement(Protocol):
    """The counters that a queued call is held against."""

    @property
    def agent(self) -> AgentState: ...
    @property
    def share(self) -> Flow: ...
    @property
    def cost(self) -> Cost: ...
    @property
    def model(self) -> str: ...
    @property
    def group(self) -> LimitGroup: ...
    @property
    def quotas(self) -> RateLimits: ...
    def lacks(self) -> Reason: ...


class QueueEntry(Hashable, Protocol):
    """A queued call. `calls.WaitingCall` is one; `call.id` finds it in the waiting room."""

    @property
    def call(self) -> Call: ...
    @property
    def seq(self) -> int: ...
    @property
    def arrived_ns(self) -> int: ...
    @property
    def treatment(self) -> Decision: ...
    @property
    def place(self) -> EntryPlacement: ...
    @property
    def agent_key(self) -> AgentKey: ...
    @property
    def rank(self) -> Rank: ...
    @property
    def fair(self) -> bool: ...
    @property
    def overdue_ns(self) -> int: ...
    @property
    def thread(self) -> str: ...
    @property
    def warm_until_ns(self) -> int | None: ...
