"""Log events of `hivemind-trio serve`: name, level and fields of each.

A class is one event. Its docstring is its meaning in the table of `docs/operating.md`; a field that may be absent has
a default. Names are public: operators search for them and alert on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias, final, get_args

import attrs

from hivemind_trio.listen import ListenerFault
from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import Measure, State, Verb, WhileOpen
from hivemind_trio.proxy import CallRecord

Level: TypeAlias = Literal["info", "warning", "error"]

REPEATS: Final = "repeats"
"""Field of a notice that reports further occurrences: how many there were."""

ASIDE: Final = {"aside": True}
"""Metadata of a field that does not tell notices apart: free text, or a number without a bound."""

BY_SIZE: Final = {"told_as": int.bit_length}
"""Metadata of a count that tells notices apart by its power of two."""

NOTHING: Final = (None, "", ())
"""Values of absent fields."""

TOKENS: Final = ("input", "cache_read", "cache_write", "output")
"""Counts of a call's usage; `tokens_input` and so on in the log."""

DIFF: Final = "hivemind-trio diff"


# ---- start and stop ----


@final
@attrs.frozen(kw_only=True)
class ProviderFound:
    """Without `--policy`: a provider that the built-in policy uses."""

    name: ClassVar = "provider_found"
    level: ClassVar[Level] = "info"
    provider: str
    source: str


@final
@attrs.frozen(kw_only=True)
class ServingStarted:
    """The proxy accepts calls at this address, with this policy."""

    name: ClassVar = "serving"
    level: ClassVar[Level] = "info"
    address: str
    policy: str
    hash: str
    providers: int
    lanes: int
    agents: int


@final
@attrs.frozen(kw_only=True)
class ControlOpened:
    """The control API, for `hivemind-trio status` and other commands, is at this socket, or at this address."""

    name: ClassVar = "control_opened"
    level: ClassVar[Level] = "info"
    socket: str


@final
@attrs.frozen(kw_only=True)
class MetricsOpened:
    """Metrics are served at this URL."""

    name: ClassVar = "metrics_opened"
    level: ClassVar[Level] = "info"
    url: str


@final
@attrs.frozen(kw_only=True)
class ControlUnavailable:
    """There is no control socket: commands for operators do not find this proxy. Calls are served."""

    name: ClassVar = "control_unavailable"
    level: ClassVar[Level] = "warning"
    error: str
    help: str


@final
@attrs.frozen(kw_only=True)
class TracesOpened:
    """Spans of calls go to this OpenTelemetry collector."""

    name: ClassVar = "traces_opened"
    level: ClassVar[Level] = "info"
    endpoint: str


@final
@attrs.frozen(kw_only=True)
class TracesUnavailable:
    """The environment asks for traces (`OTEL_*`), and they cannot be exported. Calls are served."""

    name: ClassVar = "traces_unavailable"
    level: ClassVar[Level] = "warning"
    error: str
    help: str


@final
@attrs.frozen(kw_only=True)
class TracesNotExported:
    """Spans did not reach the collector, and some may be lost. Calls are served."""

    name: ClassVar = "traces_not_exported"
    level: ClassVar[Level] = "warning"
    error: str = attrs.field(metadata=ASIDE)


@final
@attrs.frozen(kw_only=True)
class OperatorActed:
    """An operator changed the running proxy by the control API; `by` is the user and the process that asked."""

    name: ClassVar = "operator_acted"
    level: ClassVar[Level] = "info"
    action: str
    subject: str
    by: str
    detail: str = ""


@final
@attrs.frozen(kw_only=True)
class ClientSetup:
    """Without `--policy`: the shell command that points a client at the proxy."""

    name: ClassVar = "client_setup"
    level: ClassVar[Level] = "info"
    client: str
    command: str


@final
@attrs.frozen(kw_only=True)
class DrainStarted:
    """A signal to stop arrived; calls in flight may take `timeout_s` to finish."""

    name: ClassVar = "draining"
    level: ClassVar[Level] = "info"
    signal: str
    in_flight: int
    timeout_s: float


