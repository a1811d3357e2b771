"""The TextMate grammar colours as the language's lexer cuts, and knows the schema's words.

`python -m tests.policy.test_reference`, which follows the schema, writes its word lists anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.editor import Role, roles
from hivemind_trio.policy import (
    DECLARATIONS,
    DEFAULTED,
    FAULTS,
    RUN_OPTIONS,
    TEST_STATEMENTS,
    Naming,
    Setting,
    Slot,
    Type,
    lexemes,
    request_fields,
)
from hivemind_trio.policy.schema import FAILURES, LINKS
from hivemind_trio.policy.testing.block_typing import LOAD
from tests.policy.drawn import Drawn
from tests.policy.drawn import policies as drawn_policies
from tests.policy.layouts import policies as layouts
from tests.policy.syntax.test_lexer import SIGNS
from tests.support.textmate import TextMate

ROOT: Final = Path(__file__).parents[2]
GRAMMAR: Final = ROOT / "grammar" / "hmp.tmLanguage.json"
SHIPPED: Final = sorted((ROOT / "policies").rglob("*.hmp"))
GOLDEN: Final = sorted((ROOT / "tests" / "policy" / "diagnostics").rglob("*.hmp"))

FITTING: Final[Mapping[str, str]] = {
    "COMMENT": r"comment\.line",
    "STRING": r"string\.quoted",
    "BADSTRING": r"invalid\.illegal\.unterminated",
    "ERROR": r"invalid\.illegal\.character",
    "QTY": r"constant\.numeric\.hmp",
    "CLOCK": r"constant\.numeric\.clock",
    "CMP": r"keyword\.operator\.comparison",
    "EQUAL": r"keyword\.operator\.assignment",
    "SLASH": r"keyword\.operator\.per",
    "_DOTDOT": r"keyword\.operator\.range",
    "COMMA": r"punctuation\.separator",
    **dict.fromkeys(("LBRACE", "RBRACE", "LSQB", "RSQB", "LPAR", "RPAR"), r"punctuation\.section"),
    **dict.fromkeys(("WHEN", "LET", "EXPECT"), r"keyword\.control\.hmp"),
    **dict.fromkeys(("AND", "OR", "NOT", "IN"), r"keyword\.operator\.word"),
    "NAME": r"keyword\.declaration|keyword\.other\.option|entity\.name|support\.|variable\.|constant\.language",
}
"""The grammar's terminal -> the scope that each of its characters has. Blanks have none of their own."""

OF_ROLE: Final = {
    Role.DECLARATION: "keyword.declaration",
    Role.DECLARED: "entity.name",
    Role.SETTING: "support.type.property-name",
    Role.OPTION: "keyword.other.option",
    Role.FUNCTION: "support.function",
}
"""What of a NAME's role a grammar of lines can know, in a policy that is laid out as people do."""


# ---- words ----


