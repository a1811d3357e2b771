"""The overhead bench still runs. What it measures is not looked at: a busy machine must not fail a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from bench.load.bursts import Size, cases, figures_of
from bench.load.load import Sample
from bench.load.subjects import Subject

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the clock of a process is Linux's")
def test_the_overhead_bench_runs_small(tmp_path: Path) -> None:
    md, data, svg = (tmp_path / f"overhead.{kind}" for kind in ("md", "json", "svg"))
    command = [sys.executable, "-m", "bench.overhead", "--smoke"]
    command += ["--md", str(md), "--json", str(data), "--svg", str(svg)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    said = {one["subject"]: one for one in json.loads(data.read_text())["tables"][0]["rows"]}
    own, direct = said["hivemind-trio"], said["direct"]
    assert own["failed"] == direct["failed"] == 0
    assert own["python_calls"] > 100
    assert all(own[name] > 0 for name in ("one_cpu_us", "crowd_cpu_us", "crowd_per_second", "big_cpu_us"))
    assert "open_100" in own
    assert "unread_mb" in own
    assert "many_waiting_kb" in own
    assert "| one client: CPU per call, µs | ≤ 500 |" in md.read_text()
    assert "Absent: hivemind-scheduler: not installed" in done.stdout
    assert svg.read_text().count("<rect") > 6


SIZE = Size(rounds=2, one=3, crowd=3, slow=3, big=3, lonely_streams=3, streams=3, offered=(1,), offered_s=1.0)


def sampled(*times_ns: int) -> Sample:
    return Sample(latency_ns=[*times_ns], first_byte_ns=[*times_ns], wall_ns=10**9, failed=3 - len(times_ns))


def test_who_answers_nothing_is_not_the_quickest() -> None:
    """A gateway that refuses every stream has no time to its first byte, rather than none at all."""
    process = cast("subprocess.Popen[str]", object())
    direct, peer = Subject(name="direct", port=1), Subject(name="peer", port=2, process=process)
    taken = {(one.name, case.name): [(sampled(1, 2, 3), 4.0)] * 2 for one in (direct, peer) for case in cases(SIZE)}
    whole = figures_of(peer, direct, taken)
    taken["peer", "streams"] = [(sampled(), 4.0)] * 2
    taken["peer", "crowd"] = [(sampled(), 4.0), (sampled(1, 2, 3), 4.0)]

    found = figures_of(peer, direct, taken)

    assert whole.keys() - found.keys() == {"first_byte_p95_ms", "event_cpu_us"}
    assert (found["failed"], found["crowd_per_second"]) == (9, 3)
