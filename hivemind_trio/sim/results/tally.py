"""From what was written down to figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from hivemind_trio.model import PlanSpan
from hivemind_trio.policy import Program
from hivemind_trio.sim.agents.fleet import Fleet
from hivemind_trio.sim.bound.lower_bound import Bound
from hivemind_trio.sim.provider.plan_windows import SimulatedPlan
from hivemind_trio.sim.provider.provider import LIMITED, Provider
from hivemind_trio.sim.scenario.population import Key, SimulatedCaller
from hivemind_trio.sim.scenario.scenario import Scenario

from .figures import Figures, FleetFigures, Load, PlanFigures, Spread, UpstreamFigures, Way
from .recorder import RunRecorder, Whose


def tally(
    program: Program,
    scenario: Scenario,
    *,
    way: Way,
    seed: int,
    books: RunRecorder,
    living: Sequence[SimulatedCaller],
    providers: Mapping[Key, Provider],
    bound: Bound,
    now_ns: int,
    ended: int,
    nodes: FleetFigures | None = None,
) -> Figures:
    """As things stand at `now_ns`, with so many agents at their end."""
    agents = [one.agent for one in living]
    own = _distinct(providers.values())
    met = _met(own)
    tokens = sum(provider.tokens_in + provider.tokens_out for provider in own)
    good = sum(one.tokens_good for one in living if not one.agent.dead)
    unfinished = sum(provider.tokens_unfinished for provider in own)
    loads = _waits(books, lambda whose: whose[0])
    refused: Counter[str] = Counter()
    for (_, reason), count in books.refused.items():
        refused[str(reason)] += count
    return Figures(
        nodes=nodes,
        way=way,
        seed=seed,
        agents=len(agents),
        dead=sum(agent.dead for agent in agents),
        undone=len(agents) - ended,
        turns=sum(len(agent.job.turns) for agent in agents),
        turns_done=sum(agent.turns_done for agent in agents),
        calls=books.calls,
        attempts=sum(provider.attempts for provider in own),
        met=dict(met),
        limited=sum(met[trouble.value] for trouble in LIMITED),
        tokens=tokens,
        tokens_wasted=tokens - good - unfinished,
        cost_microusd=books.spent["", ""],
        costs_microusd={name: cost for (kind, name), cost in books.spent.items() if kind == "team"},
        budgets_microusd={name: books.spent["budget", name] for name in program.budgets},
        makespan_ns=now_ns,
        bound_ns=bound.ns,
        bound_binds=bound.binds,
        binding_used=books.series.used.get(bound.binds),
        died_of=dict(Counter(agent.died_of for agent in agents if agent.died_of is not None)),
        refused=dict(refused),
        lanes=_waits(books, lambda whose: whose[1]),
        teams=_waits(books, lambda whose: whose[2]),
        loads={fleet.name: _load(fleet, books, loads, living) for fleet in scenario.fleets},
        upstreams={name: _upstream(name, books, providers, now_ns) for name in program.pools},
        turn=Spread.of(time_ns for times_ns in books.turns_ns.values() for time_ns in times_ns),
        wait=Spread.of(
            (wait_ns for times_ns in books.waits_ns.values() for wait_ns in times_ns),
            unserved=books.unserved.total(),
        ),
        samples=tuple(books.series.samples),
        digest=books.digest,
    )


def _distinct(providers: Iterable[Provider]) -> list[Provider]:
    return list({id(provider): provider for provider in providers}.values())


def _met(providers: Iterable[Provider]) -> Counter[str]:
    met: Counter[str] = Counter()
    for provider in providers:
        met.update({trouble.value: count for trouble, count in provider.met.items()})
    return met


def _waits(books: RunRecorder, of: Callable[[Whose], str | None]) -> dict[str, Spread]:
    waits_ns: dict[str, list[int]] = {}
    unserved: Counter[str] = Counter()
    for whose in dict.fromkeys((*books.waits_ns, *books.unserved)):
        name = of(whose)
        if name is not None:
            waits_ns.setdefault(name, []).extend(books.waits_ns.get(whose, ()))
            unserved[name] += books.unserved[whose]
    return {name: Spread.of(waits_ns[name], unserved=unserved[name]) for name in sorted(waits_ns)}


def _load(fleet: Fleet, books: RunRecorder, waits: Mapping[str, Spread], living: Sequence[SimulatedCaller]) -> Load:
    agents = [one.agent for one in living if one.fleet is fleet]
    refused = {str(reason): count for (load, reason), count in books.refused.items() if load == fleet.name}
    return Load(
        agents=len(agents),
        dead=sum(agent.dead for agent in agents),
        turns=sum(len(agent.job.turns) for agent in agents),
        turns_done=sum(agent.turns_done for agent in agents),
        calls=books.asked[fleet.name],
        denied=sum(refused.values()),
        refused=refused,
        held=books.held[fleet.name],
        died_of=dict(Counter(agent.died_of for agent in agents if agent.died_of is not None)),
        wait=waits.get(fleet.name, Spread()),
        turn=Spread.of(books.turns_ns.get(fleet.name, ())),
    )


def _upstream(name: str, books: RunRecorder, providers: Mapping[Key, Provider], now_ns: int) -> UpstreamFigures:
    own = _distinct(provider for (of, _), provider in providers.items() if of == name)
    levels = [level for sample in books.series.samples if (level := sample.providers.get(name)) is not None]
    caps = [provider.traits.concurrency for provider in own]
    cap = max((each for each in caps if each is not None), default=0)
    busy_ns = sum(provider.busy_ns for provider in own)
    return UpstreamFigures(
        attempts=sum(provider.attempts for provider in own),
        met=dict(_met(own)),
        inflight_max=max(provider.inflight_max for provider in own),
        limit_min=min((level.limit for level in levels), default=0),
        limit_max=max((level.limit for level in levels), default=0),
        trips=books.trips[name],
        utilisation=busy_ns / (cap * now_ns) if cap and now_ns else None,
        plan=_plans((plan for provider in own for plan in provider.plans.values()), now_ns),
    )


def _plans(plans: Iterable[SimulatedPlan], now_ns: int) -> dict[PlanSpan, PlanFigures]:
    """Return the figures of each span, over all accounts that have called."""
    found: dict[PlanSpan, PlanFigures] = {}
    for plan in plans:
        for window in plan.windows:
            window.turn(now_ns)
            other = found.get(window.limit.span, PlanFigures(used_max=0, unused=()))
            found[window.limit.span] = PlanFigures(
                used_max=max(other.used_max, window.used_max), unused=(*other.unused, *window.unused)
            )
    return found
