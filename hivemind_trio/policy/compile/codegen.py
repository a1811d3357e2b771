"""From rules to one Python function.

`decide(request)` identifies the agent, routes, and applies the rules; it is total and takes time in proportion to the
policy. The rules and the agents' conditions are compiled together into one generated function, which is some forty
times faster than walking their trees (`tests/policy` holds the two against each other). What it finds decides the
treatment, which is made once for all calls of which it finds the same.

The generated source is built from the typed tree alone. Whatever a policy's author wrote reaches it as an entry of a
constants table, never as source text, so nothing in a policy can become code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, assert_never, final

import attrs

from hivemind_trio.model import Api, Decider, Decision, Request, Verdict
from hivemind_trio.policy.diagnostics.collector import ProgressListener, untold
from hivemind_trio.policy.language.condition_typing import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Flag,
    Like,
    Member,
    Negation,
    Relation,
)
from hivemind_trio.policy.language.globs import any_matcher, most_specific
from hivemind_trio.policy.program.program import (
    DEFAULT_LANE,
    NO_TEAM,
    UNKNOWN_AGENT,
    AgentSettings,
    ProviderSettings,
    Team,
)

BUILT_IN: Final = Decider("built-in", "", "")
_UNSET: Final = (None, BUILT_IN)
_ALLOWED: Final = ((Verdict.ALLOW, ""), BUILT_IN)

SETTINGS: Final = ("lane", "priority", "deadline", "provider", "model", "retry", "verdict", "affinity", "max-output")
"""Settings that a rule can decide, each by the first rule that matches and names it."""

_FIELDS: Final = {
    "agent": "agent",
    "team": "team",
    "provider": "routed",
    "model": "r.model",
    "path": "r.path",
    "method": "r.method",
    "stream": "r.stream",
    "tools": "r.tools",
    "images": "r.images",
    "tokens.in": "r.tokens_in",
    "tokens.max-out": "r.tokens_max_out",
    "tokens.total": "r.tokens_total",
    "cost": "r.cost_microusd",
    "attempt": "r.attempt",
    "hour": "r.hour",
    "weekday": "r.weekday",
    "time": "(r.hour * 60 + r.minute)",
    "date": "r.date",
    "client.address": "r.client_address",
    "plan.session": "r.plan_session",
    "plan.week": "r.plan_week",
    "plan.month": "r.plan_month",
    "plan.overage": "r.plan_overage",
    "session.context": "r.session_context",
    "session.turns": "r.session_turns",
    "session.cost": "r.session_cost",
    "session.age": "r.session_age",
}

_CHOSEN: Final = {setting: setting.replace("-", "_") for setting in SETTINGS}
"""Setting -> the variable with the number of the rule that set it."""

_LOCALS: Final = {"header": "header", "meta": "meta", "provider": "routed"}
"""Family of fields -> the variable that is set only if conditions read it."""

RULES_IN_FUNCTION: Final = 500
"""Rules that are compiled at once: Python's compiler holds the interpreter meanwhile, here some 30 ms."""

_ROUTES_MAX: Final = 4_096
"""Number of (APIs, model) pairs remembered: callers choose model names, which must not fill the memory."""

_ALIKE_MAX: Final = 4_096
"""Number of decisions remembered, for the same reason."""


@final
@attrs.frozen
class Rule:
    """A rule, typed."""

    name: str
    condition: Condition
    effects: Mapping[str, Any]
    """Setting -> value; for `verdict` a pair of verdict and words."""
    at: str
    tags: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Identity:
    """A declared agent as identification sees it."""

    agent: AgentSettings
    condition: Condition | None
    """Condition of `agent ... when`; None: nothing but its token or a claim makes a caller this agent."""
    lane: tuple[str, Decider] | None
    priority: tuple[int, Decider] | None


@final
@attrs.frozen(kw_only=True)
class LaneDefaults:
    """Defaults of a lane for its calls; None: none."""

    priority: tuple[int, Decider] | None
    deadline_ns: tuple[int, Decider] | None


