"""The adversary bench: its results are deterministic, and its references notice a provider that gives too much."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import _adversary_provider as provider
from bench import adversary
from bench._adversary_draw import NAMED
from bench._adversary_run import Way


def test_equal_seeds_make_equal_decisions() -> None:
    names = ["3", "5", "lie-60"]

    first, second = (adversary.digest(adversary.outcomes(names, list(Way), 1)) for _ in range(2))

    assert first == second


def test_a_parameter_drawn_anew_makes_another_drawing() -> None:
    found = [adversary.digest(adversary.outcomes([name], [Way.CODE], 1)) for name in ("3", "3,requests=5")]

    assert found[0] != found[1]


@pytest.mark.parametrize("name", ["rpm-50", "rolling-60", "bucket-4", "cap-10", "1201"])
def test_nothing_beats_the_bound(name: str) -> None:
    one = adversary.outcome(name, list(Way))

    assert not one.infeasible
    assert one.bound_ns <= one.order_ns
    assert one.impossible == []


def test_a_window_that_gives_twice_beats_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = provider._Count.room
    monkeypatch.setattr(provider._Count, "room", lambda count, now_ns: honest(count, now_ns) + count.quota.limit)

    one = adversary.outcome("rpm-50", [Way.FIXED])

    assert one.impossible == ["fixed", "order"]


def test_an_event_log_tells_why_the_provider_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert adversary.main(["--trace", "bucket-4"]) == 0

    said = capsys.readouterr().out
    assert "refused 429 (truth: quota requests) -> quota" in said
    assert "makespan " in said


def test_tables_pictures_and_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    md, data, pictures = tmp_path / "a.md", tmp_path / "a.json", tmp_path / "svg"

    code = adversary.main(
        f"--drawings 3 --seed 4 --way fixed,ours --worst 1 --md {md} --json {data} --svg {pictures}".split()
    )

    assert code == 0
    assert md.read_text("utf-8") == capsys.readouterr().out
    assert "## Targets" in md.read_text("utf-8")
    (picture,) = pictures.iterdir()
    assert picture.read_text("utf-8").startswith("<svg")


@pytest.mark.parametrize("arguments", [["--only", "strange"], ["--named", "strange"], ["--trace", "5,strange=3"]])
def test_an_unknown_drawing_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        adversary.main(arguments)

    assert "strange" in capsys.readouterr().err


def test_scenarios_are_feasible() -> None:
    for name in NAMED:
        assert not adversary.outcome(name, []).infeasible, name
