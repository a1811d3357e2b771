"""`hivemind-trio serve`: from arguments to exit status. Signals, reload, and what is said on the way."""

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
from typing import Final, TypedDict, assert_never, final

import attrs
import trio

from hivemind_trio.host import DiskFiles
from hivemind_trio.listen import bind
from hivemind_trio.policy import (
    Files,
    Measure,
    MemoryFiles,
    Program,
    Source,
    StoreSettings,
    WhileOpen,
    call_changes,
    is_loopback,
    parse_address,
    render,
    setting_changes,
)
from hivemind_trio.proxy import CallRecord
from hivemind_trio.runtime import Reloader
from hivemind_trio.scheduler import HEALTHY, Circuit, LimitChanged
from hivemind_trio.store import Journal, JournalError, SqliteStore, StateError, open_journal
from hivemind_trio.upstream import PoolTransport, StockTransport, Upstream
from hivemind_trio.wire import apis_of

from .assembly import ProxyServer, open_house
from .autodetect import KEYS, Found, from_environment, ollama, ollama_base, policy_text
from .change_log import say_calls, say_changes
from .events import (
    AcceptFailed,
    AttemptCrashed,
    AttemptFailed,
    BudgetCharged,
    CallEnded,
    CallsRejected,
    CircuitClosed,
    CircuitHalfOpened,
    CircuitOpened,
    ClientSetup,
    ConcurrencyLimitLowered,
    ConnectionCrashed,
    CredentialRejected,
    DecisionDiffFailed,
    DrainStarted,
    DrainTimedOut,
    JournalDamaged,
    JournalOpened,
    JournalWriteFailed,
    JournalWriteRecovered,
    Notice,
    PolicyRejected,
    PolicyReloaded,
    PolicyWarning,
    ProviderErrorReturned,
    ProviderFound,
    ProviderUnreachable,
    RateLimited,
    ReloadRequested,
    ServingStarted,
    ServingStopped,
    SettingsNotInForce,
    StateDamaged,
    StateOpened,
    StateUnavailable,
    StateWriteFailed,
    StateWriteRecovered,
    StopForced,
)
from .load import Loaded, load
from .log import EventLog, LogFormat, Lossy, Notices, make_log
from .standstill_log import Standstills
from .state import open_state, state_place

BUILT_IN: Final = "built-in.hmp"
"""The name that diagnostics give the policy made from what was found."""

NO_HOME: Final = "set XDG_STATE_HOME to a folder that can be written to, or use `store memory`"

EXIT_OK: Final = 0
EXIT_POLICY: Final = 1
EXIT_CANNOT_START: Final = 2

SECOND_NS: Final = 1_000_000_000

BAD_POLICY: Final = "the new policy has errors"


@final
@attrs.frozen(kw_only=True)
class Options:
    """Options of the command line."""

    policy: str | None = None
    listen: str | None = None
    log_json: bool | None = None
    """None: as the policy says."""
    log_calls: bool = False
    journal: str | None = None
    """Path of the journal; None: as the policy says."""
    allow_include: tuple[str, ...] = ()
    """Folders that the policy may include from, beside its own."""
    stock_transport: bool = False
    print_policy: bool = False
    color: bool = False


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
    form = LogFormat(_wants_json(options, loaded.program))
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


def exposed(host: str, program: Program) -> str:
    """Why it would not be safe to listen there; empty: it is."""
    if is_loopback(host) or any(agent.tokens for agent in program.agents.values()):
        return ""
    return (
        f"will not listen on {host}: whoever reaches it could spend your keys; "
        "give agents a `token env(NAME)`, or listen on 127.0.0.1"
    )


def _wants_json(options: Options, program: Program) -> bool:
    return program.server.log_json if options.log_json is None else options.log_json


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


def _line(source: Source, offset: int) -> str:
    return f"{source.name}:{source.text.count(chr(10), 0, offset) + 1}"


