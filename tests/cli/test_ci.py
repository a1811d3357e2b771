"""What runs in other people's CI: the pre-commit hooks and the workflow for GitHub are run as they are written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import jsonschema
import pytest

from tests.policy.messages.test_render import SARIF_LOG

ROOT: Final = Path(__file__).parents[2]
WORKFLOW: Final = (ROOT / "policies" / "ci" / "github.yml").read_text(encoding="utf-8")
HOOKS: Final = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")

CLEAN: Final = "provider anthropic {\n  concurrency 4\n}\n"
BROKEN: Final = "provider anthropic {\n  concurency   4\n}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a policy that is committed, and the command on the PATH."""
    (tmp_path / "bin").mkdir()
    ours = tmp_path / "bin" / "hivemind-trio"
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -m hivemind_trio "$@"\n', encoding="utf-8")
    ours.chmod(0o755)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "team.hmp").write_text(CLEAN, encoding="utf-8")
    return tmp_path


def sh(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", line], cwd=folder, env={**os.environ, "PATH": path, **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def step(begins: str) -> str:
    """The one line of the workflow that runs our command so."""
    (line,) = re.findall(rf"run: (hivemind-trio {begins}.*)", WORKFLOW)
    return str(line)


@pytest.mark.slow
def test_the_workflow_lets_a_clean_policy_through(checkout: Path) -> None:
    for begins in ("fmt", "check --deny", "check --format sarif"):
        ended = sh(step(begins), checkout)
        assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads((checkout / "policies.sarif").read_text(encoding="utf-8"))["runs"][0]["results"] == []


@pytest.mark.slow
def test_the_workflow_stops_a_broken_one_and_says_where(checkout: Path) -> None:
    (checkout / "policies" / "team.hmp").write_text(BROKEN, encoding="utf-8")

    found = sh(step("check --deny"), checkout)
    assert found.returncode == 1
    assert found.stdout.startswith("::error file=policies/team.hmp,line=2,")
    assert sh(step("fmt"), checkout).returncode == 1
    assert sh(step("check --format sarif"), checkout).returncode == 0  # or the upload would not be tried
    log = json.loads((checkout / "policies.sarif").read_text(encoding="utf-8"))
    jsonschema.validate(log, SARIF_LOG)
    (result,) = log["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "policies/team.hmp"


@pytest.mark.slow
def test_the_workflow_notices_that_nothing_could_be_checked(checkout: Path) -> None:
    shutil.rmtree(checkout / "policies")

    assert sh(step("check --format sarif"), checkout).returncode != 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_the_workflow_says_what_a_merge_would_change(checkout: Path) -> None:
    git = "git -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false"
    made = sh(
        f"git init -q && git add policies && {git} commit -qm a && git update-ref refs/remotes/origin/main HEAD",
        checkout,
    )
    assert made.returncode == 0, made.stderr
    (checkout / "policies" / "team.hmp").write_text(CLEAN.replace("4", "9"), encoding="utf-8")

    summary = checkout / "summary.md"
    ended = sh(step("diff"), checkout, GITHUB_BASE_REF="main", GITHUB_STEP_SUMMARY=str(summary))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "9" in summary.read_text(encoding="utf-8")


def hooks() -> dict[str, tuple[str, str]]:
    """Id -> its entry, and the pattern of its files."""
    found = re.findall(r"- id: (\S+)\n  name: .*\n  entry: (.*)\n  language: python\n  files: (.*)\n", HOOKS)
    assert len(found) == HOOKS.count("- id:")
    return {name: (entry, files) for name, entry, files in found}


@pytest.mark.slow
def test_the_hooks_stop_a_commit_that_they_should(checkout: Path) -> None:
    policy = checkout / "policies" / "team.hmp"
    assert hooks().keys() == {"hmp-fmt", "hmp-check"}
    for entry, files in hooks().values():
        assert re.search(files, "policies/team.hmp")
        assert not re.search(files, "policies/README.md")
        assert sh(f"{entry} policies/team.hmp", checkout).returncode == 0
    policy.write_text(BROKEN, encoding="utf-8")

    check = sh(f"{hooks()['hmp-check'][0]} policies/team.hmp", checkout)
    assert check.returncode == 1
    assert check.stdout.startswith("policies/team.hmp:2:3: ")
    sh(f"{hooks()['hmp-fmt'][0]} policies/team.hmp", checkout)
    assert policy.read_text(encoding="utf-8") == BROKEN.replace("   4", " 4")  # which pre-commit notices
