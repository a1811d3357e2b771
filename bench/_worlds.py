"""The scenarios of the evaluation, as values: those that ship, their variants, and policies that switch things off."""

from __future__ import annotations

from importlib import resources
from typing import Final

import attrs

from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.sim import Scenario, Traits, parse_scenario

PAPER: Final = ("micro-5", "micro-10", "micro-20", "micro-50", "replay-11", "stress", "latency-spike")
"""The HiveMind paper's seven."""

RESETS: Final = {"replay-11": (0.08, 0.05), "stress": (0.10, 0.05)}
"""Shares of 502 and of what the paper calls a reset, which is a 502 without a body there and a real one in the
variant."""

REGIMES: Final = (
    *("requests-bind", "input-binds", "output-binds", "concurrency-binds", "mixed"),
    *("fixed-window", "sliding-window", "gcra", "azure", "undeclared"),
    *("neighbour", "storm", "outage", "acceleration", "oversized", "herd-512"),
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
    return _with(scenario, f"{scenario.name}, real resets", bad_gateways=gateways, resets=resets)


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


def _with(scenario: Scenario, name: str, **changes: object) -> Scenario:
    upstreams = tuple(
        attrs.evolve(upstream, traits=attrs.evolve(upstream.traits, **changes)) for upstream in scenario.upstreams
    )
    return attrs.evolve(scenario, name=name, upstreams=upstreams)


# ---- policies ----


@attrs.frozen(kw_only=True)
class Switches:
    """What a policy has switched on; each is a setting, and off is what the setting's absence or opposite does."""

    caps: bool = True
    """`concurrency` is what the provider bears; off: a thousand."""
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

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in attrs.fields(cls)]

    @classmethod
    def variants(cls) -> dict[str, Switches]:
        """All of them on, each off by itself, each on by itself, and none."""
        names = cls.names()
        off = dict.fromkeys(names, False)
        return {
            "full": cls(),
            **{f"without {name}": cls(**{name: False}) for name in names},
            **{f"{name} alone": cls(**(off | {name: True})) for name in names},
            "nothing": cls(**off),
        }


def ablated(traits: Traits, on: Switches) -> str:
    """A policy for a provider like that of the paper."""
    cap = (traits.concurrency or 5) if on.caps else 1_000
    assert traits.requests is not None
    assert traits.tokens is not None
    each = f"requests {traits.requests.limit}/min; tokens {traits.tokens.limit}/min"
    limits = f"limits {{ {each}; window fixed; headroom 0% }}"
    return f"""
    provider simulated {{
      api         anthropic
      base        "http://127.0.0.1:9"
      concurrency {f"1..{cap} start {min(cap, 8)}" if on.aimd else cap}
      {limits if on.quotas else ""}
      headers     {"trust" if on.headers and on.quotas else "ignore"}
      {"" if on.breaker else "breaker trip 100% of 1000 over 1s"}
      {"" if on.fairness else "objective latency"}
      retry       {"patient" if on.retry else "never"}
    }}
    retry patient {{
      on       [429, 500, 502..504, 529, connect, reset, first-byte]
      attempts 12
      backoff  200ms..5s jitter full
      ratio    50%
    }}
    retry never {{ attempts 1 }}
    """


def referred(scenario: Scenario) -> dict[str, Program]:
    """What a scenario's own policy is compared with: less of a scheduler."""
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

    own = own_policy(scenario)
    return {
        "fixed concurrency": bare("16"),
        "AIMD alone": bare("2..64 start 8"),
        "the proxy": own,
        "the proxy, `objective makespan`": compiled(_with_objective(scenario.policy or "", "makespan")),
    }


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


# ---- the grid of regimes ----

TRUTHS: Final = ("bucket", "fixed", "sliding", "gcra", "azure")
BINDING: Final = {"requests": "120/min", "input": "300k/min", "output": "60k/min"}
DECLARED: Final = ("right", "wrong", "nothing")


def grid(binds: str, truth: str, declared: str, *, charged: bool) -> tuple[Scenario, Program]:
    """One cell: 32 agents of ten turns; what is declared wrongly is half as much again as there is."""
    limit = BINDING[binds]
    amount, unit = limit.rstrip("k/min").split("/")[0].rstrip("k"), "k" if "k" in limit else ""
    wrong = f"{int(int(amount) * 1.5)}{unit}/min"
    window = {"azure": "fixed"}.get(truth, truth)
    if truth == "gcra" and binds != "requests":
        # A second's worth would hold no prompt.
        burst = int(amount) * 1_000 // 10
        counted = f'{{ rate = "{limit}", window = "gcra", burst = {burst} }}'
    else:
        counted = ""
    said = f"{amount}{unit}/min"
    if truth == "azure" and binds == "requests":
        said = f"{int(amount) // 6}/10s"
    told = {"right": f"limits {{ {binds} {limit} }}", "wrong": f"limits {{ {binds} {wrong} }}", "nothing": ""}[declared]
    policy = f"""
    provider simulated {{
      api {"azure" if truth == "azure" else "anthropic"}; base "http://127.0.0.1:9"; concurrency 2..32 start 8
      {told}
      retry patient
    }}
    retry patient {{
      on [429, 500, 502..504, 529, connect, reset, first-byte]; attempts 20; backoff 500ms..20s jitter full; ratio 50%
    }}
    server {{ wait silent 15s hold 240s }}
    """
    text = f"""
    until = "6h"
    [[agents]]
    name = "agent"
    count = 32
    turns = 10
    start = "0s..5s"
    think = "~2s"
    input = "~3k"
    output-max = 2048
    stream = true
    client = "anthropic-sdk"
    [[upstream]]
    latency = "~3s"
    answer = "~500"
    limits = {{ {binds} = {counted or f'"{said}"'} }}
    window = "{window}"
    {'phase = "random"' if window == "fixed" else ""}
    concurrency = 32
    refusals-count = {str(charged).lower()}
    """
    name = f"{binds} bind, {truth}, declared {declared}, refusals {'charged' if charged else 'free'}"
    return parse_scenario(text, name=name), compiled(policy)
