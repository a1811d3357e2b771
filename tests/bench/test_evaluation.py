"""The evaluation and the comparison with sockets still run, and write what they say they do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import evaluation, fidelity
from bench._worlds import Switches, ablated, compiled, paper, shipped
from hivemind_trio.sim import Way


@pytest.mark.parametrize("part", evaluation.PARTS)
def test_each_part_writes_its_table_and_its_figures(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    md, data = tmp_path / "deep" / "out.md", tmp_path / "out.json"

    assert (
        evaluation.main(["--smoke", "--only", part, "--md", str(md), "--json", str(data), "--plots", str(tmp_path)])
        == 0
    )

    said = json.loads(data.read_text())
    (table,) = said["tables"]
    assert table["rows"]
    assert all(len(row["seeds"]) == 1 and all(row["digests"]) for row in table["rows"])
    assert said["made"]["seeds"] == "1 to 1"
    assert md.read_text() in capsys.readouterr().out
    assert [line.count(" | ") for line in md.read_text().splitlines() if line.startswith("| ")] != []
    assert all(path.read_text().startswith("<svg") for path in tmp_path.glob("*.svg"))
    assert list(tmp_path.glob("*.svg")) or part not in ("paper", "regimes")


@pytest.mark.parametrize(("option", "what"), [("--only", "part"), ("--regimes", "regime")])
def test_what_there_is_not_is_an_error(option: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        evaluation.main([option, "strom"])

    assert f"there is no {what} `strom`" in capsys.readouterr().err


def test_both_worlds_do_the_same_work(tmp_path: Path) -> None:
    data = tmp_path / "out.json"

    assert fidelity.main(["--smoke", "--json", str(data)]) == 0

    rows = json.loads(data.read_text())["tables"][0]["rows"]
    assert [row["way"] for row in rows] == [str(way) for way in Way]
    for row in rows:
        assert row["simulated"]["turns_done"] == row["real"]["turns_done"] == 9
        assert row["simulated"]["tokens"] == row["real"]["tokens"]


def test_scenarios_run_over_sockets_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluation.main(["--real", "--smoke"]) == 0

    rows = capsys.readouterr().out
    assert "| micro-5 | direct | 0 |" in rows
    assert "| micro-5 | proxy | 0 |" in rows


def test_a_name_that_cannot_be_run_over_sockets_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        evaluation.main(["--real", "--only", "fleet"])

    assert "scenario `fleet` brings no policy of its own" in capsys.readouterr().err


@pytest.mark.parametrize("switch", Switches.names())
def test_each_switch_of_the_ablation_makes_another_policy(switch: str) -> None:
    traits = shipped("replay-11").upstreams[0].traits
    full, off = ablated(traits, Switches()), ablated(traits, Switches(**{switch: False}))

    full_one, off_one = (compiled(text).providers["simulated"] for text in (full, off))
    assert full_one != off_one


def test_the_variants_stream_and_reset() -> None:
    named = {each.name: each for each in paper()}

    assert len(named) == 7 + 2 + 7
    assert named["stress, real resets"].upstreams[0].traits.resets == 0.05
    assert all(fleet.stream == 1.0 for fleet in named["replay-11, real resets, streaming"].fleets)
