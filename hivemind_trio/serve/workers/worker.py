"""One worker: a whole proxy, but for what its supervisor has: listeners, files, control API and signals."""

from __future__ import annotations

import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from typing import Any, Final, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import OPERATIONS, Operated, OperationFailed, PolicyKeeper, asking
from hivemind_trio.admin.agents.priority import heed
from hivemind_trio.control import collecting
from hivemind_trio.mcp.http import open_tools
from hivemind_trio.proxy import Whose
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import LedgerWritable, Pausable, PauseSet
from hivemind_trio.serve.assembly import ProxyServer, settle_memory
from hivemind_trio.serve.events import DrainTimedOut
from hivemind_trio.serve.launch import Launch, transport_for
from hivemind_trio.serve.load import Loaded
from hivemind_trio.serve.log import LogFormat, Lossy, Notices, make_log
from hivemind_trio.serve.options import wants_json
from hivemind_trio.serve.sharing.node_sharing import SharedSlots, SharingTold
from hivemind_trio.serve.standstill_log import Standstills
from hivemind_trio.serve.watcher import Watcher
from hivemind_trio.store import Journal, Learned, join_journal

from .channel import Channel, ChannelClosed, Failed, body_of
from .handing import ConnectionBoard, HandedConnections
from .leases import LeasesAtSupervisor
from .ledger import SentState
from .metrics import plain
from .setup import PolicyText, WorkerSetup
from .shared_store import ChannelStore

EMPTYING_S: Final = 1.0
"""Time in which connections that are on their way are accepted before the worker drains."""


@final
@attrs.frozen(kw_only=True)
class WorkerFiles:
    """Descriptors that the supervisor passes."""

    channel: int
    connections: int
    board: int
    ledger: int


@final
@attrs.frozen(kw_only=True)
class WorkerLoad:
    """Work of one worker at a moment."""

    pid: int
    inflight: int
    waiting: int
    connections: int
    cpu_s: float
    """CPU time of the process so far."""


def main(files: WorkerFiles) -> None:
    """Serve until the supervisor says so, or is gone."""
    # Those of a terminal are meant for the supervisor, which tells every worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    trio.run(_work, files)


async def _work(files: WorkerFiles) -> None:
    channel = Channel(socket.socket(fileno=files.channel))
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(channel.run)
            try:
                setup = await channel.ask("setup", None, WorkerSetup)
                await Worker(channel, files, setup).run(signals)
            except ChannelClosed:
                pass  # it was gone before this one served
            nursery.cancel_scope.cancel()


