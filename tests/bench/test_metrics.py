"""The bench of metrics still runs. What it measures is not looked at."""

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
    data = tmp_path / "metrics.json"
    command = [sys.executable, "-m", "bench.metrics", "--smoke", "--json", str(data)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    (costs,) = (table["rows"] for table in json.loads(data.read_text())["tables"])
    assert [row["kind"] for row in costs] == ["uncounted", "counted", "read", "one reading", "counting alone"]
    assert all(row["ratio_32"] > 0 for row in costs[:3])
    assert costs[3]["bytes"] > 1_000
    assert 0 < costs[4]["us_per_call"] < 1_000
