"""A lane's part of one provider: its slots, its turn, and what waits in it there."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import final

import attrs

from hivemind_trio.model import Reason
from hivemind_trio.policy import NO_TEAM, LaneSettings, Objective, Renames, Sticky
from hivemind_trio.scheduler.caching.model_residency import LoadedModels
from hivemind_trio.scheduler.limits.concurrency_limit import ConcurrencyLimit
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.plans.plan_gate import PlanGate
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Features
from hivemind_trio.scheduler.protocol.agent_key import agent_word, renamed_word
from hivemind_trio.scheduler.protocol.call import Call

from .agent import AgentState
from .cache_affinity import STREAK_NS
from .drain_rate import QueueDrain
from .entry import QueueEntry
from .fair_share import Flow, FlowGroup
from .wait_queue import WaitQueue

STRIDE = 1 << 40
"""One grant to a lane of weight 1. A power of two, large enough that no weight is rounded noticeably."""


OVERDUE_ONE_IN = 4
"""Share of a lane's grants that may go to overdue calls before others, whoever their agents are."""


@final
@attrs.define(eq=False)
class ProviderLane:
    """`slots` is capped by the lane's `max`; `tag` is its virtual time (see `ProviderQueue`)."""

    name: str
    parts: Features = ALL_PARTS
    _residents: LoadedModels = attrs.field(factory=LoadedModels)
    """Models that the provider has in memory."""
    slots: ConcurrencyLimit = attrs.field(factory=ConcurrencyLimit, init=False)
    reserve: int = attrs.field(default=0, init=False)
    """Slots that it has first claim to; what the provider can really keep, see `ProviderQueue.load`."""
    tag: int = attrs.field(default=0, init=False)
    waiting: int = attrs.field(default=0, init=False)
    turns: QueueDrain = attrs.field(factory=QueueDrain, init=False)
    opens_ns: int | None = attrs.field(default=None, init=False)
    """When a quota will let somebody go who could go otherwise, as of the last look."""
    early: bool = attrs.field(default=False, init=False)
    """The call that was found then goes before its time."""
    sticky: bool = attrs.field(default=False, init=False)
    """Calls that belong together go one after the other."""
    sheds: bool = attrs.field(default=False, init=False)
    """When it is full, who has waited longest makes room."""
    _lane: LaneSettings | None = attrs.field(default=None, init=False)
    """As the policy has it; None: it is gone."""
    _stride: int = attrs.field(default=STRIDE, init=False)
    teams: FlowGroup = attrs.field(factory=FlowGroup, init=False)
    _in_order: int = attrs.field(default=0, init=False)
    """Grants since the last call that went before its time."""
    thread_served: str = attrs.field(default="", init=False)
    """Thread of the call that was granted last."""
    _thread_until_ns: int = attrs.field(default=0, init=False)
    _queues: dict[tuple[RateLimits, PlanGate | None, str], WaitQueue] = attrs.field(factory=dict, init=False)
    """Queues by rate limits, by what the plan lets through and, where models are changed, by model. Never
    more than have somebody waiting."""

    @property
    def declared(self) -> bool:
        """True if the policy declares the lane."""
        return self._lane is not None

    @property
    def reserve_unused(self) -> int:
        """Slots of the reserve that no call holds."""
        return max(0, self.reserve - self.slots.held) if self.slots.closed is None else 0

    @property
    def stands(self) -> bool:
        """Somebody is in line here: he neither rests nor is held by a budget."""
        return bool(self._queues)

    @property
    def has_its_part(self) -> bool:
        """True if it holds its whole share of the slots, so that a higher limit would give it more."""
        cap = self._lane.max if self._lane is not None else None
        return cap is not None and cap.ratio is not None and not self.slots.has_room and self.slots.closed is None

    def rename(self, renames: Renames) -> None:
        """Take the new names of a policy."""
        self.name = renames.swapped("lane", self.name)
        self.teams.rename(renames)
        if self._lane is not None and self._lane.sticky is Sticky.AGENT:
            self.thread_served = renamed_word(self.thread_served, renames)

    def load(self, lane: LaneSettings | None) -> None:
        """Take the settings of a new policy (None: the lane is gone) and start with empty queues."""
        self._lane = lane
        self.sheds = lane is not None and lane.shed_oldest
        self.sticky = lane is not None and lane.sticky is not None
        self._stride = STRIDE // lane.weight if lane else STRIDE
        self._queues = {}
        self.waiting = 0
        self.teams.load()

    def resize(self, limit: int, reserve: int) -> None:
        """Set the slots of the provider to `limit`, of which `reserve` are for this lane first."""
        self.slots.resize(self._lane.cap(limit) if self._lane else None)
        self.reserve = reserve

    def share(self, agent: AgentState, team: str, team_weight: int, objective: Objective) -> Flow:
        """Return the flow of an agent in this lane.

        Without a team it competes with the teams by itself or, where jobs of all agents are compared, together with all
        agents without a team.
        """
        if team == NO_TEAM and objective is Objective.FAIR:
            share = self.teams.sole(agent.key, agent.weight)
        else:
            share = self.teams.team_of(team, team_weight).share(agent.key, agent.weight)
        agent.shares[share] = None
        return share

    def lacks(self, now_ns: int) -> Reason:
        """Return the reason for which no call that stands here goes; the queue that opens next first."""
        queues = self._queues.values()
        opening = [queue for queue in queues if queue.opens_ns is not None and queue.opens_ns == self.opens_ns]
        return (opening or list(queues))[0].lacks(now_ns)

    def first(self, now_ns: int, models: Container[str] | None) -> QueueEntry | None:
        """Return the best call whose group and agent have room, if the lane has.

        `early` says more of it; if there is none, `opens_ns` is the time at which a quota lets one go.

        Args:
            models: Those that matter now; None: all.
        """
        self.opens_ns = None
        if not self.slots.has_room:
            return None
        best: tuple[QueueEntry, WaitQueue] | None = None
        mate: tuple[QueueEntry, WaitQueue] | None = None
        overdue = self._in_order >= OVERDUE_ONE_IN - 1 if self.parts.overdue else None
        thread = self.thread_served if now_ns < self._thread_until_ns else ""
        steal_above = self._lane.steal_above if self._lane is not None else 0
        for (_, _, model), queue in self._queues.items():
            if models is not None and model not in models:
                continue
            found = queue.first(now_ns, overdue=overdue, thread=thread, steal_above=steal_above)
            if found is None:
                if queue.opens_ns is not None and (self.opens_ns is None or queue.opens_ns < self.opens_ns):
                    self.opens_ns = queue.opens_ns
                continue
            if best is None or queue.rank < best[1].rank:
                best = found, queue
            if thread and found.thread == thread and (mate is None or queue.rank < mate[1].rank):
                mate = found, queue
        if best is not None and mate is not None and _goes_on(mate, best, steal_above):
            best = mate
        if best is None:
            return None
        self.early = best[1].early
        return best[0]

    def heads(self) -> Iterator[QueueEntry]:
        """Yield the next call of each queue, and the smallest, whatever they lack here."""
        for queue in self._queues.values():
            yield from queue.heads()

    def charge(self, virtual: int, *, overdue: bool) -> None:
        """One of its calls goes. `virtual` is where the lanes are that could have gone; it is lifted there."""
        self.tag = (self.tag if self.tag > virtual else virtual) + self._stride
        self._in_order = 0 if overdue else self._in_order + 1

    def on_granted(self, thread: str, now_ns: int) -> None:
        """Note that a call of a conversation is dispatched."""
        if thread != self.thread_served or now_ns >= self._thread_until_ns:
            self.thread_served, self._thread_until_ns = thread, now_ns + STREAK_NS

    def thread(self, call: Call, agent: AgentState) -> str:
        """Return the thread that a call belongs to."""
        match self._lane.sticky if self._lane is not None else None:
            case None:
                return ""
            case Sticky.KEY:
                return call.credential
            case Sticky.AGENT:
                return agent_word(agent.key)
            case Sticky.PREFIX:
                return call.prefix

    def put(self, waiter: QueueEntry) -> None:
        """Add a waiting call."""
        place = waiter.place
        residents = self._residents
        key = place.quotas, place.plan, place.model if residents.enabled else ""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = WaitQueue(place.group, place.quotas, place.plan)
        queue.put(waiter)
        if residents.enabled:
            residents.put(waiter)

    def remove(self, waiter: QueueEntry) -> None:
        """Remove a waiting call."""
        place = waiter.place
        residents = self._residents
        key = place.quotas, place.plan, place.model if residents.enabled else ""
        queue = self._queues[key]
        queue.remove(waiter)
        if queue.empty:
            del self._queues[key]
        if residents.enabled:
            residents.remove(waiter)


def _goes_on(mate: tuple[QueueEntry, WaitQueue], best: tuple[QueueEntry, WaitQueue], steal_above: int) -> bool:
    """Return True if a call of the thread that was served last goes in place of the best one of another queue.

    As within one queue: among calls of equal priority, and as long as no more than `steal_above` of the other wait.
    """
    (_, queue), (found, other) = mate, best
    return queue is not other and queue.rank[0] == other.rank[0] and other.mates(found.thread) <= steal_above
