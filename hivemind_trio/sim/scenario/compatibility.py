"""Compatibility of a scenario with policies: the same agents, providers and models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import attrs

from hivemind_trio.model import Verdict
from hivemind_trio.policy import Program
from hivemind_trio.sim.agents.fleet import Fleet

from .population import populate, usual_model
from .scenario import Scenario


def misfits(scenario: Scenario, programs: Sequence[Program]) -> Iterator[str]:
    """Yield the names of the scenario that no policy has, each in a line with those that exist.

    Such a scenario would run, and say something of another fleet: callers whom nobody knows, providers that are as good
    as gold, calls that are all refused.
    """
    agents = _listed(program.agents for program in programs)
    providers = _listed(program.providers for program in programs)
    accounts = _listed(program.pools for program in programs)
    for number, upstream in enumerate(scenario.upstreams, start=1):
        if not any(fnmatchcase(name, upstream.provider) for name in (*providers, *accounts)):
            yield f"upstream[{number}].provider: no provider is `{upstream.provider}`; {_there('there is', providers)}"
    serves = _listed(one.serves for program in programs for one in program.providers.values())
    for fleet in scenario.fleets:
        for identity in dict.fromkeys(fleet.identities or ()):
            if identity not in agents:
                yield f"agents `{fleet.name}`: no agent is `{identity}`; {_there('there is', agents)}"
        for model in _unserved(fleet, scenario, programs):
            yield f"agents `{fleet.name}`: no provider serves `{model}`; {_there('served is', serves)}"


def strangers(scenario: Scenario, programs: Sequence[Program]) -> tuple[str, ...]:
    """Agents whose tokens recorded calls carried, and whom not all of the policies have."""
    turns = (turn for fleet in scenario.fleets for job in fleet.recorded for turn in job.turns)
    named = dict.fromkeys(turn.recorded.request.token_agent for turn in turns if turn.recorded is not None)
    return tuple(name for name in named if name is not None and not all(name in one.agents for one in programs))


def settled(scenario: Scenario, programs: Sequence[Program]) -> Scenario:
    """Return the scenario with what it leaves to the policy said, so that the work is the same under all of them.

    Its agents are those that any of the policies declares, in the order of the first; its model is the first's usual.
    """
    agents, model = _listed(program.agents for program in programs), usual_model(programs[0])
    return attrs.evolve(
        scenario,
        fleets=tuple(
            attrs.evolve(
                fleet,
                identities=agents if fleet.identities is None else fleet.identities,
                models=fleet.models or (model,),
            )
            if not fleet.recorded
            else fleet
            for fleet in scenario.fleets
        ),
    )


def _unserved(fleet: Fleet, scenario: Scenario, programs: Sequence[Program]) -> Iterator[str]:
    """Models that it asks for and nobody serves; of recorded calls, those that a provider took then."""
    if not fleet.recorded:
        wanted = dict.fromkeys(fleet.models)
        yield from (each for each in wanted if not any(_served(each, fleet, scenario, one) for one in programs))
        return
    asked: dict[str, bool] = {}
    for program in programs:
        for living in populate(program, attrs.evolve(scenario, fleets=(fleet,)), 1):
            for turn in living.agent.job.turns:
                assert turn.recorded is not None
                model = turn.recorded.request.model
                if turn.recorded.attempts and not asked.get(model):
                    decided = program.decide(living.request(program, scenario, turn, 0))
                    asked[model] = decided.provider is not None or decided.verdict is not Verdict.ALLOW
    yield from (model for model, served in asked.items() if not served)


def _served(model: str, fleet: Fleet, scenario: Scenario, program: Program) -> bool:
    """Return True if a call of the fleet for the model goes anywhere, or is denied by name."""
    for living in populate(program, attrs.evolve(scenario, fleets=(attrs.evolve(fleet, models=(model,)),)), 1):
        for turn in living.agent.job.turns:
            treatment = program.decide(living.request(program, scenario, turn, 0))
            if treatment.provider is not None or treatment.verdict is not Verdict.ALLOW:
                return True
    return False


def _listed(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in names for name in each))


def _there(begins: str, names: Sequence[str]) -> str:
    return f"{begins} {', '.join(f'`{name}`' for name in names)}" if names else f"{begins} none"
