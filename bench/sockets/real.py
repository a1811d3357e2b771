"""`python -m bench.evaluation --real`: scenarios over sockets and in real time, by themselves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import attrs

from bench.simulated.worlds import smaller
from bench.tables import Table
from hivemind_trio.sim import Way

from .cases import CannotRun, cases
from .measured import Measured
from .runs import Case, Run, performed

USUAL: Final = (
    *("micro-5", "micro-10", "micro-20", "replay-11", "latency-spike"),
    *("replay-11, real resets", "replay-11, real resets, streaming"),
)
"""Five minutes together."""

APART_S: Final = 2.0


def real(named: Sequence[str], seed: int, *, small: bool) -> tuple[Table, bool]:
    """What came of them, and whether they all came to their end. Exits with 2 where a name cannot be run."""
    try:
        found = cases(named or (USUAL[:1] if small else USUAL))
    except CannotRun as cannot:
        print(cannot, file=sys.stderr)
        sys.exit(2)
    if small:
        found = [attrs.evolve(case, scenario=smaller(case.scenario, 3, 3)) for case in found]
    runs = [Run.of(case, way, seed) for case in found for way in _ways(case)]
    measured, whole = performed(runs, 0.2 if small else APART_S)
    return table(runs, measured), whole


def _ways(case: Case) -> Sequence[Way]:
    """Straight at its provider a fleet is the same under every policy."""
    return (Way.PROXY,) if case.policy else (Way.DIRECT, Way.PROXY)


def table(runs: Sequence[Run], measured: dict[Run, Measured]) -> Table:
    """A row for each run that is over."""
    rows, figures = [], []
    for run in runs:
        if run not in measured:
            continue
        one, bound_s = measured[run], run.simulated.bound_ns / 1e9
        over = one.seconds / bound_s if one.turns_done == one.turns and bound_s else None
        rows.append(
            [
                run.case.scenario.name,
                "direct" if run.way is Way.DIRECT else run.case.policy or "proxy",
                f"{100 * (one.dead + one.undone) / one.agents:.0f}",
                f"{one.seconds:.1f}",
                "–" if over is None else f"{over:.2f}",
                f"{one.wasted:.2f}",
                f"{100 * one.tokens_wasted / max(1, one.tokens):.0f}",
                f"{one.limited}",
                f"{one.cost_microusd / 1e6:.3f}",
                " / ".join(f"{each / 1e9:.1f}" for each in (one.turn.p50, one.turn.p95, one.turn.p99)),
                "–" if run.way is Way.DIRECT else f"{one.wait.p50 / 1e9:.1f} / {one.wait.p95 / 1e9:.1f}",
            ]
        )
        figures.append(figure(run, one) | {"over_bound": over})
    return Table(
        title="Over sockets",
        notes=["One run each, in real time, unscaled, through the real door in a process of its own."],
        head=[
            *("scenario", "", "dead %", "makespan, s", "makespan / bound", "wasted attempts per turn"),
            *("wasted tokens %", "429s", "spend, $", "turn p50 / p95 / p99, s", "wait p50 / p95, s"),
        ],
        rows=rows,
        figures=figures,
    )


def figure(run: Run, measured: Measured) -> dict[str, Any]:
    """For machines."""
    return {
        "scenario": run.case.scenario.name,
        "policy": run.case.policy,
        "way": str(run.way),
        "seed": run.seed,
        "bound_s": run.simulated.bound_ns / 1e9,
        **attrs.asdict(measured),
    }
