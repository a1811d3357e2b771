"""Roles of the pieces of a text: the reference of every highlighter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from itertools import pairwise
from typing import Final

from hivemind_trio.policy import (
    DECLARATIONS,
    FAULTS,
    RUN_OPTIONS,
    TEST_STATEMENTS,
    Lexeme,
    Naming,
    Setting,
    lexemes,
    links,
    request_fields,
)

from .cursor_context import Spot, settings_in, spots, word


class Role(Enum):
    """Finer than the grammar's terminals: a NAME is a setting here and a field there."""

    SPACE = auto()
    COMMENT = auto()
    DECLARATION = auto()
    """`provider` where a declaration begins."""
    DECLARED = auto()
    """The name that is being declared."""
    SETTING = auto()
    OPTION = auto()
    FIELD = auto()
    FUNCTION = auto()
    NAME = auto()
    """Any other word: a reference, a choice, or what nobody knows."""
    WORD = auto()
    """`when`, `let`, `expect`."""
    LOGIC = auto()
    """`and`, `or`, `not`, `in`."""
    STRING = auto()
    NUMBER = auto()
    OPERATOR = auto()
    PUNCTUATION = auto()
    WRONG = auto()
    """Not of the language: a foreign character, a text that does not end."""


_OF_TERMINAL: Final[Mapping[str, Role]] = {
    "WS": Role.SPACE,
    "_NL": Role.SPACE,
    "COMMENT": Role.COMMENT,
    "NAME": Role.NAME,
    "WHEN": Role.WORD,
    "LET": Role.WORD,
    "EXPECT": Role.WORD,
    "AND": Role.LOGIC,
    "OR": Role.LOGIC,
    "NOT": Role.LOGIC,
    "IN": Role.LOGIC,
    "STRING": Role.STRING,
    "QTY": Role.NUMBER,
    "CLOCK": Role.NUMBER,
    "CMP": Role.OPERATOR,
    "EQUAL": Role.OPERATOR,
    "SLASH": Role.OPERATOR,
    "_DOTDOT": Role.OPERATOR,
    "BADSTRING": Role.WRONG,
    "ERROR": Role.WRONG,
}
"""Terminals that are missing here are brackets and commas."""

FIELDS: Final = frozenset(request_fields([], [], []))
FIELD_FAMILIES: Final = ("header", "meta")
"""`header.NAME`: whatever the caller sends."""

FUNCTIONS: Final = ("env", "file")


def is_field(name: str) -> bool:
    """Return True if a condition can read the field, wherever the condition stands."""
    return name in FIELDS or name.partition(".")[0] in FIELD_FAMILIES


def roles(text: str) -> Iterator[tuple[Lexeme, Role]]:
    """Every piece of the text, white space included."""
    pieces = lexemes(text, 0)
    names = {lexeme.span.start: _name(lexeme, spot) for lexeme, spot in spots(pieces) if lexeme.type == "NAME"}
    before_call = {left.span.start for left, right in pairwise(pieces) if right.type == "LPAR"}
    for piece in pieces:
        role = _OF_TERMINAL.get(piece.type, Role.PUNCTUATION)
        if piece.text == ";":
            role = Role.PUNCTUATION
        elif piece.type == "NAME":
            role = names[piece.span.start]
            if piece.text in FUNCTIONS and piece.span.start in before_call:
                role = Role.FUNCTION
        yield piece, role


def _name(lexeme: Lexeme, spot: Spot) -> Role:
    if spot.asks:
        follows_sign = bool(spot.before) and spot.before[-1].type in ("CMP", "COMMA", "LSQB", "IN")
        return Role.FIELD if is_field(lexeme.text) and not follows_sign else Role.NAME
    if not spot.path:
        return _top(lexeme, spot)
    if word(spot.path[0]) == "test":
        return _in_test(lexeme, spot)
    settings = settings_in(spot.path)
    if spot.index == 0:
        return Role.SETTING if lexeme.text in settings else Role.NAME
    return _option(lexeme, settings.get(spot.statement[0].text))


def _top(lexeme: Lexeme, spot: Spot) -> Role:
    if spot.index == 0:
        return Role.DECLARATION if lexeme.text in DECLARATIONS else Role.NAME
    first = spot.statement[0]
    if first.type == "LET":
        if spot.index == 1:
            return Role.DECLARED
        return Role.FIELD if is_field(lexeme.text) and spot.statement[spot.index - 1].type != "CMP" else Role.NAME
    declaration = DECLARATIONS.get(first.text)
    if declaration is None:
        return Role.NAME
    if spot.index == 1 and declaration.naming is Naming.NAME:
        return Role.DECLARED
    known = lexeme.text in declaration.options or lexeme.text in links(declaration)
    return Role.OPTION if known else Role.NAME


def _in_test(lexeme: Lexeme, spot: Spot) -> Role:
    if len(spot.path) == 1:
        if spot.index == 0:
            return Role.SETTING if lexeme.text in TEST_STATEMENTS else Role.NAME
        return Role.OPTION if lexeme.text in ("any", "from", "to", *FAULTS, *RUN_OPTIONS) else Role.NAME
    if spot.index == 0:
        return Role.FIELD if is_field(lexeme.text) else Role.SETTING
    return Role.OPTION if lexeme.text in ("from", "to") else Role.NAME


def _option(lexeme: Lexeme, setting: Setting | None) -> Role:
    return Role.OPTION if setting is not None and lexeme.text in setting.options else Role.NAME
