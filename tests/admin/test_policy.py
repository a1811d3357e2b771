"""The effect of a reload, as an operator is told it before."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from hivemind_trio.admin import (
    OPERATIONS,
    Facts,
    Operated,
    OperationFailed,
    PolicyKeeper,
    ProblemKind,
    ReloadResult,
    TimeSeries,
)
from hivemind_trio.host import DiskFiles
from hivemind_trio.serve.load import Loaded, load
from tests.e2e.house import Place, standing

POLICY = 'hmp 1\nprovider sim { api generic; base "http://127.0.0.1:9"; concurrency 3 }\n'


def read(folder: Path, text: str) -> Loaded:
    path = folder / "team.hmp"
    path.write_text(text)
    return load(str(path), DiskFiles())


def operated(place: Place, running: Loaded, file: Loaded) -> Operated:
    keeper = PolicyKeeper(lambda: running, lambda: file, ReloadResult)
    return Operated(
        facts=Facts(version="0", pid=1, address=place.url, policy="team.hmp", journal=None),
        engine=place.house.engine,
        leases=place.house.leases,
        door=place.house.door,
        tally=place.house.tally,
        conduct=place.house.conduct,
        starts=place.house.starts,
        metrics=place.house.metrics,
        hour=place.house.hour,
        providers=place.house.providers,
        series=TimeSeries(place.house.engine, place.house.metrics.attempts),
        wall_ns=lambda: 0,
        policy=keeper,
        disk_troubles={},
        note=lambda *_: None,
    )


@pytest.mark.slow
async def test_a_diff_has_what_the_file_changes_and_what_the_command_says_of_it(tmp_path: Path) -> None:
    running, file = read(tmp_path, POLICY), read(tmp_path, POLICY.replace("concurrency 3", "concurrency 5"))
    with trio.fail_after(60):
        async with standing(POLICY) as place:
            operation = OPERATIONS["policy_diff"]
            found = await operation.run(operated(place, running, file), operation.arguments())
            same = await operation.run(operated(place, running, running), operation.arguments())

    assert (found.old, found.new) == (place.house.engine.program.hash, file.program.hash)
    assert "concurrency" in found.text
    assert "5" in found.text
    assert found.diff["changes"]
    assert not same.diff["changes"]


@pytest.mark.slow
async def test_a_file_with_errors_has_no_diff_but_its_errors(tmp_path: Path) -> None:
    running, bad = read(tmp_path, POLICY), read(tmp_path, POLICY + "lane a { weight 0 }\n")
    with trio.fail_after(60):
        async with standing(POLICY) as place:
            operation = OPERATIONS["policy_diff"]
            with pytest.raises(OperationFailed) as failed:
                await operation.run(operated(place, running, bad), operation.arguments())

    assert failed.value.kind is ProblemKind.POLICY_REJECTED
    assert any("team.hmp:3" in line for line in failed.value.diagnostics)
