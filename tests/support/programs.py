"""Policies for tests, built from their parts instead of parsed from text.

    program(
        providers=[provider("p", limit=2, groups={"opus-*": 1})],
        lanes=[lane("batch", weight=1, queue=10)],
        agents=[agent("ci", concurrency=1)],
    )

Whatever is left out does not limit anything. Without a `decide` of its own a program reads the call's wishes from the
request (`wish` makes one), which is what most tests want to say directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from hivemind_trio.model import Api, Decision, Request, SecretRef, Verdict
from hivemind_trio.policy import (
    DEFAULT_LANE,
    DEFAULT_RETRY,
    NO_TEAM,
    UNKNOWN_AGENT,
    AgentSettings,
    AimdSettings,
    CircuitBreakerSettings,
    LaneSettings,
    LimitGroupSettings,
    Objective,
    Program,
    ProviderSettings,
    Resident,
    RetrySettings,
    Server,
    SlotShare,
    Sticky,
    Team,
    Timeouts,
    WhileOpen,
)
from hivemind_trio.policy.compile.codegen import Router

SECOND_NS = 1_000_000_000

Decide = Callable[[Request], Decision]

NEVER_TRIPS = CircuitBreakerSettings(of=1, over_ns=0)  # it remembers nothing: five in a row would open any other
NO_RETRY = RetrySettings(attempts=1)

TIMEOUTS = Timeouts(
    connect_ns=5 * SECOND_NS, first_byte_ns=60 * SECOND_NS, idle_ns=30 * SECOND_NS, total_ns=600 * SECOND_NS
)


def share(of: int | str | None) -> SlotShare | None:
    """`4` slots, `"25%"` of the provider's, or None."""
    if of is None:
        return None
    return SlotShare(slots=of) if isinstance(of, int) else SlotShare(ratio=int(of.removesuffix("%")) / 100)


def provider(
    name: str = "p",
    *,
    limit: int = 1_000,
    groups: Mapping[str | None, int | None] | None = None,
    queue: int | None = None,
    api: Api = Api.ANTHROPIC,
    base: str | SecretRef = "http://127.0.0.1:9",
    keys: Iterable[SecretRef] = (),
    serves: Iterable[str] = (),
    timeouts: Timeouts = TIMEOUTS,
    aimd: AimdSettings | None = None,
    breaker: CircuitBreakerSettings = NEVER_TRIPS,
    while_open: WhileOpen = WhileOpen.HOLD,
    retry: str = DEFAULT_RETRY,
    objective: Objective = Objective.FAIR,
    fallback: str | None = None,
    resident: Resident | None = None,
) -> ProviderSettings:
    """`groups`: glob over models (None: all others) -> concurrency."""
    return ProviderSettings(
        name=name,
        api=api,
        base=base,
        keys=tuple(keys),
        serves=tuple(serves),
        limit=limit,
        groups=tuple(LimitGroupSettings(glob=glob, concurrency=most) for glob, most in (groups or {}).items()),
        queue=queue,
        timeouts=timeouts,
        at="test.hmp:1",
        aimd=aimd,
        breaker=breaker,
        while_open=while_open,
        fallback=fallback,
        retry=retry,
        objective=objective,
        resident=resident,
    )


def lane(
    name: str = DEFAULT_LANE,
    *,
    weight: int = 1,
    reserve: int | str = 0,
    max: int | str | None = None,  # noqa: A002  the setting's name in the language
    deadline_ns: int | None = None,
    queue: int | None = None,
    shed_oldest: bool = False,
    priority: int = 0,
    aging_ns: int | None = None,
    objective: Objective | None = None,
    sticky: Sticky | None = None,
    steal_above: int = 8,
) -> LaneSettings:
    return LaneSettings(
        name=name,
        weight=weight,
        reserve=share(reserve) or SlotShare(),
        max=share(max),
        deadline_ns=deadline_ns,
        queue=queue,
        shed_oldest=shed_oldest,
        priority=priority,
        aging_ns=aging_ns,
        at="test.hmp:1",
        objective=objective,
        sticky=sticky,
        steal_above=steal_above,
    )


def agent(
    name: str,
    *,
    team: str = NO_TEAM,
    tokens: Iterable[SecretRef] = (),
    concurrency: int | None = None,
    queue: int | None = None,
    weight: int = 1,
) -> AgentSettings:
    return AgentSettings(
        name=name,
        team=team,
        tokens=tuple(tokens),
        concurrency=concurrency,
        queue=queue,
        at="test.hmp:1",
        weight=weight,
    )


def team(name: str, *, weight: int = 1) -> Team:
    return Team(name=name, weight=weight, lane=None, at="test.hmp:1")


