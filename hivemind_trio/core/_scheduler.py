"""Who goes, who waits and who is refused: the hub of the core.

A call is classified by the policy when it arrives, and again when a policy is loaded while it waits; nothing else
evaluates the policy. It starts when there is a slot for it at its provider, in its limits group, in its lane there and
for its agent, and takes all four in one step (`Place`). Otherwise it waits, holding nothing, in the queue of its
provider, lane and limits group (`PoolLane`, `Queue`), in the line of its agent there (`Line`).

Who is next: which lane is `Pool`'s decision; within a lane it is `Queue`'s: by priority and age, then by what teams and
their agents have had (`Share`), then by arrival. Calls that are blocked by their agent or their limits group are passed
by others that fit. Where several providers could give one agent its next slot, the call that arrived first has it.

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

from hivemind_trio.model import Outcome, Reading, Reason, Treatment
from hivemind_trio.policy import Program, Renames

from . import _ending, _refusal
from ._account import Turns
from ._agent import AgentSlots
from ._books import Books
from ._breaker import Circuit
from ._budget import NO_CLAIM
from ._call import Call, CallId
from ._flight import Flight
from ._messages import (
    Adapted,
    AnswerBegan,
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
from ._parts import ALL_PARTS, Parts
from ._pool import Pool
from ._snapshot import Snapshot
from ._spent import SpentKey
from ._waiter import Waiter


def _no_calendar(now_ns: int, window_ns: int) -> int:
    """Windows that begin when the engine does."""
    return now_ns - now_ns % window_ns + window_ns


@final
class Scheduler:
    """One program's scheduler. The same program, seed and sequence of `(event, now_ns)` give the same commands.

    Queue bounds are held against calls as they arrive. A policy that lowers a bound drops nobody who already waits: the
    queue shrinks as it is served.

    Args:
        program: What to begin with.
        seed: Of what is left to chance: back-offs, and when refused calls are told to come back.
        turns: When the windows of the calendar end.
        parts: For experiments: what it is made of.
    """

    def __init__(
        self, program: Program, seed: int = 0, turns: Turns = _no_calendar, *, parts: Parts = ALL_PARTS
    ) -> None:
        self._books = Books(program, Random(seed), turns, parts)  # noqa: S311  spreads load, guards nothing
        self._due_ns: int | None = None
        """When time alone will next matter, as of the last event."""

    def handle(self, event: Event, now_ns: int) -> list[Command]:
        """Take one event into account and return what to do about it, in order. O(log waiting); a policy is O(waiting).

        Calls whose deadline has come by `now_ns` are refused first, whatever the event.

        Raises:
            ValueError: `now_ns` is earlier than that of an event before, a call arrives whose id is in use, or an
                attempt ends that is not in flight. A bug in the driver; the scheduler is unchanged.
        """
        if now_ns < self._books.now_ns:
            raise ValueError(f"time ran backwards: {now_ns} after {self._books.now_ns}")
        commands: list[Command] = []
        match event:
            case CallArrived(call=call):
                self._on_arrived(call, now_ns, commands)
            case CallCancelled(call_id=call_id):
                self._on_cancelled(call_id, now_ns, commands)
            case AnswerBegan(call_id=call_id, readings=readings, good=good):
                self._on_answer(call_id, readings, good, now_ns, commands)
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
        if self._books.loosened:
            self._let_in(commands)
        self._due_ns = self._books.wakeup_ns()
        return commands

    def wakeup_ns(self) -> int | None:
        """When time alone will next matter: for a deadline, a retry that is due, a circuit, a quota or a budget."""
        return self._due_ns

    def snapshot(self) -> Snapshot:
        """How things stand."""
        return self._books.snapshot()

    # ---- events: each checks first, then advances the clock, then acts ----

    def _on_arrived(self, call: Call, now_ns: int, commands: list[Command]) -> None:
        if call.id in self._books.inflight or call.id in self._books.room.waiters:
            raise ValueError(f"call {call.id} arrived twice")
        treatment = self._books.program.decide(call.request)
        self._advance(now_ns, commands)

        if self._books.detours:
            treatment = self._books.treat(call, treatment)
        refuse = _refusal.outright(call, treatment, self._books.program, draining=self._books.draining, waited_ns=0)
        if refuse is not None:
            commands.append(refuse)
            return
        if not call.needs_slot:
            commands.append(Grant(call_id=call.id, treatment=treatment, permit=None, waited_ns=0, reason=Reason.NONE))
            return

        place = self._books.place(call, treatment)
        if place.pool.residents.matter:
            place.pool.look(now_ns)
        over = place.quotas.too_large(place.cost) if place.quotas.counted else None
        if over is not None:
            commands.append(_refusal.too_large(call, treatment, over, place.cost))
            self._books.forget(place.agent)
            return
        blocked = place.blocked(now_ns)
        if blocked is Reason.BREAKER_OPEN and self._books.refuses_while_open(place.pool):
            commands.append(self._open_refusal(call, treatment, place.pool, 0))
            self._books.forget(place.agent)
            return
        spent = place.pool.health.spent
        if spent.known and spent.shut(self._books.pays_with(call, treatment), now_ns):
            commands.append(self._spent_refusal(call, treatment, place.pool, 0))
            self._books.forget(place.agent)
            return
        call, seq = self._books.numbered(call)
        waiter = self._books.waiter(call, treatment, place, now_ns, seq, blocked)
        short = self._books.claim(waiter) if treatment.budgets else None
        if short is not None and short.denies(now_ns):
            commands.append(self._refuse(waiter, Reason.BUDGET, *_refusal.spent(short, now_ns)))
            self._books.keep_place(waiter)
            self._books.forget(place.agent)
        elif short is None and place.prompts is not None and self._follows(waiter):
            self._put_in_line(waiter, commands)
        elif short is None and blocked is Reason.NONE:
            place.pool.take_at_once(waiter)
            commands.append(self._grant(waiter, Reason.NONE))
        elif short is None and (wait_ns := self._books.too_long_ns(waiter)) is not None:
            message = _refusal.impatient(wait_ns)
            commands.append(self._refuse(waiter, Reason.PATIENCE, message, self._books.retry_after_ns(waiter, wait_ns)))
            self._books.keep_place(waiter)
            self._books.unclaim(waiter)
            self._books.forget(place.agent)
        else:
            self._put_in_line(waiter, commands)
            if blocked in (Reason.QUOTA, Reason.RAMP, Reason.MODEL_RESIDENT) or place.pool.opens_ns is not None:
                self._dispatch([place.pool], None, commands)  # which says when there will be room
        if spent.known and (call.id in self._books.inflight or call.id in self._books.room):
            spent.ask(self._books.pays_with(call, treatment), now_ns)

    def _on_cancelled(self, call_id: CallId, now_ns: int, commands: list[Command]) -> None:
        # Leaves before the clock moves: the driver has closed the call and would not know what to do with a refusal.
        # In flight: its attempt is being cancelled, and will say when it has ended.
        waiter = self._books.room.get(call_id)
        if waiter is not None:
            self._books.leave(waiter)
        self._advance(now_ns, commands)
        if waiter is not None and waiter.place.pool.holds:
            # It may have been the large one behind which smaller ones stood.
            self._dispatch([waiter.place.pool], None, commands)

    def _on_answer(
        self, call_id: CallId, readings: tuple[Reading, ...], good: bool, now_ns: int, commands: list[Command]
    ) -> None:
        self._advance(now_ns, commands)
        flight = self._books.inflight.get(call_id)
        if flight is None:
            return  # it needs no slot, or its attempt has ended meanwhile
        place, pools = flight.place, {}
        if good and place.pool.residents.matter:
            place.pool.residents.on_answered(place.model, now_ns)
        if place.pool.learns and place.quotas.hear(call_id, readings, now_ns) and place.pool.waiting:
            pools[place.pool.name] = place.pool
        if good and (prefixes := place.prefixes) is not None:
            pools |= self._books.rouse(prefixes.on_read(flight.call.prefix, now_ns))
            self._books.wake()
        self._dispatch(pools.values(), None, commands)

    def _on_ended(self, call_id: CallId, ended: Ended, now_ns: int, commands: list[Command]) -> None:
        flight = self._books.inflight.get(call_id)
        if flight is None:
            raise ValueError(f"call {call_id} has no attempt in flight")
        self._advance(now_ns, commands)

        del self._books.inflight[call_id]
        place = flight.place
        moved = self._learn(flight, ended, commands)
        _ending.settle(self._books, flight, ended)
        if place.pool.residents.matter and ended.outcome in HEALTHY:
            place.pool.residents.on_answered(place.model, now_ns)
        lines = place.give_back(now_ns)
        # Its provider, any other where its agent was all that was missing, and where its next attempt is to go.
        pools = {place.pool.name: place.pool} | moved
        prefixes = place.prefixes if place.prompts is not None else None
        if prefixes is not None and ended.outcome in HEALTHY:
            self._books.rouse(prefixes.on_read(flight.call.prefix, now_ns))
        elif prefixes is not None:
            self._books.rouse(prefixes.on_over(flight.call.prefix, call_id))
        again = None if ended.committed else _ending.again(self._books, flight, ended)
        if again is not None:
            self._books.room.enter(again)
            again.failed = (place.quotas, flight.granted_ns) if _ending.broke_down(ended) else None
        else:
            if _ending.broke_down(ended):
                place.quotas.forgive(flight.granted_ns, now_ns)
            if flight.claim is not NO_CLAIM:
                self._books.loosen(flight.claim.end(_ending.spent(self._books, flight, ended), now_ns))
            if not ended.committed:
                commands.append(Settle(call_id))
            if ended.outcome not in HEALTHY:
                self._books.keep_place(flight)
        # The next attempt may be due at once, and so are those who waited for this one.
        if again is not None or prefixes is not None:
            pools |= {waiter.place.pool.name: waiter.place.pool for waiter in self._books.wake()}
        if lines:
            pools |= {line.first.place.pool.name: line.first.place.pool for line in lines}
        self._dispatch(pools.values(), place.agent if lines else None, commands)
        self._books.forget(place.agent)

    def _on_policy(self, program: Program, now_ns: int, commands: list[Command]) -> None:
        renames = Renames.between(self._books.program, program)
        calls = {waiter.call.id: waiter.call.renamed(renames) for waiter in self._books.room}
        treatments = {call_id: program.decide(call.request) for call_id, call in calls.items()}
        # Nobody is granted anything by the policy that goes: whoever keeps the slots counts by the new one already.
        self._books.now_ns = now_ns
        self._expire(commands)

        waiters = list(self._books.room)
        for waiter in waiters:
            self._books.room.leave(waiter)
            self._books.unclaim(waiter)
        self._books.loosened.clear()  # whoever was held is asked again now
        self._books.load(program)
        for waiter in waiters:
            waiter.call = calls[waiter.call.id]
            self._stand_anew(waiter, treatments[waiter.call.id], commands)
        self._expire(commands)
        self._open(commands)
        for pool in self._books.pools.values():
            if self._books.given_up(pool):
                self._turn_away(pool, commands)
        self._dispatch(self._books.pools.values(), None, commands)

    def _on_draining(self, now_ns: int, commands: list[Command]) -> None:
        self._advance(now_ns, commands)
        self._books.draining = True
        for waiter in list(self._books.room):
            self._books.leave(waiter)
            commands.append(self._refuse(waiter, Reason.DRAINING, _refusal.DRAINING, _refusal.DRAINING_RETRY_NS))

    # ---- what attempts teach ----

    def _learn(self, flight: Flight, ended: Ended, commands: list[Command]) -> dict[str, Pool]:
        """Take note of it. Return the providers that calls have moved to."""
        pool, health = flight.place.pool, flight.place.pool.health
        circuit, limit = health.breaker.circuit, health.limit
        known = ended.outcome is Outcome.QUOTA and flight.place.quotas.refuse(
            flight.call.id, ended.used_up, ended.retry_after_ns, self._books.now_ns
        )
        request = flight.place.request
        if flight.swap_ns:
            ended = _warm(ended)
        health.progress.on_ended(request, ended)
        if health.degraded is not None:
            ended = health.judged(ended, request)
        news = health.on_ended(
            flight.call.id,
            ended,
            flight.treatment.group,
            granted_ns=flight.granted_ns,
            now_ns=self._books.now_ns,
            inflight=pool.slots.held,
            holds_group=not known,
        )
        if news:
            pool.apply()
        if health.limit != limit or health.breaker.circuit is not circuit:
            self._tell(pool, ended.outcome, commands)
            if self._books.given_up(pool):
                self._turn_away(pool, commands)
        if (health.spent.known or ended.outcome is Outcome.TERMINAL) and health.spent.on_ended(
            pays_with := self._books.pays_with(flight.call, flight.treatment),
            ended.outcome,
            granted_ns=flight.granted_ns,
            now_ns=self._books.now_ns,
            retry_after_ns=ended.retry_after_ns,
        ):
            return self._send_home(pool, pays_with, commands)
        return self._move(self._books.to_move(pool), commands) if health.breaker.circuit is not circuit else {}

    def _send_home(self, pool: Pool, pays_with: SpentKey, commands: list[Command]) -> dict[str, Pool]:
        """Waiting here does not help them. Return where they wait instead."""
        poor = [
            waiter
            for waiter in self._books.room
            if waiter.place.pool is pool and self._books.pays_with(waiter.call, waiter.treatment) == pays_with
        ]
        there = self._move(poor, commands)
        for waiter in poor:
            if self._books.room.get(waiter.call.id) is waiter:
                self._books.leave(waiter)
                waited_ns = self._books.waited_ns(waiter)
                commands.append(self._spent_refusal(waiter.call, waiter.treatment, pool, waited_ns))
        return there

    def _spent_refusal(self, call: Call, treatment: Treatment, pool: Pool, waited_ns: int) -> Refuse:
        renewed_ns = pool.health.spent.renewed_ns(self._books.pays_with(call, treatment), self._books.now_ns)
        return Refuse(
            call_id=call.id,
            treatment=treatment,
            reason=Reason.SPENT,
            waited_ns=waited_ns,
            message=_refusal.nothing_left(pool.name, renewed_ns),
            retry_after_ns=renewed_ns,
        )

    def _tell(self, pool: Pool, because: Outcome | None, commands: list[Command]) -> None:
        circuit = pool.health.breaker.circuit
        commands.append(Adapted(provider=pool.name, limit=pool.health.limit, circuit=circuit, because=because))

    def _open_refusal(self, call: Call, treatment: Treatment, pool: Pool, waited_ns: int) -> Refuse:
        opens_ns = pool.health.breaker.opens_ns
        wait_ns = max(opens_ns - self._books.now_ns, 0) if opens_ns is not None else 0
        return Refuse(
            call_id=call.id,
            treatment=treatment,
            reason=Reason.BREAKER_OPEN,
            waited_ns=waited_ns,
            message=_refusal.left_alone(pool.name),
            retry_after_ns=min(max(wait_ns, RETRY_MIN_NS), RETRY_MAX_NS),
        )

    def _move(self, waiters: list[Waiter], commands: list[Command]) -> dict[str, Pool]:
        """Have them wait where they would be sent if they came now, if that is elsewhere. Return where."""
        there = {}
        for waiter in waiters:
            treatment = self._books.program.decide(waiter.call.request)
            if self._books.treat(waiter.call, treatment).provider == waiter.place.pool.name:
                continue
            self._books.room.leave(waiter)
            self._books.unclaim(waiter)
            anew = self._stand_anew(waiter, treatment, commands)
            if anew is not None:
                there[anew.place.pool.name] = anew.place.pool
        return there

    def _turn_away(self, pool: Pool, commands: list[Command]) -> None:
        """The policy would rather refuse than hold: nobody waits for a provider that is left alone."""
        for waiter in [waiter for waiter in self._books.room if waiter.place.pool is pool]:
            self._books.leave(waiter)
            commands.append(self._open_refusal(waiter.call, waiter.treatment, pool, self._books.waited_ns(waiter)))

    # ---- budgets ----

    def _let_in(self, commands: list[Command]) -> None:
        """Whoever is held where there may be room again, in order, until one must wait on."""
        pools: dict[str, Pool] = {}
        while self._books.loosened:
            account, _ = self._books.loosened.popitem()
            while (waiter := account.held.first) is not None:
                self._books.room.leave(waiter)
                treatment = self._books.program.decide(waiter.call.request)
                anew = self._stand_anew(waiter, treatment, commands)
                # One that is behind another now, for what is spent has changed its priority, lets that one be asked.
                if anew is not None and anew.held_in is account and account.held.first is anew:
                    break
                if anew is not None:
                    pools[anew.place.pool.name] = anew.place.pool
        self._dispatch(pools.values(), None, commands)

    def _stand_anew(self, waiter: Waiter, treatment: Treatment, commands: list[Command]) -> Waiter | None:
        """Classify a call anew that waits and has been taken out of the room; None: it is refused now."""
        treatment = self._books.treat(waiter.call, treatment)
        waited_ns = self._books.waited_ns(waiter)
        refuse = _refusal.outright(
            waiter.call, treatment, self._books.program, draining=self._books.draining, waited_ns=waited_ns
        )
        if refuse is not None:
            commands.append(refuse)
            self._books.forget(waiter.place.agent)
            return None
        place = self._books.place(waiter.call, treatment)
        over = place.quotas.too_large(place.cost) if place.quotas.counted else None
        if over is not None:
            commands.append(_refusal.too_large(waiter.call, treatment, over, place.cost, waited_ns))
            self._books.forget(place.agent)
            return None
        if place.pool.health.spent.shut(self._books.pays_with(waiter.call, treatment), self._books.now_ns):
            commands.append(self._spent_refusal(waiter.call, treatment, place.pool, waited_ns))
            self._books.forget(place.agent)
            return None
        blocked = place.blocked(self._books.now_ns)
        if blocked is Reason.NONE:  # it will go now, unless another does: what it waited for was before
            blocked = waiter.blocked
        anew = self._books.waiter(waiter.call, treatment, place, waiter.arrived_ns, waiter.seq, blocked)
        anew.since_ns, anew.waited_ns, anew.attempts = waiter.since_ns, waiter.waited_ns, waiter.attempts
        anew.asked = waiter.asked
        short = self._books.claim(anew)
        if short is None:
            anew.rests_until_ns = None if waiter.held_in is not None else waiter.rests_until_ns
            if (stays_away_ns := waiter.stays_away_ns(place.pool)) > self._books.now_ns:
                anew.rests_until_ns = max(anew.rests_until_ns or 0, stays_away_ns)
        elif short.denies(self._books.now_ns):
            commands.append(self._refuse(anew, Reason.BUDGET, *_refusal.spent(short, self._books.now_ns)))
            self._books.forget(place.agent)
            return None
        self._books.room.enter(anew)
        return anew

    # ---- deciding ----

    def _follows(self, waiter: Waiter) -> bool:
        """Whether it is to wait for another call that has its prompt read."""
        prefixes = waiter.place.prefixes
        rests_until_ns = prefixes.follow(waiter, self._books.now_ns) if prefixes is not None else None
        if rests_until_ns is None:
            return False
        waiter.rests_until_ns, waiter.blocked = rests_until_ns, Reason.PREFIX
        return True

    def _put_in_line(self, waiter: Waiter, commands: list[Command]) -> None:
        """Let it wait if the bounds of the queues allow; or somebody else has to go, or it itself."""
        lane = self._books.program.lanes[waiter.treatment.lane]
        oldest = None
        full = self._books.room.full_for(waiter.place)
        if full is None:
            full = self._books.room.full_lane(lane, self._books.program.server.max_waiting)
            if full is not None and lane.shed_oldest:
                oldest = self._books.room.oldest(lane.name)
        if full is not None and oldest is None:
            commands.append(self._refuse(waiter, Reason.QUEUE_FULL, full, self._books.retry_after_ns(waiter)))
            self._books.keep_place(waiter)
            self._books.unclaim(waiter)
            self._books.forget(waiter.place.agent)
            return

        self._books.room.enter(waiter)
        if full is not None and oldest is not None:
            # Only now: it may be the last call of the same agent, which would be forgotten.
            self._books.leave(oldest)
            commands.append(self._refuse(oldest, Reason.SHED, _refusal.shed(full), self._books.retry_after_ns(oldest)))
            if oldest.place.pool.holds:
                # It may have been the large one behind which smaller ones stood, at another provider.
                self._dispatch([oldest.place.pool], None, commands)
        if waiter.deadline_ns is not None:
            self._expire(commands)  # it may have no patience at all

    def _dispatch(self, pools: Iterable[Pool], freed: AgentSlots | None, commands: list[Command]) -> None:
        """Grant until nothing fits. `freed`: the agent that has just come down from its cap."""
        pools = list(pools)
        while True:
            turn = None
            for pool in pools:
                there = pool.next(self._books.now_ns)
                # One agent may be next at several providers and have room for one call only.
                if there is not None and (turn is None or there.waiter.seq < turn.waiter.seq):
                    turn = there
            if turn is None:
                return
            waiter, place = turn.waiter, turn.waiter.place
            reason = _waited_for(waiter, freed)
            place.pool.take_turn(turn)
            self._books.room.leave(waiter)
            place.pool.pace.on_turn(self._books.now_ns, place.pool.waiting)
            place.lane.turns.on_turn(self._books.now_ns, place.lane.waiting)
            commands.append(self._grant(waiter, reason))

    def _expire(self, commands: list[Command]) -> list[Waiter]:
        gone = []
        while (waiter := self._books.room.expired(self._books.now_ns)) is not None:
            gone.append(waiter)
            self._books.leave(waiter)
            message = _refusal.too_late(waiter, self._books.waited_ns(waiter))
            commands.append(self._refuse(waiter, Reason.DEADLINE, message, self._books.retry_after_ns(waiter)))
        return gone

    # ---- the books ----

    def _advance(self, now_ns: int, commands: list[Command]) -> None:
        self._books.now_ns = now_ns
        if self._due_ns is not None and self._due_ns <= now_ns:
            gone = self._expire(commands)
            self._open_what_is_due(gone, commands)

    def _open_what_is_due(self, gone: list[Waiter], commands: list[Command]) -> None:
        """Whoever can go now, goes.

        Args:
            gone: Who has just left the line; smaller calls may have stood behind a large one.
        """
        opened = {waiter.place.pool.name: waiter.place.pool for waiter in gone if waiter.place.pool.holds}
        opened |= self._open(commands)
        if opened:
            self._dispatch(opened.values(), None, commands)

    def _open(self, commands: list[Command]) -> dict[str, Pool]:
        """Retries whose pause is over, circuits and quotas: the providers at which somebody may be able to go now."""
        opened = {}
        for pool in self._books.pools.values():
            circuit = pool.health.breaker.circuit
            if pool.health.on_time(self._books.now_ns):
                pool.apply()
                opened[pool.name] = pool
                if pool.health.breaker.circuit is not circuit:
                    self._tell(pool, None, commands)
                    opened |= self._move(self._books.to_move(pool), commands)
            if pool.opens_ns is not None and pool.opens_ns <= self._books.now_ns:
                opened[pool.name] = pool
        for waiter in self._books.wake():
            opened[waiter.place.pool.name] = waiter.place.pool
        return opened

    def _grant(self, waiter: Waiter, reason: Reason) -> Grant:
        now_ns, flight = self._books.now_ns, self._books.flight(waiter)
        call, place, treatment = flight.call, flight.place, flight.treatment
        lane, health = place.lane, place.pool.health
        declared, name = place.agent.key
        place.take(call.id, now_ns)
        place.share.begin(flight.share_ns)
        if waiter.thread or lane.thread_served:
            lane.on_granted(waiter.thread, now_ns)
        if place.prompts is not None and (prefixes := place.prefixes) is not None:
            prefixes.on_granted(call.prefix, call.id, now_ns)
        self._books.inflight[call.id] = flight
        if flight.attempt == 1 and not health.retries.full:
            health.retries.deposit(self._books.retry(treatment, place.pool).ratio, now_ns)
        health.ramp.on_granted(now_ns)
        if health.breaker.circuit is Circuit.HALF_OPEN:
            health.on_probe(call.id)
            place.pool.apply()
        return Grant(
            call_id=call.id,
            treatment=treatment,
            permit=Permit(
                call_id=call.id,
                provider=place.pool.name,
                group=treatment.group,
                lane=place.lane.name,
                agent=name,
                declared=declared,
            ),
            waited_ns=flight.waited_ns,
            reason=reason,
            attempt=flight.attempt,
            timeouts=place.pool.bounds(place.request, flight.attempt, flight.swap_ns),
        )

    def _refuse(self, waiter: Waiter, reason: Reason, message: str, retry_after_ns: int) -> Refuse:
        return Refuse(
            call_id=waiter.call.id,
            treatment=waiter.treatment,
            reason=reason,
            waited_ns=self._books.waited_ns(waiter),
            message=message,
            retry_after_ns=retry_after_ns,
        )


def _warm(ended: Ended) -> Ended:
    """What an attempt says whose model had to be loaded first: how soon its answer began is not what is usual."""
    outcome = Outcome.SUCCEEDED if ended.outcome is Outcome.SLOW else ended.outcome
    return attrs.evolve(ended, outcome=outcome, first_byte_ns=None)


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