@final
@attrs.define(eq=False)
class Watcher:
    """Turns what happens into lines that an operator would act on."""

    _log: EventLog
    _form: LogFormat
    _stderr: Lossy
    _notices: Notices
    _options: Options
    running: Loaded | None = attrs.field(init=False, default=None)
    _circuits: dict[str, Circuit] = attrs.field(init=False, factory=dict)
    _journal: Journal | None = attrs.field(init=False, default=None)

    def say_start(self, house: ProxyServer, loaded: Loaded, found: list[Found]) -> None:
        """Log the start of the proxy."""
        self.running = loaded
        for one in found:
            self._log.emit(ProviderFound(provider=one.provider, source=one.source))
        self._log.emit(ServingStarted(address=house.url, **_sizes(loaded)))
        self._say_warnings(loaded)
        if self._options.policy is None:
            providers = {one.provider for one in found}
            if "anthropic" in providers:
                self._say_paste("Claude Code", f"export ANTHROPIC_BASE_URL={house.url}")
            if "openai" in providers or "ollama" in providers:
                self._say_paste("Codex", f"export OPENAI_BASE_URL={house.url}/v1")

    def say_state(self, state: SqliteStore) -> None:
        """Log what an earlier process left."""
        restored = state.restored
        if state.set_aside:
            self._log.emit(StateDamaged(file=state.path, moved_to=state.set_aside))
        accounts, hints = len(restored.spends), len(restored.learned)
        self._log.emit(StateOpened(file=state.path, runs=restored.runs, accounts=accounts, hints=hints))
        for charge in restored.charges:
            account = charge.account
            is_money = account.measure is Measure.COST
            self._log.emit(
                BudgetCharged(
                    budget=account.budget,
                    measure=account.measure,
                    amount=f"${charge.amount / 10**6:,.6g}" if is_money else f"{charge.amount:,}",
                    in_flight=charge.calls,
                )
            )

    def state_unavailable(self, error: str, help_text: str) -> None:
        """Log that nothing outlives this process."""
        self._log.emit(StateUnavailable(error=error, help=help_text))

    def state_trouble(self, why: str) -> None:
        """Log that the state cannot be written, or can be again."""
        self._log.emit(StateWriteFailed(error=why) if why else StateWriteRecovered())

    def say_journal(self, journal: Journal) -> None:
        """Log the path of the journal."""
        self._journal = journal
        if journal.set_aside:
            self._log.emit(JournalDamaged(file=journal.path, moved_to=journal.set_aside))
        opened = JournalOpened(file=journal.path, session=journal.session, calls_before=journal.calls_before)
        self._log.emit(opened)

    def journal_trouble(self, why: str) -> None:
        """Log that the journal cannot be written, or can be again."""
        file = self._journal.path if self._journal is not None else self._options.journal
        if why:
            self._log.emit(JournalWriteFailed(file=file, error=why))
        else:
            self._log.emit(JournalWriteRecovered(file=file))

    def take(self, house: ProxyServer, new: Loaded, nursery: trio.Nursery) -> None:
        """Run on a good policy, unless it needs what a running process cannot change.

        Args:
            nursery: For what takes a while to say.
        """
        assert self.running is not None
        changes = setting_changes(self.running.checked, new.checked)
        for change in changes:
            if change.effect.code == "HM702" and (change.kind != "server" or self._options.listen is None):
                error = f"`{change.kind} {{ {change.setting} }}` changed to {change.after}, and that needs a restart"
                help_text = f"restart the proxy, or change it back to {change.before}"
                self._log.emit(PolicyRejected(error=error, help=help_text, code="HM702"))
                return
        problem = exposed(house.address[0], new.program)
        if problem:
            self._log.emit(PolicyRejected(error=problem))
            return
        if not new.program.providers and self.running.program.providers:
            # Most likely it was seen while it is being written: every call would get a 404 that says not to try again.
            help_text = "declare a provider, or restart the proxy"
            self._log.emit(PolicyRejected(error="the new policy has no provider", help=help_text))
            return
        house.use(new.program, new.secrets)
        if self._journal is not None:
            self._journal.retain(new.program.store.keep_ns, new.program.store.max_bytes)
        self._form.json = _wants_json(self._options, new.program)
        self._log.emit(PolicyReloaded(**_sizes(new)))
        self._say_warnings(new)
        say_changes(self._log, [change for change in changes if change.effect.code != "HM702"])
        old, self.running = self.running, new
        nursery.start_soon(self.say_calls, old, new)

    async def say_calls(self, old: Loaded, new: Loaded) -> None:
        """Log the calls that the new policy decides differently; runs beside the calls."""
        try:
            calls, complete = await trio.to_thread.run_sync(
                partial(call_changes, old.checked, new.checked, apis_of=apis_of), abandon_on_cancel=True
            )
            say_calls(self._log, calls, complete=complete)
        except Exception as error:  # noqa: BLE001 - a bug in a comparison must not end a proxy, and is said
            self._notices.say(DecisionDiffFailed(error=f"{type(error).__name__}: {error}"))

    def keep(self, bad: Loaded) -> None:
        """Keep the running policy, because the new one is bad."""
        if self._form.json:
            shown = render([bad], "short", color=False).splitlines()
            self._log.emit(PolicyRejected(error=BAD_POLICY, diagnostics=tuple(shown)))
        else:
            self._log.emit(PolicyRejected(error=BAD_POLICY))
            self._stderr.write(render([bad], "text", color=self._options.color))

    def broke(self, fault: AttemptCrashed | ConnectionCrashed | AcceptFailed, _error: BaseException) -> None:
        """Log a fault of the proxy itself."""
        self._notices.say(fault)

    def call(self, record: CallRecord) -> None:
        """Log a call that has ended, and the trouble that it met."""
        if self._options.log_calls:
            self._log.emit(CallEnded(record=record))
        trouble = _trouble(record)
        if trouble is not None:
            self._notices.say(trouble)

    def adapted(self, change: LimitChanged) -> None:
        """Log a change of a provider's circuit, or a lower concurrency limit."""
        known = self._circuits.get(change.provider, Circuit.CLOSED)
        self._circuits[change.provider] = change.circuit
        name, limit, outcome = change.provider, change.limit, change.because
        if change.circuit is known:
            if outcome not in HEALTHY:
                self._notices.say(ConcurrencyLimitLowered(provider=name, limit=limit, outcome=outcome))
            return
        match change.circuit:
            case Circuit.OPEN:
                calls, fallback = self._while_open(name)
                opened = CircuitOpened(provider=name, outcome=outcome, limit=limit, calls=calls, fallback=fallback)
                self._log.emit(opened)
            case Circuit.HALF_OPEN:
                self._log.emit(CircuitHalfOpened(provider=name, outcome=outcome, limit=limit))
            case Circuit.CLOSED:
                self._log.emit(CircuitClosed(provider=name, outcome=outcome, limit=limit))
            case _:
                assert_never(change.circuit)

    def _while_open(self, name: str) -> tuple[WhileOpen, str | None]:
        """Return the fate of a provider's calls while its circuit is open, and the provider that takes them over."""
        program = self.running.program if self.running is not None else None
        provider = program.providers.get(name) if program is not None else None
        match provider.while_open if provider is not None else WhileOpen.HOLD:
            case WhileOpen.FALLBACK if provider is not None and provider.fallback is not None:
                return WhileOpen.FALLBACK, provider.fallback
            case WhileOpen.REFUSE:
                return WhileOpen.REFUSE, None
            case _:
                return WhileOpen.HOLD, None

    def _say_paste(self, client: str, command: str) -> None:
        if self._form.json:
            self._log.emit(ClientSetup(client=client, command=command))
        else:
            # On a line of its own, without a time before it or quotes around it: so it can be pasted.
            self._stderr.write(f"For {client}, run in its shell:\n  {command}\n")

    def _say_warnings(self, loaded: Loaded) -> None:
        """Log the warnings about a policy that is now in force."""
        if loaded.program.pending:
            names = ", ".join(dict.fromkeys(one.setting for one in loaded.program.pending))
            self._log.emit(SettingsNotInForce(code="HM190", settings=names))
        for one in loaded.diagnostics:
            if one.severity.value == "warning" and one.code != "HM190":
                at = _line(loaded.sources[one.span.source], one.span.start)
                self._log.emit(PolicyWarning(code=one.code, message=one.message, at=at))


