"""A proxy as `serve` and `run` begin it: policy, address, log and files."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, Self, TextIO, final

import attrs
import trio

from hivemind_trio import __version__
from hivemind_trio.admin import (
    Facts,
    JobDesk,
    Operated,
    PolicyKeeper,
    TimeSeries,
    asking,
    keep_advised,
    keep_calibrated,
)
from hivemind_trio.control import collecting, leases_route
from hivemind_trio.dashboard import Doors
from hivemind_trio.host import DiskFiles
from hivemind_trio.listen import ConnectionSource, bind, inherited
from hivemind_trio.mcp.http import open_tools
from hivemind_trio.model import SecretRef
from hivemind_trio.policy import (
    Files,
    MemoryFiles,
    Program,
    StoreSettings,
    TokenEstimate,
    is_loopback,
    parse_address,
    render,
    store_url_problem,
)
from hivemind_trio.proxy import CallRecord
from hivemind_trio.proxy.counting.tokenizer import TokenizerNotInstalled, counter
from hivemind_trio.store import Journal, JournalError, OpenedState, SqliteStore, StateError, open_journal, state_place
from hivemind_trio.store.fleet.redis_pools import StoreNotInstalled, open_pools
from hivemind_trio.upstream import PoolTransport, StockTransport, Upstream

from .assembly import ProxyServer, open_house
from .autodetect import KEYS, Found, from_environment, ollama, ollama_base, policy_text
from .load import Loaded, load
from .log import EventLog, LogFormat, Lossy, Notices, make_log
from .options import Options, exposed, wants_json
from .sharing.node_sharing import SharedSlots, lease_terms
from .state import open_state
from .traces import CallTraces, NoTraces, endpoint, open_traces, wanted
from .watcher import Watcher

BUILT_IN: Final = "built-in.hmp"
"""The name that diagnostics give the policy made from what was found."""

NO_HOME: Final = "set XDG_STATE_HOME to a folder that can be written to, or use `store memory`"

EXIT_OK: Final = 0
EXIT_POLICY: Final = 1
EXIT_CANNOT_START: Final = 2


class NotStarted(Exception):  # noqa: N818 - the end of a start, not always an error
    """There is nothing to serve. `status` is that of the process, and its reason is printed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@final