@final
@attrs.define(eq=False)
class Router:
    """Router of calls that no rule sends to a provider."""

    _providers: Sequence[tuple[ProviderSettings, Callable[[str], bool]]]
    _groups: Mapping[str, Sequence[str]]
    _routes: dict[tuple[tuple[Api, ...], str], str | None] = attrs.field(init=False, factory=dict)
    _covers: dict[tuple[str, str], str | None] = attrs.field(init=False, factory=dict)

    @classmethod
    def of(cls, providers: Mapping[str, ProviderSettings]) -> Router:
        """Return a router over these, in their order."""
        pairs = [(provider, any_matcher(provider.serves or ("*",))) for provider in providers.values()]
        groups = {
            name: [group.glob for group in one.groups if group.glob is not None] for name, one in providers.items()
        }
        return cls(pairs, groups)

    def route(self, apis: tuple[Api, ...], model: str) -> str | None:
        """Return the provider's name; None if none serves it.

        Of those that speak one of the dialects and serve the model: one that says so before one that serves all, then
        the likelier dialect, then the order of the file. A call of no known dialect goes to the only provider there is.
        """
        key = (apis, model)
        if key not in self._routes:
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = self._find(apis, model)
        return self._routes[key]

    def _find(self, apis: tuple[Api, ...], model: str) -> str | None:
        if not apis:
            return self._providers[0][0].name if len(self._providers) == 1 else None
        serving = [
            (not (provider.serves and model), apis.index(provider.api), order, provider.name)
            for order, (provider, serves) in enumerate(self._providers)
            if provider.api in apis and (not model or serves(model))
        ]
        return min(serving)[-1] if serving else None

    def group(self, provider: str, model: str) -> str | None:
        """Return the glob of the provider's most specific `limits` block for the model."""
        globs = self._groups[provider]
        if not globs or not model:
            return None
        key = (provider, model)
        if key not in self._covers:
            if len(self._covers) >= _ROUTES_MAX:
                self._covers.clear()
            self._covers[key] = most_specific(globs, model)
        return self._covers[key]


def compile_decide(
    *,
    rules: Sequence[Rule],
    identities: Sequence[Identity],
    lanes: Mapping[str, LaneDefaults],
    providers: Mapping[str, ProviderSettings],
    unknown: Identity,
    budgets: Sequence[tuple[str, Condition]] = (),
    teams: Sequence[tuple[Team, Condition]] = (),
    progress: ProgressListener = untold,
) -> Callable[[Request], Decision]:
    """Return the function that a `Program` decides with.

    Rules beyond `RULES_IN_FUNCTION` are functions of their own that it calls one after the other.
    """
    writer = _Writer()
    router = Router.of(providers)
    by_name = {identity.agent.name: identity for identity in identities}
    known: dict[_Alike, Decision] = {}
    said: list[dict[str, tuple[Any, Decider]]] = [{}]
    for rule in rules:
        by = Decider("rule", rule.name, rule.at)
        said.append({setting: (value, by) for setting, value in rule.effects.items()})
    places = {team.name: team.at for team, _ in teams}
    treat = _Treat(router, by_name, unknown, lanes, said, [identity.agent for identity in identities], places, known)
    telling = [
        (number, identity, writer.expression(identity.condition))
        for number, identity in enumerate(identities)
        if identity.condition is not None and not identity.agent.tokens
    ]
    joining = [(team.name, writer.expression(condition)) for team, condition in teams]
    numbered = list(enumerate(rules, 1))
    parts = [numbered[at : at + RULES_IN_FUNCTION] for at in range(0, len(numbered), RULES_IN_FUNCTION)]
    if len(parts) > 1:
        applied = _in_parts(writer, parts, progress)
    else:
        applied = [line for part in parts for line in _applied(writer, part)]
    counting = [(name, writer.expression(condition)) for name, condition in budgets]

    writer.line(0, "def decide(r):")
    if "header" in writer.read:
        writer.line(1, "header = r.headers.get")
    if "meta" in writer.read:
        writer.line(1, "meta = r.meta.get")
    _identify(writer, by_name, telling)
    _join(writer, by_name, joining)
    if "provider" in writer.read:
        writer.line(1, f"routed = {writer.constant(router.route)}(r.apis, r.model)")
    writer.line(1, "".join(f"{name} = " for name in _CHOSEN.values()) + "0")
    writer.line(1, "tags = warnings = budgets = ()")
    for line in applied:
        writer.line(1, line)
    for name, condition in counting:
        writer.line(1, f"if {condition}: budgets += {writer.constant((name,))}")
    settings = ", ".join(_CHOSEN.values())
    writer.line(1, f"alike = (agent, team, how, r.apis, r.model, {settings}, tags, warnings, budgets)")
    writer.line(1, f"return {writer.constant(known.get)}(alike) or {writer.constant(treat)}(alike)")
    decide: Callable[[Request], Decision] = writer.function("decide")
    return decide


