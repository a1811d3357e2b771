"""Who goes, who waits and who is refused: the hub of the core.

A call is classified by the policy when it arrives, and again when a policy is loaded while it waits; nothing else
evaluates the policy. It starts when there is a slot for it at its provider, in its limits group, in its lane there and
for its agent, and takes all four in one step (`Place`). Otherwise it waits, holding nothing, in the queue of its
provider, lane and limits group (`PoolLane`, `Queue`), in the line of its agent there (`Line`).

Who is next: which lane is `Pool`'s decision; within a lane priority, age and order of arrival (`rank`). Calls that are
blocked by their agent or their limits group are passed by others that fit. Where several providers could give one
agent its next slot, the call that arrived first has it.

At rest, that is after every event, no call waits that fits everywhere and is due. That is why an arriving call that
fits may go at once: had anybody equal been waiting, he would have gone. And why calls are set going only by a slot
given back, a policy, or a time that was waited for: the end of a pause before a retry, of a circuit's, of a quota's.

An attempt that fails before the agent has had anything of it may be tried again (`_retry.py`): the call then rests
without a slot, and stands in line again in its old place. What attempts say of their provider is kept in `Health`.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import assert_never, final

import attrs

from hivemind_trio.model import Outcome, Reason, Treatment, Usage
from hivemind_trio.policy import DEFAULT_RETRY, UNKNOWN_AGENT, Program, Retry, WhileOpen

from . import _refusal
from ._account import Account, Turns
from ._agent import AgentKey, AgentSlots
from ._breaker import Circuit
from ._budget import NO_CLAIM, Amounts, Budgets, Claim, Partition, Shortage, amounts_of, sent
from ._call import Call, CallId
from ._estimate import cost_of
from ._flight import Flight
from ._health import Health
from ._messages import (
    Adapted,
    AttemptEnded,
    CallArrived,
    CallCancelled,
    Command,
    Draining,
    Event,
    Grant,
    Permit,
    PolicyLoaded,
    Refuse,
    Settle,
    TimePassed,
)
from ._outcome import HEALTHY, Ended
from ._pace import RETRY_MAX_NS, RETRY_MIN_NS
from ._place import Place
from ._pool import Pool
from ._quota import NOTHING
from ._retry import pause_ns, turned_away, wants_retry
from ._room import WaitingRoom
from ._snapshot import Snapshot
from ._waiter import Waiter, rank


def _no_calendar(now_ns: int, window_ns: int) -> int:
    """Windows that begin when the engine does."""
    return now_ns - now_ns % window_ns + window_ns


@final
@attrs.define(eq=False)
class Scheduler:
    """One program's scheduler. The same program, seed and sequence of `(event, now_ns)` give the same commands.

    Queue bounds are held against calls as they arrive. A policy that lowers a bound drops nobody who already waits: the
    queue shrinks as it is served.
    """

    _program: Program
    seed: int = 0
    """Of the one thing left to chance: refused calls are told to come back spread over a tenth of the time."""
    _turns: Turns = _no_calendar
    _random: Random = attrs.field(init=False)
    _now_ns: int = attrs.field(default=0, init=False)
    _arrivals: int = attrs.field(default=0, init=False)
    _draining: bool = attrs.field(default=False, init=False)
    _room: WaitingRoom = attrs.field(factory=WaitingRoom, init=False)
    _inflight: dict[CallId, Flight] = attrs.field(factory=dict, init=False)
    _pools: dict[str, Pool] = attrs.field(factory=dict, init=False)
    """In file order, then providers that are gone and were still in use when the policy was loaded."""
    _agents: dict[AgentKey, AgentSlots] = attrs.field(factory=dict, init=False)
    """Only those with a call waiting or in flight."""
    _budgets: Budgets = attrs.field(init=False)
    _loosened: dict[Account, None] = attrs.field(factory=dict, init=False)
    """Where calls are held by a budget that may have room again."""

    def __attrs_post_init__(self) -> None:
        self._budgets = Budgets(self._turns)
        self._random = Random(self.seed)  # noqa: S311  spreads load, guards nothing
        self._load(self._program)

    def handle(self, event: Event, now_ns: int) -> list[Command]:
        """Take one event into account and return what to do about it, in order. O(log waiting); a policy is O(waiting).

        Calls whose deadline has come by `now_ns` are refused first, whatever the event.

        Raises:
            ValueError: `now_ns` is earlier than that of an event before, a call arrives whose id is in use, or an
                attempt ends that is not in flight. A bug in the driver; the scheduler is unchanged.
        """
        if now_ns < self._now_ns:
            raise ValueError(f"time ran backwards: {now_ns} after {self._now_ns}")
        commands: list[Command] = []
        match event:
            case CallArrived(call=call):
                self._on_arrived(call, now_ns, commands)
            case CallCancelled(call_id=call_id):
                self._on_cancelled(call_id, now_ns, commands)
            case AttemptEnded(call_id=call_id, ended=ended):
                self._on_ended(call_id, ended, now_ns, commands)
            case PolicyLoaded(program=program):
                self._on_policy(program, now_ns, commands)
            case Draining():
                self._on_draining(now_ns, commands)
            case TimePassed():
                self._advance(now_ns, commands)
            case _:
                assert_never(event)
        if self._loosened:
            self._let_in(commands)
        return commands

    def wakeup_ns(self) -> int | None:
        """When time alone will next matter: for a deadline, a retry that is due, a circuit or a quota that opens."""
        times = [self._room.wakeup_ns()]
        for pool in self._pools.values():
            times += [pool.health.wakeup_ns(), pool.opens_ns]
        return min((time for time in times if time is not None), default=None)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            now_ns=self._now_ns,
            program_hash=self._program.hash,
            draining=self._draining,
            pools={pool.name: pool.snapshot() for pool in self._pools.values() if pool.declared or pool.slots.held},
            lanes_waiting={name: self._room.in_lane(name) for name in self._program.lanes},
            agents=len(self._agents),
            inflight=len(self._inflight),
            waiting=len(self._room),
        )

    # ---- events: each checks first, then advances the clock, then acts ----

    def _on_arrived(self, call: Call, now_ns: int, commands: list[Command]) -> None:
        if call.id in self._inflight or call.id in self._room:
            raise ValueError(f"call {call.id} arrived twice")
        treatment = self._program.decide(call.request)
        self._advance(now_ns, commands)

        treatment = self._treat(call, treatment)
        refuse = _refusal.outright(call, treatment, self._program, draining=self._draining, waited_ns=0)
        if refuse is not None:
            commands.append(refuse)
            return
        if not call.needs_slot:
            commands.append(Grant(call_id=call.id, treatment=treatment, permit=None, waited_ns=0, reason=Reason.NONE))
            return

        seq = self._arrivals
        self._arrivals += 1
        place = self._place(call, treatment)
        over = place.group.quotas.too_large(place.cost)
        if over is not None:
            commands.append(_refusal.too_large(call, treatment, over, place.cost))
            self._forget(place.agent)
            return
        blocked = place.blocked(now_ns)
        if blocked is Reason.BREAKER_OPEN and self._refuses_while_open(place.pool):
            commands.append(self._open_refusal(call, treatment, place.pool, 0))
            self._forget(place.agent)
            return
        waiter = self._waiter(call, treatment, place, now_ns, seq, blocked)
        short = self._claim(waiter)
        if short is not None and short.denies(now_ns):
            commands.append(self._refuse(waiter, Reason.BUDGET, *_refusal.spent(short, now_ns)))
            self._forget(place.agent)
        elif short is None and blocked is Reason.NONE:
            place.pool.take_at_once(place.lane, seq)
            commands.append(self._grant(self._flight(waiter), Reason.NONE))
        else:
            self._put_in_line(waiter, commands)
            if blocked is Reason.QUOTA or place.pool.opens_ns is not None:
                self._dispatch([place.pool], None, commands)  # which says when there will be room

    def _on_cancelled(self, call_id: CallId, now_ns: int, commands: list[Command]) -> None:
        # Leaves before the clock moves: the driver has closed the call and would not know what to do with a refusal.
        # In flight: its attempt is being cancelled, and will say when it has ended.
        waiter = self._room.get(call_id)
        if waiter is not None:
            self._leave(waiter)
        self._advance(now_ns, commands)
        if waiter is not None and waiter.place.pool.opens_ns is not None:
            # It may have been the large one behind which smaller ones stood.
            self._dispatch([waiter.place.pool], None, commands)

    def _on_ended(self, call_id: CallId, ended: Ended, now_ns: int, commands: list[Command]) -> None:
        flight = self._inflight.get(call_id)
        if flight is None:
            raise ValueError(f"call {call_id} has no attempt in flight")
        self._advance(now_ns, commands)

        del self._inflight[call_id]
        place = flight.place
        self._learn(flight, ended, commands)
        self._settle(flight, ended)
        lines = place.give_back()
        # Its provider, any other where its agent was all that was missing, and where its next attempt is to go.
        pools = {place.pool.name: place.pool}
        again = None if ended.committed else self._waiter_again(flight, ended)
        if again is not None:
            self._room.enter(again)
            pools |= {waiter.place.pool.name: waiter.place.pool for waiter in self._wake()}  # it may be due at once
        else:
            self._loosen(flight.claim.end(self._spent(flight, ended), now_ns))
            if not ended.committed:
                commands.append(Settle(call_id))
        pools |= {line.first().place.pool.name: line.first().place.pool for line in lines}
        self._dispatch(pools.values(), place.agent if lines else None, commands)
        self._forget(place.agent)

    def _on_policy(self, program: Program, now_ns: int, commands: list[Command]) -> None:
        treatments = {waiter.call.id: program.decide(waiter.call.request) for waiter in self._room}
        # Nobody is granted anything by the policy that goes: whoever keeps the slots counts by the new one already.
        self._now_ns = now_ns
        self._expire(commands)

        waiters = list(self._room)
        for waiter in waiters:
            self._room.leave(waiter)
            self._unclaim(waiter)
        self._loosened.clear()  # whoever was held is asked again now
        self._load(program)
        for waiter in waiters:
            self._stand_anew(waiter, treatments[waiter.call.id], commands)
        self._expire(commands)
        self._open(commands)
        for pool in self._pools.values():
            if self._given_up(pool):
                self._turn_away(pool, commands)
        self._dispatch(self._pools.values(), None, commands)

    def _on_draining(self, now_ns: int, commands: list[Command]) -> None:
        self._advance(now_ns, commands)
        self._draining = True
        for waiter in list(self._room):
            self._leave(waiter)
            commands.append(self._refuse(waiter, Reason.DRAINING, _refusal.DRAINING, _refusal.DRAINING_RETRY_NS))

    # ---- what attempts teach ----

    def _learn(self, flight: Flight, ended: Ended, commands: list[Command]) -> None:
        pool = flight.place.pool
        circuit = pool.health.breaker.circuit
        limit = pool.health.limit
        pool.health.on_ended(
            flight.call.id,
            ended,
            flight.treatment.group,
            granted_ns=flight.granted_ns,
            now_ns=self._now_ns,
            inflight=pool.slots.held,
        )
        pool.apply()
        if (pool.health.limit, pool.health.breaker.circuit) != (limit, circuit):
            self._tell(pool, ended.outcome, commands)
            if self._given_up(pool):
                self._turn_away(pool, commands)

    def _settle(self, flight: Flight, ended: Ended) -> None:
        """Charge the quotas what the attempt has really taken, as far as that is known."""
        place, pool = flight.place, flight.place.pool
        if ended.usage is not None:
            actual = pool.estimates.settled(
                sent(flight.call.request, flight.treatment), pool.api, place.cost, ended.usage
            )
        elif ended.outcome is Outcome.UNREACHABLE:
            actual = NOTHING
        elif turned_away(ended):
            actual = cost_of(0, 0)  # most providers count the request that they refuse, and none its tokens
        else:
            return
        if place.cost is not NOTHING:
            place.group.quotas.settle(place.cost, actual, flight.granted_ns, self._now_ns)

    def _spent(self, flight: Flight, ended: Ended) -> Amounts | None:
        """What the call has cost; None: nothing, as far as anybody knows."""
        estimates, request = flight.place.pool.estimates, sent(flight.call.request, flight.treatment)
        likely = estimates.likely(request)
        usage = ended.usage
        if usage is None:
            if ended.outcome in HEALTHY:
                usage = likely  # it was answered, and did not say
            elif turned_away(ended) or not ended.status:
                return None
            else:
                usage = Usage(input=0)  # it was asked, and answered with an error
        elif usage.input is None:
            usage = attrs.evolve(usage, input=likely.input)
        return amounts_of(usage, self._program.price(request.model))

    def _tell(self, pool: Pool, because: Outcome | None, commands: list[Command]) -> None:
        circuit = pool.health.breaker.circuit
        commands.append(Adapted(provider=pool.name, limit=pool.health.limit, circuit=circuit, because=because))

    def _waiter_again(self, flight: Flight, ended: Ended) -> Waiter | None:
        """The call on its way to another attempt, by the policy of now; None: there is to be none."""
        retry = self._retry(flight.treatment, flight.place.pool)
        if self._draining or not wants_retry(retry, ended, flight.attempt):
            return None
        call = attrs.evolve(flight.call, request=attrs.evolve(flight.call.request, attempt=flight.attempt + 1))
        treatment = self._treat(call, self._program.decide(call.request))
        if _refusal.outright(call, treatment, self._program, draining=False, waited_ns=0) is not None:
            return None
        place = self._place(call, treatment)
        waiter = self._waiter(call, treatment, place, flight.arrived_ns, flight.seq, Reason.RETRY)
        waiter.since_ns, waiter.waited_ns, waiter.attempts = self._now_ns, flight.waited_ns, flight.attempt
        waiter.claim = flight.claim
        due_ns = None
        if not self._given_up(place.pool) and place.group.quotas.too_large(place.cost) is None:
            due_ns = self._due_ns(retry, ended, flight, waiter.deadline_ns)
        if due_ns is None:
            self._forget(place.agent)
            return None
        waiter.rests_until_ns = due_ns
        return waiter

    def _due_ns(self, retry: Retry, ended: Ended, flight: Flight, deadline_ns: int | None) -> int | None:
        """When its next attempt may begin; None: there is no retry left for it, or it would come too late."""
        due_ns = self._now_ns + pause_ns(retry, ended, flight.attempt, self._random)
        if deadline_ns is not None and due_ns >= deadline_ns:
            return None
        # What was turned away at the door cost the provider nothing, and is held back by what says when: its word, the
        # circuit, AIMD. A fleet that was turned away together must not use up the retries of those that were broken.
        if not turned_away(ended) and not flight.place.pool.health.retries.take(self._now_ns):
            return None
        return due_ns

    def _retry(self, treatment: Treatment, pool: Pool) -> Retry:
        name = treatment.retry or (pool.provider.retry if pool.provider is not None else DEFAULT_RETRY)
        # Of a class that a reload has taken away, what is in flight keeps the default.
        return self._program.retries.get(name) or self._program.retries[DEFAULT_RETRY]

    def _refuses_while_open(self, pool: Pool) -> bool:
        return pool.provider is not None and pool.provider.while_open is WhileOpen.REFUSE

    def _given_up(self, pool: Pool) -> bool:
        """Whether nobody is to wait for it, not even to rest before the next attempt."""
        return pool.health.breaker.circuit is Circuit.OPEN and self._refuses_while_open(pool)

    def _open_refusal(self, call: Call, treatment: Treatment, pool: Pool, waited_ns: int) -> Refuse:
        opens_ns = pool.health.breaker.opens_ns
        wait_ns = max(opens_ns - self._now_ns, 0) if opens_ns is not None else 0
        return Refuse(
            call_id=call.id,
            treatment=treatment,
            reason=Reason.BREAKER_OPEN,
            waited_ns=waited_ns,
            message=_refusal.left_alone(pool.name),
            retry_after_ns=min(max(wait_ns, RETRY_MIN_NS), RETRY_MAX_NS),
        )

    def _turn_away(self, pool: Pool, commands: list[Command]) -> None:
        """The policy would rather refuse than hold: nobody waits for a provider that is left alone."""
        for waiter in [waiter for waiter in self._room if waiter.place.pool is pool]:
            self._leave(waiter)
            commands.append(self._open_refusal(waiter.call, waiter.treatment, pool, self._waited_ns(waiter)))

    # ---- budgets ----

    def _treat(self, call: Call, treatment: Treatment) -> Treatment:
        """What the budgets that are nearly used up make of it."""
        if not treatment.budgets or treatment.provider is None:
            return treatment
        treated = self._budgets.treat(treatment, self._whose(call, treatment), self._now_ns)
        if treated.model == treatment.model:
            return treated
        # Another model may be served elsewhere. Who may call, and how, is decided by what was asked for.
        asked = attrs.evolve(call.request, model=treated.model or call.request.model)
        there = self._program.decide(asked)
        return attrs.evolve(treated, provider=there.provider, group=there.group)

    def _whose(self, call: Call, treatment: Treatment) -> Partition:
        declared = treatment.agent != UNKNOWN_AGENT
        provider = self._program.providers[treatment.provider or ""]
        return Partition(
            agent=f"{declared} {treatment.agent if declared else call.caller}",
            team=treatment.team,
            model=treatment.model or call.request.model,
            provider=provider.name,
            key=f"{provider.keys[0]}" if provider.keys else call.credential,
        )

    def _claim(self, waiter: Waiter) -> Shortage | None:
        """Put aside what the call may take; or have it held, and say by what."""
        treatment, pool = waiter.treatment, waiter.place.pool
        if not treatment.budgets:
            waiter.claim = NO_CLAIM
            return None
        request = sent(waiter.call.request, treatment)
        most = amounts_of(pool.estimates.most(request), self._program.price(request.model))
        claim = self._budgets.claim(treatment, self._whose(waiter.call, treatment), most, waiter.rank, self._now_ns)
        if isinstance(claim, Claim):
            waiter.claim = claim
            return None
        waiter.held_in, waiter.blocked = claim.account, Reason.BUDGET
        waiter.rests_until_ns = claim.opens_ns(self._now_ns)
        return claim

    def _unclaim(self, waiter: Waiter) -> None:
        """It takes nothing of any budget, and stands before none."""
        if waiter.claim is not None:
            self._loosen(waiter.claim.end(None, self._now_ns))
        elif waiter.held_in is not None:
            self._loosen([waiter.held_in])

    def _loosen(self, accounts: Iterable[Account]) -> None:
        self._loosened.update(dict.fromkeys(accounts))

    def _let_in(self, commands: list[Command]) -> None:
        """Whoever is held where there may be room again, in order, until one must wait on."""
        pools: dict[str, Pool] = {}
        while self._loosened:
            account, _ = self._loosened.popitem()
            while (waiter := account.held.first()) is not None:
                self._room.leave(waiter)
                treatment = self._program.decide(waiter.call.request)
                anew = self._stand_anew(waiter, treatment, commands)
                if anew is not None and anew.held_in is account:
                    break
                if anew is not None:
                    pools[anew.place.pool.name] = anew.place.pool
        self._dispatch(pools.values(), None, commands)

    def _stand_anew(self, waiter: Waiter, treatment: Treatment, commands: list[Command]) -> Waiter | None:
        """Classify a call anew that waits and has been taken out of the room; None: it is refused now."""
        treatment = self._treat(waiter.call, treatment)
        waited_ns = self._waited_ns(waiter)
        refuse = _refusal.outright(waiter.call, treatment, self._program, draining=self._draining, waited_ns=waited_ns)
        if refuse is not None:
            commands.append(refuse)
            return None
        place = self._place(waiter.call, treatment)
        over = place.group.quotas.too_large(place.cost)
        if over is not None:
            commands.append(_refusal.too_large(waiter.call, treatment, over, place.cost, waited_ns))
            self._forget(place.agent)
            return None
        blocked = place.blocked(self._now_ns)
        if blocked is Reason.NONE:  # it will go now, unless another does: what it waited for was before
            blocked = waiter.blocked
        anew = self._waiter(waiter.call, treatment, place, waiter.arrived_ns, waiter.seq, blocked)
        anew.since_ns, anew.waited_ns, anew.attempts = waiter.since_ns, waiter.waited_ns, waiter.attempts
        short = self._claim(anew)
        if short is None:
            anew.rests_until_ns = None if waiter.held_in is not None else waiter.rests_until_ns
        elif short.denies(self._now_ns):
            commands.append(self._refuse(anew, Reason.BUDGET, *_refusal.spent(short, self._now_ns)))
            self._forget(place.agent)
            return None
        self._room.enter(anew)
        return anew

    # ---- deciding ----

    def _put_in_line(self, waiter: Waiter, commands: list[Command]) -> None:
        """Let it wait if the bounds of the queues allow; or somebody else has to go, or it itself."""
        lane = self._program.lanes[waiter.treatment.lane]
        oldest = None
        full = self._room.full_for(waiter.place)
        if full is None:
            full = self._room.full_lane(lane, self._program.server.max_waiting)
            if full is not None and lane.shed_oldest:
                oldest = self._room.oldest(lane.name)
        if full is not None and oldest is None:
            commands.append(self._refuse(waiter, Reason.QUEUE_FULL, full, self._retry_after_ns(waiter)))
            self._unclaim(waiter)
            self._forget(waiter.place.agent)
            return

        self._room.enter(waiter)
        if full is not None and oldest is not None:
            # Only now: it may be the last call of the same agent, which would be forgotten.
            self._leave(oldest)
            commands.append(self._refuse(oldest, Reason.SHED, _refusal.shed(full), self._retry_after_ns(oldest)))
        self._expire(commands)  # it may have no patience at all

    def _dispatch(self, pools: Iterable[Pool], freed: AgentSlots | None, commands: list[Command]) -> None:
        """Grant until nothing fits. `freed`: the agent that has just come down from its cap."""
        pools = list(pools)
        while True:
            turns = [turn for pool in pools if (turn := pool.next(self._now_ns)) is not None]
            if not turns:
                return
            # One agent may be next at several providers and have room for one call only.
            turn = min(turns, key=lambda turn: turn.waiter.seq)
            waiter, place = turn.waiter, turn.waiter.place
            reason = _waited_for(waiter, freed)
            place.pool.take_turn(turn)
            self._room.leave(waiter)
            place.pool.pace.on_turn(self._now_ns, place.pool.waiting)
            commands.append(self._grant(self._flight(waiter), reason))

    def _expire(self, commands: list[Command]) -> list[Waiter]:
        gone = []
        while (waiter := self._room.expired(self._now_ns)) is not None:
            gone.append(waiter)
            self._leave(waiter)
            message = _refusal.too_late(waiter, self._waited_ns(waiter))
            commands.append(self._refuse(waiter, Reason.DEADLINE, message, self._retry_after_ns(waiter)))
        return gone

    # ---- the books ----

    def _advance(self, now_ns: int, commands: list[Command]) -> None:
        self._now_ns = now_ns
        gone = self._expire(commands)
        self._open_what_is_due(gone, commands)

    def _open_what_is_due(self, gone: list[Waiter], commands: list[Command]) -> None:
        """Whoever can go now, goes.

        Args:
            gone: Who has just left the line; smaller calls may have stood behind a large one.
        """
        opened = {
            waiter.place.pool.name: waiter.place.pool for waiter in gone if waiter.place.pool.opens_ns is not None
        }
        opened |= self._open(commands)
        if opened:
            self._dispatch(opened.values(), None, commands)

    def _open(self, commands: list[Command]) -> dict[str, Pool]:
        """Retries whose pause is over, circuits and quotas: the providers at which somebody may be able to go now."""
        opened = {}
        for pool in self._pools.values():
            circuit = pool.health.breaker.circuit
            if pool.health.on_time(self._now_ns):
                pool.apply()
                opened[pool.name] = pool
                if pool.health.breaker.circuit is not circuit:
                    self._tell(pool, None, commands)
            if pool.opens_ns is not None and pool.opens_ns <= self._now_ns:
                opened[pool.name] = pool
        for waiter in self._wake():
            opened[waiter.place.pool.name] = waiter.place.pool
        return opened

    def _wake(self) -> list[Waiter]:
        woken = []
        while (waiter := self._room.wake(self._now_ns)) is not None:
            if waiter.held_in is not None:
                self._loosen([waiter.held_in])
            else:
                woken.append(waiter)
        return woken

    def _load(self, program: Program) -> None:
        """Point every counter at the settings of its name; nobody waits at this moment."""
        self._program = program
        self._budgets.load(program)
        gone = [pool for name, pool in self._pools.items() if name not in program.providers and pool.slots.held]
        self._pools = {name: self._pools.get(name) or Pool(name, Health(self._random)) for name in program.providers}
        self._pools |= {pool.name: pool for pool in gone}
        for name, pool in self._pools.items():
            pool.load(program.providers.get(name), program.lanes)
        self._agents = {key: agent for key, agent in self._agents.items() if agent.slots.held}
        for agent in self._agents.values():
            agent.load(program)

    def _place(self, call: Call, treatment: Treatment) -> Place:
        assert treatment.provider is not None
        pool = self._pools[treatment.provider]
        declared = treatment.agent != UNKNOWN_AGENT
        key = (declared, treatment.agent if declared else call.caller)
        agent = self._agents.get(key)
        if agent is None:
            agent = self._agents[key] = AgentSlots(key)
            agent.load(self._program)
        group = pool.group(treatment.group)
        cost = pool.estimates.cost(sent(call.request, treatment), pool.api) if group.quotas else NOTHING
        return Place(pool, pool.lane(treatment.lane), group, agent, cost)

    def _waiter(
        self, call: Call, treatment: Treatment, place: Place, arrived_ns: int, seq: int, blocked: Reason
    ) -> Waiter:
        patience_ns = treatment.deadline_ns
        return Waiter(
            call=call,
            seq=seq,
            arrived_ns=arrived_ns,
            treatment=treatment,
            deadline_ns=None if patience_ns is None else arrived_ns + patience_ns,
            place=place,
            rank=rank(treatment.priority, self._program.lanes[treatment.lane].aging_ns, arrived_ns, seq),
            blocked=blocked,
            since_ns=arrived_ns,
        )

    def _flight(self, waiter: Waiter) -> Flight:
        assert waiter.claim is not None
        return Flight(
            call=waiter.call,
            seq=waiter.seq,
            arrived_ns=waiter.arrived_ns,
            treatment=waiter.treatment,
            place=waiter.place,
            granted_ns=self._now_ns,
            waited_ns=self._waited_ns(waiter),
            claim=waiter.claim,
            attempt=waiter.attempts + 1,
        )

    def _grant(self, flight: Flight, reason: Reason) -> Grant:
        call, place, treatment = flight.call, flight.place, flight.treatment
        place.take(self._now_ns)
        self._inflight[call.id] = flight
        if flight.attempt == 1:
            place.pool.health.retries.deposit(self._retry(treatment, place.pool).ratio, self._now_ns)
        place.pool.health.on_granted(call.id)
        place.pool.apply()
        return Grant(
            call_id=call.id,
            treatment=treatment,
            permit=Permit(
                call_id=call.id,
                provider=place.pool.name,
                group=treatment.group,
                lane=place.lane.name,
                agent=place.agent.name,
                declared=place.agent.declared,
            ),
            waited_ns=flight.waited_ns,
            reason=reason,
            attempt=flight.attempt,
        )

    def _waited_ns(self, waiter: Waiter) -> int:
        return waiter.waited_ns + self._now_ns - waiter.since_ns

    def _refuse(self, waiter: Waiter, reason: Reason, message: str, retry_after_ns: int) -> Refuse:
        return Refuse(
            call_id=waiter.call.id,
            treatment=waiter.treatment,
            reason=reason,
            waited_ns=self._waited_ns(waiter),
            message=message,
            retry_after_ns=retry_after_ns,
        )

    def _retry_after_ns(self, waiter: Waiter) -> int:
        """How long its provider's queue will take at the pace it has been served lately; 1 to 60 s."""
        pool = waiter.place.pool
        wait_ns = pool.pace.wait_ns(pool.waiting + 1, self._now_ns)
        # Upwards only, so that nobody is told to come back before there can be room.
        return wait_ns + self._random.randrange(wait_ns // 10 + 1)

    def _leave(self, waiter: Waiter) -> None:
        self._room.leave(waiter)
        self._unclaim(waiter)
        self._forget(waiter.place.agent)

    def _forget(self, agent: AgentSlots) -> None:
        """Callers come and go, and not all of them are declared."""
        if agent.idle:
            self._agents.pop(agent.key, None)


def _waited_for(waiter: Waiter, freed: AgentSlots | None) -> Reason:
    """What a call that goes now lacked last, as far as that is known without following every waiter.

    `AGENT_FULL` if it is its agent's slot that has just come back; `TURN` if its provider was full when it arrived and
    has since let a later call go before it; else what it lacked when it arrived, or when the last policy was loaded.
    """
    place = waiter.place
    if place.agent is freed:
        return Reason.AGENT_FULL
    if waiter.attempts:
        return Reason.RETRY
    if waiter.blocked in (Reason.PROVIDER_FULL, Reason.AGENT_FULL):
        # An agent that has had room since it arrived: then it was the provider's room that was missing.
        return Reason.TURN if place.pool.granted_seq > waiter.seq else Reason.PROVIDER_FULL
    return waiter.blocked