@attrs.frozen(kw_only=True, eq=False)
class Launch:
    """A proxy that is about to serve: its policy is read, and its sockets listen."""

    options: Options
    read: Callable[[], Loaded]
    """Reads the policy anew."""
    loaded: Loaded
    sockets: Sequence[ConnectionSource]
    admin_sockets: list[socket.socket]
    """Those of the control API at an address."""
    metrics_sockets: list[socket.socket]
    found: list[Found]
    """Providers that the policy was made of; empty: it is a file."""
    log: EventLog
    notices: Notices
    watcher: Watcher
    _transport: PoolTransport | StockTransport

    @classmethod
    async def prepare(cls, options: Options, stream: TextIO, otherwise: Sequence[Found] = ()) -> Self:
        """Read the policy, listen on its address, and log to `stream`.

        Args:
            options: As on the command line.
            stream: Where the log goes.
            otherwise: Providers of the policy that is made where there is none, beside those that are found.

        Raises:
            NotStarted: There is nothing to serve.
        """
        transport = transport_for(options)
        path, files, found = await _policy_source(options, transport, otherwise)
        read, loaded, sockets = await _bound(options, path, files)
        if any(one.estimate is TokenEstimate.TOKENIZER for one in loaded.program.providers.values()):
            try:
                counter()
            except TokenizerNotInstalled as error:
                raise NotStarted(refuse(f"{error}; {error.help}")) from None
        lossy = Lossy(stream)
        form = LogFormat(wants_json(options, loaded.program))
        log = make_log(lossy, form=form, color=options.color)
        notices = Notices(log)
        return cls(
            options=options,
            read=read,
            loaded=loaded,
            sockets=sockets,
            admin_sockets=(admin := _bound_beside("admin", loaded.program.server.admin, sockets)),
            metrics_sockets=_bound_beside("metrics", loaded.program.server.metrics, [*sockets, *admin]),
            found=found,
            log=log,
            notices=notices,
            watcher=Watcher(log, form, lossy, notices, options),
            transport=transport,
        )

    async def open_files(self, stack: AsyncExitStack) -> tuple[SqliteStore | None, Journal | None]:
        """Open what outlives the process, around the house, so that how its last call ended is in it.

        Raises:
            NotStarted: A file cannot be used.
        """
        port = self.sockets[0].getsockname()[1]
        try:
            state, journal = await _open_files(stack, self.options, self.loaded.program, port, self.watcher)
        except (StateError, JournalError) as error:
            for listening in self.sockets:
                listening.close()
            option = "--journal " if self.options.journal is not None else ""
            raise NotStarted(refuse(f"{option}{error}; {error.help}")) from None
        if self.options.records:
            if journal is None:
                raise NotStarted(refuse("--record needs a journal; remove `journal off`, or name a file by --journal"))
            journal.policy(self.loaded.files)
        return state, journal

    def own_files(self, state: SqliteStore | None, journal: Journal | None) -> tuple[str, ...]:
        """Return the paths of databases that the process writes all the time."""
        return tuple(_absolute(file.path) for file in (state, journal) if file is not None)

    @asynccontextmanager
    async def open_house(
        self,
        state: OpenedState | None,
        journal: Journal | None,
        on_call: Callable[[CallRecord], None] | None = None,
        shared: SharedSlots | None = None,
    ) -> AsyncIterator[ProxyServer]:
        """Serve within the context.

        Args:
            state: As `open_files` returned it.
            journal: As `open_files` returned it.
            on_call: Told of every call that is over, instead of the log.
            shared: As `open_shared` returned it.
        """
        async with AsyncExitStack() as stack:
            house = open_house(
                self.loaded.program,
                self.loaded.secrets,
                self.sockets,
                transport=self._transport,
                report=self.watcher.broke,
                on_call=on_call if on_call is not None else self.watcher.call,
                on_adapted=self.watcher.adapted,
                on_plan=self.watcher.planned,
                journal=journal,
                records=self.options.records,
                state=state,
                on_state_trouble=self.watcher.state_trouble,
                shared=shared,
                traces=await self._open_traces(stack),
            )
            yield await stack.enter_async_context(house)

    async def _open_traces(self, stack: AsyncExitStack) -> CallTraces | None:
        """Export traces if the environment asks for them; None: it does not, or they cannot be exported."""
        if not wanted(os.environ):
            return None
        try:
            traces = await stack.enter_async_context(open_traces(os.environ, self.watcher.traces_trouble))
        except NoTraces as unavailable:
            self.watcher.no_traces(unavailable)
            return None
        self.watcher.say_traces(endpoint(os.environ))
        return traces

    async def open_shared(self, stack: AsyncExitStack) -> SharedSlots | None:
        """Open the store through which several nodes share, around the house; None: this one is alone.

        Raises:
            NotStarted: Its client is not installed.
        """
        store, nodes = self.loaded.program.store, self.loaded.program.server.nodes
        if store.url is None:
            return None
        url = self.loaded.secrets[store.url] if isinstance(store.url, SecretRef) else store.url
        problem = store_url_problem(url)
        if problem:
            raise NotStarted(refuse(f"the `url` of `store redis` is not the URL of a Redis: {problem}"))
        node = self.options.node or f"{socket.gethostname()}:{self.sockets[0].getsockname()[1]}"
        terms = lease_terms(store)
        try:
            pools = await stack.enter_async_context(open_pools(url, store.namespace, terms))
        except StoreNotInstalled as error:
            raise NotStarted(refuse(f"{error}; {error.help}")) from None
        return SharedSlots(pools=pools, node=node, told=self.watcher.sharing(node, nodes, terms))

    @asynccontextmanager
    async def open_control(
        self, house: ProxyServer, journal: Journal | None, jobs: JobDesk | None = None
    ) -> AsyncIterator[PolicyKeeper]:
        """Let operators and agents reach the proxy within the context; gives what is to be told how to reload."""
        keeper = self.keeper()
        async with self.operated(house, journal, keeper, jobs) as proxy:
            doors = Doors(
                ask=asking(proxy),
                leases=leases_route(proxy),
                collect=collecting(proxy, self.gauges(house, journal)),
                server=lambda: house.engine.program.server,
                is_ready=lambda: not house.engine.draining,
                policy=self.options.policy,
                port=house.address[1],
                admin_sockets=self.admin_sockets,
                metrics_sockets=self.metrics_sockets,
            )
            async with doors.open(self.watcher), open_tools(proxy):
                yield keeper

    def keeper(self) -> PolicyKeeper:
        """Return what reads the policy for operators."""
        return PolicyKeeper(lambda: self.watcher.running or self.loaded, self.read, lambda: self.watcher.reloaded)

    def facts(self, address: str, journal: Journal | None) -> Facts:
        """Return the facts of this process.

        Args:
            address: Base URL for agents.
            journal: As `open_files` returned it.
        """
        return Facts(
            version=__version__,
            pid=os.getpid(),
            address=address,
            policy=_absolute(self.options.policy) if self.options.policy is not None else BUILT_IN,
            journal=_absolute(journal.path) if journal is not None else None,
        )

    @asynccontextmanager
    async def operated(
        self, house: ProxyServer, journal: Journal | None, keeper: PolicyKeeper, jobs: JobDesk | None = None
    ) -> AsyncIterator[Operated]:
        """Give the proxy as operations reach it."""
        series = TimeSeries(house.engine, house.metrics.attempts)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(series.run)
            proxy = Operated(
                facts=self.facts(house.url, journal),
                engine=house.engine,
                leases=house.leases,
                door=house.door,
                tally=house.tally,
                conduct=house.conduct,
                starts=house.starts,
                jobs=jobs,
                fellows=house.fellows,
                metrics=house.metrics,
                hour=house.hour,
                providers=house.providers,
                series=series,
                wall_ns=time.time_ns,
                policy=keeper,
                disk_troubles=self.watcher.disk_troubles,
                note=self.watcher.operator,
                journal=journal,
                lag=house.listener.lag,
            )
            nursery.start_soon(keep_calibrated, proxy)
            nursery.start_soon(keep_advised, proxy)
            yield proxy
            nursery.cancel_scope.cancel()

    def gauges(self, house: ProxyServer, journal: Journal | None) -> Callable[[], dict[str, float]]:
        """Return what reads the metrics of the process itself."""
        return partial(self._gauges, house, journal)

    def _gauges(self, house: ProxyServer, journal: Journal | None) -> dict[str, float]:
        """Return the metrics of the process itself."""
        found = {
            "loop_lag_seconds": house.listener.lag.lag_s,
            "overload_rejections": float(house.listener.lag.refused),
            "state_writable": float("state" not in self.watcher.disk_troubles),
        }
        if journal is not None:
            found |= {"journal_unwritten_rows": journal.unwritten, "journal_dropped_rows": journal.dropped}
        return found


