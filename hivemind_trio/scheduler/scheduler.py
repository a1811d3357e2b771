"""Event loop of the scheduler: every event enters here and leaves as commands.

A call is classified by the policy when it arrives, and anew when it is to stand in line again: for another attempt,
under a new policy, elsewhere once a provider has gone down or come back, or when a budget that held it has room
(`decisions/requeue.py`). It starts when there is a slot for it at its provider, in its limits group, in its lane there
and for its agent, and its quotas have room; it takes of all of these in one step (`Placement`). Otherwise it waits,
holding nothing, in the queue of its provider, lane and limits group (`ProviderLane`, `WaitQueue`), in the line of its
agent there (`AgentFlow`).

Who is next: which lane is `ProviderQueue`'s decision; within a lane it is `WaitQueue`'s: by priority and age, then by
what teams and their agents have had (`Flow`), then by arrival. Calls that are blocked by their agent or their limits
group are passed by others that fit. Where several providers could give one agent its next slot, the call that arrived
first has it.

At rest, that is after every event, no call waits that fits everywhere and is due. That is why an arriving call that
fits may go at once: had anybody equal been waiting, he would have gone. And why calls are set going only by a slot
given back, a policy, an answer that tells of room, a large call that leaves the line to smaller ones, or a time that
was waited for: the end of a pause before a retry, of a circuit's, of a quota's.

An attempt that fails before the agent has had anything of it may be tried again (`decisions/completion.py`): the call
then rests without a slot, and stands in line again in its old place. What attempts say of their provider is kept in
`ProviderHealth` (`decisions/feedback.py`).
"""

from __future__ import annotations

from random import Random
from typing import Final, assert_never, final

import attrs

from hivemind_trio.model import NO_PLAN, Decision, Moment, PlanStanding, Reason, rejection_text
from hivemind_trio.policy import BudgetWindow, Program, Renames
from hivemind_trio.scheduler.budgets.budget_account import Turns
from hivemind_trio.scheduler.budgets.budgets import NO_CLAIM
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.decisions.admission import admit
from hivemind_trio.scheduler.decisions.dispatch import dispatch, expire
from hivemind_trio.scheduler.decisions.feedback import accepted, adapted, give_up, learn, read_plan, receive
from hivemind_trio.scheduler.decisions.grant import Waiting, waiting
from hivemind_trio.scheduler.decisions.occupancy import accounts, occupancy
from hivemind_trio.scheduler.decisions.policy_decision import ask_rules_anew, decide
from hivemind_trio.scheduler.decisions.requeue import (
    decide_held_again,
    move_to_fallback,
    reclassify,
    reject_all,
    release_budget_waiters,
    settle,
)
from hivemind_trio.scheduler.decisions.routing import calls_to_move, is_given_up, route
from hivemind_trio.scheduler.learning.messages import LearnAnswered, LearnCalled, LearningShared, LearnUnanswered
from hivemind_trio.scheduler.limits.cost import NOTHING
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Features
from hivemind_trio.scheduler.protocol.account_key import AccountKey
from hivemind_trio.scheduler.protocol.attempt_result import HEALTHY, AttemptResult
from hivemind_trio.scheduler.protocol.beliefs import Beliefs, BeliefsRestored, KeptSessions
from hivemind_trio.scheduler.protocol.budget_draw import (
    BudgetsAnswered,
    BudgetsCalled,
    BudgetsShared,
    BudgetsUnanswered,
)
from hivemind_trio.scheduler.protocol.call import Call, CallId, SessionFacts
from hivemind_trio.scheduler.protocol.circuit import Circuit
from hivemind_trio.scheduler.protocol.events import (
    AttemptEnded,
    CallArrived,
    CallCancelled,
    Command,
    Draining,
    Event,
    LetThrough,
    PauseSet,
    PolicyLoaded,
    PrioritySet,
    ResponseStarted,
    SharesSet,
    StreamsReceived,
    TimePassed,
)
from hivemind_trio.scheduler.protocol.ledger import CreditDrawn, LedgerOpened, LedgerWritable, SpendingSet
from hivemind_trio.scheduler.protocol.occupancy import AccountSnapshot, Occupancy
from hivemind_trio.scheduler.protocol.plan import PlanBelief
from hivemind_trio.scheduler.protocol.snapshot import Snapshot
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.sharing.window_draw import WindowAnswered, WindowsShared, WindowUnanswered
from hivemind_trio.scheduler.structures.indexed_heap import DEAD

