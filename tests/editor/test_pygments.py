"""The Pygments lexer, held to the language's own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from pygments import highlight
from pygments.formatters import NullFormatter
from pygments.lexer import Lexer
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from hivemind_trio.editor import Role, roles
from hivemind_trio.policy import lexemes
from tests.policy.syntax.test_lexer import TEXTS

ROOT: Final = Path(__file__).parents[2]
SHIPPED: Final = sorted((ROOT / "policies").rglob("*.hmp"))

FITTING: Final = {
    **dict.fromkeys(("WS", "_NL"), (Whitespace,)),
    "COMMENT": (Comment,),
    "STRING": (String,),
    **dict.fromkeys(("QTY", "CLOCK"), (Number,)),
    **dict.fromkeys(("WHEN", "LET", "EXPECT"), (Keyword,)),
    **dict.fromkeys(("AND", "OR", "NOT", "IN"), (Operator.Word,)),
    **dict.fromkeys(("CMP", "EQUAL", "SLASH", "_DOTDOT"), (Operator,)),
    "NAME": (Name, Keyword.Declaration, Keyword.Pseudo),
    **dict.fromkeys(("BADSTRING", "ERROR"), (Error,)),
}
"""The grammar's terminal -> what its pieces may be; every other one is punctuation."""


def lexer() -> Lexer:
    """As Pygments finds it: by the entry point that we declare."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ((name, value),) = declared["project"]["entry-points"]["pygments.lexers"].items()
    return EntryPoint(name, value, "pygments.lexers").load()()


def assert_fits(text: str) -> None:
    tokens = list(lexer().get_tokens_unprocessed(text))
    pieces = lexemes(text, 0)

    assert [(offset, part) for offset, _, part in tokens] == [(piece.span.start, piece.text) for piece in pieces]
    for piece, (_, token, _) in zip(pieces, tokens, strict=True):
        wanted = (Punctuation,) if piece.text == ";" else FITTING.get(piece.type, (Punctuation,))
        assert any(token in one for one in wanted), f"{piece.type} {piece.text!r} is {token}"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_each_terminal_has_a_fitting_token_in(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert_fits(text)
    assert highlight(text, lexer(), NullFormatter()) == text


@settings(max_examples=50)
@given(TEXTS)
def test_each_terminal_has_a_fitting_token_in_any_text(text: str) -> None:
    assert_fits(text)


def test_words_are_told_apart_by_where_they_stand() -> None:
    text = (
        "lane batch { queue 2k overflow deny }\n"
        'agent ci extends base when header.x-ci != "" and model in [model] { lane batch; lame batch; token env(T) }\n'
        "let small = tokens.in < 2k\n"
        'test "t" { given { agent ci }; load people { arrive 5/min }; run 1m seed 7; expect lane == batch or denied }\n'
        "defaults provider { timeout connect 5s }\n"
        'provider p { limits "*" { requests 5/min } }\nlane\n'
    )
    seen = " ".join(f"{piece.text}:{role.name}" for piece, role in roles(text) if piece.type == "NAME")

    assert seen == (
        "lane:DECLARATION batch:DECLARED queue:SETTING overflow:OPTION deny:NAME "
        "agent:DECLARATION ci:DECLARED extends:OPTION base:NAME header.x-ci:FIELD model:FIELD model:NAME "
        "lane:SETTING batch:NAME lame:NAME batch:NAME token:SETTING env:FUNCTION T:NAME "
        "small:DECLARED tokens.in:FIELD "
        "test:DECLARATION given:SETTING agent:FIELD ci:NAME load:SETTING people:NAME arrive:SETTING min:NAME "
        "run:SETTING seed:OPTION lane:NAME batch:NAME denied:NAME "
        "defaults:DECLARATION provider:NAME timeout:SETTING connect:OPTION "
        "provider:DECLARATION p:DECLARED limits:SETTING requests:SETTING min:NAME lane:DECLARATION"
    )
    assert {role for _, role in roles(text)} >= {Role.WORD, Role.LOGIC, Role.STRING, Role.NUMBER, Role.OPERATOR}


@pytest.mark.slow
def test_a_lexer_for_highlighters_is_no_burden_on_the_commands() -> None:
    script = "import sys, hivemind_trio.editor, hivemind_trio.cli; sys.exit('pygments' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
