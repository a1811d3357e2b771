"""The forecast bench, small: it repeats itself, and it notices estimates that are off."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from bench import forecast
from bench.adversaries.run import Way
from bench.forecasts.watch import Row

SECOND_NS = 1_000_000_000


def row(p50: float | None, p90: float | None, start: float | None, floor: float | None = None) -> Row:
    """Return an estimate and what came, in seconds."""
    at = [None if one is None else round(one * SECOND_NS) for one in (p50, p90, start, floor)]
    return Row(
        p50=at[0],
        p90=at[1],
        raw90=at[1],
        start=at[2],
        floor50=at[3],
        floor90=at[3],
        has_floor=floor is not None,
    )


def test_figures_are_those_of_the_rows() -> None:
    fleet = forecast.Fleet(
        name="f", kind="simulated", rows=[row(10, 12, 11), row(10, 12, 20), row(1, 2, 3), row(9, 9, None)]
    )
    figures = fleet.figures()

    assert figures["held"] == pytest.approx(1 / 3)
    assert figures["error"] == pytest.approx((1 / 11 + 10 / 20) / 2)
    assert (figures["near_s"], figures["not_started"], figures["calls"]) == (2, 0.25, 4)


def test_an_estimate_without_a_median_is_off_by_all_of_it() -> None:
    rows = [row(None, None, 10), row(12, 20, 10), row(None, None, 20, floor=30)]
    figures = forecast.Fleet(name="f", kind="simulated", rows=rows).figures()

    assert figures["error"] == 1
    assert figures["no_median"] == pytest.approx(2 / 3)
    assert (figures["floor"], figures["floor_held"]) == (0.5, 1)
    assert figures["before"] == 1


def test_nothing_but_totals_is_told_of_what_is_held_out() -> None:
    rows = [row(10, 12, 11)] * forecast.FEW
    found = [forecast.Fleet(name=name, kind="held out", rows=rows) for name in forecast.HELD_OUT]
    found.append(forecast.Fleet(name="storm", kind="simulated", rows=rows))
    told = forecast.table([one.figures() for one in found])

    assert [one[0] for one in told.rows] == ["1 fleets", "60 fleets", "storm"]
    assert not set(forecast.HELD_OUT) & {*forecast.ADVERSARIES, *forecast.FRESH}


def test_sockets_are_run_over_several_seeds_and_told_beside_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def over_sockets(name: str, seed: int) -> list[Row]:
        asked.append((name, seed))
        return [row(10, 12, 11 + 2 * (seed - 1))] * forecast.FEW

    monkeypatch.setattr(forecast, "over_sockets", over_sockets)
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    fleet = forecast.Fleet(name="storm", kind="simulated", rows=[row(10, 12, 11)] * forecast.FEW).figures()
    few = forecast.Fleet(name="few", kind="simulated", rows=[row(1, 1, 2)] * (forecast.FEW - 1)).figures()
    table = forecast.table([fleet, few])
    before.write_text(json.dumps({"tables": [{"rows": table.figures}]}))
    options = ["--with", str(before), "--only", "sockets", "--sockets", "2", "--json", str(after)]
    monkeypatch.setattr("sys.argv", ["forecast", *options])
    forecast.main()
    rows = json.loads(after.read_text())["tables"][0]["rows"]

    assert asked == [(name, seed) for name in forecast.SOCKETS for seed in (1, 2)]
    assert [(one["kind"], one["held"]) for one in rows] == [
        ("simulated", 1), ("sockets", 0.5), ("simulated", 1), ("simulated", 0), *[("sockets", 0.5)] * 3
    ]  # fmt: skip
    assert rows[0]["fleet"] == "1 fleets", "one of fewer than 40 calls is left out"

    del asked[:]
    monkeypatch.setattr("sys.argv", ["forecast", "--only", "sockets/storm", "--sockets"])
    forecast.main()
    assert asked == [("storm", 1)]


@pytest.mark.slow
def test_equal_seeds_make_equal_estimates_and_the_oracle_is_nearer_and_leaves_the_world_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = forecast.adversary("1117", Way.OURS, 1)
    figures = forecast.Fleet(name="1117", kind="drawn", rows=watched).figures()
    monkeypatch.setattr(forecast, "_ask_oracle", lambda *_: None)
    alone = forecast.adversary("1117", Way.OURS, 1)

    assert [attrs.evolve(row, floor50=None, floor90=None, has_floor=False) for row in watched] == alone
    assert figures["floor"] < 0.1 < figures["error"]


@pytest.mark.slow
def test_estimates_are_of_use() -> None:
    rows = forecast.adversary("cap-halves", Way.OURS, 1)
    figures = forecast.Fleet(name="cap-halves", kind="adversary", rows=rows).figures()

    assert len(rows) > 50
    assert figures["held"] > 0.75
    assert figures["error"] < 0.25


def test_the_results_have_the_figures_that_the_text_tells() -> None:
    made = json.loads((Path(__file__).parents[2] / "bench/results/forecast.json").read_text("utf-8"))
    totals = {one["kind"]: one for one in made["tables"][0]["rows"] if one["fleet"].endswith(" fleets")}
    text = " ".join((Path(__file__).parents[2] / "bench/README.md").read_text("utf-8").split())

    for kind, name in (("simulated", "simulated"), ("adversary", "adversary"), ("drawn", "drawn")):
        one = totals[kind]
        assert f"{one['held']:.0%} of the starts of {name} fleets" in text