def server(*, max_waiting: int = 100_000, refuse_unknown: bool = False) -> Server:
    return Server(
        host="127.0.0.1",
        port=0,
        timezone="UTC",
        drain_ns=30 * SECOND_NS,
        max_body=1 << 20,
        max_header=1 << 16,
        max_waiting=max_waiting,
        refuse_unknown=refuse_unknown,
    )


def program(
    *,
    providers: Iterable[ProviderSettings] | None = None,
    lanes: Iterable[LaneSettings] = (),
    agents: Iterable[AgentSettings] = (),
    teams: Iterable[Team] = (),
    unknown: AgentSettings | None = None,
    decide: Decide | None = None,
    max_waiting: int = 100_000,
    refuse_unknown: bool = False,
    retries: Iterable[RetrySettings] = (NO_RETRY,),
    hash: str = "test",  # noqa: A002  the field's name
) -> Program:
    """One provider `p` unless told otherwise; a lane `default` is added where there is none, as the compiler does."""
    provider_table = {each.name: each for each in (providers if providers is not None else [provider()])}
    lane_table = {each.name: each for each in lanes}
    lane_table.setdefault(DEFAULT_LANE, lane())
    agent_table = {each.name: each for each in agents}
    return Program(
        hash=hash,
        server=server(max_waiting=max_waiting, refuse_unknown=refuse_unknown),
        providers=provider_table,
        lanes=lane_table,
        teams={each.name: each for each in teams},
        agents=agent_table,
        unknown=unknown or agent(UNKNOWN_AGENT),
        models=(),
        route=Router.of(provider_table).route,
        decide=decide or _granting_wishes(provider_table, lane_table, agent_table),
        retries={each.name: each for each in retries},
        secrets=(),
    )


def treatment(
    *,
    agent: str = UNKNOWN_AGENT,
    team: str = NO_TEAM,
    provider: str | None = "p",
    group: str | None = None,
    lane: str = DEFAULT_LANE,
    priority: int = 0,
    deadline_ns: int | None = None,
    verdict: Verdict = Verdict.ALLOW,
    message: str = "",
    affinity_ns: int | None = None,
) -> Decision:
    return Decision(
        agent=agent,
        team=team,
        provider=provider,
        group=group,
        lane=lane,
        priority=priority,
        deadline_ns=deadline_ns,
        retry=None,
        verdict=verdict,
        message=message,
        affinity_ns=affinity_ns,
    )


def wish(
    *,
    agent: str | None = None,
    provider: str | None = None,
    model: str = "claude-x",
    lane: str | None = None,
    priority: int | None = None,
    deadline_ns: int | None = None,
    affinity_ns: int | None = None,
    deny: bool = False,
) -> Request:
    """A request that tells a program without a `decide` of its own how to treat it."""
    headers = {"x-provider": provider, "x-lane": lane, "x-deny": "yes" if deny else None}
    numbers = {"x-priority": priority, "x-deadline-ns": deadline_ns, "x-affinity-ns": affinity_ns}
    headers |= {name: str(number) for name, number in numbers.items() if number is not None}
    return Request(
        apis=(Api.ANTHROPIC,),
        claimed=agent,
        model=model,
        path="/v1/messages",
        headers={name: text for name, text in headers.items() if text is not None},
    )


def _granting_wishes(
    providers: Mapping[str, ProviderSettings], lanes: Mapping[str, LaneSettings], agents: Mapping[str, AgentSettings]
) -> Decide:
    """Total, like a compiled one: a wish for what is not declared falls back to the first provider that serves the
    model, to the lane `default`, to an unknown agent, and to the lane's own priority and deadline."""

    def decide(request: Request) -> Decision:
        wished = request.headers
        serving = [each for each in providers.values() if _covers(each.serves, request.model)]
        to = providers.get(wished.get("x-provider", ""), serving[0] if serving else None)
        within = lanes.get(wished.get("x-lane", ""), lanes[DEFAULT_LANE])
        globs = [each.glob for each in to.groups if each.glob is not None] if to else []
        by = request.token_agent or request.claimed or ""
        deadline, affinity = wished.get("x-deadline-ns"), wished.get("x-affinity-ns")
        return treatment(
            agent=by if by in agents else UNKNOWN_AGENT,
            team=agents[by].team if by in agents else NO_TEAM,
            provider=to.name if to else None,
            group=next((glob for glob in globs if fnmatchcase(request.model, glob)), None),
            lane=within.name,
            priority=int(wished.get("x-priority", within.priority)),
            deadline_ns=int(deadline) if deadline is not None else within.deadline_ns,
            affinity_ns=int(affinity) if affinity is not None else None,
            verdict=Verdict.DENY if "x-deny" in wished else Verdict.ALLOW,
            message="not on a Sunday" if "x-deny" in wished else "",
        )

    return decide


def _covers(globs: Iterable[str], model: str) -> bool:
    globs = tuple(globs)
    return not globs or any(fnmatchcase(model, glob) for glob in globs)
