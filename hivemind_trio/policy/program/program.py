"""The compiled policy: what the scheduler, the engine and the doors run on. Immutable.

Times are nanoseconds, sizes bytes, money micro-dollars, ratios floats between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import final

import attrs

from hivemind_trio.model import Api, Decision, Dimension, Request, SecretRef
from hivemind_trio.policy.language.globs import any_matcher, matcher, most_specific, specificity
from hivemind_trio.policy.language.model_price import ModelPrice

from .budgets import BudgetSettings
from .degraded_answer import DegradedSettings
from .jobs import NO_JOBS, JobsSettings
from .plan_settings import PlanSettings
from .rate_limits import RateLimitSettings
from .resilience import DEFAULT_RETRY, SECOND_NS, AimdSettings, CircuitBreakerSettings, Reaper, RetrySettings, WhileOpen
from .resources import ResourceSettings

DEFAULT_LANE = "default"
"""The lane of a call that no rule, agent or team gives one."""

PRICES_MAX = 1_024
UNKNOWN_AGENT = "unknown"
NO_TEAM = "none"


@final
@attrs.frozen
class SlotShare:
    """`4` slots, or `25%` of the provider's."""

    slots: int = 0
    ratio: float | None = None

    def of(self, limit: int) -> int:
        """Slots out of `limit`, rounded down."""
        return self.slots if self.ratio is None else int(limit * self.ratio)


class Objective(StrEnum):
    """Objective of the order among jobs of equal priority."""

    FAIR = "fair"
    """Teams and agents take turns by what they have had, and so do the jobs of an agent."""
    LATENCY = "latency"
    """The call that is thought to take least goes first."""
    MAKESPAN = "makespan"
    """The job with most ahead of it goes first, so that all are done soon."""
    MEAN_COMPLETION = "mean-completion"
    """The job that is furthest on goes first, so that each is done soon."""


class Sticky(StrEnum):
    """Property by which calls of a lane form a thread and are served one after the other."""

    KEY = "key"
    """The credential that they present."""
    AGENT = "agent"
    PREFIX = "prefix"
    """The beginning of their prompt, as a provider's cache would see it."""


@final
@attrs.frozen(kw_only=True)
class Timeouts:
    """Bounds of one attempt."""

    connect_ns: int
    first_byte_ns: int
    idle_ns: int
    """Between two pieces of a body."""
    total_ns: int


@final
@attrs.frozen
class Resident:
    """`resident 1 swap 20s`."""

    models: int
    """In memory at once."""
    swap_ns: int = 20 * SECOND_NS
    """Time to load one instead of another."""


@final
@attrs.frozen(kw_only=True)
class LimitGroupSettings:
    """A `limits` block: the models that it covers share its caps within one provider."""

    glob: str | None
    """None: every model of the provider that no other block covers."""
    concurrency: int | None
    quotas: tuple[RateLimitSettings, ...] = ()
    """Rate limits of these models."""


class AccountSpread(StrEnum):
    """Order of a provider's accounts that have room for a call."""

    STICKY = "sticky"
    """The one that served its session last, while the prompt cache is warm; then the least loaded."""
    FIRST = "first"
    """As in the file."""
    EVEN = "even"
    """The least loaded."""


class TokenEstimate(StrEnum):
    """Estimate of a call's input tokens before it is sent."""

    LEARNED = "learned"
    """From its bytes, corrected by earlier answers."""
    TOKENIZER = "tokenizer"
    """Counted by the tokenizer of the model."""
    EXACT = "exact"
    """Counted by the provider, once for each beginning of a prompt."""


@final
@attrs.frozen(kw_only=True)
class AccountSettings:
    """An `account` block: a key, with limits of its own or those that it shares."""

    name: str
    key: SecretRef
    lanes: tuple[str, ...]
    """Lanes whose calls may use it; empty: every lane."""
    limit: int
    aimd: AimdSettings | None
    groups: tuple[LimitGroupSettings, ...]
    shares: str | None = None
    """Account of the same organisation whose limits and health are those of this key, too; None: it has its own."""
    was: str | None = attrs.field(default=None, eq=False)
    """Former name."""

    def takes_lane(self, lane: str) -> bool:
        """Return True if calls of the lane may use it."""
        return not self.lanes or lane in self.lanes


