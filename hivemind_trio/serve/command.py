"""`hivemind-trio serve`: from arguments to exit status. Signals, reload, and what is said on the way."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, final

import attrs
import structlog
import trio

from hivemind_trio.host import DiskFiles
from hivemind_trio.listen import bind
from hivemind_trio.policy import (
    Files,
    MemoryFiles,
    Program,
    Source,
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
from hivemind_trio.store import Journal, JournalError, open_journal
from hivemind_trio.upstream import PoolTransport, StockTransport, Upstream
from hivemind_trio.wire import apis_of

from .assembly import ProxyServer, open_house
from .autodetect import Found, from_environment, ollama, ollama_base, policy_text
from .change_log import say_calls, say_changes
from .load import Loaded, load
from .log import LogFormat, Lossy, Notices, make_log
from .standstill_log import Standstills

BUILT_IN: Final = "built-in.hmp"
"""The name that diagnostics give the policy made from what was found."""

EXIT_OK: Final = 0
EXIT_POLICY: Final = 1
EXIT_CANNOT_START: Final = 2

SECOND_NS: Final = 1_000_000_000


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
    """Path of the journal; None: there is none."""
    allow_include: tuple[str, ...] = ()
    """Folders that the policy may include from, beside its own."""
    stock_transport: bool = False
    print_policy: bool = False
    color: bool = False


def main(options: Options) -> int:
    """Serve until told to stop; the exit status."""
    return trio.run(_serve, options)


async def _serve(options: Options) -> int:
    transport = StockTransport(outgoing_proxy=_outgoing_proxy()) if options.stock_transport else PoolTransport()
    found: list[Found] = []
    files: Files = DiskFiles()
    path = options.policy
    if options.print_policy and path is not None:
        return _refuse("--print-policy prints the policy that would run without --policy; leave one of them out")
    if path is None:
        found = await _find(Upstream(transport))
        if not found:
            return _refuse(
                "no provider found: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, start Ollama "
                f"(nothing answers at {ollama_base(os.environ.get('OLLAMA_HOST', ''))}), "
                "or write a policy and pass it with --policy"
            )
        if options.print_policy:
            sys.stdout.write(policy_text(found))
            return EXIT_OK
        path, files = BUILT_IN, MemoryFiles({BUILT_IN: policy_text(found)})

    given = None
    if options.listen is not None:
        given = parse_address(options.listen)
        if given is None:
            return _refuse(f"--listen {options.listen}: no address; write 127.0.0.1:8787 or [::1]:8787")
    read = partial(load, path, files, given[0] if given is not None else None, options.allow_include)
    loaded = await trio.to_thread.run_sync(read)
    if not loaded.good:
        sys.stderr.write(render([loaded], "text", color=options.color))
        return EXIT_CANNOT_START if loaded.checked.unreadable else EXIT_POLICY
    address = given or (loaded.program.server.host, loaded.program.server.port)
    problem = exposed(address[0], loaded.program)
    if problem:
        return _refuse(problem)
    _raise_file_limit()
    try:
        sockets = bind(*address)
    except OSError as error:
        return _refuse(error.strerror or str(error))  # `str` would put the number first

    stderr = Lossy(sys.stderr)
    form = LogFormat(_wants_json(options, loaded.program))
    log = make_log(stderr, form=form, color=options.color)
    notices = Notices(log)
    watcher = _Watcher(log, form, stderr, notices, options)
    async with AsyncExitStack() as stack:
        journal: Journal | None = None
        if options.journal is not None:
            try:
                # Around the house, so that how its last call ended is in it.
                opening = open_journal(options.journal, on_trouble=watcher.journal_trouble)
                journal = await stack.enter_async_context(opening)
            except JournalError as error:
                for listening in sockets:
                    listening.close()
                return _refuse(f"--journal {error}; {error.help}")
            watcher.say_journal(journal)
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
                await _until_told(signals, reloader, log)
                nursery.start_soon(_at_once, signals, log, journal)
                await _drain(house, notices, log)
                nursery.cancel_scope.cancel()
    return EXIT_OK


async def _until_told(
    signals: AsyncIterator[int], reloader: Reloader[Loaded], log: structlog.typing.FilteringBoundLogger
) -> None:
    """Reload at SIGHUP; return at the first signal to stop."""
    async for number in signals:
        if number != signal.SIGHUP:
            return
        log.info("reload asked for", by="SIGHUP")
        reloader.trigger()


async def _drain(house: ProxyServer, notices: Notices, log: structlog.typing.FilteringBoundLogger) -> None:
    """Let what is in flight end, for as long as the policy says."""
    at_most_s = house.engine.program.server.drain_ns / SECOND_NS
    log.info("draining", inflight=house.engine.snapshot().inflight, at_most_s=at_most_s)
    with trio.move_on_after(at_most_s) as patience:
        await house.drain()
    notices.flush(everything=True)
    if patience.cancelled_caught:
        log.warning("stopped", cut_off=house.engine.snapshot().inflight)
    else:
        log.info("stopped")


async def _at_once(
    signals: AsyncIterator[int], log: structlog.typing.FilteringBoundLogger, journal: Journal | None
) -> None:
    """A second signal to stop ends the process, whatever is still going on."""
    async for number in signals:
        if number != signal.SIGHUP:
            unwritten = journal.unwritten if journal is not None else 0
            log.warning("stopped at once", **({"not_in_journal": unwritten} if unwritten else {}))
            os._exit(128 + number)


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
    """A waiting call holds a socket, and the usual limit of 1,024 files would be met long before `max-waiting`."""
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
class _Watcher:
    """Turns what happens into lines that an operator would act on."""

    _log: structlog.typing.FilteringBoundLogger
    _form: LogFormat
    _stderr: Lossy
    _notices: Notices
    _options: Options
    _running: Loaded | None = attrs.field(init=False, default=None)
    _circuits: dict[str, Circuit] = attrs.field(init=False, factory=dict)

    def say_start(self, house: ProxyServer, loaded: Loaded, found: list[Found]) -> None:
        self._running = loaded
        for one in found:
            self._log.info("found", provider=one.provider, how=one.how)
        self._say_policy("serving", loaded, address=house.url)
        if self._options.policy is None:
            providers = {one.provider for one in found}
            if "anthropic" in providers:
                self._say_paste("for Claude Code", f"export ANTHROPIC_BASE_URL={house.url}")
            if "openai" in providers or "ollama" in providers:
                self._say_paste("for Codex", f"export OPENAI_BASE_URL={house.url}/v1")

    def say_journal(self, journal: Journal) -> None:
        """Log the path of the journal."""
        self._log.info("journal", file=journal.path, session=journal.session, calls_before=journal.calls_before)

    def journal_trouble(self, why: str) -> None:
        """Log that the journal cannot be written, or can be again."""
        file = self._options.journal
        if why:
            self._log.error("journal cannot be written", file=file, why=why, calls="wait, if it goes on")
        else:
            self._log.info("journal is written again", file=file)

    def take(self, house: ProxyServer, new: Loaded, nursery: trio.Nursery) -> None:
        """A good policy: run on it, unless it needs what a running process cannot change.

        Args:
            nursery: For what takes a while to say.
        """
        assert self._running is not None
        changes = setting_changes(self._running.checked, new.checked)
        for change in changes:
            if change.effect.code == "HM702" and self._options.listen is None:
                why = f"`server {{ {change.setting} }}` changed: that needs a restart"
                self._log.error("policy kept", code="HM702", why=why, wanted=change.after)
                return
        problem = exposed(house.address[0], new.program)
        if problem:
            self._log.error("policy kept", why=problem)
            return
        if not new.program.providers and self._running.program.providers:
            # Most likely it was seen while it is being written: every call would get a 404 that says not to try again.
            self._log.error("policy kept", why="the new one has no provider", wanted="a provider, or a restart")
            return
        house.use(new.program, new.secrets)
        self._form.json = _wants_json(self._options, new.program)
        self._say_policy("policy loaded", new)
        say_changes(self._log, [change for change in changes if change.effect.code != "HM702"])
        old, self._running = self._running, new
        nursery.start_soon(self._say_calls, old, new)

    async def _say_calls(self, old: Loaded, new: Loaded) -> None:
        """Log the calls that the new policy decides differently; runs beside the calls."""
        try:
            calls, complete = await trio.to_thread.run_sync(
                partial(call_changes, old.checked, new.checked, apis_of=apis_of), abandon_on_cancel=True
            )
        except Exception as error:  # noqa: BLE001 - a bug in a comparison must not end a proxy, and is said
            self.broke("the calls of two policies could not be compared", error)
        else:
            say_calls(self._log, calls, complete=complete)

    def keep(self, bad: Loaded) -> None:
        """A bad policy: the running one stays."""
        if self._form.json:
            shown = render([bad], "short", color=False).splitlines()
            self._log.error("policy kept", why="the new one has errors", diagnostics=shown)
        else:
            self._log.error("policy kept", why="the new one has errors")
            self._stderr.write(render([bad], "text", color=self._options.color))

    def broke(self, line: str, error: BaseException) -> None:
        """Something that should not have happened."""
        self._notices.say(line, level="error", detail=f"{type(error).__name__}: {error}")

    def call(self, record: CallRecord) -> None:
        """A call is over."""
        if self._options.log_calls:
            fields = attrs.asdict(record, filter=lambda _, value: value not in (None, "", ()))
            usage = fields.pop("usage", {})
            self._log.info("call", **fields, **{f"tokens_{name}": usage[name] for name in usage if name != "exact"})
        if record.upstream_error is not None:
            kind, detail = record.upstream_error, record.upstream_detail or ""
            # What has a cause that can be named is for the operator to mend, and no outage that passes.
            cause = record.upstream_cause or None
            level = "error" if cause is not None else "warning"
            self._notices.say(
                "provider failed", level=level, provider=record.provider, kind=kind, cause=cause, detail=detail
            )
        elif record.refused:
            self._notices.say("calls refused", lane=record.lane, reason=str(record.reason))
        elif record.status in (401, 403):
            self._notices.say("provider rejects the credential", provider=record.provider, status=record.status)
        elif record.status == 429 or record.status >= 500:
            self._notices.say("provider refuses", provider=record.provider, status=record.status)

    def adapted(self, change: LimitChanged) -> None:
        """A provider is trusted with more or less than before."""
        because = str(change.because) if change.because is not None else "time"
        known = self._circuits.get(change.provider, Circuit.CLOSED)
        self._circuits[change.provider] = change.circuit
        if change.circuit is not known:
            words = {
                Circuit.OPEN: ("provider left alone", "warning"),
                Circuit.HALF_OPEN: ("provider tried again", "info"),
                Circuit.CLOSED: ("provider is back", "info"),
            }
            event, level = words[change.circuit]
            more = {"calls": self._meanwhile(change.provider)} if change.circuit is Circuit.OPEN else {}
            getattr(self._log, level)(event, provider=change.provider, because=because, limit=change.limit, **more)
        elif change.because not in HEALTHY:
            self._notices.say("fewer calls at a time", provider=change.provider, detail=f"{change.limit} ({because})")

    def _meanwhile(self, name: str) -> str:
        """Return the fate of a provider's calls while its circuit is open."""
        program = self._running.program if self._running is not None else None
        provider = program.providers.get(name) if program is not None else None
        match provider.while_open if provider is not None else WhileOpen.HOLD:
            case WhileOpen.FALLBACK if provider is not None and provider.fallback is not None:
                return f"go to {provider.fallback}"
            case WhileOpen.REFUSE:
                return "are refused"
            case _:
                return "wait"

    def _say_paste(self, whom: str, line: str) -> None:
        if self._form.json:
            self._log.info(whom, paste=line)
        else:
            # On a line of its own, without a time before it or quotes around it: so it can be pasted.
            self._stderr.write(f"{whom}, paste into its shell:\n  {line}\n")

    def _say_policy(self, event: str, loaded: Loaded, **fields: str) -> None:
        program = loaded.program
        self._log.info(
            event,
            **fields,
            policy=loaded.checked.paths[0],
            hash=program.hash[:8],
            providers=len(program.providers),
            lanes=len(program.lanes),
            agents=len(program.agents),
        )
        if program.pending:
            names = ", ".join(dict.fromkeys(one.setting for one in program.pending))
            self._log.warning("known, and not yet in force", code="HM190", settings=names)
        for one in loaded.diagnostics:
            if one.severity.value == "warning" and one.code != "HM190":
                self._log.warning(one.message, code=one.code, at=_line(loaded.sources[one.span.source], one.span.start))
