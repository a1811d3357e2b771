"""The fields that depend on each other: who calls, where a call goes, and what it takes and costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import ceil, floor
from typing import Any, TypeAlias, final

import attrs

from hivemind_trio.model import Api
from hivemind_trio.policy.compile.codegen import Router
from hivemind_trio.policy.language.condition_typing import Condition, as_model, is_routed_as
from hivemind_trio.policy.program.program import NO_TEAM, UNKNOWN_AGENT, Program

from .partition import CELLS_MAX, INFINITE, Classes, Key, Names, Numbers, Texts, Variable, combined

MICRO = 10**6
"""Prices are for so many tokens."""

TRIED_MAX = 512
"""Values of `tokens.in` that are tried one by one."""

Span: TypeAlias = tuple[int, int]
"""From and to, both included."""

Line: TypeAlias = tuple[int, int, int, int]
"""`(a, b, low, high)`: `low <= a * x + b * y <= high`, and neither `a` nor `b` is negative."""


@final
@attrs.frozen
class CallSpace:
    """A policy, as far as it says what the fields of a call are."""

    program: Program
    claims: Mapping[str, Condition]
    """Agents that are known by a condition, in file order -> that condition."""
    teams: Mapping[str, Condition] = attrs.field(factory=dict)
    """Teams that calls are in by a condition, in file order -> that condition."""

    @classmethod
    def of(cls, program: Program, conditions: Mapping[str, Mapping[str, Condition | None]]) -> CallSpace:
        """Return the space of a policy without errors.

        Args:
            conditions: `agent` and `team` -> name -> what stands behind its `when`.
        """
        open_ones = [name for name, agent in program.agents.items() if not agent.tokens]
        agents, teams = conditions["agent"], conditions["team"]
        return cls(
            program,
            {name: one for name in open_ones if (one := agents.get(name)) is not None},
            {name: one for name in program.teams if (one := teams.get(name)) is not None},
        )

    def teams_of(self, agent: str) -> Sequence[tuple[str, bool]]:
        """Return the teams that calls of an agent can be in, and whether by other facts."""
        own = self.program.agent(agent).team
        if own != NO_TEAM or not self.teams:
            return [(own, False)]
        return [*((name, True) for name in self.teams), (NO_TEAM, True)]

    def is_proven(self, name: str) -> bool:
        """Return True if a token makes a caller this agent."""
        agent = self.program.agents.get(name)
        return agent is not None and bool(agent.tokens)

    def is_open(self, name: str) -> bool:
        """Return True if a claim makes a caller this agent."""
        agent = self.program.agents.get(name)
        return agent is not None and not agent.tokens


@final
@attrs.frozen
class Impossible:
    """No call of these cells of the callers meets the condition, or, with `met` False, fails it."""

    cells: int
    world: int
    condition: Condition
    met: bool


# ---- who calls ----


def callers(worlds: Sequence[CallSpace]) -> tuple[Variable, list[Impossible]]:
    """Return the variable of callers, `agent` and `team` of every policy, and its impossible combinations.

    A caller has one token or one claim for all policies, or neither. In a policy that does not know it, it is the first
    agent whose condition it meets, or `unknown`. If that names no team, the call is in the first one whose condition it
    meets, or in none.
    """
    names = list(dict.fromkeys(name for world in worlds for name in world.program.agents))
    cells: list[tuple[Mapping[Key, int], Mapping[str, Any]]] = []
    fell: list[Sequence[_Caller]] = []
    agents = [(*world.program.agents, UNKNOWN_AGENT) for world in worlds]
    teams = [
        list(dict.fromkeys(team for name in agents[k] for team, _ in world.teams_of(name)))
        for k, world in enumerate(worlds)
    ]
    for facts in _introductions(names, worlds):
        for chosen in product(*(_callers(world, facts) for world in worlds)):
            where: dict[Key, int] = {}
            for k, one in enumerate(chosen):
                where["agent", k], where["team", k] = agents[k].index(one.agent), teams[k].index(one.team)
            cells.append((where, facts))
            fell.append(chosen)
    classes: dict[Key, Classes] = {("agent", k): Names(list(one)) for k, one in enumerate(agents)}
    classes |= {("team", k): Names(one) for k, one in enumerate(teams)}
    variable = combined(classes, cells)
    impossible: list[Impossible] = []
    for k, world in enumerate(worlds):
        found = [one[k] for one in fell]
        impossible += _first_match([one.agent if one.is_agent_told else None for one in found], world.claims, k)
        impossible += _first_match([one.team if one.is_team_told else None for one in found], world.teams, k)
    return variable, impossible


@final
@attrs.frozen
class _Caller:
    """Agent and team of a caller in one policy."""

    agent: str
    is_agent_told: bool
    """True if the conditions of agents decide."""
    team: str
    is_team_told: bool
    """True if the conditions of teams decide."""


def _callers(world: CallSpace, facts: Mapping[str, Any]) -> list[_Caller]:
    return [
        _Caller(agent, told, team, joined)
        for agent, told in _agents(world, facts)
        for team, joined in world.teams_of(agent)
    ]


def _first_match(chosen: Sequence[str | None], conditions: Mapping[str, Condition], world: int) -> Iterator[Impossible]:
    """Yield cells that contradict conditions of which the first that is met decides.

    Args:
        chosen: Name in each cell, or one without a condition if none is met; None: they do not decide there.
    """
    later = sum(1 << number for number, name in enumerate(chosen) if name is not None)
    for name, condition in conditions.items():
        this = sum(1 << number for number, one in enumerate(chosen) if one == name)
        later &= ~this
        if this:
            yield Impossible(this, world, condition, met=False)
        if later:
            yield Impossible(later, world, condition, met=True)


def _introductions(names: Sequence[str], worlds: Sequence[CallSpace]) -> Iterator[Mapping[str, Any]]:
    """Yield the facts by which a caller can introduce itself."""
    yield {}
    for name in names:
        if any(world.is_proven(name) for world in worlds):
            yield {"token_agent": name}
        if any(world.is_open(name) for world in worlds):
            yield {"claimed": name}


def _agents(world: CallSpace, facts: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the agents that a caller can be in a policy, and whether because of other facts."""
    for fact, name in facts.items():
        if world.is_proven(name) if fact == "token_agent" else world.is_open(name):
            return [(name, False)]
    return [*((name, True) for name in world.claims), (UNKNOWN_AGENT, True)]