@final
@attrs.frozen(kw_only=True)
class ProviderSettings:
    """An upstream, and the slots we give ourselves there."""

    name: str
    api: Api
    base: str | SecretRef
    """An absolute URL without a trailing slash, or `env(NAME)` that holds one."""
    keys: tuple[SecretRef, ...]
    """Empty: the agent's own credential passes through."""
    serves: tuple[str, ...]
    """Globs over models; empty: every model of its API."""
    limit: int
    """Attempts in flight at most."""
    groups: tuple[LimitGroupSettings, ...]
    queue: int | None
    """Calls waiting for this provider at most; None: no bound of its own."""
    timeouts: Timeouts
    at: str
    """Place of the declaration, `team.hmp:24`."""
    aimd: AimdSettings | None = None
    """Settings for the limit between `aimd.low` and `limit`; None: the limit is fixed."""
    breaker: CircuitBreakerSettings = attrs.field(factory=CircuitBreakerSettings)
    while_open: WhileOpen = WhileOpen.HOLD
    fallback: str | None = None
    """The provider that takes its calls while it is down."""
    retry: str = DEFAULT_RETRY
    """The class of calls to which no rule gives one."""
    objective: Objective = Objective.FAIR
    """In lanes that have none of their own."""
    learns: bool = True
    """True if rate-limit headers are believed."""
    reaper: Reaper = attrs.field(factory=Reaper)
    resident: Resident | None = None
    """Settings for models in memory; None: they do not matter."""
    plan: PlanSettings | None = None
    """None: nothing waits for the plan of an account."""
    degraded: DegradedSettings | None = None
    """Condition of good answers that count as failures; None: none."""
    accounts: tuple[AccountSettings, ...] = ()
    """Empty: `keys`, or the callers' credentials, are the only account."""
    spread: AccountSpread = AccountSpread.STICKY
    estimate: TokenEstimate = TokenEstimate.LEARNED
    account_of: str = attrs.field(default="", eq=False)
    """The provider of which this is one account (`Program.pools`); empty: it is a provider."""
    keyring: tuple[AccountSettings, ...] = attrs.field(default=(), eq=False)
    """Accounts whose keys calls of this pool are sent with, in file order: the one that it is named after and those
    that share its limits; empty: it is a provider."""

    @property
    def declared_name(self) -> str:
        """Name of the provider in the policy."""
        return self.account_of or self.name

    def pools(self) -> Iterator[ProviderSettings]:
        """Yield what has slots, windows and a circuit of its own: each account that shares none, or the provider."""
        if not self.accounts:
            yield self
        for account in self.accounts:
            if account.shares is not None:
                continue
            yield attrs.evolve(
                self,
                name=f"{self.name}.{account.name}",
                keys=(account.key,),
                limit=account.limit,
                aimd=account.aimd,
                groups=account.groups,
                keyring=tuple(one for one in self.accounts if account.name in (one.name, one.shares)),
                accounts=(),
                account_of=self.name,
            )

    def takes_lane(self, lane: str) -> bool:
        """Return True if calls of the lane may be sent with a key of this pool."""
        return not self.keyring or any(account.takes_lane(lane) for account in self.keyring)

    @property
    def takes_turns(self) -> bool:
        """True if of several keys that are as good, the one that was used longest ago is next."""
        return len(self.keyring) > 1 or (self.spread is AccountSpread.EVEN and bool(self.account_of))

    @property
    def shared_by(self) -> tuple[str, ...]:
        """Accounts that share the limits of this one, `anthropic.trial`."""
        return tuple(f"{self.account_of}.{one.name}" for one in self.keyring if one.shares is not None)

    def keys_of(self, account: str | None) -> tuple[SecretRef, ...]:
        """Return the keys that calls are sent with: those of the account, `anthropic.trial`, if it shares this pool."""
        named = ((one.key,) for one in self.keyring if f"{self.account_of}.{one.name}" == account)
        return next(named, self.keys)

    def takes(self, request: Request, model: str) -> bool:
        """Return True if a call can be sent here as it is, for this model."""
        return self.api in request.apis and (not self.serves or not model or any_matcher(self.serves)(model))

    def group_of(self, model: str) -> str | None:
        """Return the glob of the most specific `limits` block that covers the model."""
        return most_specific([group.glob for group in self.groups if group.glob], model) if model else None


