"""What a call takes of the proxy and of the harness on this machine, so that the simulator can be told.

Four small fleets against a provider that takes next to no time itself, both ways: one agent alone, twenty at once,
twenty that ask once, and streams. CPU is what queues form for; what one agent alone waits beyond that is the wire's.
"""

from __future__ import annotations

from time import process_time_ns
from typing import Final, final

import attrs

from bench.simulated.worlds import compiled
from hivemind_trio.sim import Amount, Effort, Efforts, Fleet, Scenario, Traits, UpstreamSpec, Way

from .measured import Measured
from .sockets import staged

EVENTS: Final = 40
"""Of a streamed answer."""

STREAMED_NS: Final = 400_000_000

POLICY: Final = """
provider simulated {
  api anthropic; base "http://127.0.0.1:9"; concurrency 64
  limits { requests 100k/min; tokens 1G/min }
}
"""


@final
@attrs.frozen(kw_only=True)
class _Took:
    """Of one small fleet."""

    measured: Measured
    others_ns: int
    """CPU of this process: agents and providers."""

    def each(self, ns: int) -> int:
        """Per call."""
        return ns // max(1, self.measured.calls)


async def calibrate(*, small: bool = False) -> dict[Way, Efforts]:
    """Ten seconds. Nothing else of this process may be under way."""
    scale = 10 if small else 1
    found = {}
    for way in Way:
        alone = await _measure(way, agents=1, turns=150 // scale)
        burst = await _measure(way, agents=20 // scale, turns=10)
        once = await _measure(way, agents=20, turns=1)
        streams = await _measure(way, agents=4, turns=10 // scale, stream=True)
        others, proxy = (_effort(burst, once, streams, proxy=proxy) for proxy in (False, True))
        wire_ns = alone.measured.turn.p50 - others.call_ns - proxy.call_ns
        found[way] = Efforts(proxy=proxy, others=others, wire_ns=max(0, wire_ns))
    return found


def _effort(burst: _Took, once: _Took, streams: _Took, *, proxy: bool) -> Effort:
    def cpu_ns(took: _Took) -> int:
        return took.each(took.measured.proxy_cpu_ns if proxy else took.others_ns)

    call_ns = cpu_ns(burst)
    return Effort(
        call_ns=call_ns,
        first_ns=max(0, cpu_ns(once) - call_ns),
        event_ns=max(0, cpu_ns(streams) - call_ns) // EVENTS,
    )


async def _measure(way: Way, *, agents: int, turns: int, stream: bool = False) -> _Took:
    latency_ns = STREAMED_NS if stream else 0
    traits = Traits(
        latency_mean_ns=latency_ns,
        latency_sigma_ns=0,
        latency_min_ns=0,
        tokens_out_mean=EVENTS * 10,
        tokens_out_sigma=0,
    )
    fleet = Fleet(name="agent", count=agents, turns=Amount(turns), stream=float(stream))
    scenario = Scenario(name="calibration", fleets=(fleet,), upstreams=(UpstreamSpec(traits=traits),))
    async with staged(compiled(POLICY), scenario, 1, way) as stage:
        before_ns = process_time_ns()
        measured = await stage.run()
        took_ns = process_time_ns() - before_ns
    assert measured.turns_done == agents * turns, measured
    return _Took(measured=measured, others_ns=took_ns)
