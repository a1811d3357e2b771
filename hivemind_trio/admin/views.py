"""Results of operations. Names of fields are public: they are those of the JSON.

A field that ends in `_s` is a duration in seconds, one that ends in `_at` a time in UTC (RFC 3339). Null is unknown,
or does not apply, and never zero.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, final

import attrs


class CallState(StrEnum):
    """Progress of a call."""

    ARRIVING = "arriving"
    """Its body is being read."""
    WAITING = "waiting"
    INFLIGHT = "inflight"
    """An attempt is at the provider, and its answer may be on its way to the agent."""
    DELIVERING = "delivering"
    """The provider is done; the agent still reads."""
    ENDED = "ended"


@final
@attrs.frozen(kw_only=True)
class PolicyView:
    """The policy in force."""

    path: str
    hash: str


@final
@attrs.frozen(kw_only=True)
class PolicySourceView:
    """The policy in force, with its text."""

    path: str
    hash: str
    files: dict[str, str]
    """Path -> text, the policy's own file and those that it includes."""


@final
@attrs.frozen(kw_only=True)
class PolicyDiffView:
    """Effect of a reload."""

    old: str
    """Hash of the policy in force."""
    new: str
    """Hash of what the file has now."""
    text: str
    """The changes in words, as `hivemind-trio diff` prints them."""
    diff: dict[str, Any]
    """The same as `hivemind-trio diff --format json` prints it."""


@final
@attrs.frozen(kw_only=True)
class ReloadView:
    """A reload that took the policy into force."""

    hash: str
    before: str
    changed: bool
    """False: the file has the policy that was in force."""


@final
@attrs.frozen(kw_only=True)
class CallCounts:
    """Calls that are over, since the start."""

    ended: int
    rejected: int
    """By the proxy."""
    failed: int
    """With an error of the provider."""
    left: int
    """The agent hung up before it had an answer."""
    per_min: int
    """Calls that ended in the last minute."""
    unread: int
    """Rejected unread, for the proxy's CPU could not keep up; `ended` and `rejected` have one of them a second."""


@final
@attrs.frozen(kw_only=True)
class RateLimitView:
    """A rate limit of a provider, declared or learned from its headers."""

    group: str | None
    """Glob of the models that it is for; null: all."""
    model: str | None
    """Null: it counts all models of the group."""
    measure: str
    """`requests`, `input`, `output`, `tokens`."""
    window_s: float
    limit: int
    used: int
    declared: bool
    """False: only the provider's headers tell of it."""


@final
@attrs.frozen(kw_only=True)
class AgentLimitView:
    """A limit of what an agent starts."""

    agent: str
    measure: str
    """`requests`, `input`, `output`, `tokens`."""
    window_s: float
    limit: int
    used: int


@final
@attrs.frozen(kw_only=True)
class PlanView:
    """A window of the plan of one account, as it was read last."""

    account: str | None
    """Beginning of the name of a caller's credential, as in the log; None: the provider's key."""
    window: str
    """As the provider calls it."""
    span: str
    """`session`, `week` or `month`."""
    models: str | None
    """Word of the models that it counts; None: all."""
    used: float
    """0 to 1."""
    resets_at: str | None
    overage: bool
    """The account pays beyond its plan."""


@final
@attrs.frozen(kw_only=True)
class ProviderView:
    """A provider's slots and health."""

    name: str
    inflight: int
    limit: int
    """Concurrency limit in force now."""
    learned: bool
    """The limit adapts."""
    waiting: int
    circuit: str
    """`closed`, `open` or `half-open`."""
    probe_at: str | None
    """While the circuit is open: when the next call may go."""
    limits: tuple[RateLimitView, ...]
    plans: tuple[PlanView, ...]
    """Windows of accounts' plans, the fullest first."""
    shared_by: tuple[str, ...] = ()
    """Accounts whose keys have these limits, too."""
    estimate: str = "learned"
    """Estimate of the tokens of calls that the policy wants: `learned`, `tokenizer` or `exact`."""
    estimate_error: str | None = None
    """Why the last count failed, so that calls are estimated as with `learned`; null: it did not."""