from .decisions import completion, rejection
from .state import SchedulerState

SLICE: Final = 50
"""Calls that one event decides again at most, some 10 ms: the driver's other tasks run in between."""


def _no_calendar(now_ns: int, window: BudgetWindow) -> int:
    """Windows that begin when the engine does."""
    return now_ns - now_ns % window.length_ns + window.length_ns


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
        most: Calls that one event decides again at most; with others `wakeup_ns` says that time is to pass at once.

    Attributes:
        state: For tests and tools, which only read it.
    """

    def __init__(
        self,
        program: Program,
        seed: int = 0,
        turns: Turns = _no_calendar,
        *,
        parts: Features = ALL_PARTS,
        most: int = SLICE,
    ) -> None:
        self.state = SchedulerState(program, Random(seed), turns, parts)  # noqa: S311  spreads load, guards nothing
        self._due_ns: int | None = None
        """When time alone will next matter, as of the last event."""
        self._most = most

    def handle(self, event: Event, now_ns: int) -> list[Command]:
        """Take one event into account and return what to do about it, in order. O(log waiting).

        Calls that a policy, a plan or a budget may treat otherwise now are decided again in slices, as time passes.
        Calls whose deadline has come by `now_ns` are refused first, whatever the event.

        Raises:
            ValueError: `now_ns` is earlier than that of an event before, a call arrives whose id is in use, or an
                attempt ends that is not in flight. A bug in the driver; the scheduler is unchanged.
        """
        if now_ns < self.state.now_ns:
            raise ValueError(f"time ran backwards: {now_ns} after {self.state.now_ns}")
        commands: list[Command] = []
        match event:
            case CallArrived(call=call):
                self._on_arrived(call, now_ns, commands)
            case CallCancelled(call_id=call_id):
                self._on_cancelled(call_id, now_ns, commands)
            case ResponseStarted():
                self._on_answer(event, now_ns, commands)
            case StreamsReceived(received=received):
                self._on_received(received, now_ns, commands)
            case AttemptEnded(call_id=call_id, ended=ended):
                self._on_ended(call_id, ended, now_ns, commands)
            case PolicyLoaded(program=program):
                self._on_policy(program, now_ns, commands)
            case Draining():
                self._on_draining(now_ns, commands)
            case TimePassed(moment=moment):
                if moment is not None:
                    self.state.clock.tell(moment, now_ns)
                self._advance(now_ns, commands)
            case PauseSet():
                self._on_pause(event, now_ns, commands)
            case SharesSet(shares=shares, until_ns=until_ns, then=then):
                self._advance(now_ns, commands)
                self.state.shared.set_slots(shares, until_ns, then)
                dispatch(self.state, self.state.pools.values(), None, commands)
            case WindowsShared() | WindowAnswered() | WindowUnanswered():
                self._on_window(event, now_ns, commands)
            case BudgetsShared() | BudgetsAnswered() | BudgetsUnanswered() | BudgetsCalled():
                self._on_budgets(event, now_ns, commands)
            case LearningShared() | LearnAnswered() | LearnUnanswered() | LearnCalled():
                self._on_learning(event, now_ns, commands)
            case PrioritySet():
                self._on_priority(event, now_ns, commands)
            case LetThrough(call_id=call_id):
                self._on_let_through(call_id, now_ns, commands)
            case SpendingSet(account=account, spent=spent):
                self._advance(now_ns, commands)
                commands += self.state.set_spending(account, spent)
            case LedgerOpened() | CreditDrawn() | LedgerWritable():
                self._on_ledger(event, now_ns, commands)
            case BeliefsRestored():
                self._on_beliefs(event, now_ns, commands)
            case _:
                assert_never(event)
        books = self.state
        is_asked = books.settling or books.asked_anew or books.budgets_released
        if isinstance(event, TimePassed) if books.behind else is_asked:
            self._catch_up(commands)
        while pools := self.state.release_agents():
            dispatch(self.state, pools.values(), None, commands)
        self.state.stand()
        commands += self.state.ask_store()
        self._due_ns = self.state.wakeup_ns()
        if self.state.keeps_ledger:
            spends, draws = self.state.ledger_commands()
            return [*spends, *commands, *draws]  # credit that has come back is noted before it is claimed again
        return commands

    def wakeup_ns(self) -> int | None:
        """When time alone will next matter: for a deadline, a retry that is due, a circuit, a quota or a budget."""
        return self._due_ns

    def waiting(self, call_id: CallId, now_ns: int) -> Waiting | None:
        """Return how a queued call stands; None: it is not in the queue."""
        waiter = self.state.waiting(call_id)
        return waiting(self.state, waiter, now_ns) if waiter is not None else None

    def beliefs(self) -> Beliefs:
        """Return what is learned, to be kept beyond the end of the process. O(size of the policy)."""
        return self.state.beliefs()

    def sessions(self) -> KeptSessions:
        """Return clients' sessions, to be kept beyond the end of the process."""
        return self.state.sessions.kept()

    def session(self, call: Call, now_ns: int) -> SessionFacts | None:
        """Return what is known of the session of a call; None: it is of none."""
        return self.state.sessions.known(call, now_ns)

    def snapshot(self) -> Snapshot:
        """Return the state."""
        return self.state.snapshot()

    def decided(self, call: Call) -> Decision:
        """Return the decision of the policy about a call, before budgets and the health of providers change it."""
        return decide(self.state, call)

    def routed(self, call: Call) -> Decision:
        """Return the decision about a call, as budgets and the health of providers change it now."""
        return route(self.state, call, decide(self.state, call))

    def plan(self, call: Call, provider: str, model: str) -> PlanStanding:
        """Return the plan that a call counts against at a provider, as of the last event."""
        pool = self.state.pools.get(provider)
        if pool is None:
            return NO_PLAN
        return pool.plans.standing(self.state.account(call, provider), model, self.state.now_ns)

    def demand(self) -> dict[str, tuple[int, int]]:
        """Return for each provider its calls in flight, and with them the calls that wait for it. O(providers)."""
        pools = self.state.pools.items()
        return {name: (pool.slots.held, pool.slots.held + pool.waiting) for name, pool in pools}

    def has_waiting(self) -> bool:
        """Return True if any call waits for a provider. O(providers)."""
        return any(pool.waiting for pool in self.state.pools.values())

    def plans(self, provider: str, now_ns: int) -> tuple[PlanBelief, ...]:
        """Return the plans of a provider's accounts; times are from now. O(accounts), and changes nothing."""
        pool = self.state.pools.get(provider)
        return pool.plans.beliefs(now_ns) if pool is not None else ()

    def occupancy(self, now_ns: int) -> Occupancy:
        """Return every call that waits or is in flight. O(calls log calls), and changes nothing."""
        return occupancy(self.state, now_ns)

    def accounts(self, now_ns: int) -> tuple[AccountSnapshot, ...]:
        """Return every account of the budgets. O(accounts), and changes nothing."""
        return accounts(self.state, now_ns)

    def spent_here(self) -> tuple[tuple[AccountKey, int], ...]:
        """Return what this node has spent of shared accounts and calls in flight may spend, as its ledger has it."""
        return self.state.budgets.spent_here()

    def constants(self) -> list[object]:
        """Return the parts of the state that never change: copies share them, and some are known by identity."""
        books = self.state
        waiting = [part for one in books.waiters.values() for part in (one.call, one.treatment)]
        inflight = [part for one in books.inflight.values() for part in (one.call, one.treatment)]
        return [books.program, NO_CLAIM, NOTHING, DEAD, *waiting, *inflight, *books.latecomers.values()]

    # ---- events: each checks first, then advances the clock, then acts ----

    def _on_arrived(self, call: Call, now_ns: int, commands: list[Command]) -> None:
        books = self.state
        arrived = call.id in books.inflight or call.id in books.latecomers
        if arrived or call.id in books.room.waiters or call.id in books.unsettled:
            raise ValueError(f"call {call.id} arrived twice")
        books.clock.tell(Moment.of(call.request), now_ns)
        self._advance(now_ns, commands)
        books.sessions.begin(call, now_ns)
        if books.settling:
            books.latecomers[call.id] = call  # after those who wait
        else:
            self._admit(call, commands)

    def _admit(self, call: Call, commands: list[Command]) -> None:
        books = self.state
        treatment = decide(books, call)
        if call.prefix and call.credential and (account := books.account(call, treatment.provider or "")):
            # A provider keeps the prompts of each account by themselves.
            call = attrs.evolve(call, prefix=f"{account} {call.prefix}")
        admit(books, call, treatment, commands)

    def _on_cancelled(self, call_id: CallId, now_ns: int, commands: list[Command]) -> None:
        # Leaves before the clock moves: the driver has closed the call and would not know what to do with a refusal.
        # In flight: its attempt is being cancelled, and will say when it has ended.
        self.state.latecomers.pop(call_id, None)
        waiter = self.state.waiting(call_id)
        if waiter is not None:
            self.state.leave(waiter)
        self._advance(now_ns, commands)
        if waiter is not None and waiter.place.pool.holds:
            # It may have been the large one behind which smaller ones stood.
            dispatch(self.state, [waiter.place.pool], None, commands)

    def _on_answer(self, event: ResponseStarted, now_ns: int, commands: list[Command]) -> None:
        books, call_id, good = self.state, event.call_id, event.good
        self._advance(now_ns, commands)
        flight = books.inflight.get(call_id)
        if flight is None:
            return  # it needs no slot, or its attempt has ended meanwhile
        place = flight.place
        pools: dict[str, ProviderQueue] = {}
        if good and place.pool.residents.enabled:
            place.pool.residents.on_answered(place.model, now_ns)
        told = event.plan is not None and read_plan(books, flight, event.plan, commands)
        if told and books.room.held and books.program.reads_plans:
            ask_rules_anew(books, place.pool.name, books.account(flight.call, place.pool.name))
        news = place.pool.learns and place.quotas.on_headers(call_id, event.readings, now_ns)
        if good:
            news |= place.quotas.accept(call_id, now_ns)
            moved = accepted(books, flight, commands)
            news |= moved is not None
            pools |= moved or {}
        if (news or told) and (place.pool.waiting or place.pool.is_account):
            pools[place.pool.name] = place.pool
        if good and (prefixes := place.prefixes) is not None:
            pools |= books.wake_early(prefixes.on_read(flight.call.prefix, now_ns))
            books.wake()
        dispatch(self.state, pools.values(), None, commands)

    def _on_beliefs(self, event: BeliefsRestored, now_ns: int, commands: list[Command]) -> None:
        self._advance(now_ns, commands)
        self.state.restore(event.beliefs, event.ages_ns)
        self.state.sessions.restore(event.sessions)

    def _on_received(self, received: dict[CallId, int], now_ns: int, commands: list[Command]) -> None:
        self._advance(now_ns, commands)
        changed = receive(self.state, received, commands)
        dispatch(self.state, changed, None, commands)

    def _on_ended(self, call_id: CallId, ended: AttemptResult, now_ns: int, commands: list[Command]) -> None:
        books = self.state
        flight = books.inflight.get(call_id)
        if flight is None:
            raise ValueError(f"call {call_id} has no attempt in flight")
        self._advance(now_ns, commands)

        del books.inflight[call_id]
        place = flight.place
        moved = learn(books, flight, ended, commands)
        completion.settle(books, flight, ended)
        if place.pool.residents.enabled and ended.outcome in HEALTHY:
            place.pool.residents.on_answered(place.model, now_ns)
        lines = place.give_back(now_ns)
        # Its provider, any other where its agent was all that was missing, and where its next attempt is to go.
        pools = {place.pool.name: place.pool} | moved
        prefixes = place.prefixes if place.prompts is not None else None
        if prefixes is not None and ended.outcome in HEALTHY:
            books.wake_early(prefixes.on_read(flight.call.prefix, now_ns))
        elif prefixes is not None:
            books.wake_early(prefixes.on_over(flight.call.prefix, call_id))
        again = None if ended.committed else completion.again(books, flight, ended)
        completion.spare(books, flight, ended, again)
        if again is not None:
            books.room.enter(again)
        else:
            completion.settle_agent(flight, ended)
            if flight.claim is not NO_CLAIM:
                books.end_claim(call_id, flight.claim, completion.spent(books, flight, ended))
            if not ended.committed:
                commands.append(completion.over(books, flight, ended))
            if ended.outcome not in HEALTHY:
                books.keep_position(flight)
        if again is not None and again.in_line:
            pools[again.place.pool.name] = again.place.pool  # due at once, and maybe at another provider
        # Those who waited for this one are due as well.
        if again is not None or prefixes is not None:
            pools |= {waiter.place.pool.name: waiter.place.pool for waiter in books.wake()}
        if lines:
            there = [books.room.waiters[line.first_id].place.pool for line in lines]
            pools |= {pool.name: pool for pool in there}
        dispatch(self.state, pools.values(), place.agent if lines else None, commands)
        books.forget(place.agent)

    def _on_policy(self, program: Program, now_ns: int, commands: list[Command]) -> None:
        books = self.state
        renames = Renames.between(books.program, program)
        # Nobody is granted anything by the policy that goes: whoever keeps the slots counts by the new one already.
        books.now_ns = now_ns
        books.shared.end_slots(now_ns)
        expire(self.state, commands)
        books.unsettle(renames)
        books.load(program)

    def _catch_up(self, commands: list[Command]) -> None:
        """Decide a slice of the calls again that are to be, and dispatch where some have joined the line."""
        books, left = self.state, self._most
        if books.settling:
            left -= settle(books, left, commands)
            books.behind = bool(books.unsettled) or left <= 0 or self._end_settling(left, commands)
            if books.behind:
                return
        if books.asked_anew:
            tried, pools = decide_held_again(books, left, commands)
            dispatch(books, pools.values(), None, commands)
            left -= tried
        if books.budgets_released:
            tried, pools = release_budget_waiters(books, left, commands)
            dispatch(books, pools.values(), None, commands)
            left -= tried
        books.behind = left <= 0 and bool(books.asked_anew or books.budgets_released)

    def _end_settling(self, most: int, commands: list[Command]) -> bool:
        """Dispatch by a new policy, which has decided every call that waits; return True if more is to be granted."""
        books = self.state
        expire(books, commands)
        self._open(commands)
        for pool in books.pools.values():
            if is_given_up(books, pool):
                reject_all(books, pool, commands)
        books.settling = False
        books.settling = dispatch(books, books.pools.values(), None, commands, most)
        if books.settling:
            return True
        calls, books.latecomers = list(books.latecomers.values()), {}
        for call in calls:
            self._admit(call, commands)
        return False

    def _on_draining(self, now_ns: int, commands: list[Command]) -> None:
        books = self.state
        self._advance(now_ns, commands)
        books.draining = True
        for waiter in (*books.room, *books.unsettled.values()):
            books.leave(waiter)
            message = rejection_text(Reason.DRAINING)
            commands.append(rejection.reject(books, waiter, Reason.DRAINING, message, rejection.DRAINING_RETRY_NS))

    def _on_pause(self, event: PauseSet, now_ns: int, commands: list[Command]) -> None:
        self._advance(now_ns, commands)
        self.state.pause(event.kind, event.name, paused=event.paused)
        # Calls are granted in slices, as after a reload. Also when something is paused: what it kept in reserve is free
        # for others.
        self.state.settling = True

    def _on_priority(self, event: PrioritySet, now_ns: int, commands: list[Command]) -> None:
        books = self.state
        self._advance(now_ns, commands)
        waiter = books.waiting(event.call_id)
        if waiter is None:
            if (call := books.latecomers.get(event.call_id)) is not None:
                books.latecomers[call.id] = attrs.evolve(call, priority=event.priority, priority_by=event.by)
            return  # or it has gone meanwhile
        if event.call_id in books.unsettled:
            waiter.call = attrs.evolve(waiter.call, priority=event.priority, priority_by=event.by)
            return
        books.room.leave(waiter)
        books.unclaim(waiter)
        waiter.call = attrs.evolve(waiter.call, priority=event.priority, priority_by=event.by)
        anew = reclassify(books, waiter, decide(books, waiter.call), commands)
        pools = {pool.name: pool for pool in (waiter.place.pool, *([anew.place.pool] if anew is not None else []))}
        dispatch(books, pools.values(), None, commands)

    def _on_let_through(self, call_id: CallId, now_ns: int, commands: list[Command]) -> None:
        self._advance(now_ns, commands)
        waiter = self.state.waiting(call_id)
        if waiter is not None:
            self.state.let_through[call_id] = None
            dispatch(self.state, [waiter.place.pool], None, commands)

    def _on_ledger(
        self, event: LedgerOpened | CreditDrawn | LedgerWritable, now_ns: int, commands: list[Command]
    ) -> None:
        self._advance(now_ns, commands)
        match event:
            case LedgerOpened(accounts=accounts):
                self.state.open_ledger(accounts)
            case CreditDrawn(account=account, amount=amount):
                self.state.credit(account, amount)
            case LedgerWritable(writable=writable):
                self.state.set_writable(writable)
            case _:
                assert_never(event)

    def _on_window(
        self, event: WindowsShared | WindowAnswered | WindowUnanswered, now_ns: int, commands: list[Command]
    ) -> None:
        self._advance(now_ns, commands)
        if isinstance(event, WindowsShared):
            self.state.shared.share_windows(event, now_ns)
            return
        pool = self.state.shared.on_window(event, now_ns)
        if pool is not None:
            dispatch(self.state, [pool], None, commands)

    def _on_budgets(
        self,
        event: BudgetsShared | BudgetsAnswered | BudgetsUnanswered | BudgetsCalled,
        now_ns: int,
        commands: list[Command],
    ) -> None:
        self._advance(now_ns, commands)
        if isinstance(event, BudgetsShared):
            self.state.share_budgets(event)
        else:
            commands += self.state.on_budgets(event)

    def _on_learning(
        self,
        event: LearningShared | LearnAnswered | LearnUnanswered | LearnCalled,
        now_ns: int,
        commands: list[Command],
    ) -> None:
        self._advance(now_ns, commands)
        if isinstance(event, LearningShared):
            self.state.shared.share_learning(event)
            return
        pool = self.state.pools.get(event.provider)
        shared = pool.health.shared if pool is not None else None
        if pool is None or shared is None:
            return  # a policy has been loaded meanwhile
        if isinstance(event, LearnCalled):
            shared.link.called(now_ns)
        elif isinstance(event, LearnUnanswered):
            shared.link.unanswered(event.seq, now_ns)
        else:
            limit, circuit = pool.health.limit, pool.health.breaker.circuit
            pool.health.told(event.answer, now_ns)
            self._look(pool, limit, circuit, commands)

    def _look(self, pool: ProviderQueue, limit: int, circuit: Circuit, commands: list[Command]) -> None:
        """Follow what other nodes, or their silence, have changed at a provider.

        Args:
            limit: As it was before, and so is the circuit.
        """
        pool.apply()
        pools = {pool.name: pool}
        if (pool.health.limit, pool.health.breaker.circuit) != (limit, circuit):
            commands.append(adapted(pool, None))
            pools |= give_up(self.state, pool, commands)
        if pool.health.breaker.circuit is not circuit:
            pools |= move_to_fallback(self.state, calls_to_move(self.state, pool), commands)
        dispatch(self.state, pools.values(), None, commands)

    # ---- the books ----

    def _advance(self, now_ns: int, commands: list[Command]) -> None:
        self.state.now_ns = now_ns
        self.state.shared.end_slots(now_ns)
        if self._due_ns is not None and self._due_ns <= now_ns:
            gone = expire(self.state, commands)
            self._open_what_is_due(gone, commands)

    def _open_what_is_due(self, gone: list[WaitingCall], commands: list[Command]) -> None:
        """Dispatch the calls whose limits have opened.

        Args:
            gone: Who has just left the line; smaller calls may have stood behind a large one.
        """
        opened = {waiter.place.pool.name: waiter.place.pool for waiter in gone if waiter.place.pool.holds}
        opened |= self._open(commands)
        if opened:
            dispatch(self.state, opened.values(), None, commands)

    def _open(self, commands: list[Command]) -> dict[str, ProviderQueue]:
        """Retries whose pause is over, circuits and quotas: the providers at which somebody may be able to go now."""
        books = self.state
        opened = {}
        for pool in books.pools.values():
            circuit, limit = pool.health.breaker.circuit, pool.health.limit
            if pool.health.unheard(pool.limit, books.now_ns):
                pool.apply()
                opened[pool.name] = pool
                commands.append(adapted(pool, None))
            if pool.health.shared is not None and pool.health.shared.link.opens(books.now_ns):
                pool.apply()
                opened[pool.name] = pool
            if pool.health.on_time(books.now_ns):
                pool.apply()
                opened[pool.name] = pool
                if pool.health.breaker.circuit is not circuit:
                    commands.append(adapted(pool, None))
                    opened |= move_to_fallback(books, calls_to_move(books, pool), commands)
                elif pool.health.limit != limit:
                    commands.append(adapted(pool, None))
            if pool.opens_ns is not None and pool.opens_ns <= books.now_ns:
                opened[pool.name] = pool
        for waiter in books.wake():
            opened[waiter.place.pool.name] = waiter.place.pool
        return opened