@final
@attrs.frozen(kw_only=True)
class DrainTimedOut:
    """Calls were still in flight after `server { drain }` and were cut off."""

    name: ClassVar = "drain_timed_out"
    level: ClassVar[Level] = "warning"
    cut_off: int


@final
@attrs.frozen(kw_only=True)
class ServingStopped:
    """The proxy has stopped."""

    name: ClassVar = "stopped"
    level: ClassVar[Level] = "info"


@final
@attrs.frozen(kw_only=True)
class StopForced:
    """A second signal ended the process at once, with what was in flight."""

    name: ClassVar = "stop_forced"
    level: ClassVar[Level] = "warning"
    signal: str
    not_in_journal: int | None = None


# ---- policy ----


@final
@attrs.frozen(kw_only=True)
class ReloadRequested:
    """A signal asked for a reload of the policy."""

    name: ClassVar = "reload_requested"
    level: ClassVar[Level] = "info"
    signal: str


@final
@attrs.frozen(kw_only=True)
class PolicyReloaded:
    """A reload took the new policy into force."""

    name: ClassVar = "policy_loaded"
    level: ClassVar[Level] = "info"
    policy: str
    hash: str
    providers: int
    lanes: int
    agents: int


@final
@attrs.frozen(kw_only=True)
class PolicyRejected:
    """A reload found a policy that cannot be used; the running one stays in force."""

    name: ClassVar = "policy_rejected"
    level: ClassVar[Level] = "error"
    error: str
    help: str = ""
    code: str = ""
    diagnostics: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class PolicyWarning:
    """A warning of `hivemind-trio check` about the policy now in force."""

    name: ClassVar = "policy_warning"
    level: ClassVar[Level] = "warning"
    code: str
    message: str
    at: str


@final
@attrs.frozen(kw_only=True)
class SettingChanged:
    """A reload changed this setting; `state` and `effect` say what happens to running state."""

    name: ClassVar = "setting_changed"
    level: ClassVar[Level] = "info"
    declaration: str
    setting: str = ""
    change: Verb
    before: str = ""
    after: str = ""
    state: State | None = None
    effect: str = ""


@final
@attrs.frozen(kw_only=True)
class StateReset:
    """A reload changed this setting, so counters or learned values start anew."""

    name: ClassVar = "state_reset"
    level: ClassVar[Level] = "warning"
    code: str
    declaration: str
    setting: str = ""
    change: Verb
    before: str = ""
    after: str = ""
    state: State | None = None
    effect: str = ""


@final
@attrs.frozen(kw_only=True)
class SettingChangesOmitted:
    """So many further settings changed; the command in `see` shows them."""

    name: ClassVar = "setting_changes_omitted"
    level: ClassVar[Level] = "info"
    count: int
    see: str = DIFF


@final
@attrs.frozen(kw_only=True)
class DecisionChanged:
    """A reload changed the decision for calls like `example`: one field for each setting."""

    name: ClassVar = "decision_changed"
    level: ClassVar[Level] = "info"
    example: str = ""
    agent: str = ""
    verdict: str = ""
    provider: str = ""
    team: str = ""
    model: str = ""
    lane: str = ""
    priority: str = ""
    deadline: str = ""
    retry: str = ""
    affinity: str = ""
    max_output: str = ""
    tags: str = ""
    warnings: str = ""
    budgets: str = ""


@final
@attrs.frozen(kw_only=True)
class DecisionChangesOmitted:
    """So many further kinds of calls have another decision."""

    name: ClassVar = "decision_changes_omitted"
    level: ClassVar[Level] = "info"
    count: int
    see: str = DIFF


@final
@attrs.frozen(kw_only=True)
class DecisionDiffIncomplete:
    """The search for changed decisions was cut short; there may be more."""

    name: ClassVar = "decision_diff_incomplete"
    level: ClassVar[Level] = "info"
    see: str = DIFF