def transport_for(options: Options) -> PoolTransport | StockTransport:
    """Return the HTTP client for providers."""
    return StockTransport(outgoing_proxy=_outgoing_proxy()) if options.stock_transport else PoolTransport()


def _absolute(path: str) -> str:
    """Return the path from the root; links stay."""
    return os.path.abspath(path)


async def _policy_source(
    options: Options, transport: PoolTransport | StockTransport, otherwise: Sequence[Found]
) -> tuple[str, Files, list[Found]]:
    """Return the path of the policy, where to read it, and the providers it was made of if there is none.

    Raises:
        NotStarted: No provider was found, or the policy has been printed as asked.
    """
    if options.policy is not None:
        if options.print_policy:
            raise NotStarted(
                refuse("--print-policy prints the policy that would run without --policy; leave one of them out")
            )
        return options.policy, DiskFiles(), []
    found = await _find(Upstream(transport))
    known = {one.provider for one in found}
    found += [one for one in otherwise if one.provider not in known]
    if not found:
        names = [variables[0] for _, variables in KEYS]
        raise NotStarted(
            refuse(
                f"no provider found: set {', '.join(names[:-1])} or {names[-1]}, start Ollama "
                f"(nothing answers at {ollama_base(os.environ.get('OLLAMA_HOST', ''))}), "
                "or write a policy and pass it with --policy"
            )
        )
    if options.print_policy:
        sys.stdout.write(policy_text(found))
        raise NotStarted(EXIT_OK)
    return BUILT_IN, MemoryFiles({BUILT_IN: policy_text(found)}), found