def _settings(settings: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    for name, setting in settings.items():
        yield name, setting
        yield from _settings(setting.block or {})


def words() -> dict[str, list[str]]:
    """Rule of the grammar -> the words that the schema has for it."""
    every = [pair for one in DECLARATIONS.values() for pair in _settings(one.settings)]
    every += [pair for settings in DEFAULTED.values() for pair in _settings(settings)]
    slots: list[Slot] = [slot for _, one in every for slot in (*one.args, *one.options.values())]
    slots += [slot for one in DECLARATIONS.values() for slot in one.options.values()]
    choices = {word for slot in slots if slot.type in (Type.WORD, Type.WORDS) for word in slot.words}
    choices |= {word for one in DECLARATIONS.values() for word in one.words}
    options = {name for _, one in every for name in one.options}
    options |= {name for one in DECLARATIONS.values() for name in one.options}
    fields = list(request_fields([], [], []))
    lists: dict[str, Iterable[str]] = {
        "named-declaration": [name for name, one in DECLARATIONS.items() if one.naming is Naming.NAME],
        "declaration": [name for name, one in DECLARATIONS.items() if one.naming is not Naming.NAME],
        "setting": {name for name, _ in every} | {*TEST_STATEMENTS, *LOAD, *fields, "latency", "fail"},
        "option": options | {*LINKS, *FAULTS, *RUN_OPTIONS, "any", "from", "to"},
        "field": fields,
        "choice": choices | {*FAILURES, "unknown", "none", "true", "false", "admitted", "denied"},
    }
    return {rule: sorted(set(found)) for rule, found in lists.items()}


_LIST: Final = re.compile(r"(?<=\()[a-z0-9.\\-]+(?:\|[a-z0-9.\\-]+)+(?=\))")


def with_words(grammar: dict[str, Any]) -> dict[str, Any]:
    """The grammar with the schema's words in the rules that say `words:` in their comment."""
    listed = words()
    for name, rule in grammar["repository"].items():
        for one in (rule, *rule.get("patterns", ())):
            if one.get("comment", "").startswith("words:"):
                alternatives = "|".join(word.replace(".", "\\.") for word in listed.pop(name))
                one["match"], found = _LIST.subn(alternatives.replace("\\", r"\\"), one["match"], count=1)
                assert found
    assert not listed, f"no rule for {listed}"
    return grammar


def write() -> None:
    """Bring the grammar's words up to date."""
    grammar = with_words(json.loads(GRAMMAR.read_text(encoding="utf-8")))
    GRAMMAR.write_text(json.dumps(grammar, indent=2) + "\n", encoding="utf-8")


def test_the_grammar_has_every_word_of_the_schema_and_no_other() -> None:
    text = GRAMMAR.read_text(encoding="utf-8")

    assert text == json.dumps(with_words(json.loads(text)), indent=2) + "\n", (
        "run `python -m tests.policy.test_reference`"
    )


# ---- differential ----

TEXTMATE: Final = TextMate(json.loads(GRAMMAR.read_text(encoding="utf-8")))


def assert_fits(text: str) -> None:
    scopes = TEXTMATE.scopes(text)
    for piece in lexemes(text, 0):
        if piece.type in ("WS", "_NL") and piece.text != ";":
            wanted = r"(?!.*(invalid|string|comment|variable|entity|constant))"
        else:
            wanted = FITTING.get(piece.type, r"punctuation\.terminator")
        for given_ in set(scopes[piece.span.start : piece.span.end]):
            assert re.match(wanted, " ".join(given_)), f"{piece.type} {piece.text!r} at {piece.span.start} has {given_}"


@pytest.mark.parametrize("path", [*SHIPPED, *GOLDEN], ids=lambda path: path.name)
def test_each_terminal_has_a_fitting_scope_in(path: Path) -> None:
    assert_fits(path.read_text(encoding="utf-8"))


@pytest.mark.slow
@settings(max_examples=20)
@given(drawn_policies())
def test_each_terminal_has_a_fitting_scope_in_any_policy(drawn: Drawn) -> None:
    assert_fits(drawn.text)


@pytest.mark.slow
@settings(max_examples=40)
@given(layouts())
def test_each_terminal_has_a_fitting_scope_in_any_layout(text: str) -> None:
    assert_fits(text)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(SIGNS, max_size=40).map("".join))
def test_each_terminal_has_a_fitting_scope_in_what_is_no_policy(text: str) -> None:
    assert_fits(text.replace("\r", ""))  # of which editors make line ends that the language does not have


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_policy_has_its_words_told_apart(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    scopes = TEXTMATE.scopes(text)

    for piece, role in roles(text):
        if role in OF_ROLE:
            where = f"{path.name}:{text.count(chr(10), 0, piece.span.start) + 1}: `{piece.text}`"
            assert any(scope.startswith(OF_ROLE[role]) for scope in scopes[piece.span.start]), where


def test_what_stands_in_a_text_and_a_comment_has_its_own_scope() -> None:
    text = 'rule a { deny "a\\"b*" } # hmp: allow HM303 why\n'
    scopes = TEXTMATE.scopes(text)

    def of(part: str) -> str:
        return scopes[text.index(part)][-1]

    assert of('\\"') == "constant.character.escape.hmp"
    assert of("*") == "constant.other.wildcard.hmp"
    assert of("hmp: allow") == "keyword.control.directive.hmp"
    assert of(" why") == "comment.line.number-sign.hmp"
    assert TEXTMATE.scopes("timeout connect 30s")[-1][-1] == "keyword.other.unit.hmp"