@final
@attrs.frozen(kw_only=True)
class BucketView:
    """Belief about one rate limit."""

    measure: str
    """`requests`, `input`, `output`, `tokens`."""
    window_s: float
    kind: str
    """Kind of window as which it is kept now: `bucket`, `fixed`, `sliding`; `learn`: what passes all of them."""
    limit: int
    used: int
    foreign: int
    """Use of it by others that counts now; with several workers it is at least so much."""
    declared: bool
    """False: only the provider's headers tell of it."""


@final
@attrs.frozen(kw_only=True)
class GateView:
    """Beliefs about one group of models, or one model of it, that the provider has refused or that has rate limits."""

    group: str | None
    """Glob of the models that it is for; null: all."""
    model: str | None
    """Null: it counts all models of the group."""
    inflight: int
    holds_until_at: str | None
    """End of the wait that the provider asked for with its last refusal; null: it has asked for none."""
    believed: bool
    """False: a call was accepted before a time that the provider had named, so its word counts for a second."""
    rate_per_s: float | None
    """Calls per second, as learned from refusals; null: no limit is known."""
    allowed: int | None
    """Limit on calls in flight while the gate opens again; null: no limit."""
    probes_refused: int
    """In a row."""
    evidence_age_s: float | None
    """Time since the last grant or end of a call; null: there has been none."""
    limits: tuple[BucketView, ...]


@final
@attrs.frozen(kw_only=True)
class ConcurrencyBeliefView:
    """Belief about the number of calls at once that a provider accepts."""

    accepts: int | None
    """Number that it seems to accept; null: no cap has been seen."""
    accepts_until_at: str | None
    """Until then that is believed."""
    stays_until_at: str | None
    """Until then the limit does not grow, for more did not raise throughput; null: it may grow."""


@final
@attrs.frozen(kw_only=True)
class CircuitTurnView:
    """A change of a circuit."""

    at: str | None
    circuit: str
    """`closed`, `open` or `half-open` from then on."""
    because: str | None
    """Outcome of the attempt that caused it; null: time did."""
    worker: str | None = None
    """Process whose circuit it is; null: there is one."""


@final
@attrs.frozen(kw_only=True)
class ProviderModelView:
    """Attempts of one model at a provider in the last hour."""

    model: str
    """As it was sent; `other` beyond 200 models."""
    inflight: int
    attempts: int
    """That have ended."""
    refused: int
    """Refused for the rate, as 429 says."""
    failed: int
    """Overloaded, 5xx, unreachable."""
    tokens_in: int
    """Cached ones included."""
    cached: int
    tokens_out: int
    begun: int
    """Attempts whose answer has begun."""
    first_byte_s: float | None
    """Mean time to the first byte of those; null: none has begun."""


@final
@attrs.frozen(kw_only=True)
class ProviderDetailView:
    """Everything that is known of one provider."""

    provider: ProviderView
    """As in the status."""
    concurrency: ConcurrencyBeliefView | None
    """Null: the limit is fixed."""
    gates: tuple[GateView, ...]
    circuit: tuple[CircuitTurnView, ...]
    """Changes of the circuit, oldest first, at most a hundred; empty: it has been closed all the time."""
    models: tuple[ProviderModelView, ...]
    """Those with the most attempts first."""
    accounts: tuple[ProviderDetailView, ...] = ()
    """Each account of a provider that has several, with all of the above; the whole has `provider` alone. Accounts that
    share limits are one."""


@final
@attrs.frozen(kw_only=True)
class StartView:
    """Estimate of a start; null: not known, not within half an hour, or the call would be rejected."""

    p50_at: str | None
    """As likely before as after."""
    p90_at: str | None
    """With 90 % before."""


@final
@attrs.frozen(kw_only=True)
class LaneWaitView:
    """Calls of a lane that wait for one reason."""

    reason: str
    n: int


@final
@attrs.frozen(kw_only=True)
class LaneView:
    """A lane over all providers."""

    name: str
    waiting: int
    inflight: int
    waits: tuple[LaneWaitView, ...]
    """Reasons for which its calls wait, that of most calls first."""
    first: StartView
    """When the first of its calls that wait starts."""
    last: StartView
    """When all that wait now have started."""


@final
@attrs.frozen(kw_only=True)
class PauseView:
    """A provider, lane or agent that an operator holds back."""

    kind: str
    """`provider`, `lane` or `agent`."""
    name: str
    waiting: int
    """Calls that wait for it."""
    known: bool
    """False: the policy has no such agent, and none of the last calls was of a caller with this name."""


