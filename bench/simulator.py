"""How many calls of a fleet are simulated in a second?

Budget: 10,000 calls in a second of CPU, of a plain policy and a provider that is never unkind, without the audit.

    python -m bench.simulator [--agents 300] [--turns 20] [--seed 1] [--json bench/results/simulator.json]

A call is a request of an agent, its wait, its attempt at a simulated provider and the answer. Three agents ask for
every slot, so two in three calls wait. The calls of functions are counted in a run of their own, Python's and C's: they
hardly depend on the machine. The digest is of all that was granted and refused: a faster world has to be the same one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import process_time_ns
from types import FrameType
from typing import Any, NamedTuple

from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.sim import Amount, Figures, Fleet, Scenario, Traits, UpstreamSpec, World

from .tables import Table, provenance, write

SECOND_NS = 1_000_000_000
AGENTS_PER_SLOT = 3


class Measured(NamedTuple):
    calls: int
    per_second: float
    """Simulated calls in a second of CPU: the best of the runs."""
    functions: float
    """Called, for each simulated call."""
    digest: str


def program(slots: int) -> Program:
    checked = check(
        "bench.hmp",
        MemoryFiles({"bench.hmp": f'provider p {{ api anthropic; base "http://127.0.0.1:9"; concurrency {slots} }}'}),
    )
    assert checked.program is not None, checked.diagnostics
    return checked.program


def world(agents: int, turns: int, seed: int) -> World:
    slots = max(1, agents // AGENTS_PER_SLOT)
    fleet = Fleet(name="worker", count=agents, turns=Amount(turns), think_ns=Amount(SECOND_NS // 20))
    scenario = Scenario(
        fleets=(fleet,), upstreams=(UpstreamSpec(traits=Traits(concurrency=slots)),), until_ns=86_400 * SECOND_NS
    )
    return World(program(slots), scenario, seed=seed)


def functions(of: World) -> int:
    """Called while it runs."""
    called = 0

    def count(_frame: FrameType, kind: str, _argument: Any) -> None:
        nonlocal called
        called += kind in ("call", "c_call")

    sys.setprofile(count)
    of.run()
    sys.setprofile(None)
    return called


def measure(agents: int, turns: int, *, seed: int, runs: int) -> Measured:
    best_ns = None
    figures: Figures | None = None
    for _ in range(runs):
        one = world(agents, turns, seed)
        began_ns = process_time_ns()
        figures = one.run()
        took_ns = process_time_ns() - began_ns
        best_ns = took_ns if best_ns is None else min(best_ns, took_ns)
    assert figures is not None
    assert best_ns is not None
    called = functions(world(agents, turns, seed))
    return Measured(figures.calls, figures.calls * SECOND_NS / best_ns, called / figures.calls, figures.digest)


def main(arguments: list[str] | None = None) -> Measured:
    parser = argparse.ArgumentParser(description="Simulated calls in a second of CPU.")
    parser.add_argument("--agents", type=int, default=300)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)

    found = measure(options.agents, options.turns, seed=options.seed, runs=options.runs)
    print(
        f"{found.calls:,} calls: {found.per_second:,.0f} in a second of CPU, "
        f"{found.functions:.0f} functions called for each  {found.digest}"
    )
    if options.json is not None:
        row = {"calls": found.calls, "per_second": round(found.per_second), "functions": round(found.functions, 1)}
        table = Table(title="Simulated calls", head=(), rows=(), figures=[row])
        made = provenance(seed=options.seed, runs=options.runs)
        write([table], made, title="Simulator", md=None, data=options.json)
    return found


if __name__ == "__main__":
    main()
