"""The command line in process: a folder of its own, no environment of the machine that runs the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hivemind_trio.cli.main import main

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "GITHUB_ACTIONS", "TERM"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """`run("check", "team.hmp")`; an exception that the command lets out is the test's failure."""

    def invoke(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(args), input=stdin, prog_name="hivemind-trio", catch_exceptions=False)

    return invoke