@final
@attrs.define(eq=False)
class Worker:
    """A proxy that serves the connections it is handed.

    Args:
        channel: To the supervisor.
        files: Descriptors that it passed.
        setup: What the worker begins with.
    """

    _channel: Channel
    _files: WorkerFiles
    _setup: WorkerSetup
    _loading: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _told: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Told to stop."""

    async def run(self, signals: AsyncIterator[int]) -> None:
        """Serve until told to stop, and let what is in flight end."""
        setup = self._setup
        loaded = await trio.to_thread.run_sync(setup.policy.load)
        connections = HandedConnections(socket.socket(fileno=self._files.connections), setup.address)
        launch = self._launch(loaded, connections)
        async with AsyncExitStack() as stack:
            journal = await self._open_journal(stack, launch)
            state = self._state()
            shared = await self._shared(stack, launch)
            house = await stack.enter_async_context(launch.open_house(state, journal, shared=shared))
            keeper = PolicyKeeper(
                lambda: launch.watcher.running or loaded, _reads_nothing, lambda: launch.watcher.reloaded
            )
            proxy = await stack.enter_async_context(launch.operated(house, journal, keeper))
            elsewhere = LeasesAtSupervisor(self._channel).ask
            await stack.enter_async_context(open_tools(attrs.evolve(proxy, leases_elsewhere=elsewhere)))
            self._count(house, connections)
            pause_only(house.engine, setup.paused)
            self._answer(launch, house, proxy, journal)
            settle_memory()
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(launch.notices.run)
            nursery.start_soon(Standstills(launch.log, house.providers.silences).run, house.engine)
            nursery.start_soon(self._heed, signals)
            nursery.start_soon(self._orphaned)
            self._channel.tell("ready")
            await self._told.wait()
            await self._drain(launch, house, connections)
            nursery.cancel_scope.cancel()

    def _launch(self, loaded: Loaded, connections: HandedConnections) -> Launch:
        options, lossy = self._setup.options, Lossy(sys.stderr)
        form = LogFormat(wants_json(options, loaded.program))
        log = make_log(lossy, form=form, color=options.color, worker=self._setup.name)
        notices = Notices(log)
        watcher = Watcher(log, form, lossy, notices, options)
        watcher.running = loaded
        return Launch(
            options=options,
            read=_reads_nothing,
            loaded=loaded,
            sockets=[connections],
            admin_sockets=[],
            metrics_sockets=[],
            found=[],
            log=log,
            notices=notices,
            watcher=watcher,
            transport=transport_for(options),
        )

    async def _open_journal(self, stack: AsyncExitStack, launch: Launch) -> Journal | None:
        path = self._setup.journal
        if path is None:
            return None
        opened = join_journal(path, self._setup.session, on_trouble=launch.watcher.journal_trouble)
        return await stack.enter_async_context(opened)

    def _state(self) -> SentState | None:
        text = self._setup.state
        if text is None:
            return None

        def join(node: str, epoch: int) -> None:
            try:
                trio.from_thread.run(self._channel.ask, "ledger.join", (node, epoch), type(None))
            except (Failed, ChannelClosed) as error:
                raise OSError(str(error) or "the supervisor has ended") from None

        def learn(learned: Learned) -> None:
            hints = [(*key, value) for key, value in learned.items()]
            trio.from_thread.run_sync(self._channel.tell, "ledger.learn", hints)

        return SentState(
            restored=text.restored(),
            alias_key=text.alias_key,
            sock=socket.socket(fileno=self._files.ledger),
            join_there=join,
            learn_there=learn,
        )

    async def _shared(self, stack: AsyncExitStack, launch: Launch) -> SharedSlots | None:
        """Return the store through which this worker shares: that of all nodes, or else that of the supervisor."""
        shared = await launch.open_shared(stack)
        if shared is not None:
            return shared
        told = SharingTold(joined=_ignore, away=_ignore, slow=_ignore, fenced=_ignore, learns=_ignore, learned=_ignore)
        return SharedSlots(pools=ChannelStore(self._channel), node=self._setup.name, told=told)

    def _count(self, house: ProxyServer, connections: HandedConnections) -> None:
        """Keep the counts on the board."""
        board, place = ConnectionBoard.opened(self._files.board), self._setup.place
        house.listener.on_connections = lambda has: board.write(place, connections.taken, has)

    def _answer(self, launch: Launch, house: ProxyServer, proxy: Operated, journal: Journal | None) -> None:
        """Answer what the supervisor asks."""
        noted = attrs.evolve(proxy, note=lambda *texts: self._channel.tell("note", texts))
        ask, ask_quietly = asking(noted), asking(attrs.evolve(proxy, note=_ignore))
        collect = collecting(proxy, launch.gauges(house, journal))

        async def operation(body: msgspec.Raw) -> Any:
            name, by, is_noted, arguments = body_of(body, tuple[str, str, bool, msgspec.Raw])
            wanted = OPERATIONS[name]
            try:
                return await (ask if is_noted else ask_quietly)(wanted, body_of(arguments, wanted.arguments), by)
            except OperationFailed as failed:
                raise Failed(failed.kind, str(failed), failed.diagnostics) from None

        async def usage(_: msgspec.Raw) -> Any:
            proxy.hour.forget(house.engine.now_ns())
            return [
                (attrs.astuple(key), attrs.asdict(one, filter=lambda field, _: field.name != "waits"), dict(one.waits))
                for key, one in proxy.hour.sums.items()
            ]

        async def metrics(_: msgspec.Raw) -> Any:
            return plain(await collect())

        async def load(_: msgspec.Raw) -> WorkerLoad:
            snapshot, used = house.engine.snapshot(), resource.getrusage(resource.RUSAGE_SELF)
            return WorkerLoad(
                pid=proxy.facts.pid,
                inflight=snapshot.inflight,
                waiting=snapshot.waiting,
                connections=house.listener.connections,
                cpu_s=round(used.ru_utime + used.ru_stime, 3),
            )

        async def use(body: msgspec.Raw) -> None:
            await self._use(body_of(body, PolicyText), launch, house, journal)

        def own_priorities(body: msgspec.Raw) -> None:
            for agent, priority in body_of(body, list[tuple[Whose, int | None]]):
                heed(proxy, agent, priority)

        proxy.door.priorities.on_asked = lambda agent, priority: self._channel.tell("own_priority", (agent, priority))
        self._channel.handlers |= {
            "operation": operation, "usage": usage, "metrics": metrics, "load": load, "use": use,
        }  # fmt: skip
        self._channel.listeners |= {
            "paused": lambda body: pause_only(house.engine, body_of(body, tuple[tuple[Pausable, str], ...])),
            "own_priorities": own_priorities,
            "ledger.writable": lambda body: house.engine.post(LedgerWritable(body_of(body, bool))),
            "stop": lambda _: self._told.set(),
        }

    async def _use(self, text: PolicyText, launch: Launch, house: ProxyServer, journal: Journal | None) -> None:
        """Run on a new policy, which the supervisor has found good."""
        async with self._loading:
            loaded = await trio.to_thread.run_sync(text.load)
            house.use(loaded.program, loaded.secrets)
            launch.watcher.follow(loaded)

    async def _heed(self, signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            self._channel.tell("leaving")
            self._told.set()

    async def _orphaned(self) -> None:
        """Stop when the supervisor is gone: whoever takes its place begins with workers of its own."""
        await self._channel.closed.wait()
        self._told.set()

    async def _drain(self, launch: Launch, house: ProxyServer, connections: HandedConnections) -> None:
        with trio.move_on_after(EMPTYING_S):
            while not connections.is_empty():  # noqa: ASYNC110 - the kernel has no event for it
                await trio.sleep(0.01)
        with trio.move_on_after(house.engine.program.server.drain_ns / 1e9) as patience:
            await house.drain()
        if patience.cancelled_caught:
            launch.log.emit(DrainTimedOut(cut_off=house.engine.snapshot().inflight))
            await house.cut_off()
        launch.notices.flush(everything=True)


def pause_only(engine: Engine, wanted: Collection[tuple[Pausable, str]]) -> None:
    """Have these paused, by kind and name, and no others."""
    known = engine.snapshot().paused
    for kind, name in [one for one in known if one not in wanted]:
        engine.post(PauseSet(kind, name, False))
    for kind, name in [one for one in wanted if one not in known]:
        engine.post(PauseSet(kind, name, True))


def _reads_nothing() -> Loaded:
    raise AssertionError("the supervisor reads the policy")


def _ignore(*_: object) -> None:
    pass
