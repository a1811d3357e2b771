"""Log of a running proxy: turns what happens into events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol, TypedDict, assert_never, final

import attrs
import trio

from hivemind_trio.admin import MAY_NOT_LIST, ReloadResult
from hivemind_trio.control import SocketUnavailable
from hivemind_trio.model import SecretRef, shown_credential
from hivemind_trio.policy import (
    Change,
    Measure,
    Program,
    Server,
    Source,
    WhileOpen,
    call_changes,
    counted_apart,
    render,
    sessions_apart,
    setting_changes,
)
from hivemind_trio.proxy import CallRecord
from hivemind_trio.scheduler import HEALTHY, Circuit, LimitChanged, PlanChanged
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms
from hivemind_trio.store import Journal, SqliteStore
from hivemind_trio.wire import apis_of

from .autodetect import Found
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
    ControlOpened,
    ControlUnavailable,
    CredentialRejected,
    DecisionDiffFailed,
    JobsWriteFailed,
    JobsWriteRecovered,
    JournalDamaged,
    JournalOpened,
    JournalWriteFailed,
    JournalWriteRecovered,
    MetricsOpened,
    NodeJoined,
    NodeReplaced,
    Notice,
    OperatorActed,
    PlanShareCrossed,
    PolicyRejected,
    PolicyReloaded,
    PolicyWarning,
    ProviderErrorReturned,
    ProviderFound,
    ProviderUnreachable,
    RateLimited,
    ServingStarted,
    SharedStoreAway,
    SharedStoreBack,
    SharedStoreBlind,
    SharedStoreLearned,
    SharedStoreLearning,
    SharedStoreSlow,
    StateDamaged,
    StateOpened,
    StateUnavailable,
    StateWriteFailed,
    StateWriteRecovered,
    TracesNotExported,
    TracesOpened,
    TracesUnavailable,
)
from .load import Loaded
from .log import EventLog, LogFormat, Lossy, Notices
from .options import Options, exposed, unshared, wants_json, worker_count
from .sharing.node_sharing import SharingTold
from .traces import NoTraces

BAD_POLICY: Final = "the new policy has errors"


class Serving(Protocol):
    """A proxy that serves, of one process or of several."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first socket."""
        ...

    @property
    def url(self) -> str:
        """Base URL for agents."""
        ...

    def use(self, program: Program, secrets: Mapping[SecretRef, str]) -> None:
        """Run on a new policy."""
        ...


def _line(source: Source, offset: int) -> str:
    return f"{source.name}:{source.text.count(chr(10), 0, offset) + 1}"


