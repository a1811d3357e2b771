"""Memory of the machine or the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind_trio.host import memory_bytes


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_limit_of_a_container_counts(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("1000000\n")

    assert memory_bytes(tmp_path) == 1_000_000


@pytest.mark.parametrize("said", ["max\n", f"{1 << 63}\n", "", None])
def test_without_a_limit_it_is_that_of_the_machine(said: str | None, tmp_path: Path) -> None:
    if said is not None:
        (tmp_path / "memory.max").write_text(said)

    assert memory_bytes(tmp_path) == memory_bytes(tmp_path / "none") > 1 << 28
