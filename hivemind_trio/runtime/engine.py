"""The scheduler, driven by Trio: events from tasks, time from its clock, commands to the tasks that wait."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

import attrs
import trio

from hivemind_trio.model import (
    Outcome,
    PlanReading,
    PlanStanding,
    QuotaReading,
    Reason,
    Request,
    rejection_text,
)
from hivemind_trio.policy import BudgetWindow, Program, Renames
from hivemind_trio.scheduler import (
    AccountKey,
    AccountSnapshot,
    AskBudgets,
    AskLearning,
    AttemptEnded,
    AttemptResult,
    Beliefs,
    BeliefsRestored,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Correction,
    Draining,
    Draw,
    DrawWindow,
    Event,
    Finish,
    Grant,
    KeptSessions,
    LimitChanged,
    Occupancy,
    Parts,
    Permit,
    PlanBelief,
    PlanChanged,
    PolicyLoaded,
    PrioritySet,
    Reject,
    ResponseStarted,
    Scheduler,
    SessionFacts,
    SharesSet,
    Snapshot,
    Spend,
    StreamsReceived,
    TimePassed,
    Waiting,
)

from .capacity_limiters import Caps
from .provider_nursery import Branch, Job
from .scheduler_copies import SchedulerCopies
from .ticket import Ticket
from .window_calendar import Calendar

SECOND_NS: Final = 1_000_000_000

REPORT_NS: Final = SECOND_NS // 2
"""Time between two reports of what streams have received."""

WOKEN_AT_ONCE: Final = 2
"""Calls that one event lets go on in the same turn of the loop; further ones follow two a turn, and others run between.

