"""Work of a scenario under a policy and a seed, and its lower bound."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Verdict
from hivemind_trio.policy import Program
from hivemind_trio.sim.scenario.population import SimulatedCaller, populate, providers
from hivemind_trio.sim.scenario.scenario import Scenario

from .lower_bound import Bound, lower_bound_of_several


@final
@attrs.define(eq=False)
class Work:
    """The same both ways, so worlds of one policy, scenario and seed may share it."""

    program: Program
    scenario: Scenario
    seed: int
    _population: list[SimulatedCaller] = attrs.field(init=False)
    _bound: Bound | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._population = list(populate(self.program, self.scenario, self.seed))

    def living(self) -> list[SimulatedCaller]:
        """All agents, before they have done anything."""
        return [one.anew() for one in self._population]

    @property
    def bound(self) -> Bound:
        """The least time that any scheduler could need, if every call goes where the rules send it first."""
        if self._bound is None:
            self._bound = self._bounded()
        return self._bound

    def _bounded(self) -> Bound:
        there = providers(self.program, self.scenario, self.seed)
        names = {id(provider): f"{name}/{group}" for (name, group), provider in there.items()}
        places: dict[str, str] = {}
        for living in self._population:
            for turn in living.agent.job.turns:
                treatment = self.program.decide(living.request(self.program, self.scenario, turn, 0))
                # Any account of a provider may serve it, so it takes no time here.
                place = there.get((treatment.provider or "", treatment.group))
                if place is not None and treatment.verdict is not Verdict.DENY:
                    places[turn.prompt] = names[id(place)]
        jobs = [living.agent.job for living in self._population]
        traits = {names[id(provider)]: provider.traits for provider in there.values()}
        return lower_bound_of_several(jobs, traits, lambda _job, turn: places.get(turn.prompt, ""), self.seed)


def bound_of(program: Program, scenario: Scenario, seed: int) -> Bound:
    """Return the least time for work that is not run."""
    return Work(program, scenario, seed).bound
