"""The manual page and the shells' completion are those of the commands that there are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from hivemind_trio.cli.main import main
from hivemind_trio.cli.man import manual


def page() -> str:
    ended = CliRunner().invoke(main, ["man"])
    assert ended.exit_code == 0
    return ended.stdout


def commands() -> Iterator[tuple[str, click.Command]]:
    yield "", main
    yield from main.commands.items()


def section(name: str) -> str:
    """What the page says of a command, as it is read."""
    found = re.split(r"^\.S[HS] ", page(), flags=re.MULTILINE)
    begins = '"hivemind\\-trio ' + name.replace("-", "\\-") if name else "OPTIONS"
    (part,) = [one for one in found if one.startswith((begins + " ", begins + "\n"))]
    return part.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_option_is_in_the_page_with_its_help(name: str) -> None:
    command = dict(commands())[name]
    said = section(name)

    for parameter in command.params:
        for spelling in parameter.opts if isinstance(parameter, click.Option) else ():
            assert re.search(rf"^\.B .*{spelling}\b", said, re.MULTILINE), spelling
        if isinstance(parameter, click.Option) and parameter.help:
            assert parameter.help in said
    if name:
        assert (command.help or "").split("\n\n")[0] in said
        for line in (command.epilog or "").splitlines():
            assert line.strip("\b") in said


def test_every_command_has_its_place_and_no_line_is_taken_for_a_request() -> None:
    text = page()

    assert text.count("\n.SS ") == len(main.commands)
    requests = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".B", ".PP", ".TP", ".nf", ".fi"}
    assert text.endswith("\n")


def test_what_looks_like_a_request_is_text() -> None:
    group = click.Group("g", help=".B not bold\n\n\b\n'so\n  C:\\dir -x", commands={})

    text = manual(group)

    assert "\n\\&.B not bold\n" in text
    assert "\n\\&'so\n" in text
    assert "  C:\\edir \\-x\n" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_the_page_is_read_without_a_complaint() -> None:
    ended = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8"], input=page(), capture_output=True, text=True, timeout=60, check=True
    )

    assert ended.stderr == ""
    assert "hivemind" in ended.stdout


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_misses_nothing_but_a_date() -> None:
    ended = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning"], input=page(), capture_output=True, text=True, timeout=60, check=False
    )

    said = (ended.stdout + ended.stderr).splitlines()
    assert [line for line in said if "missing date" not in line] == []


# ---- completion ----


def installed(folder: Path) -> Path:
    """The command of this checkout, under its name."""
    ours = folder / "hivemind-trio"
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -m hivemind_trio "$@"\n', encoding="utf-8")
    ours.chmod(0o755)
    return ours


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_the_command_by_the_variable_that_it_answers_to(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).stdout

    assert "hivemind-trio" in script
    assert f"_HIVEMIND_TRIO_COMPLETE={shell}_complete" in script
    asked = {**os.environ, "_HIVEMIND_TRIO_COMPLETE": f"{shell}_complete", "COMP_WORDS": "hivemind-trio ch"}
    asked |= {"COMP_CWORD": "ch" if shell == "fish" else "1"}
    command = [sys.executable, "-m", "hivemind_trio"]
    answered = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=60, check=False)
    assert "check" in answered.stdout
    assert "serve" not in answered.stdout


@pytest.mark.slow
def test_bash_takes_the_script_and_completes_with_it(tmp_path: Path) -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout
    ours = installed(tmp_path)
    ask = f"COMP_WORDS=(hivemind-trio check --de); COMP_CWORD=2; _hivemind_trio_completion {ours}"

    ended = subprocess.run(
        ["bash", "-c", f'{script}\n{ask}; echo "${{COMPREPLY[@]}}"'],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert ended.stdout.split() == ["--deny"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_takes_the_script_and_completes_with_it(tmp_path: Path) -> None:
    installed(tmp_path)
    script = tmp_path / "hivemind-trio.fish"
    script.write_text(CliRunner().invoke(main, ["completion", "fish"]).stdout, encoding="utf-8")

    ended = subprocess.run(
        ["fish", "--no-config", "-c", f'source {script}; complete --do-complete "hivemind-trio check --de"'],
        env={**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert [line.split("\t")[0] for line in ended.stdout.splitlines()] == ["--deny"]


TYPED_IN_ZSH: Final = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -Uz compinit; compinit -u -D; source "$SCRIPT"; PS1=; print began'
zpty -r shell seen '*began*began*'
zpty -w -n shell $'hivemind-trio completion f\t'
zpty -r shell seen '*fish*'
print -r -- $seen
zpty -d shell
"""
"""An interactive shell types a tab; `zpty -r` waits for a pattern. The word is in no help, which a script with a slip
might print."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_the_script_and_completes_with_it(tmp_path: Path) -> None:
    installed(tmp_path)
    script = tmp_path / "_hivemind-trio"
    script.write_text(CliRunner().invoke(main, ["completion", "zsh"]).stdout, encoding="utf-8")

    ended = subprocess.run(
        ["zsh", "-f", "-c", TYPED_IN_ZSH],
        env={
            **os.environ, "TERM": "dumb", "SCRIPT": str(script), "HOME": str(tmp_path),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
        },
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert "fish" in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected", "missing"),
    [
        ("explain hm20", {"HM201", "HM203"}, "HM101"),
        ("explain team.hmp tokens.", {"tokens.in=", "tokens.max-out="}, "model="),
        ("explain team.hmp he", {"header."}, "model="),
        ("simulate team.hmp --scenario f", {"fleet"}, "list"),
        ("help ope", {"operating"}, "plans"),
    ],
)
def test_codes_fields_scenarios_and_topics_are_completed(line: str, expected: set[str], missing: str) -> None:
    asked = {**os.environ, "_HIVEMIND_TRIO_COMPLETE": "bash_complete", "COMP_WORDS": f"hivemind-trio {line}"}
    asked["COMP_CWORD"] = str(len(line.split()))
    command = [sys.executable, "-m", "hivemind_trio"]
    answered = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=60, check=True)
    words = {word.partition(",")[2] for word in answered.stdout.split()}
    assert expected <= words
    assert missing not in words


def test_a_shell_that_is_not_known_is_refused() -> None:
    ended = CliRunner().invoke(main, ["completion", "tcsh"])

    assert ended.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in ended.stderr
