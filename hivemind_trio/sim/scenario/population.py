"""Population of a world: agents as callers of a policy, and the providers that they call."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.dialects import DIALECTS
from hivemind_trio.model import Api, Request
from hivemind_trio.model.dates import MINUTES, later, weekday_of
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import REMAINING
from hivemind_trio.sim.agents.agent import Agent, Turn
from hivemind_trio.sim.agents.fleet import Fleet
from hivemind_trio.sim.provider.latency_and_faults import service_once
from hivemind_trio.sim.provider.provider import Provider

from .scenario import Scenario

SECOND_NS: Final = 10**9
MINUTE_NS: Final = 60 * SECOND_NS

Key = tuple[str, str | None]
"""A provider, and one of its limits groups."""


@final
@attrs.define(eq=False)
class SimulatedCaller:
    """An agent at work."""

    agent: Agent
    fleet: Fleet
    identity: str | None
    """The declared agent that it proves to be."""
    model: str
    apis: tuple[Api, ...]
    path: str
    caller: str
    """Identity for fairness, where the policy does not know it by name."""
    misjudges: float | None = None
    """Factor by which it misstates how many calls remain; None: it does not say."""
    requests: dict[int, tuple[int, Request]] = attrs.field(factory=dict, repr=False)
    """Turn -> the minute in which it was last asked for, and what was; of one policy."""
    chance: Random | None = attrs.field(init=False, default=None)
    """Random source of its client's pauses; used only after failures."""
    began_ns: int = attrs.field(init=False, default=0)
    """Its turn under way."""
    retried: int = attrs.field(init=False, default=0)
    broken: int = attrs.field(init=False, default=0)
    tokens_good: int = attrs.field(init=False, default=0)
    """Tokens of completed turns."""

    def anew(self) -> SimulatedCaller:
        """Return the same one, before it has done anything."""
        return SimulatedCaller(
            agent=Agent(self.agent.job),
            fleet=self.fleet,
            identity=self.identity,
            model=self.model,
            apis=self.apis,
            path=self.path,
            caller=self.caller,
            misjudges=self.misjudges,
            requests=self.requests,
        )

    def request(self, program: Program, scenario: Scenario, turn: Turn, now_ns: int) -> Request:
        """Return the facts of one request: the same ones whenever it is made, but for the time."""
        minutes, seconds = scenario.time + now_ns // MINUTE_NS, now_ns // SECOND_NS % 60
        made = self.requests.get(turn.number)
        if made is not None and made[0] == minutes:
            return made[1]
        request = self._made(program, scenario, turn, minutes, seconds)
        self.requests[turn.number] = minutes, request
        return request

    def _made(self, program: Program, scenario: Scenario, turn: Turn, minutes: int, seconds: int) -> Request:
        if turn.recorded is not None:
            return _made_again(turn.recorded.request, program)
        tokens_in = turn.ask.tokens_in
        headers = self.fleet.headers
        if self.misjudges is not None:
            left = len(self.agent.job.turns) - turn.number + 1
            headers = {**headers, REMAINING: str(max(1, round(left * self.misjudges)))}
        date = later(scenario.date, minutes // MINUTES)
        return Request(
            apis=self.apis,
            token_agent=self.identity if self.identity in program.agents else None,
            claimed=self.identity,
            model=self.model,
            path=self.path,
            stream=turn.stream,
            tokens_in=tokens_in,
            tokens_max_out=turn.tokens_max_out,
            cost_microusd=program.estimated_cost(self.apis, self.model, tokens_in, turn.tokens_max_out),
            hour=minutes // 60 % 24,
            minute=minutes % 60,
            second=seconds,
            weekday=weekday_of(date),
            date=date,
            client_address=self.fleet.address,
            headers=headers,
        )


def populate(program: Program, scenario: Scenario, seed: int) -> Iterator[SimulatedCaller]:
    """All agents, those of one fleet after those of the one before."""
    for fleet in scenario.fleets:
        identities = tuple(program.agents) if fleet.identities is None else fleet.identities
        models = fleet.models or (usual_model(program),)
        if fleet.recorded:
            yield from _returning(fleet)
            continue
        apis = [_api(program, model) for model in models]
        for number, job in enumerate(fleet.jobs(seed)):
            api = apis[number % len(apis)]
            yield SimulatedCaller(
                agent=Agent(job),
                fleet=fleet,
                identity=identities[number % len(identities)] if identities else None,
                model=models[number % len(models)],
                apis=(api,),
                path=fleet.path or DIALECTS[api].usual_path,
                caller=job.agent,
                misjudges=fleet.misjudges(job.agent, seed),
            )


def _returning(fleet: Fleet) -> Iterator[SimulatedCaller]:
    """Agents that say of each call what they said of it then."""
    for job in fleet.recorded:
        first = job.turns[0].recorded
        assert first is not None
        request = first.request
        yield SimulatedCaller(
            agent=Agent(job),
            fleet=fleet,
            identity=request.token_agent,
            model=request.model,
            apis=request.apis,
            path=request.path,
            caller=first.caller,
        )


def _made_again(request: Request, program: Program) -> Request:
    """Return a recorded request before another policy: at its prices, and proven to be only whom it has."""
    tokens = request.tokens_in, request.tokens_max_out
    return attrs.evolve(
        request,
        token_agent=request.token_agent if request.token_agent in program.agents else None,
        cost_microusd=program.estimated_cost(request.apis, request.model, *tokens),
    )


def providers(program: Program, scenario: Scenario, seed: int) -> dict[Key, Provider]:
    """One for each of the policy's; where the policy's words are the truth, one for each of its limits groups."""
    found: dict[Key, Provider] = {}
    for name, declared in program.pools.items():
        traits = scenario.traits(program, name, None, seed)
        shared = Provider(traits=traits, seed=seed, service=service_once)
        for group in dict.fromkeys([None, *(group.glob for group in declared.groups)]):
            own = group is not None and scenario.upstream(name).as_declared
            traits = scenario.traits(program, name, group, seed)
            found[name, group] = Provider(traits=traits, seed=seed, service=service_once) if own else shared
    return found


def usual_model(program: Program) -> str:
    """One that the policy's first provider serves."""
    provider = next(iter(program.providers.values()))
    usual = DIALECTS[provider.api].usual_model or "model"
    if not provider.serves or program.decide(Request(apis=(provider.api,), model=usual)).provider == provider.name:
        return usual
    return provider.serves[0].replace("*", "").rstrip("-.:") or usual


def _api(program: Program, model: str) -> Api:
    """Return the dialect in which such a model is asked for: that of the provider which says that it serves it."""
    apis = tuple(dict.fromkeys(provider.api for provider in program.providers.values()))
    for api in Api:
        usual = DIALECTS[api].usual_model
        if api in apis and usual and usual.split("-")[0] == model.split("-")[0]:
            return api
    provider = program.decide(Request(apis=apis, model=model)).provider
    return program.providers[provider].api if provider is not None else apis[0]
