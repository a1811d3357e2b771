"""The bench of the door still runs. What it measures is not looked at: a busy machine must not fail a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.load.attacks import ATTACKS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the most memory of a process is Linux's to say")
def test_the_bench_runs_small(tmp_path: Path) -> None:
    data = tmp_path / "door.json"
    command = [sys.executable, "-m", "bench.door", "--smoke", "--json", str(data)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    rows = json.loads(data.read_text())["tables"][0]["rows"]
    assert [row["attack"] for row in rows] == [attack.name for attack in ATTACKS]
    assert all(row["failed"] == 0 and row["turn_ms"] > 0 for row in rows)
    assert "| 50 MB of text |" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the clock of a process is Linux's")
def test_the_overload_bench_runs_small(tmp_path: Path) -> None:
    data = tmp_path / "overload.json"
    command = [sys.executable, "-m", "bench.overload", "--smoke", "--json", str(data)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    costs, fates = (table["rows"] for table in json.loads(data.read_text())["tables"])
    assert all(row["served_us"] > 0 and row["refused_us"] > 0 for row in costs)
    assert [(row["keeps"], row["rate"]) for row in fates] == [
        (keeps, rate) for keeps in (False, True) for rate in (1.0, 2.0, 5.0)
    ]
    assert all(max(row["goodput"] for row in fates if row["keeps"] is keeps) > 0 for keeps in (False, True))