@final
@attrs.frozen(kw_only=True)
class PausedView:
    """Everything that is paused."""

    paused: tuple[PauseView, ...]


@final
@attrs.frozen(kw_only=True)
class NoticeView:
    """Something that needs an operator's attention."""

    kind: str
    subject: str
    text: str
    since_at: str | None


@final
@attrs.frozen(kw_only=True)
class WorkerView:
    """One process of a proxy with several; null: it does not answer now."""

    name: str
    pid: int | None
    starts: int
    """Processes of this worker so far."""
    inflight: int | None
    waiting: int | None
    connections: int | None
    cpu_s: float | None
    """CPU time of the process so far."""


class NodeState(StrEnum):
    """State of a node that shares limits."""

    ALIVE = "alive"
    SILENT = "silent"
    """Ended, stopped, or cut off from the store."""
    UNKNOWN = "unknown"
    """The store does not answer this process."""


@final
@attrs.frozen(kw_only=True)
class NodeShareView:
    """One node's part of a provider."""

    provider: str
    share: int
    """Calls that it may have in flight now."""
    inflight: int
    waiting: int
    """Calls that wait for nothing but a slot."""
    leads: bool
    """True: this node learns the limit and the circuit from the attempts of all, and tells the others."""


@final
@attrs.frozen(kw_only=True)
class NodeView:
    """A node that shares limits, or a worker, as this process knows it."""

    name: str
    own: bool
    """A process of this proxy."""
    state: NodeState
    seen_s: float | None
    """Since its last report; null: it was never heard of."""
    policy: str | None
    """Hash of the policy that it runs; null: it has not said."""
    version: str | None
    shares: tuple[NodeShareView, ...]
    """One for each provider of this process's policy."""


@final
@attrs.frozen(kw_only=True)
class JournalBehindView:
    """Entries that the journal lacks."""

    unwritten: int
    """Those that wait in memory for the disk."""
    waits_s: float
    """Time without a commit, while any waits."""
    left_out: int
    """Those of this process that never will be in it, for too many waited."""
    error: str | None
    """Why it cannot be written now; null: nothing is known of that."""


@final
@attrs.frozen(kw_only=True)
class StatusView:
    """The proxy at one moment."""

    version: str
    pid: int
    address: str
    """Base URL for agents."""
    policy: PolicyView
    journal: str | None
    started_at: str | None
    uptime_s: float
    draining: bool
    waiting: int
    inflight: int
    cap: int
    """Sum of the concurrency limits in force."""
    agents: int
    """With a call that waits or is in flight."""
    held: int
    """Those of `waiting` that a rule holds."""
    oldest_wait_s: float | None
    """Wait of the call that has waited longest; null: none waits."""
    calls: CallCounts
    providers: tuple[ProviderView, ...]
    lanes: tuple[LaneView, ...]
    agent_limits: tuple[AgentLimitView, ...]
    """Limits of declared agents, the fullest first, at most fifty."""
    notices: tuple[NoticeView, ...]
    workers: tuple[WorkerView, ...] = ()
    """Processes that serve as this proxy; empty: there is one, `pid`."""
    nodes: tuple[NodeView, ...] = ()
    """Nodes of `store redis`, or workers, by name, each with its share of every limit; empty: this process is alone."""
    journal_behind: JournalBehindView | None = None
    """Null: calls are in the journal, or will be at once, or there is none."""
    counted_by_each: str = ""
    """Settings that each of these nodes counts for itself, in words; empty: there are none."""


@final
@attrs.frozen(kw_only=True)
class QueueRow:
    """Calls that wait in one lane, for one provider and one reason."""

    lane: str
    provider: str | None
    reason: str
    text: str
    """The reason in words."""
    n: int
    agents: int
    """Number of different ones."""
    oldest_s: float
    next_at: str | None
    """Earliest start of the first by what is known; null: it depends on other calls."""
    first_deadline_at: str | None
    """When the first of them is rejected if it still waits; null: never."""
    first: StartView
    """When the first of them starts."""
    last: StartView
    """When all of them have started."""
    starts: tuple[StartView, ...]
    """Starts of single calls, at most the hundred oldest."""