def _applied(writer: _Writer, rules: Sequence[tuple[int, Rule]]) -> Iterator[str]:
    """Yield the lines that apply rules: each sets what none before it has set."""
    for number, rule in rules:
        if not (rule.effects or rule.tags or rule.warnings):
            continue
        yield f"if {writer.expression(rule.condition)}:"
        for setting in rule.effects:
            yield f"    if not {_CHOSEN[setting]}: {_CHOSEN[setting]} = {number}"
        if rule.tags:
            yield f"    tags += {writer.constant(rule.tags)}"
        if rule.warnings:
            yield f"    warnings += {writer.constant(rule.warnings)}"


def _in_parts(writer: _Writer, parts: Sequence[Sequence[tuple[int, Rule]]], progress: ProgressListener) -> list[str]:
    """Compile each part of the rules by itself. Return the lines that call them."""
    changed = ", ".join((*_CHOSEN.values(), "tags", "warnings"))
    lines = []
    for number, rules in enumerate(parts):
        progress("compiling parts", number, len(parts))
        part = _Writer()
        applied = list(_applied(part, rules))
        known = ", ".join(["r", "agent", "team", *(name for family, name in _LOCALS.items() if family in part.read)])
        part.line(0, f"def apply({known}, {changed}):")
        for line in applied:
            part.line(1, line)
        part.line(1, f"return {changed}")
        lines.append(f"{changed} = {writer.constant(part.function('apply'))}({known}, {changed})")
        writer.read |= part.read
    return lines


def _identify(writer: _Writer, by_name: Mapping[str, Identity], telling: Sequence[tuple[int, Identity, str]]) -> None:
    """Write the identification: by a token, by a claim, by a clue, or as no declared agent."""
    unknown_agent = f"how = 0; agent = {writer.constant(UNKNOWN_AGENT)}"
    if not by_name:
        writer.line(1, unknown_agent)
        return
    open_agents = frozenset(name for name, identity in by_name.items() if not identity.agent.tokens)
    # A call that waits may hold the token of an agent that has left the policy since.
    proven = f"r.token_agent if r.token_agent in {writer.constant(frozenset(by_name))} else None"
    writer.line(1, f"how = 1; agent = {proven}")
    writer.line(
        1, f"if agent is None: how = 2; agent = r.claimed if r.claimed in {writer.constant(open_agents)} else None"
    )
    writer.line(1, "if agent is None:")
    word = "if"
    for number, identity, condition in telling:
        writer.line(2, f"{word} {condition}: how = {3 + number}; agent = {writer.constant(identity.agent.name)}")
        word = "elif"
    writer.line(2, unknown_agent if word == "if" else f"else: {unknown_agent}")


def _join(writer: _Writer, by_name: Mapping[str, Identity], joining: Sequence[tuple[str, str]]) -> None:
    """Write the team: that of the agent, else the first that the call matches, else none."""
    own = {name: identity.agent.team for name, identity in by_name.items() if identity.agent.team != NO_TEAM}
    writer.line(1, f"team = {writer.constant(own)}.get(agent, {writer.constant(NO_TEAM)})")
    if joining:
        writer.line(1, f"if team == {writer.constant(NO_TEAM)}:")
    word = "if"
    for name, condition in joining:
        writer.line(2, f"{word} {condition}: team = {writer.constant(name)}")
        word = "elif"


_Alike = tuple[
    *tuple[str, str, int, tuple[Api, ...], str],
    *tuple[int, int, int, int, int, int, int, int, int],
    *tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
]
"""Key of a decision once the rules have been asked: the agent, its team, and its clue (0: none).

Dialects and model; for each of `SETTINGS` the number of the rule that set it, from 1 on (0: none); tags, warnings,
budgets.
"""


