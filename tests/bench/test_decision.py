"""The bench of a decision runs, decides the same each time, and counts what its result file says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.decision import POLICIES, WAITING, Crowd, main


@pytest.mark.slow
def test_the_bench_runs_and_reports_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    results = main(["--rounds", "50"])

    assert [(each.policy, each.waiting) for each in results] == [(name, size) for name in POLICIES for size in WAITING]
    assert all(each.calls > 10 for each in results)
    counted = json.loads((Path(__file__).parents[2] / "bench/results/decision.json").read_text("utf-8"))
    recorded = {(row["policy"], row["waiting"]): row["calls"] for row in counted["tables"][0]["rows"]}
    for each in results:
        if each.policy == "plain":  # whose first events are like the others
            assert each.calls == pytest.approx(recorded[each.policy, each.waiting], rel=0.1)
    printed = capsys.readouterr().out
    assert all(each.digest in printed for each in results)


@pytest.mark.slow
def test_the_digest_depends_on_the_seed_alone() -> None:
    def digest(seed: int) -> str:
        crowd = Crowd(50, seed=seed)
        for _ in crowd.rounds(100):
            pass
        return crowd.digest

    assert digest(1) == digest(1) != digest(2)


@pytest.mark.slow
def test_the_digest_depends_on_no_hash_seed() -> None:
    # What a set or the order of a dict's hashes decided would differ between two processes.
    script = "from bench.decision import Crowd; c = Crowd(50, seed=1); [None for _ in c.rounds(200)]; print(c.digest)"

    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }

    assert len(digests) == 1
    assert digests != {""}