@final
@attrs.frozen(kw_only=True)
class WaitingAgentView:
    """Calls of one agent that wait."""

    agent: str
    caller: str
    n: int
    first: StartView
    last: StartView


@final
@attrs.frozen(kw_only=True)
class QueueView:
    """Everything that waits."""

    waiting: int
    queue: tuple[QueueRow, ...]
    agents: tuple[WaitingAgentView, ...]
    """At most the hundred with the most calls."""


@final
@attrs.frozen(kw_only=True)
class SessionView:
    """A session of a client, or the conversation of one of its sub-agents, and how it grows."""

    session: str
    """As the client names it; of a sub-agent `session/agent`."""
    agent: str
    """Name of a declared agent, or of a caller as the log has it."""
    model: str
    """Model that its last call was sent with."""
    context: int
    """Tokens of its last call, output included."""
    turns: int
    growth: int
    """Tokens that each turn has added, on average."""
    window: int | None
    """Context window of the model; null: unknown."""
    turns_left: int | None
    """Turns until the window is full at that growth; null: it does not grow, or the window is unknown."""
    cost: float | None
    """In dollars, of the whole session with its sub-agents; null: too many sessions came after it."""
    age_s: float | None
    """Since its first call; null: as for `cost`."""
    seen_at: str | None
    """End of its last turn."""


@final
@attrs.frozen(kw_only=True)
class SessionsView:
    """Sessions of the last hour, those with the fullest context first."""

    sessions: tuple[SessionView, ...]


@final
@attrs.frozen(kw_only=True)
class CallView:
    """One call."""

    id: str
    """As in `x-hivemind-call`."""
    state: CallState
    agent: str
    caller: str
    job: str
    session: SessionView | None
    """Null: the call is of no session, nothing of the session has been served, or the call is over."""
    lane: str | None
    provider: str | None
    model: str
    sent_model: str | None
    """Model that it is sent with instead; null: the one asked for."""
    priority: int | None
    method: str
    path: str
    age_s: float
    """Since it arrived; of a call that is over, how long it took."""
    waited_s: float
    reason: str
    """Limit that it waits for, or has waited for; `none`."""
    attempts: int
    """That were begun."""
    not_before_at: str | None
    """Earliest start by what is known; null: it does not wait, or it depends on other calls."""
    deadline_at: str | None
    """When it is rejected if it still waits; null: never, or it does not wait."""
    let_through: bool
    """True if it waits, and an operator lets it go before others, as soon as its provider has room."""
    status: int | None
    """Status that the agent was sent; null: none yet."""
    ended_at: str | None


@final
@attrs.frozen(kw_only=True)
class DecidedView:
    """Declaration that decided one setting of a call."""

    setting: str
    by: str
    """`rule`, `agent`, `team`, `lane`, `budget`, `operator`, `defaults` or `built-in`."""
    name: str
    at: str | None
    """`team.hmp:61`; null: it is in no file."""


@final
@attrs.frozen(kw_only=True)
class ExplainView:
    """Explanation of a call in progress."""

    call: CallView
    text: str
    """Why it waits, or how far it is, in words."""
    waiting_in_lane: int
    """Calls of its lane that wait, itself included."""
    waiting_before: int | None
    """Those that arrived before it; null: it does not wait."""
    start: StartView
    """Estimate of its start."""
    team: str | None
    decided: tuple[DecidedView, ...]


@final
@attrs.frozen(kw_only=True)
class CallsView:
    """Calls, the oldest first."""

    calls: tuple[CallView, ...]


@final
@attrs.frozen(kw_only=True)
class BudgetView:
    """One account of one budget."""

    budget: str
    per: str
    """`all`, `agent`, `header.x-user`."""
    whose: str
    """Partition; empty: everybody's. Per agent: the name of a declared one, the address or credential of another."""
    measure: str
    """`cost` is in millionths of a dollar."""
    allowance: str
    """`$5 per day`."""
    amount: int
    spent: int
    claimed: int
    """Most that calls on their way may take."""
    share: float
    """Part of the amount that is spent."""
    held: int
    """Calls that wait for room in it."""
    resets_at: str | None
    """End of the calendar window; null: the window slides."""


