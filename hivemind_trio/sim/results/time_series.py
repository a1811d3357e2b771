"""Time series of limits, queues and calls in flight, in a bounded number of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, final

import attrs

from hivemind_trio.scheduler import Snapshot
from hivemind_trio.sim.provider.provider import Provider
from hivemind_trio.sim.scenario.population import Key

Providers = Mapping[Key, Provider]

SAMPLES_MAX: Final = 1_000

_STEP_NS: Final = 50_000_000


@final
@attrs.frozen
class Level:
    """One provider at one time."""

    limit: int
    inflight: int
    waiting: int
    troubles: int = 0
    """Attempts that have come to no good so far."""


@final
@attrs.frozen
class Sample:
    """All providers at one time."""

    at_ns: int
    providers: Mapping[str, Level]


@final
@attrs.define(eq=False)
class Series:
    """Samples in equal steps; where they become too many, every second one is dropped and the step doubles."""

    samples: list[Sample] = attrs.field(init=False, factory=list)
    next_ns: int = attrs.field(init=False, default=0)
    """When the next one is wanted."""
    used: dict[str, float] = attrs.field(init=False, factory=dict)
    """Slots and dimensions -> what part was used of all that there had been, when somebody was seen waiting last."""
    _step_ns: int = attrs.field(init=False, default=_STEP_NS)

    def add(self, snapshot: Snapshot, providers: Providers) -> None:
        """Take one."""
        pools, met = snapshot.pools, dict.fromkeys(snapshot.pools, 0)
        for (name, _), provider in _distinct(providers):
            if name in pools:
                met[name] += sum(provider.met.values())
                if pools[name].waiting:
                    self.used |= provider.used(snapshot.now_ns)
        levels = {name: Level(pool.limit, pool.inflight, pool.waiting, met[name]) for name, pool in pools.items()}
        self._append(snapshot.now_ns, levels)

    def add_direct(self, now_ns: int, providers: Providers) -> None:
        """Take one where nobody limits or queues anything."""
        inflight: Counter[str] = Counter()
        met: Counter[str] = Counter()
        for (name, _), provider in _distinct(providers):
            inflight[name] += provider.inflight
            met[name] += sum(provider.met.values())
        self._append(now_ns, {name: Level(0, inflight[name], 0, met[name]) for name, _ in providers})

    def _append(self, now_ns: int, pools: Mapping[str, Level]) -> None:
        self.samples.append(Sample(now_ns, pools))
        if len(self.samples) > SAMPLES_MAX:
            del self.samples[1::2]
            self._step_ns *= 2
        self.next_ns = now_ns + self._step_ns


def _distinct(providers: Providers) -> list[tuple[Key, Provider]]:
    """Each once: several groups of models may share one."""
    return list({id(provider): (key, provider) for key, provider in providers.items()}.values())
