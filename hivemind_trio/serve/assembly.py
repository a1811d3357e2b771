"""The proxy put together: engine, door, upstream, listener. For `serve`, the demo, the tests and the benches alike."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, final

import attrs
import httpx2
import trio

from hivemind_trio import __version__
from hivemind_trio.admin import CallMetrics, Conduct, Fellows, HourUsage, ProviderHistory, StartsKeeper, Tally
from hivemind_trio.host import memory_bytes
from hivemind_trio.listen import Bounds, ConnectionSource, Listener, ListenerFault
from hivemind_trio.model import SecretRef
from hivemind_trio.policy import Program, Renames, Server
from hivemind_trio.proxy import CallRecord, Door, overload_body
from hivemind_trio.runtime import Engine, LeaseKeeper, keeping_leases, renamed_leases
from hivemind_trio.scheduler import CallArrived, Command, Event, Lease, LimitChanged, PlanChanged
from hivemind_trio.store import Journal, Ledger, OpenedState, hints, restored_beliefs, writing
from hivemind_trio.upstream import PoolTransport, Upstream

from .events import AcceptFailed, AttemptCrashed, ConnectionCrashed
from .sharing.node_sharing import SharedSlots, sharing
from .state import StateTrouble
from .traces import CallTraces

CLOSE_S: Final = 2.0
"""Time for which idle upstream connections may close in order."""
CUT_S: Final = 2.0
"""Time for agents to take the errors of the calls that are cut off."""

_LARGEST_BODIES: Final = 8

FAULTS: Final[Mapping[ListenerFault, type[ConnectionCrashed | AcceptFailed]]] = {
    ListenerFault.CONNECTION_CRASHED: ConnectionCrashed,
    ListenerFault.ACCEPT_FAILED: AcceptFailed,
}

Report = Callable[[AttemptCrashed | ConnectionCrashed | AcceptFailed, BaseException], None]


GC_THRESHOLDS: Final = (5_000, 20, 50)
"""Objects made and not freed before the youngest are looked at for cycles; Python's are 700, 10 and 10.

Nearly all objects of a call are freed by their counts. To look as often as Python does took a tenth of the CPU of a
small call (`bench.durable`).
"""


def settle_memory() -> None:
    """Exempt what is there from garbage collection, and collect the rest less often. Call once all is loaded.

    A full collection of modules, grammar and policy took 45 ms of the event loop.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def base_url(address: tuple[str, int]) -> str:
    """Return the base URL for agents of a proxy that listens there, without `/v1`."""
    host, port = address
    # Bound to every interface: this machine reaches it here, others by its name.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@final
@attrs.define(eq=False)
class ProxyServer:
    """A proxy that is serving."""

    engine: Engine
    leases: LeaseKeeper
    door: Door
    listener: Listener
    address: tuple[str, int]
    """Host and port of the first socket."""
    tally: Tally
    metrics: CallMetrics
    hour: HourUsage
    providers: ProviderHistory
    conduct: Conduct
    starts: StartsKeeper
    fellows: Fellows | None
    """Nodes that share its limits; None: it is alone."""
    _bases: dict[str, str]

    @property
    def url(self) -> str:
        """Base URL for agents, without `/v1`."""
        return base_url(self.address)

    def use(self, program: Program, secrets: Mapping[SecretRef, str]) -> None:
        """Run on a new policy from here on. One step: no call sees half of it."""
        now = _bases(program, secrets)
        for name, base in now.items():
            if self._bases.get(name) != base:
                self.tally.moved(name)
        self._bases.update(now)
        self.door.use(program, secrets)
        self.engine.load(program)
        self.leases.load(program)

    async def drain(self) -> None:
        """Take no new work, let what is in flight end, and return when every agent has its answer.

        Waiting calls are told to come back. Bound it with a cancel scope: an agent may take its time to read.
        """
        self.engine.drain()
        self.leases.is_closing = True
        self.listener.stop_accepting()
        await self.engine.idle()
        await self.listener.idle()

    async def cut_off(self) -> None:
        """End the calls that `drain` did not wait for: agents get an error, and a moment to read it."""
        self.door.cut_off()
        with trio.move_on_after(CUT_S):
            await self.engine.idle()
            await self.listener.idle()


def _bases(program: Program, secrets: Mapping[SecretRef, str]) -> dict[str, str]:
    """Return the base URL of each provider."""
    return {
        name: secrets.get(one.base, "") if isinstance(one.base, SecretRef) else one.base
        for name, one in program.pools.items()
    }


@asynccontextmanager
async def _writing(ledger: Ledger | None) -> AsyncIterator[None]:
    """Write the state within the context."""
    if ledger is None:
        yield
    else:
        async with writing(ledger):
            yield


def _ignore(_: object) -> None:
    pass


