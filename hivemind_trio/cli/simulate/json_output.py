"""JSON output of `simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from hivemind_trio.sim import METRICS, Estimate, Figures, Pair, Scenario, difference, estimate, shifts

Against = tuple[str, Sequence[Pair]]
"""Another policy's name, and its runs of the same seeds."""


def as_object(scenario: Scenario, policy: str, pairs: Sequence[Pair], against: Against | None) -> dict[str, Any]:
    """Every run, whole; times in ns, money in micro-dollars. Metrics and differences are in seconds and dollars."""
    direct, proxied = [pair.direct for pair in pairs], [pair.proxy for pair in pairs]
    said: dict[str, Any] = {
        "format_version": 1,
        "scenario": scenario.name,
        "about": scenario.about,
        "policy": policy,
        "seeds": [pair.seed for pair in pairs],
        "limits_met": {name: attrs.asdict(limit) | {"said": str(limit)} for name, limit in scenario.met.items()},
        "direct": [_figures(run) for run in direct],
        "proxy": [_figures(run) for run in proxied],
        "metrics": {"direct": _metrics(direct), "proxy": _metrics(proxied)},
        "avoided": {
            metric.name: interval(difference([metric.of(run) for run in proxied], [metric.of(run) for run in direct]))
            for metric in METRICS
            if metric.name in ("dead agents", "429s met", "wasted attempts", "wasted tokens")
        },
    }
    if against is not None:
        name, others = against
        changed = [pair.proxy for pair in others]
        said["compare"] = {
            "policy": name,
            "proxy": [_figures(run) for run in changed],
            "metrics": _metrics(changed),
            "difference": {shift.metric.name: interval(shift.difference) for shift in shifts(proxied, changed)},
        }
    return said


def _figures(run: Figures) -> dict[str, Any]:
    said = attrs.asdict(run)
    said["samples"] = [
        {"at_ns": sample.at_ns, **{name: attrs.asdict(level) for name, level in sample.providers.items()}}
        for sample in run.samples
    ]
    return said | {"over_bound": run.over_bound, "attempts_wasted": run.attempts_wasted}


def _metrics(runs: Sequence[Figures]) -> dict[str, Any]:
    return {metric.name: interval(estimate([metric.of(run) for run in runs])) for metric in METRICS}


def interval(found: Estimate | None) -> dict[str, Any] | None:
    """As JSON has it."""
    return None if found is None else attrs.asdict(found)
