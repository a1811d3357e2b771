"""One agent's calls, over all providers: how many are in flight, and the lines in which the others wait."""

from __future__ import annotations

from typing import Protocol, Self, final

import attrs

from hivemind_trio.model import Reason
from hivemind_trio.policy import Program
from hivemind_trio.scheduler.limits.concurrency_limit import ConcurrencyLimit
from hivemind_trio.scheduler.limits.cost import NOTHING, Cost
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap

from .agent_windows import AgentWindows
from .fair_share import Flow


class Start(Protocol):
    """A queued call, as far as the limits of its agent need it."""

    @property
    def start_cost(self) -> Cost:
        """Estimated cost in the limits of its agent; `NOTHING`: it has been counted, or there are none."""
        ...


class Parkable(Protocol):
    """Calls of one agent in one queue, which wait outside of it while the agent is at its cap."""

    @property
    def first_id(self) -> CallId:
        """The call that is next among them."""

    @property
    def first_start(self) -> Start:
        """The same, as the limits of its agent see it."""

    @property
    def first_order(self) -> tuple[int, int]:
        """Its place among the calls of its agent: by priority, then by arrival."""

    @property
    def ready(self) -> bool:
        """True if it stands in the queue."""

    def park(self) -> None:
        """Leave the queue."""

    def unpark(self) -> None:
        """Return to the queue."""


@final
@attrs.define(eq=False)
class LimitedAgents:
    """Agents with limits, as far as something may change for their calls."""

    changed: dict[AgentState, None] = attrs.field(factory=dict, init=False)
    """Their calls or their windows have changed since their lines were looked at."""
    freed: dict[Parkable, None] = attrs.field(factory=dict, init=False)
    """Lines that can move again and have not been dispatched."""
    by_time: IndexedHeap[AgentState] = attrs.field(factory=IndexedHeap, init=False)
    """Agents whose windows hold a call, by the time at which they let it go."""

    def wakes_ns(self) -> int | None:
        """Return when a window lets a call go; None: none holds one."""
        first = self.by_time.first
        return first.opens_ns if first is not None else None

    def look(self, now_ns: int) -> list[Parkable]:
        """Bring the lines of changed agents, and of those whose time has come, up to date; return those to dispatch."""
        while (first := self.by_time.first) is not None and (first.opens_ns or 0) <= now_ns:
            self.by_time.discard(first)
            self.changed[first] = None
        while self.changed:
            agent, _ = self.changed.popitem()
            agent.look(now_ns)
        freed, self.freed = self.freed, {}
        return [line for line in freed if line.ready]

    def forget(self, agent: AgentState) -> None:
        """Forget an agent without calls."""
        self.changed.pop(agent, None)
        self.by_time.discard(agent)


@final
@attrs.define(eq=False)
class AgentState:
    """An agent at its cap has its lines parked: they are in no heap, so nobody has to step over them.

    A line is a parked one exactly while its agent has no room for its first call; taking and giving back keep it so. An
    agent has few lines, at most one per provider, lane and limits group.

    Its windows let its calls start in order of priority and arrival: another call takes of their room only beside the
    one that is next.
    """

    key: AgentKey
    queue: int | None
    """The bound of `waiting`."""
    weight: int
    """Its share within its team, or among the teams where it has none."""
    windows: AgentWindows | None
    """None: the policy gives it no limits."""
    _limited: LimitedAgents
    slots: ConcurrencyLimit = attrs.field(factory=ConcurrencyLimit, init=False)
    opens_ns: int | None = attrs.field(default=None, init=False)
    """Time at which its windows let the next of its calls start; None: they hold none."""
    _next: Start | None = attrs.field(default=None, init=False)
    """The next call of its lines: no other takes the room in its windows. None: none waits in line."""
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
    def of(cls, key: AgentKey, program: Program, windows: AgentWindows | None, limited: LimitedAgents) -> Self:
        """One that has asked for nothing yet."""
        declared, name = key
        settings = program.agent(name) if declared else program.unknown
        agent = cls(key, settings.queue, settings.weight, windows, limited)
        if settings.concurrency is not None:
            agent.slots.resize(settings.concurrency)
        return agent

    def load(self, program: Program, windows: AgentWindows | None) -> None:
        """Take the settings of a new policy and start with no lines. What is held stays held."""
        declared, name = self.key
        settings = program.agent(name) if declared else program.unknown
        self.slots.resize(settings.concurrency)
        self.queue = settings.queue
        self.weight = settings.weight
        self.waiting = 0
        self.lines = {}
        self.windows, self.opens_ns, self._next = windows, None, None
        self._limited.forget(self)

    def admits(self, call: Start) -> bool:
        """Return True if its slots and windows have room for a call, beside the one that is next."""
        if not self.slots.has_room:
            return False
        windows = self.windows
        if windows is None or call.start_cost is NOTHING:
            return True
        if self._next is None or self._next is call:
            return windows.fits(call.start_cost)
        return windows.fits(call.start_cost, beside=self._next.start_cost)

    def change(self) -> None:
        """Note that its calls or windows have changed."""
        if self.windows is not None:
            self._limited.changed[self] = None

    def look(self, now_ns: int) -> None:
        """Park the lines whose first call its windows hold, and return the others to the heaps."""
        windows = self.windows
        if windows is None:
            return
        windows.advance(now_ns)
        first = min(self.lines, key=lambda line: line.first_order, default=None)
        self._next, self.opens_ns = first.first_start if first is not None else None, None
        for line in self.lines:
            if self.admits(line.first_start) is line.ready:
                continue
            if line.ready:
                line.park()
            else:
                line.unpark()
                self._limited.freed[line] = None
        if first is not None and not first.ready and self.slots.has_room:
            self.opens_ns = windows.fits_ns(first.first_start.start_cost)
            self._limited.by_time.put(self, (self.opens_ns,))
        else:
            self._limited.by_time.discard(self)

    def pause(self, reason: Reason | None) -> None:
        """Hold its calls back; None: no longer."""
        self.slots.close(reason)
        if self.slots.has_room:
            self.unpark()
        else:
            self.park()

    def park(self) -> None:
        """Remove its queues from all heaps: it is at its limit."""
        self.change()
        for line in self.lines:
            line.park()

    def retire(self) -> None:
        """Forget an agent without calls."""
        self._limited.forget(self)
        for share in self.shares:
            share.retire()
        self.shares = {}

    def unpark(self) -> list[Parkable]:
        """Return its queues to the heaps, and return the lines that can move again."""
        self.change()
        lines = [line for line in self.lines if self.admits(line.first_start)]
        for line in lines:
            line.unpark()
        return lines
