"""Comparison of two policies on the same work, number by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.sim.results.figures import Figures, Spread, Way
from hivemind_trio.sim.run.world import Told, World
from hivemind_trio.sim.scenario.scenario import Scenario

from .study import METRICS, Estimate, Metric, difference, estimate


@final
@attrs.frozen
class Shift:
    """One number under both policies; each None where no seed says anything of it."""

    metric: Metric
    before: Estimate | None
    after: Estimate | None
    difference: Estimate | None


def side_by_side(
    old: Program, new: Program, scenario: Scenario, seeds: Sequence[int], *, told: Told | None = None
) -> Iterator[tuple[Figures, Figures]]:
    """Each seed's runs through the proxy, under the one policy and under the other."""
    for seed in seeds:
        before = World(old, scenario, seed, Way.PROXY, told=told).run()
        yield before, World(new, scenario, seed, Way.PROXY, told=told).run()


def shifts(before: Sequence[Figures], after: Sequence[Figures]) -> Iterator[Shift]:
    """Yield the shifts: of every run's numbers, of lanes' and teams' waits, and of teams' and budgets' spend.

    Args:
        before: Runs of some seeds.
        after: Those of the same seeds under the other policy.
    """
    for metric in (*METRICS, *_of_lanes_and_teams([*before, *after])):
        old, new = ([metric.of(run) for run in runs] for runs in (before, after))
        yield Shift(metric, estimate(old), estimate(new), difference(old, new))


def same_truth(old: Program, new: Program, scenario: Scenario) -> bool:
    """Return True if the providers are equally strict under both policies, and not each as strict as its policy."""
    for name in old.providers.keys() & new.providers.keys():
        globs = {None, *(group.glob for program in (old, new) for group in program.providers[name].groups)}
        if any(scenario.traits(old, name, glob, 0) != scenario.traits(new, name, glob, 0) for glob in globs):
            return False
    return True


# ---- what is told of lanes, teams and budgets ----

_WAITS: Final[Mapping[str, Callable[[Figures], Mapping[str, Spread]]]] = {
    "lane": lambda run: run.lanes,
    "team": lambda run: run.teams,
}
_SPENDS: Final[Mapping[str, Callable[[Figures], Mapping[str, int]]]] = {
    "team": lambda run: run.costs_microusd,
    "budget": lambda run: run.budgets_microusd,
}


def _of_lanes_and_teams(runs: Sequence[Figures]) -> Iterator[Metric]:
    for kind, waits in _WAITS.items():
        for name in _names(waits(run) for run in runs):
            yield Metric(f"{kind} {name}, wait p95", "s", _wait_p95(waits, name))
    for kind, costs in _SPENDS.items():
        for name in _names(costs(run) for run in runs):
            yield Metric(f"{kind} {name}, spend", "$", _spend(costs, name))


def _wait_p95(of: Callable[[Figures], Mapping[str, Spread]], name: str) -> Callable[[Figures], float | None]:
    return lambda run: of(run)[name].p95 / 1e9 if name in of(run) and of(run)[name].count else None


def _spend(of: Callable[[Figures], Mapping[str, int]], name: str) -> Callable[[Figures], float | None]:
    return lambda run: of(run)[name] / 1e6 if name in of(run) else None


def _names(tables: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table))