class _Sizes(TypedDict):
    policy: str
    hash: str
    providers: int
    lanes: int
    agents: int


def _sizes(loaded: Loaded) -> _Sizes:
    """Return the name, the hash and the size of a policy."""
    program = loaded.program
    return {
        "policy": loaded.checked.paths[0],
        "hash": program.hash[:8],
        "providers": len(program.providers),
        "lanes": len(program.lanes),
        "agents": len(program.agents),
    }


def _trouble(record: CallRecord) -> Notice | None:
    """Return the event of a call that did not end well; None: it did."""
    provider, status = record.provider, record.status
    if record.upstream_error is not None:
        kind, cause, detail = record.upstream_error, record.upstream_cause, record.upstream_detail or ""
        # A known cause (a name, a certificate) is for the operator to mend; an outage passes.
        if cause:
            return ProviderUnreachable(provider=provider, kind=kind, cause=cause, detail=detail)
        return AttemptFailed(provider=provider, kind=kind, detail=detail)
    if record.refused:
        return CallsRejected(lane=record.lane, reason=record.reason)
    if status in (401, 403):
        return CredentialRejected(provider=provider, status=status)
    if status == 429:
        return RateLimited(provider=provider, status=status)
    return ProviderErrorReturned(provider=provider, status=status) if status >= 500 else None