# ---- where a call goes, what it takes and costs ----


def routes(
    worlds: Sequence[CallSpace], models: Texts, several: Sequence[tuple[Api, ...]], also: Sequence[tuple[int, str]] = ()
) -> list[tuple[int, tuple[Api, ...], tuple[str, ...]]]:
    """Return model class, dialects, and the provider in each policy; empty: none. Each combination of providers once.

    Args:
        several: The sets of several dialects that a call may have.
        also: Policies and other models; the provider of each follows those of the call's own model.
    """
    routers = [Router.of(world.program.providers) for world in worlds]
    either = list(dict.fromkeys(one.api for world in worlds for one in world.program.providers.values()))
    unspoken = [(api,) for api in Api if api not in either][:1]
    # A call may be of several dialects; which it is decides about all of these providers together.
    dialects = list(dict.fromkeys([*((api,) for api in either), *several, *unspoken, ()]))
    found: dict[tuple[int, tuple[str, ...]], tuple[Api, ...]] = {}
    others = {apis: tuple(routers[k].route(apis, other) or "" for k, other in also) for apis in dialects}
    for number, model in enumerate(models.examples):
        for apis in dialects:
            own = tuple(router.route(apis, model) or "" for router in routers)
            found.setdefault((number, own + others[apis]), apis)
    return [(number, apis, providers) for (number, providers), apis in found.items()]


def billing(
    worlds: Sequence[CallSpace],
    classes: Mapping[Key, Classes],
    several: Sequence[tuple[Api, ...]],
) -> Variable | None:
    """Return model, provider, tokens and cost, as far as they are among `classes`; None for too many cells."""
    models = classes.get(("model", 0))
    spans = [_spans(classes.get((name, 0))) for name in ("tokens.in", "tokens.max-out", "tokens.total")]
    costs = [_spans(classes.get(("cost", k))) for k in range(len(worlds))]
    also = [key for key in classes if is_routed_as(key[0])]
    ways: list[tuple[int, tuple[Api, ...] | None, tuple[str, ...]]] = [(0, None, ())]
    if isinstance(models, Texts):
        if ("provider", 0) in classes:
            ways = [*routes(worlds, models, several, [(k, as_model(name)) for name, k in also])]
        else:
            ways = [(number, None, ()) for number in range(len(models))]
    if len(ways) * _product(spans) * _product(costs) > CELLS_MAX * 4:
        return None
    counts = any(name not in ("model", "provider") and not is_routed_as(name) for name, _ in classes)
    taken: dict[tuple[tuple[int, int], ...], list[tuple[Mapping[Key, int], Mapping[str, Any] | None]]] = {}
    cells: list[tuple[Mapping[Key, int], Mapping[str, Any] | None]] = []
    for number, apis, providers in ways:
        facts: dict[str, Any] = {}
        where: dict[Key, int] = {}
        if isinstance(models, Texts):
            where["model", 0], facts["model"] = number, models.examples[number]
        if apis is not None:
            facts["apis"] = apis
            keys = [*(("provider", k) for k in range(len(worlds))), *also]
            for key, name in zip(keys, providers, strict=True):
                names = classes[key]
                assert isinstance(names, Names)
                where[key] = names.names.index(name)
        if not counts:
            cells.append((where, facts))
            continue
        sent = providers[: len(worlds)] or [None] * len(worlds)
        prices = tuple(_prices(world, facts.get("model", ""), to) for world, to in zip(worlds, sent, strict=True))
        if prices not in taken:
            taken[prices] = list(_amounts(spans, costs, prices, classes))
        for amount, more in taken[prices]:
            cells.append(({**where, **amount}, None if more is None else {**facts, **more}))
        if len(cells) > CELLS_MAX:
            return None
    return combined(classes, cells)


