"""The scenarios of the evaluation, as values: those that ship, their variants, and policies that switch things off."""

from __future__ import annotations

from importlib import resources
from typing import Final

import attrs

from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.sim import Amount, Scenario, Shape, parse_scenario

PAPER: Final = ("micro-5", "micro-10", "micro-20", "micro-50", "replay-11", "stress", "latency-spike")
"""The HiveMind paper's seven."""

RESETS: Final = {"replay-11": (0.08, 0.05), "stress": (0.10, 0.05)}
"""Shares of 502 and of what the paper calls a reset, which is a 502 without a body there and a real one in the
variant."""

REGIMES: Final = (
    *("requests-bind", "input-binds", "output-binds", "concurrency-binds", "mixed"),
    *("fixed-window", "sliding-window", "gcra", "azure", "undeclared"),
    *("neighbour", "storm", "outage", "acceleration", "lying-retry-after"),
    *("oversized", "cold-prefix", "herd-512"),
)

AGENTRM: Final = ("normal", "high-load", "burst", "faulty", "cascade")


def shipped(name: str) -> Scenario:
    """One of `hivemind_trio/sim/scenarios`."""
    text = (resources.files("hivemind_trio.sim") / "scenarios" / f"{name}.toml").read_text("utf-8")
    return parse_scenario(text, name=name)


_TEXTS: Final[dict[str, str]] = {}
"""Hash of a program -> what it was made of."""


def compiled(text: str) -> Program:
    """A policy's program; it must be right."""
    checked = check("bench.hmp", MemoryFiles({"bench.hmp": text.encode()}))
    assert checked.program is not None, checked.diagnostics
    _TEXTS[checked.program.hash] = text
    return checked.program


def text_of(program: Program) -> str:
    """What was given to `compiled`."""
    return _TEXTS[program.hash]


def own_policy(scenario: Scenario) -> Program:
    """The one that the scenario brings."""
    assert scenario.policy is not None, f"{scenario.name} has none"
    return compiled(scenario.policy)


def with_resets(scenario: Scenario) -> Scenario:
    """Some of its 502s are connections that are reset."""
    gateways, resets = RESETS[scenario.name]
    upstreams = tuple(
        attrs.evolve(upstream, traits=attrs.evolve(upstream.traits, bad_gateways=gateways, resets=resets))
        for upstream in scenario.upstreams
    )
    return attrs.evolve(scenario, name=f"{scenario.name}, real resets", upstreams=upstreams)


def streamed(scenario: Scenario) -> Scenario:
    """Every turn is a stream."""
    fleets = tuple(attrs.evolve(fleet, stream=1.0) for fleet in scenario.fleets)
    return attrs.evolve(scenario, name=f"{scenario.name}, streaming", fleets=fleets)


def paper() -> list[Scenario]:
    """The seven, those with real resets, and all of them streamed."""
    plain = [shipped(name) for name in PAPER]
    resets = [with_resets(each) for each in plain if each.name in RESETS]
    streams = [streamed(each) for each in plain if each.name not in RESETS]
    return [*plain, *resets, *streams, *(streamed(each) for each in resets)]


def smaller(scenario: Scenario, agents: int, turns: int) -> Scenario:
    """At most so many agents of each fleet, with so many turns: for tests."""
    fleets = tuple(
        attrs.evolve(fleet, count=min(fleet.count, agents), turns=attrs.evolve(fleet.turns, mean=turns, spread=0.0))
        for fleet in scenario.fleets
    )
    return attrs.evolve(scenario, fleets=fleets)


# ---- policies ----


NOISE: Final = Amount(1.0, 0.6, Shape.LOGNORMAL)
"""What an agent that errs multiplies the number of calls with that it has still to make."""

PROXY: Final = "the proxy"
NOISY: Final = "the proxy, hints that err (cv 0.6)"
ORACLE: Final = "the proxy, exact hints (oracle)"


def referred(scenario: Scenario) -> dict[str, Program]:
    """What a scenario's own policy is compared with where nobody says more: less of a scheduler."""
    patient = """
    retry patient {
      on [429, 500, 502..504, 529, connect, reset, first-byte]; attempts 20; backoff 500ms..20s jitter full; ratio 50%
    }
    server { wait silent 15s hold 240s }
    """

    def bare(concurrency: str) -> Program:
        return compiled(
            f'provider simulated {{ api {_api(scenario)}; base "http://127.0.0.1:9"; concurrency {concurrency}; '
            f"headers ignore; retry patient }}\n{patient}"
        )

    return {"fixed concurrency 16": bare("16"), "AIMD alone": bare("2..64 start 8"), PROXY: own_policy(scenario)}


def hinted(scenario: Scenario) -> dict[str, tuple[Scenario, Program]]:
    """Agents say how many calls they have still to make, and who has most goes first."""
    program = compiled(_with_objective(scenario.policy or "", "makespan"))
    return {NOISY: (_saying(scenario, NOISE), program), ORACLE: (_saying(scenario, Amount(1.0)), program)}


def _saying(scenario: Scenario, how: Amount) -> Scenario:
    fleets = tuple(attrs.evolve(fleet, says_remaining=how) for fleet in scenario.fleets)
    return attrs.evolve(scenario, fleets=fleets)


def _api(scenario: Scenario) -> str:
    (provider,) = own_policy(scenario).providers.values()
    return str(provider.api)


def _with_objective(policy: str, objective: str) -> str:
    return policy.replace("retry       patient", f"objective   {objective}\n  retry       patient", 1)


def agentrm(scenario: Scenario) -> dict[str, Program]:
    """Orderings of one queue with four slots; a scenario's own policy is ours."""
    hung = "timeout connect 5s first-byte 10m idle 10m total 30m"
    reaper = "timeout connect 5s first-byte 45s idle 45s total 30m; retry reaper"
    again = "retry reaper { on [connect, reset, first-byte]; attempts 5; backoff 100ms..1s; ratio 100% }"
    server = "server { wait silent 15s hold 2h }"
    classes = ("interactive", "subagent", "background")

    def queue(settings: str, rest: str = "") -> Program:
        return compiled(
            'provider simulated { api anthropic; base "http://127.0.0.1:9"; concurrency 4; headers ignore; '
            f"{settings} }}\n{again}\n{server}\n{rest}"
        )

    lanes = "\n".join(
        f'lane {name} {{ weight 1 }}\nrule {name} when header.x-class == "{name}" {{ lane {name} }}' for name in classes
    )
    ranks = "\n".join(
        f'rule {name} when header.x-class == "{name}" {{ priority {3 - place} }}' for place, name in enumerate(classes)
    )
    return {
        "FIFO": queue(f"{hung}; objective latency"),
        "round robin of classes": queue(hung, lanes),
        "priority queue": queue(f"{hung}; objective latency", ranks),
        "FIFO + reaper": queue(f"{reaper}; objective latency"),
        "least attained first (MLFQ) + reaper": queue(f"{reaper}; objective fair", ranks),
        "ours: weighted lanes + reaper": own_policy(scenario),
    }
