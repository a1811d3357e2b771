"""`hivemind-trio serve`: from arguments to exit status, with signals and reload."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import trio

from hivemind_trio.host import DiskFiles
from hivemind_trio.listen import bind
from hivemind_trio.policy import (
    Files,
    MemoryFiles,
    Program,
    StoreSettings,
    parse_address,
    render,
)
from hivemind_trio.runtime import Reloader
from hivemind_trio.store import Journal, JournalError, SqliteStore, StateError, open_journal, state_place
from hivemind_trio.upstream import PoolTransport, StockTransport, Upstream

from .assembly import ProxyServer, open_house
from .autodetect import KEYS, Found, from_environment, ollama, ollama_base, policy_text
from .events import (
    DrainStarted,
    DrainTimedOut,
    ReloadRequested,
    ServingStopped,
    StopForced,
)
from .load import Loaded, load
from .log import EventLog, LogFormat, Lossy, Notices, make_log
from .options import Options, exposed, wants_json
from .standstill_log import Standstills
from .state import open_state
from .watcher import Watcher

BUILT_IN: Final = "built-in.hmp"
"""The name that diagnostics give the policy made from what was found."""

NO_HOME: Final = "set XDG_STATE_HOME to a folder that can be written to, or use `store memory`"

EXIT_OK: Final = 0
EXIT_POLICY: Final = 1
EXIT_CANNOT_START: Final = 2

SECOND_NS: Final = 1_000_000_000


def main(options: Options) -> int:
    """Serve until told to stop; the exit status."""
    return trio.run(_serve, options)


class NotStarted(Exception):  # noqa: N818 - the end of a start, not always an error
    """There is nothing to serve. `status` is that of the process, and its reason is printed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def _serve(options: Options) -> int:
    transport = StockTransport(outgoing_proxy=_outgoing_proxy()) if options.stock_transport else PoolTransport()
    try:
        path, files, found = await _policy_source(options, transport)
        read, loaded, sockets = await _bound(options, path, files)
    except NotStarted as error:
        return error.status

    stderr = Lossy(sys.stderr)
    form = LogFormat(wants_json(options, loaded.program))
    log = make_log(stderr, form=form, color=options.color)
    notices = Notices(log)
    watcher = Watcher(log, form, stderr, notices, options)
    async with AsyncExitStack() as stack:
        try:
            state, journal = await _open_files(stack, options, loaded.program, sockets[0].getsockname()[1], watcher)
        except (StateError, JournalError) as error:
            for listening in sockets:
                listening.close()
            return _refuse(f"{'--journal ' if options.journal is not None else ''}{error}; {error.help}")
        # Heeded from before it says that it serves: whoever reads that line may send one at once.
        signals = stack.enter_context(trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        async with open_house(
            loaded.program,
            loaded.secrets,
            sockets,
            transport=transport,
            report=watcher.broke,
            on_call=watcher.call,
            on_adapted=watcher.adapted,
            journal=journal,
            state=state,
            on_state_trouble=watcher.state_trouble,
        ) as house:
            _settle_memory()
            watcher.say_start(house, loaded, found)
            async with trio.open_nursery() as nursery:
                reloader = Reloader(
                    read,
                    lambda new: watcher.take(house, new, nursery),
                    watcher.keep,
                )
                nursery.start_soon(notices.run)
                nursery.start_soon(Standstills(log).run, house.engine)
                nursery.start_soon(reloader.run, loaded)
                number = await _until_told(signals, reloader, log)
                nursery.start_soon(_at_once, signals, log, journal)
                await _drain(house, notices, log, number)
                nursery.cancel_scope.cancel()
    return EXIT_OK


async def _policy_source(options: Options, transport: PoolTransport | StockTransport) -> tuple[str, Files, list[Found]]:
    """Return the path of the policy, where to read it, and the providers it was made of if there is none.

    Raises:
        NotStarted: No provider was found, or the policy has been printed as asked.
    """
    if options.policy is not None:
        if options.print_policy:
            raise NotStarted(
                _refuse("--print-policy prints the policy that would run without --policy; leave one of them out")
            )
        return options.policy, DiskFiles(), []
    found = await _find(Upstream(transport))
    if not found:
        names = [variables[0] for _, variables in KEYS]
        raise NotStarted(
            _refuse(
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
    given = None
    if options.listen is not None:
        given = parse_address(options.listen)
        if given is None:
            raise NotStarted(_refuse(f"--listen {options.listen}: no address; write 127.0.0.1:8787 or [::1]:8787"))
    read = partial(load, path, files, given[0] if given is not None else None, options.allow_include)
    loaded = await trio.to_thread.run_sync(read)
    if not loaded.good:
        sys.stderr.write(render([loaded], "text", color=options.color))
        raise NotStarted(EXIT_CANNOT_START if loaded.checked.unreadable else EXIT_POLICY)
    address = given or (loaded.program.server.host, loaded.program.server.port)
    problem = exposed(address[0], loaded.program)
    if problem:
        raise NotStarted(_refuse(problem))
    _raise_file_limit()
    try:
        return read, loaded, bind(*address)
    except OSError as error:
        # `str` would put the number first.
        raise NotStarted(_refuse(error.strerror or str(error))) from None


async def _open_files(
    stack: AsyncExitStack, options: Options, program: Program, port: int, watcher: Watcher
) -> tuple[SqliteStore | None, Journal | None]:
    """Open what outlives the process, around the house, so that how its last call ended is in it."""
    settings = program.store
    state, place = None, None
    if settings.durable:
        try:
            place = state_place(options.policy, settings, port)
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


async def _until_told(signals: AsyncIterator[int], reloader: Reloader[Loaded], log: EventLog) -> int:
    """Reload at SIGHUP; return the first signal to stop."""
    async for number in signals:
        if number != signal.SIGHUP:
            return number
        log.emit(ReloadRequested(signal=_signal_name(number)))
        reloader.trigger()
    raise AssertionError("the signals of a process do not end")


async def _drain(house: ProxyServer, notices: Notices, log: EventLog, number: int) -> None:
    """Let what is in flight end, for as long as the policy says."""
    at_most_s = house.engine.program.server.drain_ns / SECOND_NS
    in_flight = house.engine.snapshot().inflight
    log.emit(DrainStarted(signal=_signal_name(number), in_flight=in_flight, timeout_s=at_most_s))
    with trio.move_on_after(at_most_s) as patience:
        await house.drain()
    notices.flush(everything=True)
    if patience.cancelled_caught:
        log.emit(DrainTimedOut(cut_off=house.engine.snapshot().inflight))
    log.emit(ServingStopped())


async def _at_once(signals: AsyncIterator[int], log: EventLog, journal: Journal | None) -> None:
    """End the process at a second signal to stop, whatever is still in progress."""
    async for number in signals:
        if number != signal.SIGHUP:
            unwritten = journal.unwritten if journal is not None else 0
            log.emit(StopForced(signal=_signal_name(number), not_in_journal=unwritten or None))
            os._exit(128 + number)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name


async def _find(upstream: Upstream) -> list[Found]:
    found = from_environment(os.environ)
    local = await ollama(upstream, os.environ)
    return [*found, local] if local is not None else found


def _refuse(message: str) -> int:
    sys.stderr.write(f"hivemind-trio: {message}\n")
    return EXIT_CANNOT_START


def _outgoing_proxy() -> str | None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        if os.environ.get(name):
            return os.environ[name]
    return None


def _settle_memory() -> None:
    """Exempt modules, grammar and policy from garbage collection: a full one took 45 ms of the loop."""
    gc.collect()
    gc.freeze()


def _raise_file_limit() -> None:
    """Raise the limit of open files: a waiting call holds a socket, and 1,024 are fewer than `max-waiting`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return  # then it stays as it is, and the listener's own bound holds
