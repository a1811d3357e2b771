"""The Visual Studio Code extension: what it points at is there, and it brackets and comments as the language does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from hivemind_trio.cli.main import main
from hivemind_trio.policy import lexemes

ROOT: Final = Path(__file__).parents[2] / "grammar"
FOLDER: Final = ROOT / "vscode"


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_what_the_manifest_points_at_is_there_or_is_made_by_the_build() -> None:
    manifest = load(FOLDER / "package.json")
    (language,), (grammar,) = manifest["contributes"]["languages"], manifest["contributes"]["grammars"]

    assert (FOLDER / manifest["main"]).is_file()
    assert (FOLDER / language["configuration"]).is_file()
    assert grammar["scopeName"] == load(ROOT / "hmp.tmLanguage.json")["scopeName"]
    assert grammar["path"].removeprefix("./") in manifest["scripts"]["vscode:prepublish"]
    assert (grammar["language"], language["extensions"]) == (language["id"], [".hmp"])


def test_the_command_that_it_starts_exists() -> None:
    settings = load(FOLDER / "package.json")["contributes"]["configuration"]["properties"]
    name, *args = settings["hivemind.command"]["default"]

    assert name == "hivemind-trio"
    assert CliRunner().invoke(main, [*args, "--help"]).exit_code == 0


def test_brackets_and_comments_are_those_of_the_language() -> None:
    configured = load(FOLDER / "language-configuration.json")
    kinds = {piece.text: piece.type for piece in lexemes("{ } [ ] ( )", 0)}

    assert {letter for pair in configured["brackets"] for letter in pair} == kinds.keys() - {" "}
    assert lexemes(configured["comments"]["lineComment"] + " x", 0)[0].type == "COMMENT"


def test_a_word_is_what_the_language_takes_for_one() -> None:
    pattern = re.compile(load(FOLDER / "language-configuration.json")["wordPattern"])

    for text in ("first-byte", "header.x-ci-job", "tokens.in", "$0.80", "50%", "1h30m"):
        (piece,) = lexemes(text, 0)
        match = pattern.match(text)
        assert match is not None
        assert match[0] == piece.text