@final
@attrs.frozen(kw_only=True)
class BudgetsView:
    """Accounts of budgets in which calls have counted."""

    budgets: tuple[BudgetView, ...]


@final
@attrs.frozen(kw_only=True)
class StoryView:
    """A call that is over."""

    id: str
    story: dict[str, Any]
    """As `hivemind-trio explain CALL --json` prints it."""


@final
@attrs.frozen(kw_only=True)
class SeriesView:
    """Points of one provider over the last hour: each list has one entry per point."""

    provider: str
    at: tuple[float, ...]
    """Seconds since 1970."""
    limit: tuple[int, ...]
    inflight: tuple[int, ...]
    waiting: tuple[int, ...]
    refused: tuple[int, ...]
    """Attempts since the point before that were refused for the rate, as 429 says."""
    failed: tuple[int, ...]
    """The same of those that failed: overloaded, 5xx, unreachable."""
    circuit: tuple[str, ...]
    bound_by: tuple[str | None, ...]
    """Reason for which most of the waiting calls wait; null: none waits."""


@final
@attrs.frozen(kw_only=True)
class SeriesListView:
    """Time series of all providers."""

    step_s: int
    series: tuple[SeriesView, ...]


@final
@attrs.frozen(kw_only=True)
class UsageView:
    """Sums over calls that ended in the last hour."""

    calls: int
    failed: int
    rejected: int
    tokens_in: int
    """Cached ones included."""
    cached: int
    tokens_out: int
    cost: int
    """Millionths of a dollar."""
    wait_p50_s: float | None
    """Half of the calls that reached a provider waited no longer; null: none did."""
    wait_p95_s: float | None
    share: float | None
    """Part of all tokens, divided by its fair part; null: no tokens are known of."""


@final
@attrs.frozen(kw_only=True)
class SessionUsageView:
    """One session or job of an agent."""

    session: str
    usage: UsageView


@final
@attrs.frozen(kw_only=True)
class AgentUsageView:
    """One agent or caller."""

    agent: str
    usage: UsageView
    sessions: tuple[SessionUsageView, ...]
    """Those that used most, at most ten."""


@final
@attrs.frozen(kw_only=True)
class TeamUsageView:
    """One team; agents without a team are in `none`."""

    team: str
    weight: int
    usage: UsageView
    agents: tuple[AgentUsageView, ...]
    """Those that used most first."""


@final
@attrs.frozen(kw_only=True)
class HourView:
    """Usage of the last hour."""

    usage: UsageView
    teams: tuple[TeamUsageView, ...]


class AdviceState(StrEnum):
    """State of the advice on what to change."""

    READY = "ready"
    COMPUTING = "computing"
    """Ask again in a few seconds."""
    UNAVAILABLE = "unavailable"
    """There is no journal, or it has too few calls; the text says so."""


@final
@attrs.frozen(kw_only=True)
class AdviceLaneView:
    """Simulated waits of the calls of a lane."""

    lane: str
    served: int
    wait_p95_s: float
    rejected: int
    """Calls that were rejected, or given up in the queue."""


@final
@attrs.frozen(kw_only=True)
class AdviceRowView:
    """One limit that, lifted alone, plainly shortens waits."""

    text: str
    """The sentence."""
    change: str
    """`max 12 instead of 8 in lane batch`."""
    provider: str | None
    """Provider that would have to accept it; null: the limit is the policy's own."""
    lane: str
    """Lane that gains most."""
    before: AdviceLaneView
    after: AdviceLaneView


@final
@attrs.frozen(kw_only=True)
class AdviceView:
    """Limits to lift, by a simulation of the last hour."""

    state: AdviceState
    text: str
    """The answer in one sentence."""
    at: str | None
    """Time of the simulation; null: there was none yet."""
    calls: int
    """Recorded calls that were simulated, the newest of the last hour."""
    span_s: float
    """Time over which they came."""
    tried: int
    """Limits that were lifted, one at a time."""
    limits: int
    """Limits that there are."""
    waited_p95_s: float
    """Recorded waits of these calls for their turns, 95th percentile."""
    lanes: tuple[AdviceLaneView, ...]
    """Simulated waits under the policy as it is."""
    advice: tuple[AdviceRowView, ...]
    """Largest gain first, at most five; empty: none plainly helps."""
