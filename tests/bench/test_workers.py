"""The bench of workers still runs. What it measures is not looked at."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import workers


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the CPU time of another process is Linux's to say")
def test_the_bench_runs_small(tmp_path: Path) -> None:
    data = tmp_path / "workers.json"

    workers.main(["--smoke", "--json", str(data)])

    (table,) = json.loads(data.read_text())["tables"]
    assert len(table["rows"]) == 3
    for row in table["rows"]:
        assert min(row["cpu_us_one"], row["cpu_us_apart"], row["cpu_us_two"]) > 0
        assert 0.5 <= row["largest"] < 1