@final
@attrs.frozen(kw_only=True)
class DecisionDiffFailed:
    """Internal error: the old and the new policy could not be compared."""

    name: ClassVar = "decision_diff_failed"
    level: ClassVar[Level] = "error"
    error: str = attrs.field(metadata=ASIDE)


# ---- calls ----


@final
@attrs.frozen(kw_only=True)
class CallEnded:
    """With `--log-calls`: a call has ended."""

    name: ClassVar = "call_ended"
    level: ClassVar[Level] = "info"
    record: CallRecord


@final
@attrs.frozen(kw_only=True)
class CallsRejected:
    """The proxy rejected calls, for this reason (`hivemind-trio help rejections`)."""

    name: ClassVar = "calls_rejected"
    level: ClassVar[Level] = "warning"
    lane: str | None
    reason: Reason


# ---- providers ----


@final
@attrs.frozen(kw_only=True)
class RateLimited:
    """The provider answered 429 and the agent got that answer, with this `retry-after`."""

    name: ClassVar = "rate_limited"
    level: ClassVar[Level] = "warning"
    provider: str | None
    status: int
    retry_after_s: int | None = attrs.field(default=None, metadata=ASIDE)


@final
@attrs.frozen(kw_only=True)
class ProviderErrorReturned:
    """The provider answered with a 5xx status and the agent got that answer."""

    name: ClassVar = "provider_error"
    level: ClassVar[Level] = "warning"
    provider: str | None
    status: int


@final
@attrs.frozen(kw_only=True)
class CredentialRejected:
    """The provider answered 401 or 403: check the credential of this provider."""

    name: ClassVar = "credential_rejected"
    level: ClassVar[Level] = "warning"
    provider: str | None
    status: int


@final
@attrs.frozen(kw_only=True)
class AttemptFailed:
    """The connection to the provider failed or timed out, and no attempt did better."""

    name: ClassVar = "attempt_failed"
    level: ClassVar[Level] = "warning"
    provider: str | None
    kind: str
    detail: str = attrs.field(default="", metadata=ASIDE)


@final
@attrs.frozen(kw_only=True)
class ProviderUnreachable:
    """No connection to the provider, for a cause that an operator can mend."""

    name: ClassVar = "provider_unreachable"
    level: ClassVar[Level] = "error"
    provider: str | None
    kind: str
    cause: str
    detail: str = attrs.field(default="", metadata=ASIDE)


@final
@attrs.frozen(kw_only=True)
class CircuitOpened:
    """The circuit breaker opened; until it closes, calls hold, fall back or are rejected."""

    name: ClassVar = "circuit_opened"
    level: ClassVar[Level] = "warning"
    provider: str
    outcome: Outcome | None
    limit: int
    calls: WhileOpen
    fallback: str | None = None


@final
@attrs.frozen(kw_only=True)
class CircuitHalfOpened:
    """The circuit breaker lets probes through."""

    name: ClassVar = "circuit_half_opened"
    level: ClassVar[Level] = "info"
    provider: str
    outcome: Outcome | None
    limit: int


@final
@attrs.frozen(kw_only=True)
class CircuitClosed:
    """The circuit breaker closed; the provider serves calls again."""

    name: ClassVar = "circuit_closed"
    level: ClassVar[Level] = "info"
    provider: str
    outcome: Outcome | None
    limit: int


@final
@attrs.frozen(kw_only=True)
class ConcurrencyLimitLowered:
    """Adaptive concurrency lowered the limit after this outcome; each power of two is told at once."""

    name: ClassVar = "concurrency_limit_lowered"
    level: ClassVar[Level] = "warning"
    provider: str
    limit: int = attrs.field(metadata=BY_SIZE)
    outcome: Outcome | None = attrs.field(metadata=ASIDE)


@final
@attrs.frozen(kw_only=True)
class PlanShareCrossed:
    """More than 50, 75, 90 or 95 % of a plan's window are used, or all. No `account`: it is the provider's key."""

    name: ClassVar = "plan_share_crossed"
    level: ClassVar[Level] = "warning"
    provider: str
    window: str
    used_percent: int
    resets_s: int | None = None
    account: str | None = None


