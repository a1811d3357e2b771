"""What the bench of what can be reached prints and reckons is what it says."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from bench import ideal
from bench.simulated.worlds import shipped
from hivemind_trio.sim import Scenario


def test_it_writes_the_table_that_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    md = tmp_path / "ideal.md"

    assert ideal.main(["--smoke", "--md", str(md), "requests-bind", "fixed-window"]) == 0

    assert md.read_text("utf-8") == capsys.readouterr().out
    assert [line.split(" | ")[0] for line in md.read_text("utf-8").splitlines()[2:]] == [
        "| requests-bind",
        "| fixed-window",
    ]


def test_a_scenario_that_it_cannot_reckon_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ideal.main(["storm"])

    assert "`storm` cannot be had; there is requests-bind, " in capsys.readouterr().err


def crowded(scenario: Scenario) -> Scenario:
    """Fewer agents, and less for each of them."""
    fleets = tuple(attrs.evolve(fleet, count=16) for fleet in scenario.fleets)
    upstreams = tuple(
        attrs.evolve(upstream, traits=attrs.evolve(upstream.traits, concurrency=3)) for upstream in scenario.upstreams
    )
    return attrs.evolve(scenario, fleets=fleets, upstreams=upstreams)


def test_nobody_is_faster_than_the_bound_and_to_know_what_is_left_is_worth_something() -> None:
    scenario = crowded(shipped("concurrency-binds"))

    told, untold = (ideal.over_bound(scenario, 1, order) for order in ideal.ORDERS.values())

    assert 1 <= told < untold
