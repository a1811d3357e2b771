"""`hivemind-trio demo`: the incident without the proxy, and with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Final

import attrs
import trio

from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.sim import Agent, Trouble

from .client import live
from .display import JsonShow, Show, TextShow
from .incident import MS, Incident, IncidentFigures
from .provider import SimulatedProvider

UPSTREAM: Final = SecretRef(SecretSource.ENV, "HIVEMIND_DEMO_UPSTREAM")
"""Variable of `policies/demo.hmp` for the provider's address; the demo knows the port only once it listens."""


def run(*, quick: bool = False, as_json: bool = False, seed: int = 7, color: bool = False) -> int:
    """Run the demo on standard output; the exit status: 0 if no agent died behind the proxy.

    Args:
        quick: Fewer turns and shorter answers.
    """
    scenario = Incident(seed=seed)
    if quick:
        traits = attrs.evolve(
            scenario.traits, latency_mean_ns=300 * MS, latency_sigma_ns=80 * MS, latency_min_ns=100 * MS
        )
        scenario = Incident(seed=seed, turns=2, traits=traits, start_max_ns=600 * MS, think_ns=(50 * MS, 200 * MS))
    show: Show = JsonShow() if as_json else TextShow(color=color)
    _direct, proxied = trio.run(compare, scenario, show)
    return 0 if proxied.dead == 0 else 1


async def compare(scenario: Incident, show: Show) -> tuple[IncidentFigures, IncidentFigures]:
    """Send the fleet straight at the provider, then the same fleet through the proxy."""
    show.begin(scenario)
    async with _provider(scenario) as provider:
        direct = await _fleet(scenario, provider, show, "straight at the provider", lambda _agent: provider.url)
    async with _provider(scenario) as provider, _proxy(provider.url) as url:
        # The one thing that changes for an agent is its base URL; the `/@name` in it says who is calling.
        proxied = await _fleet(scenario, provider, show, "through the proxy", lambda agent: f"{url}/@{agent}")
    show.end(scenario, direct, proxied)
    return direct, proxied


@asynccontextmanager
async def _provider(scenario: Incident) -> AsyncIterator[SimulatedProvider]:
    async with trio.open_nursery() as nursery:
        provider = SimulatedProvider(scenario.traits, scenario.seed)
        await nursery.start(provider.run)
        yield provider
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _proxy(upstream: str) -> AsyncIterator[str]:
    """Run the proxy of `serve` on a free port, with the shipped policy; yield its base URL."""
    # Here and not above: who wants the simulated provider alone should not load a compiler and a server.
    from hivemind_trio.host import DiskFiles
    from hivemind_trio.listen import bind
    from hivemind_trio.policy import check
    from hivemind_trio.serve import open_house

    checked = check(str(shipped_policies() / "demo.hmp"), DiskFiles())
    assert checked.program is not None, checked.diagnostics
    async with open_house(checked.program, {UPSTREAM: upstream}, bind("127.0.0.1", 0)) as house:
        yield house.url


def shipped_policies() -> Path:
    """Return the folder of the shipped policies: in an installed package, or beside it in a source tree."""
    package = Path(str(resources.files("hivemind_trio")))
    inside = package / "policies"
    return inside if inside.is_dir() else package.parent / "policies"


async def _fleet(
    scenario: Incident, provider: SimulatedProvider, show: Show, title: str, base: Callable[[str], str]
) -> IncidentFigures:
    agents = [Agent(job) for job in scenario.jobs()]
    started_s = trio.current_time()
    async with trio.open_nursery() as audience:
        audience.start_soon(show.watch, title, agents, provider.world)
        async with trio.open_nursery() as fleet:
            for agent in agents:
                fleet.start_soon(live, agent, base(agent.job.agent))
        ended_s = trio.current_time()
        audience.cancel_scope.cancel()
    world, bound = provider.world, scenario.bound
    return IncidentFigures(
        agents=len(agents),
        dead=sum(agent.dead for agent in agents),
        turns=sum(len(agent.job.turns) for agent in agents),
        turns_done=sum(agent.turns_done for agent in agents),
        tokens_spent=world.tokens_in + world.tokens_out,
        tokens_wasted=sum(agent.tokens_wasted for agent in agents),
        seconds=round(ended_s - started_s, 3),
        bound_seconds=round(bound.ns / 1e9, 3),
        bound_binds=bound.binds,
        inflight_max=world.inflight_max,
        overloads=world.met[Trouble.OVERLOAD],
        attempts=world.attempts,
        met={trouble.value: world.met[trouble] for trouble in Trouble if trouble in world.met},
    )
