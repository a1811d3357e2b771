"""The bench of state and journal still runs. What it measures is not looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the CPU time of another process is Linux's to say")
def test_the_bench_runs_small(tmp_path: Path) -> None:
    data = tmp_path / "durable.json"
    command = [sys.executable, "-m", "bench.durable", "--smoke", "--json", str(data)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    costs, questions = (table["rows"] for table in json.loads(data.read_text())["tables"])
    assert [row["kept"] for row in costs[:3]] == ["nothing", "state", "journal"]
    assert costs[3]["bytes_per_call"] > 0
    assert {row["question"] for row in questions} >= {"explain, median", "usage"}
