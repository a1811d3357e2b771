"""What the overhead bench compares us with is installed once, and what is missing is said; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import peers


def put(folder: Path, name: str, version: str) -> None:
    """As npm leaves a package."""
    about = peers.package_of(folder, name) / "package.json"
    about.parent.mkdir(parents=True)
    about.write_text(json.dumps({"version": version}), "utf-8")


def test_what_cannot_be_installed_is_said_and_the_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(_folder: Path, name: str) -> None:
        raise OSError(f"no index has {name}")

    monkeypatch.setattr(peers, "_with_pip", unreachable)
    monkeypatch.setattr(peers, "_with_npm", lambda folder, name: put(folder, name, "1.2.3"))

    assert peers.main([str(tmp_path)]) == 1

    said = capsys.readouterr().out
    assert "litellm: not installed: no index has litellm\n" in said
    assert "portkey: installing\nportkey: 1.2.3\n" in said
    assert f"python -m bench.overhead --peers {tmp_path}" in said
    assert peers.version_of(tmp_path, "litellm") is None


def test_what_is_there_is_not_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(_folder: Path, name: str) -> None:
        raise AssertionError(name)

    put(tmp_path, "portkey", "1.2.3")
    monkeypatch.setattr(peers, "PYTHON", {})
    monkeypatch.setattr(peers, "_with_npm", never)

    peers.main([str(tmp_path)])

    assert capsys.readouterr().out.startswith("portkey: 1.2.3\n")


@pytest.mark.parametrize("words", [[], ["here", "there"]], ids=["nowhere", "two"])
def test_it_wants_one_folder(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        peers.main(words)
