"""Does the simulator tell the truth?

Target: within 10 % of the same scenario over loopback sockets in real time, for the makespan, the p50 and p95 of turns
and of waits, dead agents and tokens spent. Both worlds draw the same work from the same seed; what differs is that
bytes, kernels and our own code take time, and the order of what happens at once.

    python -m bench.fidelity [--only 'micro-10;replay-11'] [--seed 1] [--md F] [--json F]      ten minutes
    python -m bench.fidelity --smoke                                                        seconds; for the tests

Nothing is scaled: rate-limit headers tell whole seconds, and back-offs are the policy's. The runs are under way at the
same time, each beginning a few seconds after the one before, for they spend most of it waiting for a window to end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from hivemind_trio.sim import Way

from ._cases import CannotRun, cases
from ._results import Table, provenance, write
from ._runs import Run, performed
from ._sockets import Measured
from ._worlds import smaller

USUAL: Final = (
    *("micro-5", "micro-10", "micro-20", "replay-11", "latency-spike"),
    *("replay-11, real resets", "replay-11, real resets, streaming", "stress"),
)

APART_S: Final = 4.0
"""Between the beginnings of two runs: the busy seconds of their windows do not meet."""


def compared(named: Sequence[str], seed: int, *, small: bool) -> tuple[list[tuple[Run, Measured]], bool]:
    """Every scenario both ways in both worlds, as far as it got, and whether that was all."""
    try:
        found = cases(named or (USUAL[:1] if small else USUAL))
    except CannotRun as cannot:
        print(cannot, file=sys.stderr)
        sys.exit(2)
    if small:
        found = [attrs.evolve(case, scenario=smaller(case.scenario, 3, 3)) for case in found]
    runs = [Run.of(case, way, seed) for case in found for way in Way]
    measured, whole = performed(runs, 0.2 if small else APART_S)
    return [(run, measured[run]) for run in runs if run in measured], whole


def apart(simulated: float, real: float, least: float = 0.0) -> str:
    """By how much the simulator is wrong, in percent of what is real; both below `least` are equal."""
    if max(simulated, real) <= least:
        return "0 %"
    return f"{100 * (simulated - real) / real:+.1f} %" if real else "–"


def compare(twice: Sequence[tuple[Run, Measured]]) -> Table:
    """Side by side."""
    rows = []
    for run, real in twice:
        fake = Measured.of(run.simulated)
        row = [run.case.name, str(run.way), f"{fake.dead} / {real.dead} of {real.agents}"]
        row.append(f"{fake.attempts:,} / {real.attempts:,}")
        row.append(f"{fake.tokens:,} / {real.tokens:,} ({apart(fake.tokens, real.tokens)})")
        row.append(f"{fake.seconds:.1f} / {real.seconds:.1f} ({apart(fake.seconds, real.seconds, 0.05)})")
        for mine, theirs in (
            (fake.turn.p50, real.turn.p50),
            (fake.turn.p95, real.turn.p95),
            (fake.wait.p50, real.wait.p50),
            (fake.wait.p95, real.wait.p95),
        ):
            # Below 20 ms it is our own code that takes the time, and the simulator knows nothing of it.
            row.append(f"{mine / 1e9:.2f} / {theirs / 1e9:.2f} ({apart(mine, theirs, 20e6)})")
        rows.append(row)
    return Table(
        title="The simulator against sockets",
        notes=[
            "Each cell: simulated / over sockets (by how much the simulator is off). One seed, one run; what happens "
            "at once happens in some order, which decides who dies without a proxy, and of what.",
        ],
        head=[
            *("scenario", "way", "dead", "attempts", "tokens", "makespan, s"),
            *("turn p50, s", "turn p95, s", "wait p50, s", "wait p95, s"),
        ],
        rows=rows,
        figures=[_figures(run, real) for run, real in twice],
    )


def _figures(run: Run, real: Measured) -> dict[str, Any]:
    return {"scenario": run.case.name, "way": str(run.way), "bound_s": run.simulated.bound_ns / 1e9} | {
        world: attrs.asdict(one) for world, one in (("simulated", Measured.of(run.simulated)), ("real", real))
    }


def main(arguments: list[str] | None = None) -> int:
    """Run, compare, and say."""
    parser = argparse.ArgumentParser(description="The simulator against sockets.")
    parser.add_argument("--only", default="", help="scenarios by name, with `;` between them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(arguments)
    named = [name for name in options.only.split(";") if name]
    twice, whole = compared(named, options.seed, small=options.smoke)
    made = provenance(seed=options.seed, way="simulated, and over loopback sockets in real time, unscaled")
    print(write([compare(twice)], made, title="Fidelity", md=options.md, data=options.json))
    return 0 if whole else 130


if __name__ == "__main__":
    sys.exit(main())
