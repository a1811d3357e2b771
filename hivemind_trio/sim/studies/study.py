"""Several runs: over seeds, both ways, and of two policies side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.sim.bound.work import Work
from hivemind_trio.sim.results.figures import Figures, Way
from hivemind_trio.sim.run.nodes import NodesSpec
from hivemind_trio.sim.run.world import Told, World
from hivemind_trio.sim.scenario.scenario import Scenario


@final
@attrs.frozen(kw_only=True)
class Pair:
    """One seed's runs: the same work both ways."""

    seed: int
    direct: Figures
    proxy: Figures


@final
@attrs.frozen
class Metric:
    """One number of a run."""

    name: str
    unit: str
    """`s`, `$`, `%` or nothing."""
    of: Callable[[Figures], float | None]
    """None: it says nothing of this run."""
    without: str = "-"
    """Text where a metric has no value."""


@final
@attrs.frozen
class Estimate:
    """A mean over seeds, and an interval that holds the true one in 19 of 20 such studies (Student's t)."""

    mean: float
    low: float
    high: float
    count: int
    """Seeds that say anything."""


METRICS: Final = (
    Metric("dead agents", "", lambda run: run.dead),
    Metric("turns done", "", lambda run: run.turns_done),
    Metric("attempts", "", lambda run: run.attempts),
    Metric("wasted attempts", "", lambda run: run.attempts_wasted),
    Metric("429s met", "", lambda run: run.limited),
    Metric("calls rejected", "", lambda run: sum(run.refused.values())),
    Metric("wasted tokens", "", lambda run: run.tokens_wasted),
    Metric("spend", "$", lambda run: run.cost_microusd / 1e6),
    Metric("makespan", "s", lambda run: run.makespan_ns / 1e9),
    Metric("makespan / bound", "", lambda run: run.over_bound, "work left undone"),
    Metric("turn p50", "s", lambda run: run.turn.p50 / 1e9),
    Metric("turn p95", "s", lambda run: run.turn.p95 / 1e9),
    Metric("turn p99", "s", lambda run: run.turn.p99 / 1e9),
)
"""Metrics that are reported and compared for every run."""


def study(
    program: Program,
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    audit: bool = False,
    told: Told | None = None,
    nodes: NodesSpec | None = None,
) -> Iterator[Pair]:
    """Run each seed both ways, one after another; who has had enough takes no more.

    Args:
        nodes: Proxies that share the providers; None: one.
    """
    for seed in seeds:
        work = Work(program, scenario, seed)
        direct = World(program, scenario, seed, Way.DIRECT, work=work, told=told).run()
        yield Pair(
            seed=seed,
            direct=direct,
            proxy=World(program, scenario, seed, Way.PROXY, audit=audit, work=work, told=told, nodes=nodes).run(),
        )


def estimate(values: Sequence[float | None]) -> Estimate | None:
    """Return the mean of those that are there, with its interval; None if none is."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    mean = math.fsum(there) / len(there)
    if len(there) == 1:
        return Estimate(mean, mean, mean, 1)
    variance = math.fsum((value - mean) ** 2 for value in there) / (len(there) - 1)
    half = _student(len(there) - 1) * math.sqrt(variance / len(there))
    return Estimate(mean, mean - half, mean + half, len(there))


def difference(before: Sequence[float | None], after: Sequence[float | None]) -> Estimate | None:
    """Return the change, seed by seed, on the same work, so that differences between seeds are no noise."""
    pairs = zip(before, after, strict=True)
    return estimate([None if one is None or other is None else other - one for one, other in pairs])


_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Degrees of freedom from 1 -> the 97.5 % quantile."""


def _student(freedom: int) -> float:
    # Beyond the table to three digits.
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.46 / freedom