@final
@attrs.define(eq=False)
class _Treat:
    """Decision after the rules: agent, lane, built-in; and the decider. Done once for calls that are alike."""

    _router: Router
    _identities: Mapping[str, Identity]
    _unknown: Identity
    _lanes: Mapping[str, LaneDefaults]
    _said: Sequence[Mapping[str, tuple[Any, Decider]]]
    """Settings of each rule, from 1 on, with the rule."""
    _agents: Sequence[AgentSettings]
    _teams: Mapping[str, str]
    """Team that calls are in by its condition -> where it is declared."""
    _known: dict[_Alike, Decision]

    def __call__(self, alike: _Alike) -> Decision:
        if len(self._known) >= _ALIKE_MAX:
            self._known.clear()
        treatment = self._known[alike] = self._treatment(*alike)
        return treatment

    def _treatment(
        self,
        agent: str,
        team: str,
        how: int,
        apis: tuple[Api, ...],
        asked: str,
        by_lane: int,
        by_priority: int,
        by_deadline: int,
        by_provider: int,
        by_model: int,
        by_retry: int,
        by_verdict: int,
        by_affinity: int,
        by_max_output: int,
        tags: tuple[str, ...],
        warnings: tuple[str, ...],
        budgets: tuple[str, ...],
    ) -> Decision:
        identity, said = self._identities.get(agent, self._unknown), self._said
        decided = {"agent": self._who(agent, how)}
        if team != identity.agent.team:
            decided["team"] = Decider("team", team, self._teams[team])
        default: tuple[Any, Decider] = identity.lane or (DEFAULT_LANE, BUILT_IN)
        lane, decided["lane"] = said[by_lane]["lane"] if by_lane else default
        in_lane = self._lanes[lane]
        default = identity.priority or in_lane.priority or (0, BUILT_IN)
        priority, decided["priority"] = said[by_priority]["priority"] if by_priority else default
        default = in_lane.deadline_ns or _UNSET
        deadline_ns, decided["deadline"] = said[by_deadline]["deadline"] if by_deadline else default
        provider, decided["provider"] = said[by_provider]["provider"] if by_provider else _UNSET
        model, decided["model"] = said[by_model]["model"] if by_model else _UNSET
        retry, decided["retry"] = said[by_retry]["retry"] if by_retry else _UNSET
        (verdict, words), decided["verdict"] = said[by_verdict]["verdict"] if by_verdict else _ALLOWED
        affinity_ns, decided["affinity"] = said[by_affinity]["affinity"] if by_affinity else _UNSET
        max_output, decided["max-output"] = said[by_max_output]["max-output"] if by_max_output else _UNSET
        if model == asked:
            model = None
        if provider is None:
            provider = self._router.route(apis, model or asked)
        return Decision(
            agent=agent,
            team=team,
            provider=provider,
            group=self._router.group(provider, model or asked) if provider is not None else None,
            lane=lane,
            priority=priority,
            deadline_ns=deadline_ns,
            retry=retry,
            verdict=verdict,
            affinity_ns=affinity_ns,
            max_output=max_output,
            message=words,
            model=model,
            tags=tags,
            warnings=warnings,
            budgets=budgets,
            decided=decided,
        )

    def _who(self, agent: str, how: int) -> Decider:
        if how == 0:
            return BUILT_IN
        if how == 1:
            return Decider("token", agent, self._identities[agent].agent.at)
        if how == 2:
            return Decider("claim", agent, self._identities[agent].agent.at)
        return Decider("agent", agent, self._agents[how - 3].at)


@final
@attrs.define(eq=False)
class _Writer:
    """Source lines and the constants that they name."""

    read: set[str] = attrs.field(init=False, factory=set)
    """Fields, and families of fields, that the expressions so far name."""
    _lines: list[str] = attrs.field(init=False, factory=list)
    _constants: dict[str, Any] = attrs.field(init=False, factory=dict)

    def line(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name

    def expression(self, condition: Condition) -> str:
        match condition:
            case Always():
                return "True"
            case AllOf(items=items):
                return "(" + " and ".join(map(self.expression, items)) + ")"
            case AnyOf(items=items):
                return "(" + " or ".join(map(self.expression, items)) + ")"
            case Negation(item=item):
                return f"(not {self.expression(item)})"
            case Flag(field=field):
                return self._field(field)
            case Relation(field=field, op=op, value=value):
                return f"({self._field(field)} {op} {self.constant(value)})"
            case Member(field=field, values=values, ranges=ranges):
                parts = [f"{self._field(field)} in {self.constant(frozenset(values))}"] if values else []
                for low, high in ranges:
                    parts.append(f"{self.constant(low)} <= {self._field(field)} <= {self.constant(high)}")
                return "(" + (" or ".join(parts) or "False") + ")"
            case Like(field=field, globs=globs):
                return f"{self.constant(any_matcher(globs))}({self._field(field)})" if globs else "False"
            case _:
                assert_never(condition)

    def _field(self, name: str) -> str:
        family, _, rest = name.partition(".")
        self.read.add(family)
        if family in ("header", "meta"):
            return f"{family}({self.constant(rest)}, '')"
        return _FIELDS[name]

    def function(self, name: str) -> Callable[..., Any]:
        space: dict[str, Any] = dict(self._constants)
        # Only `line` and `expression` above write source, from fixed words and names of constants.
        exec(compile("\n".join(self._lines), "<policy>", "exec"), space)  # noqa: S102 - see the module's docstring
        made: Callable[..., Any] = space[name]
        return made