@final
@attrs.frozen(kw_only=True)
class ProviderStandstill:
    """Calls have waited for 5 s or longer while none was in flight at the provider."""

    name: ClassVar = "provider_standstill"
    level: ClassVar[Level] = "warning"
    provider: str
    reason: Reason
    waiting: int
    stands_s: float
    next_in_s: float | None


@final
@attrs.frozen(kw_only=True)
class ProviderSilent:
    """Calls are sent to the provider, and none has got an answer for long; its circuit is closed."""

    name: ClassVar = "provider_silent"
    level: ClassVar[Level] = "warning"
    provider: str
    silent_s: float
    inflight: int
    waiting: int
    refused: int
    failed: int


@final
@attrs.frozen(kw_only=True)
class ProviderAnswers:
    """The provider, which was silent, answers again."""

    name: ClassVar = "provider_answers"
    level: ClassVar[Level] = "info"
    provider: str


# ---- journal ----


@final
@attrs.frozen(kw_only=True)
class StateOpened:
    """Budgets and learned limits are kept in this file; these were restored from it."""

    name: ClassVar = "state_opened"
    level: ClassVar[Level] = "info"
    file: str
    runs: int
    accounts: int
    hints: int


@final
@attrs.frozen(kw_only=True)
class BudgetCharged:
    """An earlier run did not end in order: its calls in flight are charged their claims (0: its credit)."""

    name: ClassVar = "budget_charged"
    level: ClassVar[Level] = "warning"
    budget: str
    measure: Measure
    amount: str
    in_flight: int


@final
@attrs.frozen(kw_only=True)
class StateDamaged:
    """The state file was no database any more and was moved aside: budgets begin at zero."""

    name: ClassVar = "state_damaged"
    level: ClassVar[Level] = "error"
    file: str
    moved_to: str


@final
@attrs.frozen(kw_only=True)
class StateUnavailable:
    """There is no place for state, and the policy has no budget: learned limits and journal end with the process."""

    name: ClassVar = "state_unavailable"
    level: ClassVar[Level] = "warning"
    error: str
    help: str


@final
@attrs.frozen(kw_only=True)
class StateWriteFailed:
    """Budgets could not be written: calls that count against one wait, and get 503 after 10 s."""

    name: ClassVar = "state_write_failed"
    level: ClassVar[Level] = "error"
    file: str | None
    error: str


@final
@attrs.frozen(kw_only=True)
class StateWriteRecovered:
    """Budgets are written again."""

    name: ClassVar = "state_write_recovered"
    level: ClassVar[Level] = "info"
    file: str | None


@final
@attrs.frozen(kw_only=True)
class NodeJoined:
    """The store of `store redis` was reached: this node shares `concurrency` from here on, and starts with no slot."""

    name: ClassVar = "node_joined"
    level: ClassVar[Level] = "info"
    node: str
    """Name of this node."""
    nodes: int
    """Most nodes, by the policy."""


@final
@attrs.frozen(kw_only=True)
class WorkerStarted:
    """A worker serves from here on."""

    name: ClassVar = "worker_started"
    level: ClassVar[Level] = "info"
    worker: str
    pid: int
    starts: int
    """Processes of this worker so far."""


@final
@attrs.frozen(kw_only=True)
class WorkerEnded:
    """A worker has ended, or was killed: its calls in flight are lost, and another process takes its place."""

    name: ClassVar = "worker_ended"
    level: ClassVar[Level] = "error"
    worker: str
    pid: int
    status: str
    """Exit status or signal."""
    again_s: float
    """Time until the next start."""


@final
@attrs.frozen(kw_only=True)
class WorkerSilent:
    """A worker has not answered for seconds: it is handed no connection, and is killed if it stays silent."""

    name: ClassVar = "worker_silent"
    level: ClassVar[Level] = "warning"
    worker: str
    pid: int
    silent_s: float