@final
@attrs.define(eq=False)
class Watcher:
    """Turns what happens into log events."""

    _log: EventLog
    _form: LogFormat
    _stderr: Lossy
    _notices: Notices
    _options: Options
    running: Loaded | None = attrs.field(init=False, default=None)
    reloaded: ReloadResult = attrs.field(init=False, default=ReloadResult())
    """Result of the last reload."""
    disk_troubles: dict[str, str] = attrs.field(init=False, factory=dict)
    """`state`, `journal` or `jobs` -> why it cannot be written now."""
    _circuits: dict[str, Circuit] = attrs.field(init=False, factory=dict)
    _state_file: str | None = attrs.field(init=False, default=None)
    _journal: Journal | None = attrs.field(init=False, default=None)

    def say_start(self, house: Serving, loaded: Loaded, found: list[Found]) -> None:
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
        self._state_file, restored = state.path, state.restored
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

    def say_control(self, opened: str | SocketUnavailable) -> None:
        """Log the path of the control socket, or why there is none."""
        if isinstance(opened, SocketUnavailable):
            self._log.emit(ControlUnavailable(error=f"{opened}", help=opened.help))
        else:
            self._log.emit(ControlOpened(socket=opened))

    def say_metrics(self, url: str) -> None:
        """Log the address of the metrics."""
        self._log.emit(MetricsOpened(url=url))

    def say_traces(self, endpoint: str) -> None:
        """Log where traces go."""
        self._log.emit(TracesOpened(endpoint=endpoint))

    def no_traces(self, unavailable: NoTraces) -> None:
        """Log why there are no traces."""
        self._log.emit(TracesUnavailable(error=f"{unavailable}", help=unavailable.help))

    def traces_trouble(self, why: str) -> None:
        """Log that spans could not be exported."""
        self._notices.say(TracesNotExported(error=why))

    def admin_tokens(self) -> Iterator[str]:
        """Yield the tokens of the control API that hold now."""
        return self._tokens(lambda server: server.admin_tokens)

    def metrics_tokens(self) -> Iterator[str]:
        """Yield the tokens of the metrics that hold now."""
        return self._tokens(lambda server: server.metrics_tokens)

    def _tokens(self, of: Callable[[Server], tuple[SecretRef, ...]]) -> Iterator[str]:
        loaded = self.running
        for ref in of(loaded.program.server) if loaded is not None else ():
            if loaded is not None and ref in loaded.secrets:
                yield loaded.secrets[ref]

    def operator(self, action: str, subject: str, by: str, detail: str) -> None:
        """Log a change that an operator asked for."""
        self._log.emit(OperatorActed(action=action, subject=subject, by=by, detail=detail))

    def state_unavailable(self, error: str, help_text: str) -> None:
        """Log that nothing outlives this process."""
        self._log.emit(StateUnavailable(error=error, help=help_text))

    def state_trouble(self, why: str) -> None:
        """Log that the state cannot be written, or can be again."""
        self._troubled("state", why)
        file = self._state_file
        self._log.emit(StateWriteFailed(file=file, error=why) if why else StateWriteRecovered(file=file))

    def jobs_trouble(self, why: str) -> None:
        """Log that jobs of agents cannot be kept, or can be again."""
        self._troubled("jobs", why)
        self._log.emit(JobsWriteFailed(error=why) if why else JobsWriteRecovered())

    def sharing(self, node: str, nodes: int, terms: LeaseTerms) -> SharingTold:
        """Return what logs how this node shares."""

        def learns(blind: bool) -> None:
            longest_s = (terms.lease_ms if blind else terms.learning_ms) / 1_000
            if blind:
                self._log.emit(SharedStoreBlind(longest_s=longest_s, help=MAY_NOT_LIST))
            else:
                self._log.emit(SharedStoreLearning(longest_s=longest_s))

        return SharingTold(
            joined=lambda: self._log.emit(NodeJoined(node=node, nodes=nodes)),
            away=lambda why: self._log.emit(SharedStoreAway(error=why) if why else SharedStoreBack()),
            slow=lambda trip_s: self._log.emit(SharedStoreSlow(trip_s=round(trip_s, 2))),
            fenced=lambda: self._log.emit(
                NodeReplaced(node=node, help="give each node a name of its own: `serve --node NAME`")
            ),
            learns=learns,
            learned=lambda after_s: self._log.emit(SharedStoreLearned(after_s=round(after_s, 1))),
        )

    def _troubled(self, file: str, why: str) -> None:
        if why:
            self.disk_troubles[file] = why
        else:
            self.disk_troubles.pop(file, None)

    def say_journal(self, journal: Journal) -> None:
        """Log the path of the journal."""
        self._journal = journal
        if journal.set_aside:
            self._log.emit(JournalDamaged(file=journal.path, moved_to=journal.set_aside))
        opened = JournalOpened(file=journal.path, session=journal.session, calls_before=journal.calls_before)
        self._log.emit(opened)

    def journal_trouble(self, why: str) -> None:
        """Log that the journal cannot be written, or can be again."""
        self._troubled("journal", why)
        file = self._journal.path if self._journal is not None else self._options.journal
        if why:
            self._log.emit(JournalWriteFailed(file=file, error=why))
        else:
            self._log.emit(JournalWriteRecovered(file=file))

    def take(self, house: Serving, new: Loaded, nursery: trio.Nursery) -> None:
        """Run on a good policy, unless it needs what a running process cannot change.

        Args:
            nursery: For what takes a while to say.
        """
        assert self.running is not None
        changes = setting_changes(self.running.checked, new.checked)
        for change in changes:
            if change.effect.code == "HM702" and not self._is_overridden(change):
                error = f"`{change.kind} {{ {change.setting} }}` changed to {change.after}, and that needs a restart"
                help_text = f"restart the proxy, or change it back to {change.before}"
                self._refuse(PolicyRejected(error=error, help=help_text, code="HM702"))
                return
        problem = exposed(house.address[0], new.program)
        if worker_count(self._options, self.running.program) > 1:
            problem = problem or unshared(new.program)
        if problem:
            self._refuse(PolicyRejected(error=problem))
            return
        if not new.program.providers and self.running.program.providers:
            # Most likely it was seen while it is being written: every call would get a 404 that says not to try again.
            help_text = "declare a provider, or restart the proxy"
            self._refuse(PolicyRejected(error="the new policy has no provider", help=help_text))
            return
        if self._journal is not None and self._options.records:
            self._journal.policy(new.files)
        house.use(new.program, new.secrets)
        if self._journal is not None:
            self._journal.retain(new.program.store.keep_ns, new.program.store.max_bytes)
        self._form.json = wants_json(self._options, new.program)
        self._log.emit(PolicyReloaded(**_sizes(new)))
        self._say_warnings(new)
        say_changes(self._log, [change for change in changes if change.effect.code != "HM702"])
        self.reloaded = ReloadResult()
        old, self.running = self.running, new
        nursery.start_soon(self.say_calls, old, new)

    def _is_overridden(self, change: Change) -> bool:
        """Return True if the command line decides, so that what the policy says does not matter."""
        given = {"listen": self._options.listen, "workers": self._options.workers}
        return change.kind == "server" and given.get(change.setting) is not None

    def follow(self, new: Loaded) -> None:
        """Note a policy that the supervisor of this worker has taken and logged."""
        self.running = new
        self._form.json = wants_json(self._options, new.program)

    def _refuse(self, rejected: PolicyRejected) -> None:
        self.reloaded = ReloadResult(error=rejected.error, help=rejected.help)
        self._log.emit(rejected)

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
        shown = tuple(render([bad], "short", color=False).splitlines())
        self.reloaded = ReloadResult(error=BAD_POLICY, diagnostics=shown)
        if self._form.json:
            self._log.emit(PolicyRejected(error=BAD_POLICY, diagnostics=shown))
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
            if outcome is not None and outcome not in HEALTHY:
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

    def planned(self, change: PlanChanged, now_ns: int) -> None:
        """Log the shares of a plan's windows that an answer was the first to be above."""
        for crossed in change.crossed:
            window = crossed.window
            self._log.emit(
                PlanShareCrossed(
                    provider=change.provider,
                    window=f"{window.span} ({window.name})",
                    used_percent=window.used // 10_000,
                    resets_s=None if window.resets_ns is None else (window.resets_ns - now_ns) // 1_000_000_000,
                    account=shown_credential(change.account) or None,
                )
            )

    def _while_open(self, name: str) -> tuple[WhileOpen, str | None]:
        """Return the fate of a provider's calls while its circuit is open, and the provider that takes them over."""
        program = self.running.program if self.running is not None else None
        provider = program.pools.get(name) if program is not None else None
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
        for one in loaded.diagnostics:
            if one.severity.value == "warning":
                at = _line(loaded.sources[one.span.source], one.span.start)
                self._log.emit(PolicyWarning(code=one.code, message=one.message, at=at))
        program = loaded.program
        workers, apart = worker_count(self._options, program), counted_apart(program)
        if workers > 1 and program.server.workers == 1 and program.store.url is None:
            # The check knows nothing of `--workers`.
            said = [f"each of {workers} workers counts {apart} for itself; declare one worker's part"] if apart else []
            said += [sessions_apart("worker")] if program.reads_sessions else []
            for message in said:
                self._log.emit(PolicyWarning(code="HM429", message=message, at="--workers"))


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
    provider, status = record.sender, record.status
    if record.upstream_error is not None:
        kind, cause, detail = record.upstream_error, record.upstream_cause, record.upstream_detail or ""
        # A known cause (a name, a certificate) is for the operator to mend; an outage passes.
        if cause:
            return ProviderUnreachable(provider=provider, kind=kind, cause=cause, detail=detail)
        return AttemptFailed(provider=provider, kind=kind, detail=detail)
    if record.rejected:
        return CallsRejected(lane=record.lane, reason=record.reason)
    if status in (401, 403):
        return CredentialRejected(provider=provider, status=status)
    if status == 429:
        return RateLimited(provider=provider, status=status, retry_after_s=record.retry_after_s)
    return ProviderErrorReturned(provider=provider, status=status) if status >= 500 else None