@asynccontextmanager
async def open_house(
    program: Program,
    secrets: Mapping[SecretRef, str],
    sockets: Sequence[ConnectionSource],
    *,
    transport: httpx2.AsyncBaseTransport | None = None,
    report: Report | None = None,
    on_call: Callable[[CallRecord], None] | None = None,
    on_adapted: Callable[[LimitChanged], None] | None = None,
    on_plan: Callable[[PlanChanged, int], None] | None = None,
    journal: Journal | None = None,
    records: bool = False,
    state: OpenedState | None = None,
    on_state_trouble: Callable[[str], None] = _ignore,
    shared: SharedSlots | None = None,
    traces: CallTraces | None = None,
    audit: bool = False,
) -> AsyncIterator[ProxyServer]:
    """Serve on these listening sockets within the context; leaving it ends every call.

    Args:
        sockets: Bound and listening (`hivemind_trio.listen.bind`); they are closed on the way out.
        transport: How upstreams are reached; None: our own pool.
        report: Given the event and the exception of a fault of the proxy itself. None: the standard library's logging.
        on_call: Told of every call that is over.
        on_adapted: Told when a provider is trusted with more or less than before.
        on_plan: Told when an answer tells news of an account's plan, and when that was.
        journal: Where every call is written down. It stays open for longer than the house.
        records: The journal keeps every event of the scheduler, too.
        state: Store of budgets and hints; None: they end with the process. It stays open for longer than the house.
        on_state_trouble: Told once why the state cannot be written, and with "" when it can be again.
        shared: Store of the slots that several nodes share, and what is told of it; None: this one is alone.
        traces: Makes the spans of calls; None: there are none. It stays open for longer than the house.
        audit: Hold the scheduler's counts against the limiters after every event; for tests.
    """
    upstream = Upstream(transport if transport is not None else PoolTransport())
    told = _Callbacks(
        upstream, _bases(program, secrets), journal, traces, report, on_call, on_adapted, on_plan, program.server
    )
    trouble = StateTrouble(on_state_trouble)
    engine, ledger = _engine(program, told, state, trouble.of("ledger"), records=records, audit=audit)
    leases = lease_keeper(program, engine.now_ns, state, ledger, trouble.of("leases"))
    alias_key, bodies_max = state.alias_key if state is not None else b"", _bodies_max(program)
    door = Door(engine, upstream, on_call=partial(told.over, engine), alias_key=alias_key, bodies_max=bodies_max)
    if journal is not None:
        journal.began(__version__, program.hash, engine.now_ns(), program.reads, program.price)
    door.use(program, secrets)
    if ledger is not None and state is not None:
        ledger.open(state.restored)
        renames, wall_ns = Renames.since_restart(program), time.time_ns()
        engine.post(restored_beliefs(state.restored.learned, renames, wall_ns, wall_ns - engine.now_ns()))
    listener = _listener(door, program, told)
    try:
        async with (
            _writing(ledger),
            keeping_leases(leases),
            sharing(engine, shared, ledger, state.restored if state is not None else None) as fellows,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(engine.run)
            address = sockets[0].getsockname()[:2]
            await nursery.start(listener.run, sockets)
            yield told.server(engine, leases, door, listener, address, fellows)
            nursery.cancel_scope.cancel()
    finally:
        if traces is not None:
            traces.close(engine.now_ns(), engine.program)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S):
            await upstream.aclose()


