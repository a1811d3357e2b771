"""From declarations to the program: every default filled in, every reference followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, final

import attrs

from hivemind_trio.dialects import KNOWN_BASES, KNOWN_NAMES
from hivemind_trio.model import Api, Decider, PlanSpan, SecretRef, Verdict
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy.diagnostics.collector import ProgressListener
from hivemind_trio.policy.language.clock_edges import clock_edges
from hivemind_trio.policy.language.condition_typing import Condition, fields_read
from hivemind_trio.policy.language.list_prices import BUILT_IN_PRICES
from hivemind_trio.policy.language.model_price import ModelPrice
from hivemind_trio.policy.language.units import DURATIONS
from hivemind_trio.policy.language.values import ErrorType, is_loopback
from hivemind_trio.policy.program.budgets import BudgetAllowance, BudgetSettings, Measure, Per, Threshold
from hivemind_trio.policy.program.degraded_answer import DegradedSettings
from hivemind_trio.policy.program.jobs import NO_JOBS, JobsSettings
from hivemind_trio.policy.program.plan_settings import (
    PACE_BURST,
    PlanOverage,
    PlanPace,
    PlanRelease,
    PlanReserve,
    PlanSettings,
)
from hivemind_trio.policy.program.program import (
    DEFAULT_LANE,
    NO_TEAM,
    UNKNOWN_AGENT,
    AccountSettings,
    AccountSpread,
    AgentSettings,
    Clue,
    LaneSettings,
    LimitGroupSettings,
    Objective,
    Program,
    ProviderSettings,
    Resident,
    Server,
    SlotShare,
    Sticky,
    StoreSettings,
    Team,
    Timeouts,
    TokenEstimate,
)
from hivemind_trio.policy.program.rate_limits import Dimension, RateLimitSettings, Window
from hivemind_trio.policy.program.resilience import (
    DEFAULT_RETRY,
    AimdSettings,
    CircuitBreakerSettings,
    Failure,
    Jitter,
    Reaper,
    RetrySettings,
    WhileOpen,
)
from hivemind_trio.policy.program.resources import ResourceSettings

from .binder import BoundDeclaration, SettingValue, SymbolTable
from .codegen import Identity, LaneDefaults, Router, Rule, compile_decide

S: Final = DURATIONS["s"]

DEFAULT_AFFINITY_NS: Final = 90 * S
DEFAULT_CONCURRENCY: Final = (2, 64)
DEFAULT_START: Final = 8
DEFAULT_TIMEOUTS: Final = Timeouts(
    connect_ns=5 * S,
    # Thinking and a cold local model take minutes; JavaScript clients give up at 300 s whatever we do.
    first_byte_ns=300 * S,
    # Providers ping their streams every few tens of seconds, and the clients' own watchdogs are at 300 s.
    idle_ns=300 * S,
    total_ns=1_800 * S,
)
DEFAULT_SERVER: Final = Server(
    host="127.0.0.1",
    port=8787,
    timezone="",
    drain_ns=30 * S,
    max_body=32 << 20,
    max_header=64 << 10,
    max_waiting=10_000,
    refuse_unknown=False,
)


@final
@attrs.frozen(kw_only=True)
class Conditions:
    """The typed conditions of what has a `when`."""

    agents: Mapping[str, Condition | None]
    rules: Mapping[str, Condition]
    teams: Mapping[str, Condition] = attrs.field(factory=dict)
    """In the order of the file."""
    budgets: Mapping[str, Condition] = attrs.field(factory=dict)
    degraded: Mapping[str, Condition] = attrs.field(factory=dict)
    """By provider."""


def lower(declarations: SymbolTable, conditions: Conditions, digest: str, progress: ProgressListener) -> Program:
    """Return the program of a policy without errors."""
    providers = {name: _provider(declarations, one, conditions) for name, one in declarations.of("provider").items()}
    lanes = {name: _lane(declarations, one) for name, one in declarations.of("lane").items()}
    lanes.setdefault(DEFAULT_LANE, _default_lane(declarations))
    speaking = {name: lane_defaults_of(declarations, name) for name in lanes}
    teams = {
        name: Team(name=name, weight=_one(declarations, one, "weight", 1), lane=None, at=one.at)
        for name, one in declarations.of("team").items()
    }
    identities = [identity_of(declarations, one, conditions) for one in declarations.of("agent").values()]
    unknown = unknown_of(declarations)
    rules = list(_rules(declarations, conditions, progress))
    retries = {name: _retry(declarations, one) for name, one in declarations.of("retry").items()}
    retries.setdefault(DEFAULT_RETRY, RetrySettings())
    secrets: dict[SecretRef, None] = {}
    for provider in providers.values():
        secrets.update(dict.fromkeys(key for pool in provider.pools() for key in pool.keys))
        if isinstance(provider.base, SecretRef):
            secrets[provider.base] = None
    for identity in identities:
        secrets.update(dict.fromkeys(identity.agent.tokens))
    server, store = _server(declarations), _store(declarations)
    secrets.update(dict.fromkeys((*server.admin_tokens, *server.metrics_tokens)))
    if isinstance(store.url, SecretRef):
        secrets[store.url] = None
    return Program(
        hash=digest,
        server=server,
        providers=providers,
        lanes=lanes,
        teams=teams,
        agents={identity.agent.name: identity.agent for identity in identities},
        unknown=unknown.agent,
        models=_models(declarations),
        route=Router.of(providers).route,
        decide=compile_decide(
            rules=rules,
            identities=identities,
            lanes=speaking,
            providers=providers,
            unknown=unknown,
            budgets=list(conditions.budgets.items()),
            teams=[(teams[name], condition) for name, condition in conditions.teams.items()],
            progress=progress,
        ),
        retries=retries,
        budgets={name: _budget(declarations, one) for name, one in declarations.of("budget").items()},
        resources={name: _resource(declarations, one) for name, one in declarations.of("resource").items()},
        jobs=_jobs(declarations),
        store=store,
        secrets=tuple(secrets),
        reads=frozenset[str]().union(
            *(
                fields_read(condition)
                for table in (conditions.agents, conditions.teams, conditions.rules, conditions.budgets)
                for condition in table.values()
                if condition is not None
            ),
            {f"header.{name}" for name in _headers_of_budgets(declarations)},
        ),
        clock_edges=clock_edges(
            one
            for table in (conditions.agents, conditions.teams, conditions.rules)
            for one in table.values()
            if one is not None
        ),
        holds=any("hold" in one.settings for one in declarations.of("rule").values()),
        was=_former_names(declarations),
    )


def _headers_of_budgets(declarations: SymbolTable) -> Iterator[str]:
    """Yield the headers by which budgets are partitioned."""
    for declared in declarations.of("budget").values():
        family, _, name = declared.options.get("per", "").partition(".")
        if family == Per.HEADER:
            yield name


def _rules(declarations: SymbolTable, conditions: Conditions, progress: ProgressListener) -> Iterator[Rule]:
    declared = declarations.of("rule")
    for number, (name, one) in enumerate(declared.items()):
        progress("compiling", number, len(declared))
        yield rule_of(one, conditions.rules[name])
    progress("compiling", len(declared), len(declared))


def _former_names(declarations: SymbolTable) -> dict[str, dict[str, str]]:
    former = {
        kind: {name: one.was.text for name, one in table.items() if one.was is not None}
        for kind, table in declarations.by_kind.items()
    }
    return {kind: names for kind, names in former.items() if names}


def provider_api(declarations: SymbolTable, declared: BoundDeclaration) -> Api | None:
    """Return the dialect, by setting or by name; None: unknown."""
    given = declarations.one(declared, "api")
    return Api(given.value) if given is not None else KNOWN_NAMES.get(declared.name)


def provider_base(declarations: SymbolTable, declared: BoundDeclaration) -> str | SecretRef | None:
    """Return the base URL, by setting or by dialect."""
    given = declarations.one(declared, "base")
    if given is not None:
        base: str | SecretRef = given.value
        return base
    api = provider_api(declarations, declared)
    return KNOWN_BASES.get(api) if api is not None else None


def _aimd(declarations: SymbolTable, declared: BoundDeclaration) -> AimdSettings | None:
    """Return the AIMD settings; None: the concurrency is one number."""
    return _aimd_within(declarations, declared, declarations.one(declared, "concurrency"))


def _aimd_within(
    declarations: SymbolTable, declared: BoundDeclaration, given: SettingValue | None
) -> AimdSettings | None:
    """Return the AIMD settings of a `concurrency`, the provider's or an account's; None: it is one number."""
    low, high = given.value if given is not None else DEFAULT_CONCURRENCY
    if low == high:
        return None
    told = declarations.one(declared, "aimd")
    options = dict(told.options) if told is not None else {}
    names = {"increase": "increase", "decrease": "decrease", "cooldown": "cooldown_ns", "first-byte": "slow_ns"}
    return AimdSettings(
        low=low,
        start=min(high, max(low, given.options.get("start", DEFAULT_START) if given is not None else DEFAULT_START)),
        **{names[option]: value for option, value in options.items() if option in names},
    )


def breaker(declarations: SymbolTable, declared: BoundDeclaration) -> CircuitBreakerSettings:
    """When it is left alone, its defaults included."""
    given = declarations.one(declared, "breaker")
    names = {"trip": "trip", "of": "of", "over": "over_ns", "open": "open_ns", "probes": "probes"}
    return (
        CircuitBreakerSettings(**{names[option]: value for option, value in given.options.items()})
        if given
        else CircuitBreakerSettings()
    )


def _retry(declarations: SymbolTable, declared: BoundDeclaration) -> RetrySettings:
    options: dict[str, Any] = {}
    on = declarations.one(declared, "on")
    if on is not None:
        options["statuses"] = frozenset(status for item in on.value if isinstance(item, range) for status in item)
        options["failures"] = frozenset(Failure(item) for item in on.value if isinstance(item, str))
        options["error_types"] = frozenset(item.name for item in on.value if isinstance(item, ErrorType))
    backoff = declarations.one(declared, "backoff")
    if backoff is not None:
        options["first_ns"], options["last_ns"] = backoff.value
        options["jitter"] = Jitter(backoff.options.get("jitter", "full"))
    honor = declarations.one(declared, "honor")
    if honor is not None and "max" in honor.options:
        options["honor_max_ns"] = honor.options["max"]
    for name in ("attempts", "ratio"):
        given = declarations.one(declared, name)
        if given is not None:
            options[name] = given.value
    return RetrySettings(name=declared.name, at=declared.at, **options)


def provider_limit(declarations: SymbolTable, declared: BoundDeclaration) -> int:
    """Its slots: the upper bound."""
    return _most(declarations.one(declared, "concurrency"))


def _most(given: SettingValue | None) -> int:
    """Return the upper bound of a `concurrency`."""
    return int(given.value[1]) if given is not None else DEFAULT_CONCURRENCY[1]


def keys_of(declarations: SymbolTable, declared: BoundDeclaration) -> list[SettingValue]:
    """Return the `key` of a provider, or those of its accounts."""
    key = declarations.one(declared, "key")
    accounts, _ = declarations.effective(declared, "account")
    return [*([key] if key is not None else []), *(one for given in accounts for one in given.block.get("key", ()))]


def share(value: int | float | None) -> SlotShare | None:
    """Return a typed `reserve` or `max`."""
    if value is None:
        return None
    return SlotShare(ratio=value) if isinstance(value, float) else SlotShare(slots=value)


def _one(declarations: SymbolTable, declared: BoundDeclaration, setting: str, default: Any) -> Any:
    given = declarations.one(declared, setting)
    return given.value if given is not None else default


def _provider(declarations: SymbolTable, declared: BoundDeclaration, conditions: Conditions) -> ProviderSettings:
    api = provider_api(declarations, declared)
    base = provider_base(declarations, declared)
    assert api is not None
    assert base is not None
    timeout, key = declarations.one(declared, "timeout"), declarations.one(declared, "key")
    groups, _ = declarations.effective(declared, "limits")
    degraded = conditions.degraded.get(declared.name)
    fallback = _one(declarations, declared, "fallback", None)
    return ProviderSettings(
        name=declared.name,
        api=api,
        base=base,
        keys=(key.value,) if key is not None else (),
        serves=_one(declarations, declared, "serves", ()),
        limit=provider_limit(declarations, declared),
        groups=tuple(_group(given) for given in groups),
        queue=_one(declarations, declared, "queue", None),
        timeouts=provider_timeouts(timeout),
        at=declared.at,
        aimd=_aimd(declarations, declared),
        breaker=breaker(declarations, declared),
        while_open=WhileOpen(_one(declarations, declared, "open", "hold" if fallback is None else "fallback")),
        fallback=fallback,
        retry=_one(declarations, declared, "retry", DEFAULT_RETRY),
        objective=Objective(_one(declarations, declared, "objective", "fair")),
        learns=_one(declarations, declared, "headers", "trust") == "trust",
        plan=_plan(declarations.one(declared, "plan")),
        reaper=_reaper(declarations.one(declared, "reaper")),
        resident=_resident(declarations.one(declared, "resident")),
        degraded=None if degraded is None else DegradedSettings(degraded),
        accounts=_accounts(declarations, declared),
        spread=AccountSpread(_one(declarations, declared, "spread", AccountSpread.STICKY)),
        estimate=TokenEstimate(_one(declarations, declared, "estimate", TokenEstimate.LEARNED)),
    )


def _accounts(declarations: SymbolTable, declared: BoundDeclaration) -> tuple[AccountSettings, ...]:
    """Return the accounts, each with the limits of the provider where it has none; one without a key is reported."""
    given, _ = declarations.effective(declared, "account")
    limits, _ = declarations.effective(declared, "limits")
    everyones = declarations.one(declared, "concurrency")
    found = []
    for one in given:
        block = one.block
        lanes = [lane for named in block.get("for", ()) for lane in named.value]
        concurrency = block["concurrency"][0] if "concurrency" in block else everyones
        if "key" in block:
            account = AccountSettings(
                name=one.value,
                key=block["key"][0].value,
                lanes=tuple(lanes),
                limit=_most(concurrency),
                aimd=_aimd_within(declarations, declared, concurrency),
                groups=tuple(_group(limit) for limit in block.get("limits", limits)),
                shares=block["shares"][0].value if "shares" in block else None,
                was=one.options.get("was"),
            )
            found.append(account)
    return tuple(found)


def _group(given: SettingValue) -> LimitGroupSettings:
    concurrency = given.block.get("concurrency")
    window, headroom = given.block.get("window"), given.block.get("headroom")
    options: dict[str, Any] = {"window": Window(window[0].value)} if window else {}
    options |= {"headroom": headroom[0].value} if headroom else {}
    return LimitGroupSettings(
        glob=given.args[0] if given.args else None,
        concurrency=concurrency[0].value if concurrency else None,
        quotas=_rates(given.block, **options),
    )


def _rates(block: Mapping[str, list[SettingValue]], **options: Any) -> tuple[RateLimitSettings, ...]:
    """Return the rates of a `limits` block, of a provider or of an agent."""
    return tuple(
        RateLimitSettings(dimension=dimension, amount=one.value.amount, window_ns=one.value.window_ns, **options)
        for dimension in Dimension
        for one in block.get(dimension.value, [])
    )


def provider_timeouts(given: SettingValue | None) -> Timeouts:
    """Return the timeouts, defaults included."""
    if given is None:
        return DEFAULT_TIMEOUTS
    return attrs.evolve(
        DEFAULT_TIMEOUTS, **{f"{name.replace('-', '_')}_ns": value for name, value in given.options.items()}
    )


def _plan(given: SettingValue | None) -> PlanSettings | None:
    """Return what is kept of plans; an incomplete statement has been reported."""
    if given is None:
        return None
    block = given.block
    overage = block.get("overage")
    return PlanSettings(
        reserves=tuple(
            PlanReserve(
                round(one.value * WHOLE),
                PlanSpan(one.options["of"]),
                one.options["for"],
                PlanRelease(one.options.get("release", PlanRelease.NEVER)),
            )
            for one in block.get("reserve", ())
            if {"of", "for"} <= one.options.keys()
        ),
        paces=tuple(
            PlanPace(PlanSpan(one.value), one.options["for"], one.options.get("burst", PACE_BURST))
            for one in block.get("pace", ())
            if "for" in one.options
        ),
        **({"overage": PlanOverage(overage[0].value)} if overage else {}),
    )


def _reaper(given: SettingValue | None) -> Reaper:
    options = {} if given is None else {name.replace("-", "_"): value for name, value in given.options.items()}
    return Reaper(**options)


def _resident(given: SettingValue | None) -> Resident | None:
    if given is None:
        return None
    return Resident(given.value, given.options["swap"]) if "swap" in given.options else Resident(given.value)


def _lane(declarations: SymbolTable, declared: BoundDeclaration) -> LaneSettings:
    queue = declarations.one(declared, "queue")
    aging = declarations.one(declared, "aging")
    objective, sticky = (_one(declarations, declared, name, None) for name in ("objective", "sticky"))
    steal = declarations.one(declared, "steal")
    return LaneSettings(
        name=declared.name,
        weight=_one(declarations, declared, "weight", 1),
        reserve=share(_one(declarations, declared, "reserve", 0)) or SlotShare(),
        max=share(_one(declarations, declared, "max", None)),
        deadline_ns=_one(declarations, declared, "deadline", None),
        queue=queue.value if queue is not None else None,
        shed_oldest=queue is not None and queue.options.get("overflow") == "shed-oldest",
        priority=_one(declarations, declared, "priority", 0),
        aging_ns=aging.options["every"] // aging.value if aging is not None else None,
        at=declared.at,
        objective=Objective(objective) if objective is not None else None,
        sticky=Sticky(sticky) if sticky is not None else None,
        **({"steal_above": steal.options["above"]} if steal is not None and "above" in steal.options else {}),
    )


def _default_lane(declarations: SymbolTable) -> LaneSettings:
    """Return the lane that is there without being declared; `defaults lane` holds for it too."""
    defaults = declarations.defaults.get("lane")
    if defaults is not None:
        return attrs.evolve(_lane(declarations, attrs.evolve(defaults, name=DEFAULT_LANE)), at="")
    return LaneSettings(
        name=DEFAULT_LANE,
        weight=1,
        reserve=SlotShare(),
        max=None,
        deadline_ns=None,
        queue=None,
        shed_oldest=False,
        priority=0,
        aging_ns=None,
        at="",
    )


def lane_defaults_of(declarations: SymbolTable, name: str) -> LaneDefaults:
    """Return the defaults that a lane gives to its calls."""
    declared, defaults = declarations.of("lane").get(name), declarations.defaults.get("lane")
    if declared is None and defaults is not None:
        declared = attrs.evolve(defaults, name=name, settings={})
    if declared is None:
        return LaneDefaults(priority=None, deadline_ns=None)
    return LaneDefaults(
        priority=_decided(declarations, declared, "priority"),
        deadline_ns=_decided(declarations, declared, "deadline"),
    )


def identity_of(declarations: SymbolTable, declared: BoundDeclaration, conditions: Conditions) -> Identity:
    """Return the settings of an agent and how a caller is identified as it."""
    priority, limits = declarations.one(declared, "priority"), declarations.one(declared, "limits")
    agent = AgentSettings(
        name=declared.name,
        team=_one(declarations, declared, "team", NO_TEAM),
        tokens=_one(declarations, declared, "token", ()),
        concurrency=_one(declarations, declared, "concurrency", None),
        queue=_one(declarations, declared, "queue", None),
        at=declared.at,
        weight=_one(declarations, declared, "weight", 1),
        priority_max=priority.options.get("max") if priority is not None else None,
        limits=_rates(limits.block, window=Window.SLIDING) if limits is not None else (),
    )
    return Identity(
        agent=agent,
        condition=conditions.agents.get(declared.name),
        lane=_decided(declarations, declared, "lane"),
        priority=_decided(declarations, declared, "priority"),
    )


def _decided(declarations: SymbolTable, declared: BoundDeclaration, setting: str) -> tuple[Any, Decider] | None:
    given, origin = declarations.effective(declared, setting)
    if not given:
        return None
    if origin.startswith("defaults"):
        return given[0].value, Decider("defaults", declared.kind, declarations.defaults[declared.kind].at)
    return given[0].value, Decider(declared.kind, declared.name, declared.at)


def unknown_of(declarations: SymbolTable) -> Identity:
    """Return the settings of callers that are no declared agent: `defaults agent`, without proofs of identity."""
    defaults = declarations.defaults.get("agent")
    if defaults is None:
        nobody = AgentSettings(name=UNKNOWN_AGENT, team=NO_TEAM, tokens=(), concurrency=None, queue=None, at="")
        return Identity(agent=nobody, condition=None, lane=None, priority=None)
    # It says nothing itself, so that the defaults are who decided.
    declared = attrs.evolve(defaults, name=UNKNOWN_AGENT, settings={})
    identity = identity_of(declarations, declared, Conditions(agents={}, rules={}))
    return attrs.evolve(identity, agent=attrs.evolve(identity.agent, tokens=(), team=NO_TEAM))


def rule_of(declared: BoundDeclaration, condition: Condition) -> Rule:
    """Return a rule of the program."""
    effects: dict[str, Any] = {}
    for setting in ("lane", "priority", "deadline", "provider", "model", "retry", "max-output"):
        if setting in declared.settings:
            effects[setting] = declared.settings[setting][0].value
    if "affinity" in declared.settings:
        effects["affinity"] = declared.settings["affinity"][0].options.get("max", DEFAULT_AFFINITY_NS)
    if "allow" in declared.settings:
        effects["verdict"] = (Verdict.ALLOW, "")
    for setting, verdict, done in (("hold", Verdict.HOLD, "held"), ("deny", Verdict.DENY, "denied")):
        if setting in declared.settings:
            given = declared.settings[setting][0]
            effects["verdict"] = (verdict, given.value if given.args else f"{done} by the rule `{declared.name}`")
    return Rule(
        declared.name,
        condition,
        effects,
        declared.at,
        tags=tuple(given.value for given in declared.settings.get("tag", [])),
        warnings=tuple(
            given.value if given.args else f"rule `{declared.name}`" for given in declared.settings.get("warn", [])
        ),
    )


def _budget(declarations: SymbolTable, declared: BoundDeclaration) -> BudgetSettings:
    calendar = _one(declarations, declared, "window", "calendar") == "calendar"
    zone = _one(declarations, declared, "timezone", "")
    allowances = []
    for measure in Measure:
        given = declarations.one(declared, measure.value)
        if given is not None:
            rate = given.value
            allowances.append(
                BudgetAllowance(measure, rate.amount, rate.window_ns, calendar, rate.is_month, zone if calendar else "")
            )
    thresholds, _ = declarations.effective(declared, "at")
    steps = sorted((_threshold(declared, given) for given in thresholds), key=lambda step: step.share)
    if not steps or steps[-1].share < 1:
        steps.append(Threshold(share=1.0, deny=f"budget `{declared.name}` is used up"))
    family, _, per_name = declared.options.get("per", "all").partition(".")
    return BudgetSettings(
        name=declared.name,
        per=Per(family),
        per_name=per_name,
        allowances=tuple(allowances),
        thresholds=tuple(steps),
        at=declared.at,
    )


def _threshold(declared: BoundDeclaration, given: SettingValue) -> Threshold:
    deny = given.block.get("deny")
    words = {name: given.block[name][0].value for name in ("lane", "priority", "model") if name in given.block}
    return Threshold(
        share=given.args[0],
        warn="warn" in given.block,
        hold="hold" in given.block,
        deny=None if not deny else deny[0].value if deny[0].args else f"budget `{declared.name}` is used up",
        **words,
    )


def _resource(declarations: SymbolTable, declared: BoundDeclaration) -> ResourceSettings:
    lease = declarations.one(declared, "lease")
    options: dict[str, Any] = {
        name: given.value
        for name in ("capacity", "queue", "allow")
        if (given := declarations.one(declared, name)) is not None
    }
    if lease is not None:
        options |= {"lease_ns": lease.value, "lease_max_ns": lease.options.get("max")}
    return ResourceSettings(name=declared.name, at=declared.at, **options)


def _jobs(declarations: SymbolTable) -> JobsSettings:
    declared = declarations.of("jobs").get("")
    if declared is None:
        return NO_JOBS
    options: dict[str, Any] = {
        {"patience": "patience_ns"}.get(name, name): given.value
        for name in ("allow", "commands", "capacity", "queue", "patience")
        if (given := declarations.one(declared, name)) is not None
    }
    return JobsSettings(**options)


def _models(declarations: SymbolTable) -> tuple[ModelPrice, ...]:
    own = [
        ModelPrice(
            glob=one.name,
            provider=one.options.get("on"),
            input=_price(one, "input"),
            output=_price(one, "output"),
            cache_read=_price(one, "cache-read"),
            cache_write=_price(one, "cache-write"),
            context=_one(declarations, one, "context", None),
            max_output=_one(declarations, one, "max-output", None),
            name=_one(declarations, one, "name", None),
            at=one.at,
        )
        for one in declarations.of("model").values()
    ]
    return (*own, *BUILT_IN_PRICES)


def _price(declared: BoundDeclaration, option: str) -> int | None:
    given = declared.settings.get("price")
    return given[0].options.get(option) if given else None


def refuses_unknown(declarations: SymbolTable, host: str) -> bool:
    """Return whether callers that are no declared agent are rejected by a proxy that listens there."""
    declared = declarations.of("server").get("")
    said = declarations.one(declared, "unknown-agent") if declared is not None else None
    return said.value == "deny" if said is not None else not is_loopback(host)


def _store(declarations: SymbolTable) -> StoreSettings:
    stores = declarations.of("store")
    declared = next(iter(stores.values()), None)
    if declared is None:
        return StoreSettings()
    journal = declarations.one(declared, "journal")
    options = dict(journal.options) if journal is not None else {}
    named = {"keep": "keep_ns", "max": "max_bytes"}
    durable = declared.name != "memory"
    return StoreSettings(
        durable=durable,
        path=_one(declarations, declared, "path", None),
        journal=durable and (journal is None or "off" not in journal.args),
        **{named[option]: value for option, value in options.items()},
        **_shared(declarations, declared),
    )


def _shared(declarations: SymbolTable, declared: BoundDeclaration) -> dict[str, Any]:
    """Return what a store has that several nodes share."""
    if declared.name != "redis":
        return {}
    given = {name: _one(declarations, declared, name, None) for name in ("url", "namespace", "lease")}
    lease, outage = declarations.one(declared, "lease"), declarations.one(declared, "outage")
    found = {"url": given["url"], "namespace": given["namespace"], "lease_ns": given["lease"]}
    if lease is not None:
        found |= {f"{option}_ns": value for option, value in lease.options.items()}
    if outage is not None:
        found["local"] = outage.args[1]
    return {name: value for name, value in found.items() if value is not None}


def _server(declarations: SymbolTable) -> Server:
    declared = declarations.of("server").get("")
    if declared is None:
        return DEFAULT_SERVER
    waits = declarations.one(declared, "wait")
    wait = waits.options if waits is not None else {}
    admin, metrics = (declarations.one(declared, name) for name in ("admin", "metrics"))
    host, port = _one(declarations, declared, "listen", (DEFAULT_SERVER.host, DEFAULT_SERVER.port))
    return Server(
        host=host,
        port=port,
        timezone=_one(declarations, declared, "timezone", DEFAULT_SERVER.timezone),
        drain_ns=_one(declarations, declared, "drain", DEFAULT_SERVER.drain_ns),
        nodes=_one(declarations, declared, "nodes", DEFAULT_SERVER.nodes),
        workers=workers.value or 0 if (workers := declarations.one(declared, "workers")) is not None else 1,
        max_body=_one(declarations, declared, "max-body", DEFAULT_SERVER.max_body),
        max_header=_one(declarations, declared, "max-header", DEFAULT_SERVER.max_header),
        max_waiting=_one(declarations, declared, "max-waiting", DEFAULT_SERVER.max_waiting),
        refuse_unknown=refuses_unknown(declarations, host),
        silent_ns=wait.get("silent", DEFAULT_SERVER.silent_ns),
        hold_ns=wait.get("hold", DEFAULT_SERVER.hold_ns),
        identify=tuple(Clue(word) for word in _one(declarations, declared, "identify", DEFAULT_SERVER.identify)),
        log_json=_one(declarations, declared, "log", "text") == "json",
        hosts=_one(declarations, declared, "hosts", ()),
        forwarded_by=_one(declarations, declared, "forwarded-by", ()),
        admin=None if admin is None or isinstance(admin.value, str) else admin.value,
        control_path=admin.value if admin is not None and isinstance(admin.value, str) else None,
        has_control=admin is None or admin.value is not None,
        admin_tokens=admin.options.get("token", ()) if admin is not None else (),
        metrics=metrics.value if metrics is not None else None,
        metrics_tokens=metrics.options.get("token", ()) if metrics is not None else (),
    )