A call takes some 1.4 ms of CPU: a thousand that a reload lets begin would hold all others up for as many.
"""

UNUSED: Final = AttemptResult(outcome=Outcome.IGNORED, committed=True)
"""A permit that no attempt was begun with."""

Journal = Callable[[int, Event, Sequence[Command]], None]
Recorder = Callable[[int, Event, Sequence[Command], Sequence[tuple[BudgetWindow, int]]], None]


class BudgetLedger(Protocol):
    """Keeper of budgets beyond the end of the process. Its methods return at once and raise nothing.

    It posts `LedgerOpened` before the first call, `CreditDrawn` for every draw and `LedgerWritable` as that changes.
    """

    def claim(self, call_id: CallId, parts: Parts) -> None:
        """Note the most that a call may take, before it begins."""

    def spend(self, call_id: CallId, parts: Parts) -> None:
        """Note what a call has taken; its claim is over."""

    def draw(self, account: AccountKey, amount: int) -> None:
        """Make a chunk durable."""

    def correct(self, account: AccountKey, changes: tuple[tuple[int, int], ...]) -> None:
        """Note that an operator has changed what was spent: (age in ns, change)."""

    def rename(self, renames: Renames) -> None:
        """Accounts are called otherwise from now on."""


def _ignore(_: object) -> None:
    pass


def _internal_error(grant: Grant) -> Reject:
    """Return the end of a call that was granted beyond a cap."""
    return Reject(
        call_id=grant.call_id,
        treatment=grant.treatment,
        reason=Reason.INTERNAL_ERROR,
        waited_ns=grant.waited_ns,
        message=rejection_text(Reason.INTERNAL_ERROR),
        retry_after_ns=SECOND_NS,
    )


@final
class Engine:
    """Runs a program. `post` is synchronous, which under Trio means atomic: there is no lock anywhere.

    Args:
        program: What to run on first.
        seed: Of the scheduler's chance.
        journal: Told of every event, when it happened and what came of it, in order.
        recorder: Told the same, and the ends of calendar windows that the scheduler asked for meanwhile.
        ledger: Keeper of budgets; None: they end with the process.
        on_crash: Told of an exception that an attempt let escape: a bug, which stays loud and ends that attempt alone.
        on_adapted: Told when a provider is trusted with more or less than before, and why.
        on_plan: Told when an answer tells news of an account's plan.
        on_closed: Told the name of a provider that is gone: no longer in the policy, and its last attempt is over.
        audit: Assert after every event that the scheduler's counts and the limiters agree. O(size of the policy) each.
    """

    def __init__(
        self,
        program: Program,
        *,
        seed: int = 0,
        journal: Journal | None = None,
        recorder: Recorder | None = None,
        ledger: BudgetLedger | None = None,
        on_crash: Callable[[Exception], None] = _ignore,
        on_adapted: Callable[[LimitChanged], None] = _ignore,
        on_plan: Callable[[PlanChanged], None] = _ignore,
        on_closed: Callable[[str], None] = _ignore,
        audit: bool = False,
    ) -> None:
        self._program = program
        self._calendar = Calendar.of(program.server.timezone)
        self.scheduler = Scheduler(program, seed, self._turns)
        self.caps = Caps(program)
        self._journal = journal
        self._recorder = recorder
        self._turned: list[tuple[BudgetWindow, int]] = []
        """Ends of calendar windows since the last event."""
        self._ledger = ledger
        self._on_crash = on_crash
        self._on_adapted = on_adapted
        self._on_plan = on_plan
        self._on_closed = on_closed
        self._audit = audit
        self.on_event: Callable[[], None] | None = None
        """Told after every event; it must not post one."""
        self.on_draw_window: Callable[[DrawWindow], None] = _ignore
        """Asks the store that several nodes share, and posts its answer later."""
        self.on_ask_budgets: Callable[[AskBudgets], None] = _ignore
        """The same for budgets."""
        self.on_ask_learning: Callable[[AskLearning], None] = _ignore
        """The same for what nodes learn of providers."""
        self.tickets: dict[CallId, Ticket] = {}
        self.branches: dict[str, Branch] = {name: Branch(name) for name in program.pools}
        self._nursery: trio.Nursery | None = None
        self._next_id = 0
        self._time_s = trio.lowlevel.current_clock().current_time
        self._origin_s = self._time_s()
        self._now_ns = 0
        self._timer = trio.CancelScope()
        self._open_branches: dict[Branch, None] = {}
        self._asleep: deque[Ticket] = deque()
        """Calls that are answered and have not been woken yet."""
        self._has_turns = False
        """Tasks of the engine run, and will."""
        self._granted = 0
        """Calls that run, or were granted and may begin at any moment."""
        self._idle = trio.Event()
        self.draining = False
        """New calls are refused, for good."""
        self._shares_until_ns: int | None = None
        """End of this node's shares, if nobody renews them."""
        self._lapses = 0
        """Times that they have ended: what was granted before is another node's."""
        self._received: dict[CallId, int] = {}
        """Bytes that each stream has received since the last report."""
        self._reports_ns = 0
        """When the next one is due."""
        self._sync()

    @property
    def program(self) -> Program:
        """Program that decides calls now."""
        return self._program

    def now_ns(self) -> int:
        """Nanoseconds since the engine began; never less than before."""
        self._now_ns = max(self._now_ns, round((self._time_s() - self._origin_s) * SECOND_NS))
        return self._now_ns

    def snapshot(self) -> Snapshot:
        """Return the state of the engine."""
        return self.scheduler.snapshot()

    def occupancy(self) -> Occupancy:
        """Return every call that the scheduler knows. O(calls log calls)."""
        return self.scheduler.occupancy(self.now_ns())

    def accounts(self) -> tuple[AccountSnapshot, ...]:
        """Return every account of the budgets."""
        return self.scheduler.accounts(self.now_ns())

    def plan(self, call: Call, provider: str, model: str) -> PlanStanding:
        """Return the plan that a call counts against at a provider."""
        return self.scheduler.plan(call, provider, model)

    def plans(self, provider: str) -> tuple[PlanBelief, ...]:
        """Return the plans of a provider's accounts; times are from now."""
        return self.scheduler.plans(provider, self.now_ns())

    def beliefs(self) -> Beliefs:
        """Return what is learned of providers, to be kept."""
        return self.scheduler.beliefs()

    def sessions(self) -> KeptSessions:
        """Return clients' sessions, to be kept."""
        return self.scheduler.sessions()

    def session(self, call: Call) -> SessionFacts | None:
        """Return what is known of the session of a call; None: it is of none."""
        return self.scheduler.session(call, self.now_ns())

    def copies(self) -> SchedulerCopies:
        """Take the scheduler as it is, to see what it would decide. O(calls)."""
        self.post(TimePassed())  # so that its time is that of now
        return SchedulerCopies.of(self.scheduler, self._calendar.turns)

    def left_ns(self, window: BudgetWindow) -> int:
        """Return the time until the calendar window ends."""
        now_ns = self.now_ns()
        return self._calendar.turns(now_ns, window) - now_ns

    # ---- one call ----

    def ticket(
        self,
        request: Request,
        caller: str,
        *,
        job: str = "",
        address: str = "",
        prefix: str = "",
        needs_slot: bool = True,
        credential: str = "",
        again: str = "",
        patience_ns: int | None = None,
        held_ns: int | None = None,
    ) -> Ticket:
        """Return a call's place before the scheduler, for the length of the `with` block that it belongs in."""
        self._next_id += 1
        call_id = CallId(self._next_id)
        call = Call(
            id=call_id,
            request=request,
            caller=caller,
            job=job,
            address=address,
            prefix=prefix,
            credential=credential,
            again=again,
            patience_ns=patience_ns,
            held_ns=held_ns,
            needs_slot=needs_slot,
        )
        return Ticket(call, self)

    def ask_priority(self, call_id: CallId, asked: int | None) -> None:
        """Give a waiting call the priority that its agent has asked for, as far as the policy lets it.

        Args:
            call_id: One that does not wait is left alone.
            asked: None: the policy's again.
        """
        waiter = self.scheduler.state.waiting(call_id)
        call = waiter.call if waiter is not None else self.scheduler.state.latecomers.get(call_id)
        if call is None or (call.priority is not None and call.priority_by == "operator"):
            return  # it runs, or an operator has decided
        # What the policy decided, without what the agent has asked for before.
        decision = self.scheduler.routed(attrs.evolve(call, priority=None))
        priority = decision.priority if asked is None else self._program.own_priority(decision, asked)
        if waiter is None or priority != waiter.treatment.priority:
            self.post(PrioritySet(call_id, priority, "agent"))

    def post(self, event: Event) -> None:
        """Tell the scheduler what happened, and carry out what it answers."""
        now_ns = self.now_ns()
        self._note_shares(event, now_ns)
        commands = self.scheduler.handle(event, now_ns)
        if self._journal is not None:
            self._journal(now_ns, event, commands)
        if self._recorder is not None:
            self._recorder(now_ns, event, commands, self._turned)
            self._turned = []
        if isinstance(event, SharesSet | BeliefsRestored):
            self._sync()  # before what it grants is taken
        beyond: list[CallId] = []
        told: list[Ticket] = []
        for command in commands:
            if isinstance(command, LimitChanged):
                self.caps.adapt(command.provider, command.limit)
                self._on_adapted(command)
                continue
            if isinstance(command, PlanChanged):
                self._on_plan(command)
                continue
            if isinstance(command, Draw | Spend | Correction):
                self._tell_ledger(command)
                continue
            if isinstance(command, AskBudgets):
                self.on_ask_budgets(command)
                continue
            if isinstance(command, DrawWindow):
                self.on_draw_window(command)
                continue
            if isinstance(command, AskLearning):
                self.on_ask_learning(command)
                continue
            ticket = self.tickets[command.call_id]
            if isinstance(command, Grant) and not self._take(command, ticket):
                beyond.append(command.call_id)
            else:
                ticket.answer(command)
            told.append(ticket)
        self._wake(told)
        for call_id in beyond:
            self.post(AttemptEnded(call_id, UNUSED))
        self._arm()
        if self.on_event is not None:
            self.on_event()
        if self._audit:
            self.caps.audit(self.scheduler.snapshot())

    def _wake(self, told: Sequence[Ticket]) -> None:
        """Let calls that have their answers go on: some at once, and the others a few in each turn of the loop."""
        most = WOKEN_AT_ONCE if self._has_turns else len(told)
        for ticket in told[:most]:
            ticket.wake()
        if len(told) > most:
            if not self._asleep:
                assert self._nursery is not None
                self._nursery.start_soon(self._wake_by_turns)
            self._asleep.extend(told[most:])

    async def _wake_by_turns(self) -> None:
        try:
            while self._asleep:
                for number in range(min(WOKEN_AT_ONCE, len(self._asleep))):
                    # The last of a crowd may have come while a reload decided about the others: not behind all of them.
                    (self._asleep.pop if number % 2 else self._asleep.popleft)().wake()
                await trio.lowlevel.checkpoint()
        finally:
            while self._asleep:  # the engine ends
                self._asleep.popleft().wake()

    def _take(self, grant: Grant, ticket: Ticket) -> bool:
        """Take what a call is granted; False: that is beyond a cap, and the call has its answer."""
        if grant.claims and self._ledger is not None:
            # Before the attempt begins: a crash from here on charges the claim.
            self._ledger.claim(grant.call_id, grant.claims)
        if grant.permit is not None:
            try:
                self.caps.take(grant.permit, ticket)
            except AssertionError as error:
                # A bug, which must not end the calls of all others with this one.
                self._on_crash(error)
                ticket.answer(_internal_error(grant))
                return False
        ticket.lapses = self._lapses if grant.permit is not None else None
        if not self._granted:
            self._idle = trio.Event()
        self._granted += 1
        return True

    def _note_shares(self, event: Event, now_ns: int) -> None:
        if self._shares_until_ns is not None and now_ns >= self._shares_until_ns:
            self._lapses += 1
            self._shares_until_ns = None
        if isinstance(event, SharesSet):
            self._shares_until_ns = event.until_ns

    def _tell_ledger(self, command: Draw | Spend | Correction) -> None:
        if self._ledger is None:
            return
        if isinstance(command, Draw):
            self._ledger.draw(command.account, command.amount)
        elif isinstance(command, Correction):
            self._ledger.correct(command.account, command.changes)
        else:
            self._ledger.spend(command.call_id, command.parts)

    # ---- the engine's life ----

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the nursery tree and keep time, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for branch in list(self.branches.values()):
                await nursery.start(self._keep_branch, branch)
            task_status.started()
            self._has_turns = True
            try:
                await self._keep_time()
            finally:
                self._has_turns = False

    def load(self, program: Program) -> None:
        """From here on this program holds. One step; what is running keeps what it has."""
        renames = Renames.between(self._program, program)
        if renames and self._ledger is not None:
            self._ledger.rename(renames)
        for old, new in renames.of("provider").items():
            if old in self.branches:
                branch = self.branches[new] = self.branches.pop(old)
                branch.provider = new
        for name in list(self.branches):
            if name not in program.pools:
                self.branches.pop(name).remove()
        for name in program.pools:
            if name not in self.branches:
                branch = self.branches[name] = Branch(name)
                if self._nursery is not None:
                    self._nursery.start_soon(self._keep_branch, branch)
        self._program = program
        self._calendar = Calendar.of(program.server.timezone)
        self.caps.load(program)
        self.post(PolicyLoaded(program))
        self._sync()

    def _turns(self, now_ns: int, window: BudgetWindow) -> int:
        turns_ns = self._calendar.turns(now_ns, window)
        if self._recorder is not None:
            self._turned.append((window, turns_ns))
        return turns_ns

    def _sync(self) -> None:
        """Bring the limiters in line with the limits of the scheduler."""
        for name, pool in self.scheduler.snapshot().pools.items():
            self.caps.adapt(name, pool.limit)

    def drain(self) -> None:
        """No new work: what waits is refused, and so is what arrives; attempts in flight go on."""
        self.draining = True
        self.post(Draining())

    async def idle(self) -> None:
        """Wait until no attempt runs or is about to. After `drain` that is for good."""
        await trio.lowlevel.checkpoint()
        while self._granted:
            await self._idle.wait()

    async def _keep_time(self) -> None:
        # One task, parked in a scope whose deadline `_arm` moves: an event that changes it wakes nobody.
        while True:
            with trio.CancelScope() as self._timer:
                self._arm()
                await trio.sleep_forever()
            # The deadline is a float of seconds and may come a nanosecond early; the scheduler asked for its own time.
            wakeup_ns = self.scheduler.wakeup_ns()
            if wakeup_ns is not None and wakeup_ns - self.now_ns() < 1_000:
                self._now_ns = max(self._now_ns, wakeup_ns)
            tells = self._program.holds and self._program.clock_edges
            self.post(TimePassed(self._calendar.moment() if tells else None))

    def _arm(self) -> None:
        wakeup_ns = self.scheduler.wakeup_ns()
        deadline = math.inf if wakeup_ns is None else self._origin_s + wakeup_ns / SECOND_NS
        if self._timer.deadline != deadline:
            self._timer.deadline = deadline

    # ---- the ticket's side ----

    def arrived(self, ticket: Ticket, call: Call) -> None:
        """Tell the scheduler that a call has arrived."""
        self.tickets[call.id] = ticket
        self.post(CallArrived(call))

    def left(self, ticket: Ticket) -> None:
        """Nobody waits for what becomes of a call."""
        self.tickets.pop(ticket.id, None)

    def may_send(self, ticket: Ticket) -> bool:
        """Return True if no share of this node has ended since the ticket was granted a slot.

        A process that was stopped goes on where it was, and what it had granted has been given to other nodes.
        """
        is_over = self._shares_until_ns is not None and self.now_ns() >= self._shares_until_ns
        return ticket.lapses is None or (ticket.lapses == self._lapses and not is_over)

    def begin(self, grant: Grant, job: Job) -> None:
        """Run an attempt in the provider's nursery."""
        provider = grant.treatment.provider if grant.permit is None else self.caps.provider(grant.permit)
        assert provider is not None
        self._branch(provider).start(job)

    def heard(
        self, ticket: Ticket, readings: tuple[QuotaReading, ...], good: bool, plan: PlanReading | None = None
    ) -> None:
        """Tell the scheduler of the head of an attempt's answer, of an error or of a good one."""
        self.post(ResponseStarted(ticket.id, readings, good, plan))

    def received(self, ticket: Ticket, amount: int) -> None:
        """Count bytes of a stream, and tell the scheduler about twice a second."""
        self._received[ticket.id] = self._received.get(ticket.id, 0) + amount
        now_ns = self.now_ns()
        if now_ns >= self._reports_ns:
            self._reports_ns = now_ns + REPORT_NS
            received, self._received = self._received, {}
            self.post(StreamsReceived(received))

    def ended(self, ticket: Ticket, permit: Permit | None, ended: AttemptResult) -> None:
        """Tell the scheduler that an attempt is over."""
        self._released(ticket, permit, ended)
        if permit is None and not ended.committed:
            # What needs no slot is not the scheduler's to try again.
            ticket.answer(Finish(ticket.id))
            ticket.wake()

    def unused(self, ticket: Ticket, permit: Permit | None) -> None:
        """Tell the scheduler that a granted call went away before it began."""
        self._released(ticket, permit, UNUSED)

    def withdrawn(self, ticket: Ticket) -> Waiting | None:
        """Take a call out of the queue; return how it stood there."""
        waiting = self.scheduler.waiting(ticket.id, self.now_ns())
        self.post(CallCancelled(ticket.id))
        return waiting

    def crashed(self, error: Exception) -> None:
        """Tell the scheduler that an attempt let an exception escape."""
        self._on_crash(error)

    def _released(self, ticket: Ticket, permit: Permit | None, ended: AttemptResult) -> None:
        self._granted -= 1
        if not self._granted:
            self._idle.set()
        if permit is not None:
            self.caps.give_back(permit, ticket)
            self.post(AttemptEnded(ticket.id, ended))

    async def _keep_branch(
        self, branch: Branch, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self._open_branches[branch] = None
        await branch.run(task_status=task_status)
        del self._open_branches[branch]
        name = branch.provider
        # It may be back in the policy, or another nursery may still be running what was granted before it went.
        if name not in self.branches and not any(one.provider == name for one in self._open_branches):
            self._on_closed(name)

    def _branch(self, provider: str) -> Branch:
        """Return the provider's nursery, or a new one if a reload removed the provider between grant and start."""
        branch = self.branches.get(provider)
        if branch is None:
            branch = Branch(provider)
            branch.remove()
            assert self._nursery is not None
            self._nursery.start_soon(self._keep_branch, branch)
        return branch