@final
@attrs.frozen(kw_only=True)
class LaneSettings:
    """A waiting line and its share of every provider's slots."""

    name: str
    weight: int
    reserve: SlotShare
    """Slots of each provider that only this lane may take."""
    max: SlotShare | None
    """Slots of each provider that it may hold at most; None: all."""
    deadline_ns: int | None
    queue: int | None
    """Calls waiting in this lane at most, over all providers; None: only `Server.max_waiting` bounds it."""
    shed_oldest: bool
    """When the queue is full: True drops the call that waits longest, False refuses the new one."""
    priority: int
    aging_ns: int | None
    """Waiting this long is worth one step of priority; None: waiting does not change priority."""
    at: str
    objective: Objective | None = None
    """Within a team, among calls of equal priority; None: the provider's."""
    sticky: Sticky | None = None
    """Go on with the thread that was served last; None: every call for itself."""
    steal_above: int = 8
    """Calls of another thread waiting, above which it may be next all the same."""

    def cap(self, limit: int) -> int | None:
        """`max` out of a provider's `limit` slots; None: no cap of its own.

        At least 1: a share of a small provider that rounds to nothing would shut the lane out of it for good.
        """
        return None if self.max is None else max(1, self.max.of(limit))


@final
@attrs.frozen(kw_only=True)
class Team:
    """A name that agents and rules share."""

    name: str
    weight: int
    lane: str | None
    at: str


@final
@attrs.frozen(kw_only=True)
class AgentSettings:
    """A declared caller."""

    name: str
    team: str
    tokens: tuple[SecretRef, ...]
    """Tokens of the agent; an agent with a token is identified by it alone, never by a claim."""
    concurrency: int | None
    queue: int | None
    """Calls of this agent waiting at most."""
    at: str
    weight: int = 1
    """Its share within its team; without a team, among the teams."""
    limits: tuple[RateLimitSettings, ...] = ()
    """Most that it starts, over all providers; the windows slide."""
    priority_max: int | None = None
    """Highest priority that it may ask for its calls; None: it may only ask for a lower one than the policy's."""


class Clue(StrEnum):
    """Clue that identifies callers, as `server { identify [...] }` names it."""

    URL = "url"
    """The `/@name` in the base URL."""
    HEADER = "header"
    """`x-hivemind-agent`."""
    SESSION = "session"
    """Session headers that agents send by themselves."""
    USER = "user"
    """User that the body names."""
    CLIENT = "client"
    """The user-agent."""
    CONNECTION = "connection"


@final
@attrs.frozen(kw_only=True)
class Server:
    """The agents' door."""

    host: str
    port: int
    timezone: str
    """An IANA name; empty: the machine's own."""
    drain_ns: int
    max_body: int
    max_header: int
    max_waiting: int
    refuse_unknown: bool
    """`unknown-agent deny`: callers that are no declared agent get 401."""
    silent_ns: int = 15 * SECOND_NS
    """Time for which a queued call is sent nothing, so that a real status is still possible."""
    hold_ns: int = 240 * SECOND_NS
    """Time for which it is held after that: clients give up at 300 s."""
    identify: tuple[Clue, ...] = (Clue.URL, Clue.HEADER, Clue.SESSION, Clue.USER, Clue.CONNECTION)
    """Clues to callers, in order; others are not believed."""
    log_json: bool = False
    """The log is one JSON object a line, unless the command line says otherwise."""
    hosts: tuple[str, ...] = ()
    """Globs over the names that `Host` may have beside addresses and local names."""
    forwarded_by: tuple[tuple[int, int], ...] = ()
    """Proxies whose word for `client.address` is believed: first and last address of each network."""
    admin: tuple[str, int] | None = None
    """Address of the control API; None: only its Unix socket."""
    control_path: str | None = None
    """Absolute path of the control API's Unix socket; None: in the runtime directory."""
    has_control: bool = True
    """False: there is no control API, and no socket of it either."""
    admin_tokens: tuple[SecretRef, ...] = ()
    nodes: int = 1
    """Most proxies that share `concurrency`."""
    workers: int = 1
    """Processes of each proxy, which share it, too; 0: as many as the machine has cores."""
    processes: int = attrs.field(default=1, eq=False)
    """Processes that this program runs in on this machine; `serve` says how many, from `workers`."""
    metrics: tuple[str, int] | None = None
    """Address of the metrics; None: the control API has them alone."""
    metrics_tokens: tuple[SecretRef, ...] = ()
    """One of these is asked for; empty: none is."""

    @property
    def is_measured(self) -> bool:
        """True if somebody can read the metrics."""
        return self.has_control or self.metrics is not None

    @property
    def sharers(self) -> int:
        """Most processes, of all nodes together, that share limits."""
        return self.nodes * self.processes

    def has_host(self, name: str) -> bool:
        """Return whether `hosts` has a name, which is in lower case and without a port."""
        return bool(self.hosts) and any_matcher(self.hosts)(name)


