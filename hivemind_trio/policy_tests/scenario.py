"""From the words of a test to a scenario."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import attrs

from hivemind_trio.model.dates import date_on
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy import Arriving, Behaving, FaultOf, PlanDeclared, Run
from hivemind_trio.sim import (
    EVERY_NS,
    Amount,
    Arrivals,
    ClientBehaviour,
    Fleet,
    NamedError,
    NodesSpec,
    PlanLimit,
    Scenario,
    Shape,
    Storm,
    TimeSpan,
    Traits,
    UpstreamSpec,
    Weather,
)

SECOND_NS: Final = 10**9

CLIENT: Final = ClientBehaviour(name="test", retries=0, silence_ns=600 * SECOND_NS, known_ns=600 * SECOND_NS)
"""Client with the SDKs' timeout and no retries: a failure in a test is then the proxy's."""

LATENCY_NS: Final = (2 * SECOND_NS, 6 * SECOND_NS)
"""Latency of a provider that a test does not describe."""

ROOM: Final = 4
"""Calls allow so many times the answer that they get: agents ask for more than they need."""
MAX_OUT_LEAST: Final = 1_024

TIME: Final = 10 * 60
DATE: Final = date_on(weekday=1)

_WEATHER: Final = {weather.value: weather for weather in Weather}


def stage(run: Run) -> Scenario:
    """Return the scenario of a test: its callers, and providers with the limits that the policy declares."""
    upstreams = {one.provider: one for one in run.upstreams}  # of two that are about one provider the last
    return Scenario(
        fleets=tuple(_fleet(load, run.length_ns) for load in run.loads),
        upstreams=(
            *(_upstream(one, run.length_ns) for one in upstreams.values()),
            UpstreamSpec(traits=_traits(LATENCY_NS), as_declared=True),
        ),
        until_ns=run.length_ns,
        time=next((load.time for load in run.loads if load.time is not None), TIME),
        date=next((load.date for load in run.loads if load.date is not None), DATE),
    )


def nodes_of(run: Run) -> NodesSpec | None:
    """Return the nodes of a test and what happens to them; None: one proxy, which is alone."""
    if run.nodes == 1:
        return None
    away: list[TimeSpan] = []
    cuts: list[tuple[int, TimeSpan]] = []
    kills: list[tuple[int, TimeSpan]] = []
    for fault in run.faults:
        span = TimeSpan(since_ns=fault.from_ns, until_ns=run.length_ns + 1 if fault.to_ns is None else fault.to_ns)
        match fault.of:
            case FaultOf.STORE:
                away.append(span)
            case FaultOf.LINK:
                cuts.append((fault.node, span))
            case FaultOf.NODE:
                kills.append((fault.node, span))
    return NodesSpec(
        count=run.nodes,
        away=tuple(away),
        cuts=tuple(cuts),
        dies=tuple((node, span.since_ns) for node, span in kills),
        returns=tuple((node, span.until_ns) for node, span in kills if span.until_ns <= run.length_ns),
    )


def most_out(load: Arriving) -> int:
    """Tokens of output that its calls allow."""
    return max(MAX_OUT_LEAST, ROOM * load.tokens_out)


def _fleet(load: Arriving, length_ns: int) -> Fleet:
    return Fleet(
        name=load.name,
        arrive=Arrivals(per_second=load.per_second, for_ns=length_ns),
        identities=(load.agent,) if load.agent is not None else (),
        models=(load.model,) if load.model else (),
        tokens_in=Amount(load.tokens_in),
        tokens_max_out=most_out(load),
        tokens_out=load.tokens_out,
        stream=1.0 if load.stream else 0.0,
        client=CLIENT,
        headers=MappingProxyType(dict(load.headers)),
        path=load.path,
        address=load.address,
        turns=Amount(load.turns),
        grows=load.grows,
    )


def _upstream(one: Behaving, length_ns: int) -> UpstreamSpec:
    storms = tuple(
        Storm(
            from_ns=each.from_ns,
            to_ns=length_ns if each.to_ns is None else each.to_ns,
            share=each.share,
            weather=_WEATHER[each.signal] if each.status is None else NamedError(each.signal, each.status),
        )
        for each in one.failing
    )
    plan = tuple(map(_window, one.plan))
    traits = attrs.evolve(_traits(one.latency_ns or LATENCY_NS), storms=storms, plan=plan)
    return UpstreamSpec(provider=one.provider, traits=traits, as_declared=True)


def _window(one: PlanDeclared) -> PlanLimit:
    every_ns = one.every_ns or EVERY_NS[one.span]
    used = round(one.used * WHOLE)
    return PlanLimit(
        span=one.span, tokens=one.tokens, every_ns=every_ns, used=used, resets_ns=one.resets_ns or every_ns
    )


def _traits(latency_ns: tuple[int, int]) -> Traits:
    low, high = latency_ns
    return Traits(
        latency_mean_ns=(low + high) // 2,
        latency_sigma_ns=(high - low) // 2,
        latency_min_ns=low,
        latency_shape=Shape.UNIFORM,
    )
