"""What the scheduler may and may not do, kept a second time and by brute force.

Only the messages of `hivemind_trio.scheduler` are used here: the books are lists of calls, every question scans
them, and each command is held against them one by one, in order, so a cap is checked at every instant between two
commands and not only at the end of an event.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from hivemind_trio.model import Decision, Reason, Verdict
from hivemind_trio.policy import UNKNOWN_AGENT, Program
from hivemind_trio.scheduler import Call, CallId, Command, Grant, Reject, Snapshot

SECOND_NS = 1_000_000_000

Key = tuple[bool, str]


@attrs.define(eq=False)
class Entry:
    """One call that waits or is in flight, under the names that the policy gave it last."""

    call: Call
    order: int
    arrived_ns: int
    treatment: Decision

    @property
    def agent(self) -> Key:
        declared = self.treatment.agent != UNKNOWN_AGENT
        return (declared, self.treatment.agent if declared else self.call.caller)

    @property
    def deadline_ns(self) -> int | None:
        patience_ns = self.treatment.deadline_ns
        return None if patience_ns is None else self.arrived_ns + patience_ns

    @property
    def overdue_ns(self) -> int | None:
        """When half of its deadline is over; the histories are too short for calls without one to be overdue."""
        patience_ns = self.treatment.deadline_ns
        return None if patience_ns is None else self.arrived_ns + patience_ns // 2

    def is_overdue(self, now_ns: int) -> bool:
        return self.overdue_ns is not None and self.overdue_ns <= now_ns


@attrs.define(eq=False)
class Ledger:
    program: Program
    waiting: dict[CallId, Entry] = attrs.field(factory=dict)
    running: dict[CallId, Entry] = attrs.field(factory=dict)
    draining: bool = False
    arrivals: int = 0

    # ---- caps ----

    def held(self, where: Callable[[Entry], bool]) -> int:
        return sum(map(where, self.running.values()))

    def lane_held(self, provider: str | None, lane: str) -> int:
        return self.held(lambda other: other.treatment.provider == provider and other.treatment.lane == lane)

    def lacks(self, entry: Entry) -> Reason:
        """What the call lacks, of all that limits it; `NONE`: it fits everywhere."""
        its = entry.treatment
        assert its.provider is not None
        provider, lane = self.program.providers[its.provider], self.program.lanes[its.lane]
        if self.held(lambda other: other.treatment.provider == its.provider) >= provider.limit:
            return Reason.PROVIDER_CONCURRENCY
        group_cap = next((group.concurrency for group in provider.groups if group.glob == its.group), None)
        in_group = self.held(
            lambda other: other.treatment.provider == its.provider and other.treatment.group == its.group
        )
        if group_cap is not None and in_group >= group_cap:
            return Reason.LIMITS_CONCURRENCY
        if lane.max is not None and self.lane_held(its.provider, its.lane) >= max(1, lane.max.of(provider.limit)):
            return Reason.LANE_MAX
        if not self.due(entry):
            free = provider.limit - self.held(lambda other: other.treatment.provider == its.provider)
            unused = 0
            for name, slots in self.reserves(provider.limit).items():
                unused += max(0, slots - self.lane_held(its.provider, name))
            if free - 1 < unused:
                return Reason.LANE_RESERVE
        declared, name = entry.agent
        agent_cap = (self.program.agent(name) if declared else self.program.unknown).concurrency
        if agent_cap is not None and self.held(lambda other: other.agent == entry.agent) >= agent_cap:
            return Reason.AGENT_CONCURRENCY
        return Reason.NONE

    def due(self, entry: Entry) -> bool:
        its = entry.treatment
        assert its.provider is not None
        reserve = self.reserves(self.program.providers[its.provider].limit)[its.lane]
        return self.lane_held(its.provider, its.lane) < reserve

    def reserves(self, limit: int) -> dict[str, int]:
        """In file order until nothing is left; a slot stays open if a lane would go without."""
        asked: dict[str, int] = {}
        for name, lane in self.program.lanes.items():
            most = limit if lane.max is None else max(1, lane.max.of(limit))
            asked[name] = min(lane.reserve.of(limit), most, limit)
        everybody = min(asked.values()) > 0 and sum(asked.values()) <= limit
        pot = limit if everybody else limit - 1
        kept: dict[str, int] = {}
        for name, slots in asked.items():
            kept[name] = max(0, min(slots, pot - sum(kept.values())))
        return kept

    # ---- order ----

    def better(self, one: Entry, other: Entry, now_ns: int) -> bool:
        """Whether `one` must go before `other`, both of one lane: by priority, and then within its agent by arrival.

        Whose turn it is among agents is another thing that the ledger does not predict (`test_shares.py`), nor which of
        the calls that are overdue goes first (`test_waits.py`): they may go before all others.
        """
        if other.is_overdue(now_ns):
            return False
        ones, others = self.level(one), self.level(other)
        return ones < others or (ones == others and one.agent == other.agent and one.order < other.order)

    def level(self, entry: Entry) -> int:
        """Of priority, the lowest first. A step is worth so much waiting."""
        aging_ns = self.program.lanes[entry.treatment.lane].aging_ns
        if aging_ns is None:
            return -entry.treatment.priority
        return entry.arrived_ns // aging_ns - entry.treatment.priority

    # ---- bounds ----

    def full_for(self, entry: Entry) -> bool:
        """The bounds of its agent and its provider."""
        declared, name = entry.agent
        agent_queue = (self.program.agent(name) if declared else self.program.unknown).queue
        provider_queue = self.program.providers[entry.treatment.provider or ""].queue
        by_agent = sum(other.agent == entry.agent for other in self.waiting.values())
        at_provider = sum(other.treatment.provider == entry.treatment.provider for other in self.waiting.values())
        return (agent_queue is not None and by_agent >= agent_queue) or (
            provider_queue is not None and at_provider >= provider_queue
        )

    def full_lane(self, entry: Entry) -> bool:
        """The bounds of its lane and of the waiting room."""
        queue = self.program.lanes[entry.treatment.lane].queue
        in_lane = len(self.of_lane(entry))
        return (queue is not None and in_lane >= queue) or len(self.waiting) >= self.program.server.max_waiting

    def of_lane(self, entry: Entry) -> list[Entry]:
        return [other for other in self.waiting.values() if other.treatment.lane == entry.treatment.lane]

    # ---- events ----

    def outright(self, call: Call, treatment: Decision) -> Reason | None:
        if self.draining:
            return Reason.DRAINING
        if treatment.agent == UNKNOWN_AGENT and self.program.server.refuse_unknown:
            return Reason.UNKNOWN_AGENT
        if treatment.verdict is Verdict.DENY:
            return Reason.DENIED
        return Reason.NO_PROVIDER if treatment.provider is None else None

    def arrived(self, call: Call, now_ns: int, commands: list[Command]) -> None:
        commands = self.expire(now_ns, commands)
        entry = Entry(call, self.arrivals, now_ns, self.program.decide(call.request))
        self.arrivals += 1

        reason = self.outright(call, entry.treatment)
        if reason is not None or not call.needs_slot:
            (answer,) = commands
            assert isinstance(answer, Reject | Grant)
            assert answer.call_id == call.id
            assert answer.waited_ns == 0
            if reason is not None:
                self.refusal(answer, reason)
            else:
                assert isinstance(answer, Grant)
                assert answer.permit is None
            return
        if self.lacks(entry) is Reason.NONE:
            (answer,) = commands
            assert isinstance(answer, Grant), "a call that fits is let go, however full the queues are"
            assert answer.reason is Reason.NONE
            self.granted(answer, entry, now_ns)
            return

        full = self.full_for(entry)
        victim: Entry | None = None
        if not full and self.full_lane(entry):
            in_lane = self.of_lane(entry)
            if self.program.lanes[entry.treatment.lane].shed_oldest and in_lane:
                victim = min(in_lane, key=lambda other: other.order)
            else:
                full = True
        if full:
            (answer,) = commands
            assert self.refusal(answer, Reason.QUEUE_FULL).call_id == call.id
            return
        if victim is not None:
            refused = self.refusal(commands.pop(0), Reason.SHED_OLDEST)
            assert refused.call_id == victim.call.id
            assert refused.waited_ns == now_ns - victim.arrived_ns
            del self.waiting[victim.call.id]
        self.waiting[call.id] = entry
        assert not self.expire(now_ns, commands), "nothing else can follow from an arrival"

    def cancelled(self, call_id: CallId, now_ns: int, commands: list[Command]) -> None:
        self.waiting.pop(call_id, None)
        assert not self.expire(now_ns, commands)

    def ended(self, call_id: CallId, now_ns: int, commands: list[Command]) -> None:
        commands = self.expire(now_ns, commands)
        del self.running[call_id]
        self.dispatched(now_ns, commands)

    def passed(self, now_ns: int, commands: list[Command]) -> None:
        assert not self.expire(now_ns, commands), "time alone lets nobody go"

    def drained(self, now_ns: int, commands: list[Command]) -> None:
        commands = self.expire(now_ns, commands)
        self.draining = True
        told = [self.refusal(answer, Reason.DRAINING).call_id for answer in commands]
        assert told == list(self.waiting), "every call is told, in order of arrival"
        self.waiting.clear()

    def loaded(self, program: Program, now_ns: int, commands: list[Command]) -> None:
        commands = self.expire(now_ns, commands)
        self.program = program
        for entry in list(self.waiting.values()):
            entry.treatment = program.decide(entry.call.request)
            reason = self.outright(entry.call, entry.treatment)
            if reason is not None:
                answer = self.refusal(commands.pop(0), reason)
                assert answer.call_id == entry.call.id
                assert answer.waited_ns == now_ns - entry.arrived_ns
                del self.waiting[entry.call.id]
        commands = self.expire(now_ns, commands)
        self.dispatched(now_ns, commands)

    def expire(self, now_ns: int, commands: list[Command]) -> list[Command]:
        """Hold the refusals at the head of the commands against the deadlines; return the other commands."""
        late = [each for each in self.waiting.values() if each.deadline_ns is not None and each.deadline_ns <= now_ns]
        late.sort(key=lambda each: (each.deadline_ns, each.order))
        for entry in late:
            assert commands, f"call {entry.call.id} waits beyond its deadline"
            answer = self.refusal(commands[0], Reason.DEADLINE)
            assert answer.call_id == entry.call.id
            assert answer.waited_ns == now_ns - entry.arrived_ns
            del self.waiting[entry.call.id]
            commands = commands[1:]
        return commands

    def dispatched(self, now_ns: int, commands: list[Command]) -> None:
        for answer in commands:
            assert isinstance(answer, Grant), "a slot given back refuses nobody"
            entry = self.waiting.pop(answer.call_id)
            assert answer.reason is not Reason.NONE
            for other in self.waiting.values():
                if other.treatment.provider != entry.treatment.provider or self.lacks(other) is not Reason.NONE:
                    continue
                if other.treatment.lane == entry.treatment.lane:
                    assert not self.better(other, entry, now_ns), "passed a better call of its lane that fitted"
                else:
                    assert self.due(entry) or not self.due(other), "passed a lane that is due its reserve"
            self.granted(answer, entry, now_ns)

    def granted(self, answer: Grant, entry: Entry, now_ns: int) -> None:
        assert self.lacks(entry) is Reason.NONE, "granted without room"
        assert answer.treatment == entry.treatment
        assert answer.waited_ns == now_ns - entry.arrived_ns
        permit = answer.permit
        assert permit is not None
        assert (permit.call_id, permit.provider, permit.group, permit.lane, permit.agent) == (
            entry.call.id,
            entry.treatment.provider,
            entry.treatment.group,
            entry.treatment.lane,
            entry.agent[1],
        )
        self.running[entry.call.id] = entry

    def refusal(self, answer: Command, reason: Reason) -> Reject:
        """Hold a command to be a refusal for this reason, with a time to come back at if that can help."""
        assert isinstance(answer, Reject)
        assert answer.reason is reason
        assert answer.message
        if reason in (Reason.DENIED, Reason.UNKNOWN_AGENT, Reason.NO_PROVIDER):
            assert answer.retry_after_ns is None, "coming back would not help"
        else:
            assert answer.retry_after_ns is not None
            assert SECOND_NS <= answer.retry_after_ns <= 60 * SECOND_NS
        return answer

    # ---- at rest ----

    def check_rest(self, snapshot: Snapshot) -> None:
        """Nobody waits who fits, and the scheduler's counters are the books'."""
        for entry in self.waiting.values():
            assert self.lacks(entry) is not Reason.NONE, f"call {entry.call.id} fits everywhere and waits"
        if self.waiting:
            assert self.running, "somebody waits and nothing that is in flight could ever let him go"

        assert (snapshot.inflight, snapshot.waiting) == (len(self.running), len(self.waiting))
        assert snapshot.agents == len({entry.agent for entry in (*self.running.values(), *self.waiting.values())})
        for name in self.program.lanes:
            assert snapshot.lanes_waiting[name] == sum(e.treatment.lane == name for e in self.waiting.values())
        used = {entry.treatment.provider for entry in self.running.values()}
        assert set(snapshot.pools) == set(self.program.providers) | used
        for name, pool in snapshot.pools.items():
            here = [entry.treatment for entry in self.running.values() if entry.treatment.provider == name]
            assert pool.inflight == len(here)
            assert pool.waiting == sum(entry.treatment.provider == name for entry in self.waiting.values())
            assert sum(pool.lanes_inflight.values()) == sum(pool.groups_inflight.values()) == len(here)
            for lane, slots in pool.lanes_inflight.items():
                assert slots == sum(each.lane == lane for each in here)
            for group, slots in pool.groups_inflight.items():
                assert slots == sum(each.group == group for each in here)
