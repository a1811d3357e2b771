"""A proxy is found once, wherever in the runtime directory its socket is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hivemind_trio.control import ControlSocket, running_sockets

PORT = 8_787

Open = Callable[[Path | None], ControlSocket]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of control sockets in the runtime directory."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run" / "hivemind-trio"


@pytest.fixture
def opened() -> Iterator[Open]:
    """Make control sockets of the policy `team`, which are closed after the test."""
    with ExitStack() as stack:

        def opened(path: Path | None) -> ControlSocket:
            where = ControlSocket.open("team-0", PORT, path)
            stack.callback(where.sock.close)
            return where

        yield opened


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_socket_in_the_runtime_directory_and_its_link_are_one_proxy(folder: Path, opened: Open) -> None:
    where = opened(folder / "mine.sock")

    assert names(folder) == {"mine.sock", "team-0.sock"}
    assert len(running_sockets()) == 1
    assert running_sockets("team-0") == [folder / "team-0.sock"]
    where.remove()
    assert names(folder) == set()


def test_a_socket_at_the_usual_path_has_no_link(folder: Path, opened: Open) -> None:
    where = opened(folder / "team-0.sock")

    assert where.link is None
    assert names(folder) == {"team-0.sock"}
    assert running_sockets() == [where.path]


def test_a_socket_at_the_usual_path_by_another_way_is_not_replaced_by_a_link(
    folder: Path, tmp_path: Path, opened: Open
) -> None:
    folder.mkdir(parents=True)
    (tmp_path / "other").symlink_to(folder)

    where = opened(tmp_path / "other" / "team-0.sock")

    assert where.link is None
    assert running_sockets() == [folder / "team-0.sock"]


def test_two_proxies_of_a_policy_are_two(folder: Path, tmp_path: Path, opened: Open) -> None:
    first, second = opened(None), opened(tmp_path / "elsewhere.sock")

    assert second.link == folder / f"team-0-{PORT}.sock"
    assert running_sockets() == sorted([first.path, second.link])
