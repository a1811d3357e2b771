"""The bench of a decision runs, and decides the same each time."""

from __future__ import annotations

import pytest

from bench.decision import WAITING, Crowd, main


def test_the_bench_runs_and_reports_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    results = main(["--rounds", "50"])

    assert [each.waiting for each in results] == list(WAITING)
    printed = capsys.readouterr().out
    assert all(each.digest in printed for each in results)


def test_the_digest_depends_on_the_seed_alone() -> None:
    def digest(seed: int) -> str:
        crowd = Crowd(50, seed=seed)
        for _ in crowd.rounds(100):
            pass
        return crowd.digest

    assert digest(1) == digest(1) != digest(2)
