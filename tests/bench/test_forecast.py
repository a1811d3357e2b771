"""The forecast bench, small: it repeats itself, and it notices estimates that are off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import forecast
from bench.adversaries.run import Way
from bench.forecasts.watch import Row

SECOND_NS = 1_000_000_000


def row(p50: float, p90: float, start: float | None) -> Row:
    """Return an estimate and what came, in seconds."""
    at = [round(one * SECOND_NS) for one in (p50, p90)]
    return Row(
        p50=at[0], p90=at[1], raw50=at[0], raw90=at[1], start=None if start is None else round(start * SECOND_NS)
    )


def test_figures_are_those_of_the_rows() -> None:
    fleet = forecast.Fleet(
        name="f", kind="simulated", rows=[row(10, 12, 11), row(10, 12, 20), row(1, 2, 3), row(9, 9, None)]
    )
    figures = fleet.figures()

    assert figures["held"] == pytest.approx(1 / 3)
    assert figures["error"] == pytest.approx((1 / 11 + 10 / 20) / 2)
    assert (figures["near_s"], figures["not_started"], figures["calls"]) == (2, 0.25, 4)


@pytest.mark.slow
def test_equal_seeds_make_equal_estimates_and_they_are_of_use() -> None:
    first, second = (forecast.adversary("cap-halves", Way.OURS, 1) for _ in range(2))
    figures = forecast.Fleet(name="cap-halves", kind="adversary", rows=first).figures()

    assert first == second
    assert len(first) > 50
    assert figures["held"] > 0.75
    assert figures["error"] < 0.25


def test_the_results_have_the_figures_that_the_text_tells() -> None:
    made = json.loads((Path(__file__).parents[2] / "bench/results/forecast.json").read_text("utf-8"))
    totals = {one["kind"]: one for one in made["tables"][0]["rows"] if one["fleet"].endswith(" fleets")}
    text = " ".join((Path(__file__).parents[2] / "bench/README.md").read_text("utf-8").split())

    for kind, name in (("simulated", "simulated"), ("adversary", "adversary"), ("held out", "held-out")):
        one = totals[kind]
        assert f"{one['held']:.0%} of the starts of {name} fleets" in text