async def _bound(options: Options, path: str, files: Files) -> tuple[Callable[[], Loaded], Loaded, list[socket.socket]]:
    """Return how the policy is read, the policy, and the sockets that listen as it says.

    Raises:
        NotStarted: The policy has errors, or its address cannot be listened on.
    """
    passed = _passed(options)
    given = None
    if passed:
        # The one that needs tokens, if one of them does.
        given = max((sock.getsockname()[:2] for sock in passed), key=lambda address: not is_loopback(address[0]))
    elif options.listen is not None:
        given = parse_address(options.listen)
        if given is None:
            raise NotStarted(refuse(f"--listen {options.listen}: no address; write 127.0.0.1:8787 or [::1]:8787"))
    read = partial(load, path, files, given[0] if given is not None else None, options.allow_include)
    loaded = await trio.to_thread.run_sync(read)
    if not loaded.good:
        sys.stderr.write(render([loaded], "text", color=options.color))
        raise NotStarted(EXIT_CANNOT_START if loaded.checked.unreadable else EXIT_POLICY)
    address = given or (loaded.program.server.host, loaded.program.server.port)
    problem = exposed(address[0], loaded.program)
    if problem:
        raise NotStarted(refuse(problem))
    _raise_file_limit()
    if passed:
        return read, loaded, passed
    try:
        return read, loaded, bind(*address)
    except OSError as error:
        # `str` would put the number first.
        raise NotStarted(refuse(error.strerror or str(error))) from None


def _passed(options: Options) -> list[socket.socket]:
    """Return the sockets that systemd passes; empty: none.

    Raises:
        NotStarted: They cannot be listened on, or `--listen` names another address.
    """
    try:
        sockets = inherited(os.environ)
    except OSError as error:
        raise NotStarted(refuse(error.strerror or str(error))) from None
    if sockets and options.listen is not None:
        raise NotStarted(
            refuse("systemd passes the sockets to listen on; leave out --listen, or ListenStream= of the socket unit")
        )
    return sockets


def _bound_beside(
    setting: str, address: tuple[str, int] | None, sockets: Sequence[socket.socket]
) -> list[socket.socket]:
    """Return the sockets of another address of `server`.

    Args:
        sockets: Those that listen already, to be closed if this one cannot.

    Raises:
        NotStarted: It cannot be listened on.
    """
    if address is None:
        return []
    try:
        return bind(*address)
    except OSError as error:
        for listening in sockets:
            listening.close()
        raise NotStarted(refuse(f"server {{ {setting} }}: {error.strerror or error}")) from None


async def _open_files(
    stack: AsyncExitStack, options: Options, program: Program, port: int, watcher: Watcher
) -> tuple[SqliteStore | None, Journal | None]:
    """Open what outlives the process, around the house, so that how its last call ended is in it."""
    settings = program.store
    state, place = None, None
    if settings.durable:
        try:
            place = state_place(options.policy, settings, port, options.state_folder)
            state = await trio.to_thread.run_sync(open_state, place.state, program)
        except (StateError, RuntimeError) as error:
            known = error if isinstance(error, StateError) else StateError("state", str(error), NO_HOME)
            # Without a budget there is nothing to lose but hints and the journal, and whoever did not ask is served.
            if known.held or program.budgets or settings.path is not None:
                raise known from None
            watcher.state_unavailable(f"{known}", known.help)
    if state is not None:
        stack.callback(state.close)
    path = options.journal
    if path is None and state is not None and place is not None and settings.journal:
        path = place.journal
    if path is None:
        journal = None
    else:
        journal = await _open_journal(stack, path, options, settings, watcher)
    if state is not None:
        watcher.say_state(state)
    if journal is not None:
        watcher.say_journal(journal)
    return state, journal


async def _open_journal(
    stack: AsyncExitStack, path: str, options: Options, settings: StoreSettings, watcher: Watcher
) -> Journal:
    journal = await stack.enter_async_context(
        open_journal(path, on_trouble=watcher.journal_trouble, replaces_damaged=options.journal is None)
    )
    journal.retain(settings.keep_ns, settings.max_bytes)
    return journal


async def _find(upstream: Upstream) -> list[Found]:
    found = from_environment(os.environ)
    local = await ollama(upstream, os.environ)
    return [*found, local] if local is not None else found


def refuse(message: str) -> int:
    """Say why nothing is served; return the exit status."""
    sys.stderr.write(f"hivemind-trio: {message}\n")
    return EXIT_CANNOT_START


def _outgoing_proxy() -> str | None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        if os.environ.get(name):
            return os.environ[name]
    return None


def _raise_file_limit() -> None:
    """Raise the limit of open files: a waiting call holds a socket, and 1,024 are fewer than `max-waiting`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return  # then it stays as it is, and the listener's own bound holds