@final
@attrs.frozen(eq=False)
class _Callbacks:
    """Callbacks of the parts of the proxy, for the operator and the journal."""

    upstream: Upstream
    bases: dict[str, str]
    """Provider -> its base URL."""
    journal: Journal | None
    traces: CallTraces | None
    report: Report | None
    on_call: Callable[[CallRecord], None] | None
    on_adapted: Callable[[LimitChanged], None] | None
    on_plan: Callable[[PlanChanged, int], None] | None
    settings: Server
    """As the process began: its doors are opened once."""
    tally: Tally = attrs.field(init=False, factory=Tally)
    metrics: CallMetrics = attrs.field(init=False, factory=CallMetrics)
    hour: HourUsage = attrs.field(init=False, factory=HourUsage)
    providers: ProviderHistory = attrs.field(init=False, factory=ProviderHistory)
    conduct: Conduct = attrs.field(init=False, factory=Conduct)
    starts: StartsKeeper = attrs.field(init=False, factory=StartsKeeper)

    def server(
        self,
        engine: Engine,
        leases: LeaseKeeper,
        door: Door,
        listener: Listener,
        address: tuple[str, int],
        fellows: Fellows | None,
    ) -> ProxyServer:
        """Return the proxy that these are the callbacks of."""
        return ProxyServer(
            engine=engine,
            leases=leases,
            door=door,
            listener=listener,
            address=address,
            tally=self.tally,
            metrics=self.metrics,
            hour=self.hour,
            providers=self.providers,
            conduct=self.conduct,
            starts=self.starts,
            fellows=fellows,
            bases=self.bases,
        )

    def crashed(self, error: Exception) -> None:
        """Report an attempt that has crashed."""
        if self.report is not None:
            self.report(AttemptCrashed(error=f"{type(error).__name__}: {error}"), error)

    def faulted(self, fault: ListenerFault, detail: str, error: BaseException) -> None:
        """Report a fault of the listener."""
        assert self.report is not None
        self.report(FAULTS[fault](error=detail), error)

    def closed(self, provider: str) -> None:
        """Close the idle connections to a provider that is gone."""
        # A base from the environment may be no URL at all; then nothing was ever reached there.
        with suppress(ValueError):
            self.upstream.close_origin(self.bases.pop(provider))

    def planned(self, now_ns: int, change: PlanChanged) -> None:
        """Report news of an account's plan."""
        if self.on_plan is not None:
            self.on_plan(change, now_ns)

    def observed(self, engine: Engine, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Note an event of the scheduler and what it decided."""
        if self.settings.is_measured:
            self.metrics.observe(now_ns, event, commands)
        self.conduct.observe(now_ns, event, commands)
        self.providers.observe(now_ns, event, commands)
        self.starts.calibration.observe(now_ns, event, commands)
        if self.traces is not None:
            self.traces.observe(now_ns, event, commands, engine.program)
        if self.journal is not None:
            session = engine.session(event.call) if isinstance(event, CallArrived) else None
            self.journal.record(now_ns, event, commands, session)

    def over(self, engine: Engine, record: CallRecord) -> None:
        """Note a call that is over."""
        now_ns = engine.now_ns()
        self.tally.over(record, now_ns)
        if self.settings.is_measured:
            self.metrics.over(record, engine.program)
        self.hour.over(record, now_ns, engine.program)
        if self.journal is not None:
            self.journal.over(now_ns, record)
        if self.traces is not None:
            self.traces.over(record, now_ns, engine.program)
        if self.on_call is not None:
            self.on_call(record)


def _engine(
    program: Program,
    told: _Callbacks,
    state: OpenedState | None,
    on_state_trouble: Callable[[str], None],
    *,
    records: bool,
    audit: bool,
) -> tuple[Engine, Ledger | None]:
    ledger, began_wall_ns = None, time.time_ns()
    if state is not None:
        ledger = Ledger(
            state,
            post=lambda event: engine.post(event),
            left_ns=lambda window: engine.left_ns(window),
            learned=lambda: hints(engine.beliefs(), engine.sessions(), began_wall_ns),
            on_trouble=on_state_trouble,
        )
    engine = Engine(
        program,
        ledger=ledger,
        journal=lambda now_ns, event, commands: told.observed(engine, now_ns, event, commands),
        recorder=told.journal.record_event if told.journal is not None and records else None,
        on_crash=told.crashed,
        on_adapted=told.on_adapted if told.on_adapted is not None else _ignore,
        on_plan=lambda change: told.planned(engine.now_ns(), change),
        on_closed=told.closed,
        audit=audit,
    )
    return engine, ledger


def _bodies_max(program: Program) -> int:
    """Return this process's part of a quarter of the memory, and room for a few of the largest bodies in any case."""
    return max(memory_bytes() // (4 * program.server.processes), _LARGEST_BODIES * program.server.max_body)


@final
@attrs.frozen(eq=False)
class _DurableLeases:
    """Leases in the state, written when the ledger does not write."""

    state: OpenedState
    ledger: Ledger

    async def keep_leases(self, kept: Sequence[Lease], ended: Sequence[Lease]) -> None:
        """Write leases and the ends of others."""
        await self.ledger.in_turn(partial(self.state.keep_leases, kept, ended))


def lease_keeper(
    program: Program,
    now_ns: Callable[[], int],
    state: OpenedState | None,
    ledger: Ledger | None,
    on_trouble: Callable[[str], None],
) -> LeaseKeeper:
    """Return the keeper of the leases that the state has and of those to come."""
    renames = Renames.since_restart(program)
    restored = state.restored if state is not None else None
    fences: dict[str, int] = {}
    for resource, fence in (restored.fences if restored is not None else {}).items():
        for name in {resource: None, renames.name("resource", resource): None}:
            fences[name] = max(fence, fences.get(name, 0))
    return LeaseKeeper(
        program,
        now_ns=now_ns,
        wall_ns=time.time_ns,
        store=_DurableLeases(state, ledger) if state is not None and ledger is not None else None,
        restored=renamed_leases(restored.leases if restored is not None else (), renames),
        fences=fences,
        on_trouble=on_trouble,
    )


def _listener(door: Door, program: Program, told: _Callbacks) -> Listener:
    # A waiting call holds its connection, so there must be room for more connections than may wait.
    bounds = Bounds(
        header_bytes=program.server.max_header, connections=max(Bounds().connections, 2 * program.server.max_waiting)
    )
    if told.report is None:
        return Listener(door, bounds, refused=door.turned_away, overload_body=overload_body)
    return Listener(door, bounds, told.faulted, door.turned_away, overload_body)
