"""Folders of state and sockets are made for one user."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hivemind_trio.store import make_private


def test_every_folder_that_is_missing_is_made_private_and_others_stay_as_they_are(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o755)
    made = there / "state" / "hivemind-trio" / "team"

    make_private(made)
    make_private(made)

    folders = (there, there / "state", there / "state" / "hivemind-trio", made)
    assert [stat.S_IMODE(one.stat().st_mode) for one in folders] == [0o755, 0o700, 0o700, 0o700]


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match="file"):
        make_private(tmp_path / "file" / "state")
