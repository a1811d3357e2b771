"""The scheduler with parts of it switched off: by a policy's settings where there are any, else by `Features`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, final

import attrs

from hivemind_trio.scheduler import Features
from hivemind_trio.sim import Scenario

from .worlds import RESETS, shipped, with_resets


@final
@attrs.frozen(kw_only=True)
class Switches:
    """What is on. Off is what a setting's absence or opposite does, or what `Features` says."""

    caps: bool = True
    """`concurrency` is what the policy says; off: a thousand."""
    aimd: bool = True
    """It adapts within that."""
    quotas: bool = True
    """`limits` are declared; off: none, and headers are not believed either."""
    headers: bool = True
    """Answers correct them."""
    retry: bool = True
    breaker: bool = True
    """Off: it would take a thousand failures in a second."""
    fairness: bool = True
    """Agents take turns; off: `objective latency`, which is first come, first served where calls are alike."""
    bypass: bool = True
    patience: bool = True
    prefixes: bool = True
    overdue: bool = True

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in attrs.fields(cls)]

    @classmethod
    def settings(cls) -> list[str]:
        """Those that a policy can switch."""
        parts = {field.name for field in attrs.fields(Features)}
        return [name for name in cls.names() if name not in parts]

    @classmethod
    def variants(cls, names: Sequence[str]) -> dict[str, Switches]:
        """All of these on, each off by itself, each on by itself, and none. What is not named stays on."""
        off = dict.fromkeys(names, False)
        return {
            "full": cls(),
            **{f"without {name}": cls(**{name: False}) for name in names},
            **{f"{name} alone": cls(**(off | {name: True})) for name in names},
            "nothing": cls(**off),
        }

    @property
    def parts(self) -> Features:
        return Features(**{field.name: getattr(self, field.name) for field in attrs.fields(Features)})


def ablated(scenario: Scenario, on: Switches) -> str:
    """The scenario's own policy with these settings."""
    policy = scenario.policy or ""
    declared = re.search(r"^ *concurrency +(?:\d+\.\.)?(\d+).*$", policy, re.MULTILINE)
    assert declared is not None, f"{scenario.name} declares no concurrency"
    cap = int(declared[1]) if on.caps else 1_000
    lines = [
        f"concurrency {f'1..{cap} start {min(cap, 8)}' if on.aimd else cap}",
        "" if on.headers and on.quotas else "headers ignore",
        "" if on.breaker else "breaker trip 100% of 1000 over 1s",
        "" if on.fairness else "objective latency",
    ]
    policy = policy.replace(declared[0], "\n".join(f"  {line}" for line in lines if line), 1)
    if not on.quotas:
        policy = re.sub(r"^ *limits \{.*\}$", "", policy, flags=re.MULTILINE)
    if not on.retry:
        policy = re.sub(r"retry +patient$", "retry never", policy, count=1, flags=re.MULTILINE)
        policy += "\nretry never { attempts 1 }\n"
    return policy


TURNS: Final = 8
"""Of each agent, where a scenario has more: every variant is run."""

SECOND_NS: Final = 1_000_000_000


def of_the_paper() -> list[Scenario]:
    """With real resets."""
    return [with_resets(shipped(name)) for name in RESETS]


REGIMES: Final = {
    "concurrency-binds": "aimd, caps",
    "undeclared": "headers, quotas",
    "outage": "breaker, retry",
    "oversized": "bypass",
    "cold-prefix": "prefixes",
    "greedy": "fairness, overdue",
}
"""And what they are there to show."""


def of_regimes() -> list[Scenario]:
    """Shorter ones, in which each part matters somewhere."""
    return [_shorter(shipped(name)) for name in REGIMES]


def _shorter(scenario: Scenario) -> Scenario:
    fleets = []
    for fleet in scenario.fleets:
        part = min(1.0, TURNS / fleet.turns.mean)
        turns = attrs.evolve(fleet.turns, mean=fleet.turns.mean * part, spread=fleet.turns.spread * part)
        fleets.append(attrs.evolve(fleet, turns=turns))
    # What goes wrong for a while goes wrong while they are at work.
    upstreams = []
    for upstream in scenario.upstreams:
        storms = tuple(
            attrs.evolve(storm, from_ns=20 * SECOND_NS, to_ns=20 * SECOND_NS + (storm.to_ns - storm.from_ns) // 2)
            for storm in upstream.traits.storms
        )
        upstreams.append(attrs.evolve(upstream, traits=attrs.evolve(upstream.traits, storms=storms)))
    return attrs.evolve(scenario, fleets=tuple(fleets), upstreams=tuple(upstreams))
