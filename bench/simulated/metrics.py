"""What a run is judged by, and a table's cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bench.tables import cell, of_runs
from hivemind_trio.sim import Figures, Metric, estimate

from .simulated import Found

DEAD: Final = Metric("dead", "%", lambda run: 100 * (run.dead + run.undone) / run.agents)
"""Agents unfinished at the time limit count as dead."""
WASTED: Final = Metric("wasted attempts per turn", "", lambda run: run.attempts_wasted / max(1, run.turns_done))
TOKENS: Final = Metric("wasted tokens", "%", lambda run: 100 * run.tokens_wasted / max(1, run.tokens))
OVER: Final = Metric("makespan / bound", "", lambda run: run.over_bound)
BOUND: Final = Metric("bound", "s", lambda run: run.bound_ns / 1e9)
MAKESPAN: Final = Metric("makespan", "s", lambda run: run.makespan_ns / 1e9)
P50: Final = Metric("turn p50", "s", lambda run: run.turn.p50 / 1e9)
P95: Final = Metric("turn p95", "s", lambda run: run.turn.p95 / 1e9)
P99: Final = Metric("turn p99", "s", lambda run: run.turn.p99 / 1e9)
LIMITED: Final = Metric("429s", "", lambda run: run.limited)
USED: Final = Metric(
    "of the binding dimension used", "%", lambda run: None if run.binding_used is None else 100 * run.binding_used
)
PER_MINUTE: Final = Metric("turns per minute", "", lambda run: run.turns_done * 60e9 / max(1, run.makespan_ns))
DIED: Final = Metric("dead agents", "", lambda run: run.dead)
REFUSED: Final = Metric("calls refused", "", lambda run: sum(run.refused.values()))
METRICS: Final = (
    *(DEAD, WASTED, TOKENS, MAKESPAN, BOUND, OVER, USED, P50, P95, P99, LIMITED, REFUSED, PER_MINUTE, DIED),
)


def said(runs: Sequence[Figures], metric: Metric, digits: int = 2) -> str:
    """One cell; how many seeds it is of, where some say nothing."""
    found = estimate([metric.of(run) for run in runs])
    text = cell(found, digits)
    return text if found is None or found.count == len(runs) else f"{text} ({found.count} of {len(runs)})"


def brief(runs: Sequence[Figures], metric: Metric, digits: int = 2) -> str:
    """The same without its interval."""
    return said(runs, metric, digits).split(" ")[0]


def briefly(runs: Sequence[Figures], *metrics: tuple[Metric, int]) -> str:
    """Several in one cell."""
    return " / ".join(brief(runs, metric, digits) for metric, digits in metrics)


def figures(found: Found, key: tuple[str, ...], **named: Any) -> dict[str, Any]:
    """All of them, for machines."""
    return {**named, **of_runs(found.of(*key), METRICS), "CPU per call, µs": round(found.cpu_us(*key))}