@final
@attrs.frozen(kw_only=True)
class WorkerBack:
    """A worker that was silent answers again."""

    name: ClassVar = "worker_back"
    level: ClassVar[Level] = "info"
    worker: str
    pid: int


@final
@attrs.frozen(kw_only=True)
class SharedStoreAway:
    """The store of `store redis` does not answer: the share stands for the lease, then `outage` holds."""

    name: ClassVar = "shared_store_away"
    level: ClassVar[Level] = "warning"
    error: str


@final
@attrs.frozen(kw_only=True)
class SharedStoreBack:
    """The store of `store redis` answers again."""

    name: ClassVar = "shared_store_back"
    level: ClassVar[Level] = "info"


@final
@attrs.frozen(kw_only=True)
class SharedStoreSlow:
    """The store of `store redis` took so long for an answer: slots and credit of budgets change hands as slowly."""

    name: ClassVar = "shared_store_slow"
    level: ClassVar[Level] = "warning"
    trip_s: float


@final
@attrs.frozen(kw_only=True)
class SharedStoreLearning:
    """The store was started or emptied: it grants no more slots until all nodes have reported, or for `longest_s`."""

    name: ClassVar = "shared_store_learning"
    level: ClassVar[Level] = "info"
    longest_s: float


@final
@attrs.frozen(kw_only=True)
class SharedStoreBlind:
    """The store was started or emptied, and may not list who is connected: it grants no slots for `longest_s`."""

    name: ClassVar = "shared_store_blind"
    level: ClassVar[Level] = "warning"
    longest_s: float
    help: str


@final
@attrs.frozen(kw_only=True)
class SharedStoreLearned:
    """The store grants slots again, so long after this node has seen that it does not."""

    name: ClassVar = "shared_store_learned"
    level: ClassVar[Level] = "info"
    after_s: float


@final
@attrs.frozen(kw_only=True)
class NodeReplaced:
    """A newer process serves under this node's name: this one starts no more calls."""

    name: ClassVar = "node_replaced"
    level: ClassVar[Level] = "error"
    node: str
    help: str


@final
@attrs.frozen(kw_only=True)
class JournalDamaged:
    """The journal was no database any more and was moved aside; a new one was begun."""

    name: ClassVar = "journal_damaged"
    level: ClassVar[Level] = "error"
    file: str
    moved_to: str


@final
@attrs.frozen(kw_only=True)
class JournalOpened:
    """Calls are recorded in this file."""

    name: ClassVar = "journal_opened"
    level: ClassVar[Level] = "info"
    file: str
    session: int
    calls_before: int


@final
@attrs.frozen(kw_only=True)
class JournalWriteFailed:
    """The journal could not be written. Calls go on; rows beyond what fits in memory are left out and counted."""

    name: ClassVar = "journal_write_failed"
    level: ClassVar[Level] = "error"
    file: str | None
    error: str


@final
@attrs.frozen(kw_only=True)
class JournalWriteRecovered:
    """The journal is written again."""

    name: ClassVar = "journal_write_recovered"
    level: ClassVar[Level] = "info"
    file: str | None


@final
@attrs.frozen(kw_only=True)
class JobsWriteFailed:
    """The file of agents' jobs could not be written. Their processes are ended; they go on once it can be written."""

    name: ClassVar = "jobs_write_failed"
    level: ClassVar[Level] = "error"
    error: str


@final
@attrs.frozen(kw_only=True)
class JobsWriteRecovered:
    """The file of agents' jobs is written again, and the jobs go on."""

    name: ClassVar = "jobs_write_recovered"
    level: ClassVar[Level] = "info"


# ---- faults of the proxy itself ----


@final
@attrs.frozen(kw_only=True)
class AttemptCrashed:
    """Internal error in an attempt; its call failed."""

    name: ClassVar = "attempt_crashed"
    level: ClassVar[Level] = "error"
    error: str = attrs.field(metadata=ASIDE)


@final
@attrs.frozen(kw_only=True)
class ConnectionCrashed:
    """Internal error on a client's connection, which was closed."""

    name: ClassVar = ListenerFault.CONNECTION_CRASHED.value
    level: ClassVar[Level] = "error"
    error: str = attrs.field(metadata=ASIDE)


