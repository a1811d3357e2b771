"""Commands find the proxy, and tell another user's from one that does not run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from hivemind_trio.cli.control.connect import unanswered
from hivemind_trio.cli.main import main


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything: the system's answer is made up."""
    monkeypatch.setattr(os, "access", lambda *_: False)


@pytest.mark.usefixtures("denied")
def test_a_folder_of_another_user_is_told(tmp_path: Path) -> None:
    (tmp_path / "hivemind-trio").mkdir()
    said = CliRunner(env={"XDG_RUNTIME_DIR": str(tmp_path)}).invoke(main, ["status"])

    assert said.exit_code == 2
    assert f"{tmp_path / 'hivemind-trio'} is another user's" in said.stderr
    assert "no proxy runs" not in said.stderr


@pytest.mark.usefixtures("denied")
def test_a_socket_of_another_user_is_told(tmp_path: Path) -> None:
    (tmp_path / "team.sock").touch()
    said = CliRunner().invoke(main, ["status", "--socket", str(tmp_path / "team.sock")])

    assert said.exit_code == 2
    assert "run this command as the user who runs the proxy" in said.stderr


def test_without_a_proxy_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "hivemind-trio").mkdir()
    said = CliRunner(env={"XDG_RUNTIME_DIR": str(tmp_path)}).invoke(main, ["status"])

    assert (said.exit_code, "no proxy runs" in said.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [["-10"], ["-10", "--json"], ["--json", "-10"], ["--", "-10"]])
def test_a_negative_priority_is_a_number(arguments: list[str], tmp_path: Path) -> None:
    said = CliRunner(env={"XDG_RUNTIME_DIR": str(tmp_path)}).invoke(main, ["priority", "3fa2c1-17", *arguments])

    assert (said.exit_code, "no proxy runs" in said.stderr) == (2, True)


@pytest.mark.parametrize(("argument", "words"), [("-1001", "not in the range"), ("--jsn", "not a valid integer")])
def test_what_is_no_priority_is_told(argument: str, words: str) -> None:
    said = CliRunner().invoke(main, ["priority", "3fa2c1-17", argument])

    assert (said.exit_code, words in said.stderr) == (2, True)


def test_advice_on_a_proxy_that_does_not_answer_names_an_option_only_if_it_was_given() -> None:
    assert "--socket" in unanswered("/run/team.sock")
    assert "--socket" not in unanswered(None)