@final
@attrs.frozen(kw_only=True)
class StoreSettings:
    """Place of budgets, learned limits and the journal."""

    durable: bool = True
    """False: `store memory`, they end with the process."""
    path: str | None = None
    """The SQLite file; None: the default place of the policy."""
    journal: bool = True
    keep_ns: int = 30 * 86_400 * SECOND_NS
    """Age from which rows of the journal are deleted."""
    max_bytes: int = 10**9
    """Size of the journal above which its oldest rows are deleted."""
    url: str | SecretRef | None = None
    """Redis through which several nodes share `concurrency`; None: this one is alone."""
    namespace: str = "hivemind"
    lease_ns: int = 60 * SECOND_NS
    renew_ns: int = 2 * SECOND_NS
    gone_ns: int = 10 * SECOND_NS
    local: float = 0.25
    """Share of `concurrency` that all nodes together use while the store is away."""


@final
@attrs.frozen(kw_only=True)
class Program:
    """A policy without errors, ready to run."""

    hash: str
    """Hex digest over the bytes of the include closure; the same text has the same."""
    server: Server
    providers: Mapping[str, ProviderSettings]
    """In file order; so are the other tables."""
    lanes: Mapping[str, LaneSettings]
    """Always holds `default`."""
    teams: Mapping[str, Team]
    agents: Mapping[str, AgentSettings]
    """The declared ones; `unknown` is not among them."""
    unknown: AgentSettings
    """Settings of every caller that is no declared agent, for each on its own."""
    models: tuple[ModelPrice, ...]
    """Declared ones, then list prices."""
    route: Callable[[tuple[Api, ...], str], str | None]
    """The provider of a call of these dialects and this model before any rule; None: none serves it."""
    decide: Callable[[Request], Decision]
    """The generated function: identifies the agent, routes, applies the rules. Total; O(size of the policy)."""
    retries: Mapping[str, RetrySettings] = MappingProxyType({DEFAULT_RETRY: RetrySettings()})
    """Always holds `default`."""
    budgets: Mapping[str, BudgetSettings] = MappingProxyType({})
    resources: Mapping[str, ResourceSettings] = MappingProxyType({})
    jobs: JobsSettings = NO_JOBS
    store: StoreSettings = StoreSettings()
    secrets: tuple[SecretRef, ...]
    """Every secret that serving needs."""
    reads: frozenset[str] = frozenset()
    """The fields of requests that its conditions depend on: `model`, `header.x-team`."""
    clock_edges: tuple[int, ...] = ()
    """Minutes since midnight at which some rule, agent or team may decide otherwise."""
    holds: bool = False
    """Some rule holds calls."""
    was: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """Kind -> name -> what it was called before (`was OLD`)."""
    pools: Mapping[str, ProviderSettings] = attrs.field(init=False, eq=False, repr=False)
    """Targets of calls, in file order: providers, in place of one with accounts each of these (`anthropic.prod`)."""
    reads_plans: bool = attrs.field(init=False, eq=False, repr=False)
    """Some condition reads the plan of the caller's account."""
    reads_sessions: bool = attrs.field(init=False, eq=False, repr=False)
    """Some condition reads the session of the call."""
    counts_tokens: bool = attrs.field(init=False, eq=False, repr=False)
    """Some provider has prompts counted before they are sent."""
    heeds_prompts: bool = attrs.field(init=False, eq=False, repr=False)
    """The beginnings of prompts matter: to a lane, or where input is scarce."""
    prices_by_provider: bool = attrs.field(init=False, eq=False, repr=False)
    """True if some price depends on the provider."""
    _prices: dict[tuple[str, str | None], ModelPrice | None] = attrs.field(
        factory=dict, init=False, eq=False, repr=False
    )
    """Prices of requested models, by provider; callers choose the names, so at most `PRICES_MAX`."""

    @prices_by_provider.default
    def _prices_by_provider(self) -> bool:
        return any(row.provider is not None for row in self.models)

    @pools.default
    def _pools(self) -> Mapping[str, ProviderSettings]:
        return {pool.name: pool for one in self.providers.values() for pool in one.pools()}

    @reads_plans.default
    def _reads_plans(self) -> bool:
        return any(field.startswith("plan.") for field in self.reads)

    @reads_sessions.default
    def _reads_sessions(self) -> bool:
        return any(field.startswith("session.") for field in self.reads)

    @counts_tokens.default
    def _counts_tokens(self) -> bool:
        return any(one.estimate is not TokenEstimate.LEARNED for one in self.providers.values())

    @heeds_prompts.default
    def _heeds_prompts(self) -> bool:
        quotas = (quota for one in self.pools.values() for group in one.groups for quota in group.quotas)
        return any(quota.dimension in (Dimension.INPUT, Dimension.TOKENS) for quota in quotas) or any(
            lane.sticky is Sticky.PREFIX for lane in self.lanes.values()
        )

    def rejects_as_unknown(self, agent: str) -> bool:
        """Return True if `unknown-agent deny` rejects the calls of this agent."""
        return agent == UNKNOWN_AGENT and self.server.refuse_unknown

    def agent(self, name: str) -> AgentSettings:
        """Return the declared agent, or what holds for unknown ones."""
        return self.agents.get(name, self.unknown)

    def own_priority(self, decision: Decision, asked: int) -> int:
        """Return the priority of a call whose agent has asked for one: a lower one always, a higher one up to `max`.

        What a rule or a budget has decided is never exceeded.
        """
        decider = decision.decided.get("priority")
        most = self.agent(decision.agent).priority_max
        if most is None or (decider is not None and decider.kind in ("rule", "budget")):
            return min(asked, decision.priority)
        return min(asked, max(most, decision.priority))

    def chain(self, provider: str) -> Iterator[ProviderSettings]:
        """Yield a provider, and in order those that take its calls while it is down."""
        name: str | None = provider
        while name is not None:
            yield self.providers[name]
            name = self.providers[name].fallback

    def price(self, model: str, provider: str | None) -> ModelPrice | None:
        """Return what holds for a model at a provider; None if no declaration and no list price covers it.

        Each setting is that of the first row that has it: declared `on` this provider, declared for every provider,
        list prices; among these the most specific glob.
        """
        if provider is not None:
            provider = provider.partition(".")[0]  # prices are the same for all accounts
        key = (model, provider)
        if key not in self._prices:
            if len(self._prices) >= PRICES_MAX:
                self._prices.clear()
            self._prices[key] = self._price(model, provider)
        return self._prices[key]

    def name_at(self, model: str, provider: str) -> str | None:
        """Return the name that a provider, or the one of an account, has for a model; None: the one asked for."""
        name = provider.partition(".")[0]
        rows = [
            row for row in self.models if row.name is not None and row.provider == name and matcher(row.glob)(model)
        ]
        found = max(rows, key=lambda row: specificity(row.glob), default=None)
        return found.name if found is not None and model and found.name != model else None

    def _price(self, model: str, provider: str | None) -> ModelPrice | None:
        rows = [row for row in self.models if row.provider in (None, provider) and matcher(row.glob)(model)]
        rows.sort(key=lambda row: (row.provider is not None, bool(row.at), specificity(row.glob)), reverse=True)
        if not rows:
            return None
        price = next((row for row in rows if row.has_price), rows[0])
        context = next((row.context for row in rows if row.context is not None), None)
        max_output = next((row.max_output for row in rows if row.max_output is not None), None)
        if (price.context, price.max_output) == (context, max_output):
            return price
        return attrs.evolve(price, context=context, max_output=max_output)

    def estimated_cost(self, apis: tuple[Api, ...], model: str, tokens_in: int, tokens_max_out: int) -> int:
        """Return the `cost` of conditions in micro-dollars: at the provider before any rule; 0 without a price."""
        price = self.price(model, self.route(apis, model) if self.prices_by_provider else None)
        return price.cost_microusd(tokens_in, tokens_max_out) if price is not None else 0