@final
@attrs.frozen(kw_only=True)
class AcceptFailed:
    """No connection can be accepted: files or memory are exhausted (`ulimit -n`)."""

    name: ClassVar = ListenerFault.ACCEPT_FAILED.value
    level: ClassVar[Level] = "error"
    error: str = attrs.field(metadata=ASIDE)


LogEvent: TypeAlias = (
    ProviderFound | ControlOpened | ControlUnavailable | MetricsOpened
    | TracesOpened | TracesUnavailable | TracesNotExported | OperatorActed | ServingStarted | ClientSetup
    | DrainStarted | DrainTimedOut | ServingStopped | StopForced
    | ReloadRequested | PolicyReloaded | PolicyRejected | PolicyWarning
    | SettingChanged | StateReset | SettingChangesOmitted
    | DecisionChanged | DecisionChangesOmitted | DecisionDiffIncomplete | DecisionDiffFailed
    | CallEnded | CallsRejected
    | RateLimited | ProviderErrorReturned | CredentialRejected | AttemptFailed | ProviderUnreachable
    | CircuitOpened | CircuitHalfOpened | CircuitClosed | ConcurrencyLimitLowered | PlanShareCrossed
    | ProviderStandstill
    | ProviderSilent
    | ProviderAnswers
    | StateOpened | BudgetCharged | StateDamaged | StateUnavailable | StateWriteFailed | StateWriteRecovered
    | WorkerStarted | WorkerEnded | WorkerSilent | WorkerBack
    | NodeJoined | SharedStoreAway | SharedStoreBack
    | SharedStoreSlow | SharedStoreLearning | SharedStoreBlind | SharedStoreLearned | NodeReplaced
    | JournalDamaged | JournalOpened | JournalWriteFailed | JournalWriteRecovered
    | JobsWriteFailed | JobsWriteRecovered
    | AttemptCrashed | ConnectionCrashed | AcceptFailed
)  # fmt: skip

Notice: TypeAlias = (
    DecisionDiffFailed | CallsRejected
    | RateLimited | ProviderErrorReturned | CredentialRejected | AttemptFailed | ProviderUnreachable
    | ConcurrencyLimitLowered | TracesNotExported
    | AttemptCrashed | ConnectionCrashed | AcceptFailed
)  # fmt: skip
"""Events that may come in floods: `Notices` counts repeats instead of writing them."""

EVENTS: Final[tuple[type[LogEvent], ...]] = get_args(LogEvent)
"""All events, in the order of the table in `docs/operating.md`."""


def values(event: LogEvent) -> dict[str, Any]:
    """Return the fields of an event that are present."""
    if isinstance(event, CallEnded):
        shown = attrs.asdict(event.record, recurse=False)
        usage = shown.pop("usage")
        shown |= {f"tokens_{name}": getattr(usage, name) for name in TOKENS} if usage is not None else {}
    else:
        shown = attrs.asdict(event, recurse=False)
    return {name: value for name, value in shown.items() if value not in NOTHING}


def key_of(event: LogEvent) -> tuple[str, ...]:
    """Return the text that two occurrences of the same notice share."""
    told_as = {
        one.name: one.metadata.get("told_as", str) for one in attrs.fields(type(event)) if not one.metadata.get("aside")
    }
    return (event.name, *(f"{name}={told_as[name](value)}" for name, value in values(event).items() if name in told_as))


def field_names(event: type[LogEvent]) -> Mapping[str, bool]:
    """Return the fields of a kind of event, each with True if it may be absent."""
    made_of = CallRecord if event is CallEnded else event
    found = {one.name: one.default in NOTHING or "None" in str(one.type) for one in attrs.fields(made_of)}
    if event is CallEnded:
        del found["usage"]
        found |= dict.fromkeys((f"tokens_{name}" for name in TOKENS), True)
    return found | ({REPEATS: True} if event in get_args(Notice) else {})
