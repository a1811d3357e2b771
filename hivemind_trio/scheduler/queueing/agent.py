"""One agent's calls, over all providers: how many are in flight, and the lines in which the others wait."""

from __future__ import annotations

from typing import Protocol, Self, final

import attrs

from hivemind_trio.model import Reason
from hivemind_trio.policy import Program
from hivemind_trio.scheduler.limits.concurrency_limit import ConcurrencyLimit
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.call import CallId

from .fair_share import Flow


class Parkable(Protocol):
    """Calls of one agent in one queue, which wait outside of it while the agent is at its cap."""

    @property
    def first_id(self) -> CallId:
        """The call that is next among them."""

    def park(self) -> None:
        """Leave the queue."""

    def unpark(self) -> None:
        """Return to the queue."""


@final
@attrs.define(eq=False)
class AgentState:
    """An agent at its cap has its lines parked: they are in no heap, so nobody has to step over them.

    A line is a parked one exactly while its agent has no room; taking and giving back keep it so. An agent has few
    lines, at most one per provider, lane and limits group.
    """

    key: AgentKey
    queue: int | None
    """The bound of `waiting`."""
    weight: int
    """Its share within its team, or among the teams where it has none."""
    slots: ConcurrencyLimit = attrs.field(factory=ConcurrencyLimit, init=False)
    granted_ns: int = attrs.field(default=-1, init=False)
    """When one of its calls was last granted; before 0: never."""
    waiting: int = attrs.field(default=0, init=False)
    lines: dict[Parkable, None] = attrs.field(factory=dict, init=False)
    """Those with calls in them, in the order in which they began."""
    shares: dict[Flow, None] = attrs.field(factory=dict, init=False)
    """Service that it has had, in every lane of every provider that it uses."""

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self.key[1]

    @classmethod
    def of(cls, key: AgentKey, program: Program) -> Self:
        """One that has asked for nothing yet."""
        declared, name = key
        settings = program.agent(name) if declared else program.unknown
        agent = cls(key, settings.queue, settings.weight)
        if settings.concurrency is not None:
            agent.slots.resize(settings.concurrency)
        return agent

    def load(self, program: Program) -> None:
        """Take the settings of a new policy and start with no lines. What is held stays held."""
        declared, name = self.key
        settings = program.agent(name) if declared else program.unknown
        self.slots.resize(settings.concurrency)
        self.queue = settings.queue
        self.weight = settings.weight
        self.waiting = 0
        self.lines = {}

    def pause(self, reason: Reason | None) -> None:
        """Hold its calls back; None: no longer."""
        self.slots.close(reason)
        if self.slots.has_room:
            self.unpark()
        else:
            self.park()

    def park(self) -> None:
        """Remove its queues from all heaps: it is at its limit."""
        for line in self.lines:
            line.park()

    def retire(self) -> None:
        """Forget an agent without calls."""
        for share in self.shares:
            share.retire()
        self.shares = {}

    def unpark(self) -> list[Parkable]:
        """Return its queues to the heaps, and return those that can be dispatched.

        Return the lines that can move again.
        """
        lines = list(self.lines)
        for line in lines:
            line.unpark()
        return lines