def _spans(classes: Classes | None) -> list[Span]:
    """Return one class of all numbers that no condition reads."""
    if classes is None:
        return [(0, 2 * INFINITE)]
    assert isinstance(classes, Numbers)
    return [classes.span(number) for number in range(len(classes))]


def _product(spans: Sequence[Sequence[Span]]) -> int:
    found = 1
    for one in spans:
        found *= len(one)
    return found


def _prices(world: CallSpace, model: str, provider: str | None) -> tuple[int, int]:
    price = world.program.price(model, provider)
    return (0, 0) if price is None else (price.input or 0, price.output or 0)


def _amounts(
    spans: Sequence[Sequence[Span]],
    costs: Sequence[Sequence[Span]],
    prices: Sequence[tuple[int, int]],
    classes: Mapping[Key, Classes],
) -> Iterator[tuple[Mapping[Key, int], Mapping[str, Any] | None]]:
    """Every combination of tokens and costs that a call can have at these prices."""
    names = ("tokens.in", "tokens.max-out", "tokens.total")
    for chosen in product(*(range(len(one)) for one in (*spans, *costs))):
        tokens_in, tokens_out, total, *paid = (
            one[number] for one, number in zip((*spans, *costs), chosen, strict=True)
        )
        lines = [(1, 1, *total)]
        lines += [
            (first, second, low * MICRO, high * MICRO + MICRO - 1)
            for (first, second), (low, high) in zip(prices, paid, strict=True)
        ]
        found = amounts(tokens_in, tokens_out, lines)
        if found is None:
            continue
        keys = [*((name, 0) for name in names), *(("cost", k) for k in range(len(costs)))]
        where = {key: number for key, number in zip(keys, chosen, strict=True) if key in classes}
        yield where, {"tokens_in": found[0], "tokens_max_out": found[1]} if found else None


def amounts(first: Span, second: Span, lines: Sequence[Line]) -> tuple[int, int] | tuple[()] | None:
    """Two whole numbers within their spans that each line allows.

    None: there are none. Empty: none was found, though there are fractions; between steep prices a gap can be so
    narrow that no whole number of tokens lies in it.
    """
    if any(a * first[1] + b * second[1] < low or a * first[0] + b * second[0] > high for a, b, low, high in lines):
        return None
    found = _first_of(_likely(first, second, lines), first, second, lines)
    if found is not None:
        return found
    corners = list(_corners(first, second, lines))
    if not corners:
        return None
    least, most = ceil(min(corners)), floor(max(corners))
    step = max(1, (most - least) // TRIED_MAX)
    found = _first_of(range(least, most + 1, step), first, second, lines)
    return found if found is not None or step == 1 else ()


def _likely(first: Span, second: Span, lines: Sequence[Line]) -> Iterator[int]:
    """Yield the points at which a line meets an edge."""
    yield from first
    for a, b, low, high in lines:
        if a:
            for y in second:
                yield -((b * y - low) // a)
                yield (high - b * y) // a


def _first_of(tried: Iterable[int], first: Span, second: Span, lines: Sequence[Line]) -> tuple[int, int] | None:
    for x in tried:
        if not first[0] <= x <= first[1]:
            continue
        least, most = second
        for a, b, low, high in lines:
            if b:
                least = max(least, -((a * x - low) // b))
                most = min(most, (high - a * x) // b)
            elif not low <= a * x <= high:
                most = -1
        if least <= most:
            return x, least
    return None


def _corners(first: Span, second: Span, lines: Sequence[Line]) -> Iterator[Fraction]:
    """Yield the first coordinates of the corners of what is within all bounds."""
    bounds = [(1, 0, *first), (0, 1, *second), *lines]
    edges = [(a, b, bound) for a, b, *both in bounds for bound in both]
    for (a, b, c), (d, e, f) in combinations(edges, 2):
        if a * e != b * d:
            x, y = Fraction(c * e - b * f, a * e - b * d), Fraction(a * f - c * d, a * e - b * d)
            if all(low <= p * x + q * y <= high for p, q, low, high in bounds):
                yield x
