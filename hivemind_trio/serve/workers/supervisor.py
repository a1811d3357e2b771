"""Supervisor of several workers: one proxy to clients and operators, whatever happens to one of its processes.

It has what there can be only one of: the listeners, the policy's files, the state and the journal's lock, the control
API, and the store through which workers share limits. It serves no call itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import PolicyKeeper
from hivemind_trio.control import leases_route
from hivemind_trio.dashboard import Doors
from hivemind_trio.host.start_signals import StartSignals
from hivemind_trio.listen import ConnectionSource
from hivemind_trio.model import SecretRef
from hivemind_trio.policy import Measure, Program, Renames
from hivemind_trio.proxy import OwnPriorities, Whose
from hivemind_trio.runtime import Calendar, Reloader, keeping_leases
from hivemind_trio.scheduler import AccountKey, Event, LedgerWritable, Pausable
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms
from hivemind_trio.serve.assembly import base_url, lease_keeper, settle_memory
from hivemind_trio.serve.events import (
    BudgetCharged,
    DrainStarted,
    DrainTimedOut,
    ReloadRequested,
    ServingStopped,
    StopForced,
    WorkerBack,
    WorkerEnded,
    WorkerSilent,
    WorkerStarted,
)
from hivemind_trio.serve.launch import EXIT_OK, Launch, NotStarted, refuse
from hivemind_trio.serve.load import Loaded
from hivemind_trio.serve.state import StateTrouble
from hivemind_trio.store import SESSIONS_HINT, Journal, Ledger, SqliteStore, writing
from hivemind_trio.store.fleet.memory_fleet import MemoryFleet

from .answers import FleetAnswers
from .channel import ChannelClosed, Failed, body_of
from .handing import ConnectionBoard, Handover
from .leases import SupervisedLeases
from .ledger import SharedLedger
from .process import WorkerProcess
from .setup import PolicyText, StateText, WorkerSetup
from .shared_store import serve_store
from .worker import WorkerLoad

FIRST: Final = "worker-1"

BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 30.0
"""Between two starts of one worker: twice as long each time."""
STEADY_S: Final = 30.0
"""Time after which a worker that ends is started again at once."""

PING_S: Final = 1.0
SILENT_S: Final = 5.0
"""Silence after which a worker is handed no connection."""
HUNG_S: Final = 60.0
"""Silence after which it is killed."""

ENDS_S: Final = 8.0
"""Time beyond `drain` for a worker to cut off what is left, which takes up to five, and to write."""


@final
@attrs.define(eq=False)
class WorkerFleet:
    """The workers, as one proxy that serves."""

    launch: Launch
    count: int
    state: SqliteStore | None
    journal: Journal | None
    ledger: SharedLedger | None
    store: MemoryFleet
    leases: SupervisedLeases
    address: tuple[str, int]
    board: ConnectionBoard
    loaded: Loaded
    """The policy in force."""
    workers: dict[str, WorkerProcess] = attrs.field(init=False, factory=dict)
    """Name -> the process of now; one that has not begun again is missing."""
    starts: dict[str, int] = attrs.field(init=False, factory=dict)
    paused: dict[tuple[Pausable, str], None] = attrs.field(init=False, factory=dict)
    """Kinds and names that operators have paused: a new process of a worker pauses them, too."""
    handover: Handover = attrs.field(init=False, factory=Handover)
    draining: bool = attrs.field(init=False, default=False)
    started_at_ns: int = attrs.field(init=False, factory=time.time_ns)
    began_s: float = attrs.field(init=False, factory=trio.current_time)
    _sessions: int = attrs.field(init=False, default=0)
    _all_ready: trio.Event = attrs.field(init=False, factory=trio.Event)
    _failed: str = attrs.field(init=False, default="")
    """Why the first start of a worker failed."""
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _loads: trio.Event = attrs.field(init=False, factory=trio.Event)
    _loaded_everywhere: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._loaded_everywhere.set()

    @property
    def priorities(self) -> OwnPriorities:
        """Priorities that agents have asked any worker for."""
        return self.leases.priorities

    @property
    def names(self) -> Sequence[str]:
        """Names of all workers."""
        return [FIRST, *(f"worker-{place + 1}" for place in range(1, self.count))]

    @property
    def url(self) -> str:
        """Base URL for agents."""
        return base_url(self.address)

    @property
    def program(self) -> Program:
        """The policy in force, compiled for one process."""
        return self.loaded.program

    def ready(self) -> list[WorkerProcess]:
        """Return the workers that serve now."""
        return [self.workers[name] for name in sorted(self.workers) if self.workers[name].is_ready]

    # ---- the policy ----

    def use(self, program: Program, secrets: Mapping[SecretRef, str]) -> None:
        """Have every worker run on a new policy."""
        if self.ledger is not None:
            renames = Renames.between(self.program, program)
            if renames:
                self.ledger.rename(renames)
        self.leases.leases.load(program)
        self._loaded_everywhere = trio.Event()
        self._loads.set()

    async def follow_policy(self) -> None:
        """Send each new policy to all workers, until cancelled."""
        while True:
            await self._loads.wait()
            self._loads = trio.Event()
            told, loaded = self._loaded_everywhere, self.launch.watcher.running or self.loaded
            self.loaded = loaded
            text = PolicyText.of(loaded, self.count)
            async with trio.open_nursery() as nursery:
                for worker in self.ready():
                    nursery.start_soon(self._send_policy, worker, text)
            told.set()

    async def loaded_everywhere(self) -> None:
        """Return when every worker runs on the policy in force."""
        await self._loaded_everywhere.wait()

    async def _send_policy(self, worker: WorkerProcess, text: PolicyText) -> None:
        try:
            await worker.ask("use", text, type(None))
        except (ChannelClosed, Failed):
            worker.kill()  # its successor begins with the policy in force

    # ---- processes ----

    async def keep(self, place: int) -> None:
        """Have one worker run, until it drains."""
        name, pause_s = self.names[place], BACKOFF_MIN_S
        log = self.launch.log
        while True:
            self.starts[name] = self.starts.get(name, 0) + 1
            worker = WorkerProcess.create(name, place, self.starts[name], self.board)
            self.workers[name] = worker
            status = await self._run(worker)
            self.workers.pop(name, None)
            self._changed.set()
            self._changed = trio.Event()
            if self.draining:
                return
            if not worker.is_ready and not self._all_ready.is_set():
                self._failed = f"{name} ended before it could serve: {status}"
                self._all_ready.set()
                return
            if worker.leaves:
                pause_s = 0.0
            elif trio.current_time() - worker.started_at_s > STEADY_S:
                pause_s = BACKOFF_MIN_S
            else:
                pause_s = min(BACKOFF_MAX_S, max(BACKOFF_MIN_S, 2 * pause_s))
            log.emit(WorkerEnded(worker=name, pid=worker.pid, status=status, again_s=pause_s))
            await trio.sleep(pause_s)

    async def _run(self, worker: WorkerProcess) -> str:
        ledger = self.ledger.reader(worker.name, worker.ledger_socket) if self.ledger is not None else None
        async with trio.open_nursery() as nursery:
            self._listen(worker, nursery)
            nursery.start_soon(self._watch, worker)
            status, charged = await worker.run(ledger, time.time_ns)
            nursery.cancel_scope.cancel()
        self.handover.remove(worker.taker)
        self._say_charged(charged)
        return status

    def _listen(self, worker: WorkerProcess, nursery: trio.Nursery) -> None:
        channel = worker.channel
        ledger = self.ledger
        serve_store(self.store, channel, nursery, ledger.cover if ledger is not None else None)
        self.leases.serve(channel)

        async def setup(_: msgspec.Raw) -> WorkerSetup:
            return self._setup(worker)

        async def join(body: msgspec.Raw) -> None:
            if ledger is not None:
                ledger.join(worker.name, *body_of(body, tuple[str, int]))

        def learn(body: msgspec.Raw) -> None:
            if ledger is not None:
                hints = body_of(body, list[tuple[str, str, str]])
                # Beliefs of any worker are as good as those of another; sessions are its own.
                ledger.hints |= {
                    (worker.name if what == SESSIONS_HINT else pool, what): value for pool, what, value in hints
                }

        channel.handlers |= {"setup": setup, "ledger.join": join}
        channel.listeners |= {
            "ready": lambda _: self._on_ready(worker),
            "leaving": lambda _: self._on_leaving(worker),
            "ledger.learn": learn,
            "own_priority": lambda body: self._on_own_priority(worker, *body_of(body, tuple[Whose, int | None])),
            "note": lambda body: self.launch.watcher.operator(*body_of(body, tuple[str, str, str, str])),
        }

    def _setup(self, worker: WorkerProcess) -> WorkerSetup:
        launch = self.launch
        node = launch.options.node or f"{os.uname().nodename}:{self.address[1]}"
        state = None
        if self.ledger is not None:
            state = StateText.of(self.ledger.restored(worker.name, time.time_ns()), self.ledger.state.alias_key)
        self._sessions += 1
        return WorkerSetup(
            name=worker.name,
            place=worker.taker.place,
            options=attrs.evolve(launch.options, node=f"{node}/{worker.name}"),
            policy=PolicyText.of(self.loaded, self.count),
            address=self.address,
            journal=self.journal.path if self.journal is not None else None,
            # The first number is that of the supervisor, which writes no session.
            session=self.journal.session + self._sessions if self.journal is not None else 0,
            state=state,
            paused=tuple(self.paused),
        )

    def _on_ready(self, worker: WorkerProcess) -> None:
        worker.is_ready = True
        worker.channel.tell("paused", tuple(self.paused))  # it may have begun with what was paused earlier
        worker.channel.tell("own_priorities", self.priorities.kept())
        self.handover.add(worker.taker)
        self.launch.log.emit(WorkerStarted(worker=worker.name, pid=worker.pid, starts=worker.starts))
        if len(self.ready()) == self.count:
            self._all_ready.set()
        self._loads.set()  # it may have begun with an older one

    def _on_own_priority(self, asked: WorkerProcess, agent: Whose, priority: int | None) -> None:
        """Tell the other workers what an agent has asked one of them for: its connections are spread over all."""
        self.priorities.keep(agent, priority)
        for worker in self.ready():
            if worker is not asked:
                worker.channel.tell("own_priorities", [(agent, priority)])

    def _on_leaving(self, worker: WorkerProcess) -> None:
        worker.leaves = True
        self.handover.remove(worker.taker)

    async def _watch(self, worker: WorkerProcess) -> None:
        """Notice that a worker does not answer."""
        log = self.launch.log
        while True:
            await trio.sleep(PING_S)
            if not worker.is_ready:
                continue
            worker.silent_since_s = asked_s = trio.current_time()
            with trio.move_on_after(HUNG_S) as patience:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._rest_if_silent, worker)
                    try:
                        await worker.ask("load", None, WorkerLoad)
                    except (ChannelClosed, Failed):
                        return
                    nursery.cancel_scope.cancel()
            worker.silent_since_s = None
            if patience.cancelled_caught:
                worker.kill()
                return
            if trio.current_time() - asked_s > SILENT_S:
                worker.taker.rests = False
                log.emit(WorkerBack(worker=worker.name, pid=worker.pid))

    async def _rest_if_silent(self, worker: WorkerProcess) -> None:
        await trio.sleep(SILENT_S)
        worker.taker.rests = True
        self.launch.log.emit(WorkerSilent(worker=worker.name, pid=worker.pid, silent_s=SILENT_S))

    def _say_charged(self, charged: Mapping[AccountKey, tuple[int, int]]) -> None:
        for account, (amount, calls) in charged.items():
            is_money = account.measure is Measure.COST
            self.launch.log.emit(
                BudgetCharged(
                    budget=account.budget,
                    measure=account.measure,
                    amount=f"${amount / 10**6:,.6g}" if is_money else f"{amount:,}",
                    in_flight=calls,
                )
            )

    async def first_start(self) -> None:
        """Return when all workers serve.

        Raises:
            NotStarted: One has ended before.
        """
        await self._all_ready.wait()
        if self._failed:
            raise NotStarted(refuse(self._failed))

    # ---- the end ----

    async def drain(self, sockets: Sequence[ConnectionSource]) -> None:
        """Take no new work, and return when every worker has let its calls end."""
        self.draining = self.handover.closing = self.leases.leases.is_closing = True
        for sock in sockets:
            if sock.fileno() != -1:
                trio.lowlevel.notify_closing(sock)
                sock.close()
        for worker in list(self.workers.values()):
            self.handover.remove(worker.taker)
            worker.stop()
        while self.workers:
            await self._changed.wait()

    def kill(self) -> None:
        """End every worker at once."""
        for worker in self.workers.values():
            worker.kill()


@asynccontextmanager
async def _ledger(
    state: SqliteStore | None, fleets: list[WorkerFleet], on_trouble: Callable[[str], None]
) -> AsyncIterator[SharedLedger | None]:
    """Keep the ledger within the context."""
    if state is None:
        yield None
        return

    def post(event: Event) -> None:
        if isinstance(event, LedgerWritable):
            for worker in fleets[0].ready():
                worker.channel.tell("ledger.writable", event.writable)

    ledger = Ledger(
        state,
        post=post,
        left_ns=lambda window: Calendar.of(fleets[0].program.server.timezone).turns(0, window),
        learned=lambda: shared.hints,
        on_trouble=on_trouble,
    )
    shared = SharedLedger(state, ledger, FIRST)
    async with writing(ledger):
        yield shared


def _leases(
    launch: Launch, ledger: SharedLedger | None, fleets: list[WorkerFleet], on_trouble: Callable[[str], None]
) -> SupervisedLeases:
    """Return the leases of all workers."""
    program = launch.loaded.program
    state, writer = (ledger.state, ledger.ledger) if ledger is not None else (None, None)
    return SupervisedLeases(
        leases=lease_keeper(program, time.monotonic_ns, state, writer, on_trouble),
        priorities=OwnPriorities(),
        note=launch.watcher.operator,
        now_ns=time.monotonic_ns,
        program=lambda: fleets[0].program if fleets else program,
    )


async def supervise(launch: Launch, count: int, start_signals: StartSignals) -> int:
    """Serve with so many workers until told to stop; the exit status."""
    fleets: list[WorkerFleet] = []
    try:
        async with AsyncExitStack() as stack:
            state, journal = await launch.open_files(stack)
            signals = stack.enter_context(start_signals.heeded())
            trouble = StateTrouble(launch.watcher.state_trouble)
            ledger = await stack.enter_async_context(_ledger(state, fleets, trouble.of("ledger")))
            leases = _leases(launch, ledger, fleets, trouble.of("leases"))
            await stack.enter_async_context(keeping_leases(leases.leases))
            host, port = launch.sockets[0].getsockname()[:2]
            fleet = WorkerFleet(
                launch=launch,
                count=count,
                state=state,
                journal=journal,
                ledger=ledger,
                leases=leases,
                store=MemoryFleet(LeaseTerms(), lambda: time.monotonic_ns() // 1_000_000, True),
                address=(host, port),
                board=ConnectionBoard.create(count),
                loaded=launch.loaded,
            )
            fleets.append(fleet)
            await _run(fleet, signals)
    except NotStarted as error:
        return error.status
    except BaseExceptionGroup as errors:
        ours, others = errors.split(NotStarted)
        if others is not None or ours is None:
            raise
        return _status(ours)
    return EXIT_OK


def _status(errors: BaseExceptionGroup[NotStarted]) -> int:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, NotStarted)
    return first.status


async def _run(fleet: WorkerFleet, signals: AsyncIterator[int]) -> None:
    """Start the workers, and serve until a signal."""
    launch = fleet.launch
    log, notices, watcher = launch.log, launch.notices, launch.watcher
    async with trio.open_nursery() as nursery:
        for place in range(fleet.count):
            nursery.start_soon(fleet.keep, place)
        nursery.start_soon(fleet.follow_policy)
        await fleet.first_start()
        for sock in launch.sockets:
            nursery.start_soon(fleet.handover.run, sock)
        own = launch.own_files(fleet.state, fleet.journal)
        reloader = Reloader(launch.read, lambda new: watcher.take(fleet, new, nursery), watcher.keep, own)
        async with AsyncExitStack() as stack:
            keeper = launch.keeper()
            keeper.reload = _reload(fleet, reloader)
            answers = await stack.enter_async_context(_doors(fleet, keeper))
            settle_memory()
            watcher.say_start(fleet, launch.loaded, launch.found)
            nursery.start_soon(notices.run)
            nursery.start_soon(reloader.run, launch.loaded)
            number = await _until_told(fleet, signals, reloader)
            nursery.start_soon(_at_once, fleet, signals)
            at_most_s = fleet.program.server.drain_ns / 1e9
            log.emit(
                DrainStarted(
                    signal=signal.Signals(number).name, in_flight=await answers.in_flight(), timeout_s=at_most_s
                )
            )
            with trio.move_on_after(at_most_s + ENDS_S) as patience:
                await fleet.drain(launch.sockets)
            notices.flush(everything=True)
            if patience.cancelled_caught:
                log.emit(DrainTimedOut(cut_off=len(fleet.workers)))
                fleet.kill()
            log.emit(ServingStopped())
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _doors(fleet: WorkerFleet, keeper: PolicyKeeper) -> AsyncIterator[FleetAnswers]:
    """Let operators reach the proxy within the context."""
    launch = fleet.launch
    answers = FleetAnswers(
        fleet=fleet,
        facts=launch.facts(fleet.url, fleet.journal),
        policy=keeper,
        note=launch.watcher.operator,
        disk_troubles=launch.watcher.disk_troubles,
    )
    doors = Doors(
        ask=answers.ask,
        leases=leases_route(fleet.leases),
        collect=answers.metrics,
        server=lambda: fleet.program.server,
        is_ready=lambda: not fleet.draining and bool(fleet.ready()),
        policy=launch.options.policy,
        port=fleet.address[1],
        admin_sockets=launch.admin_sockets,
        metrics_sockets=launch.metrics_sockets,
    )
    async with doors.open(launch.watcher):
        yield answers


def _reload(fleet: WorkerFleet, reloader: Reloader[Loaded]) -> Callable[[], Awaitable[None]]:
    async def reload() -> None:
        await reloader.reload()
        await fleet.loaded_everywhere()

    return reload


async def _until_told(fleet: WorkerFleet, signals: AsyncIterator[int], reloader: Reloader[Loaded]) -> int:
    """Reload at SIGHUP; return the first signal to stop."""
    async for number in signals:
        if number != signal.SIGHUP:
            return number
        fleet.launch.log.emit(ReloadRequested(signal=signal.Signals(number).name))
        reloader.trigger()
    raise AssertionError("the signals of a process do not end")


async def _at_once(fleet: WorkerFleet, signals: AsyncIterator[int]) -> None:
    """End all processes at a second signal to stop, whatever is still in progress."""
    async for number in signals:
        if number != signal.SIGHUP:
            fleet.kill()
            fleet.launch.log.emit(StopForced(signal=signal.Signals(number).name, not_in_journal=None))
            os._exit(128 + number)
