"""Hover text of a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hivemind_trio.policy import DECLARATIONS, LOAD, Checked, Lexeme, Occurrence, Span, lexemes, masked, occurrence_at

from .completion import described, takes
from .cursor_context import Spot, settings_in, spots, word
from .field_descriptions import FAMILIES, FIELDS, OUTCOME_FAMILIES, OUTCOMES, TESTS, WORDS
from .token_roles import Role, roles

LINES_MAX: Final = 12
"""Largest number of lines of a declaration that is shown."""


def hover(checked: Checked, source: int, offset: int, names: Sequence[Occurrence]) -> tuple[Span, str] | None:
    """Return the word at a code point, and Markdown about it; None where there is nothing to say."""
    around = _statement(checked, source, offset)
    text = checked.sources[source].text[around.start : around.end]
    pieces = lexemes(text, source)
    at = offset - around.start
    piece = next((one for one in pieces if one.span.start <= at < one.span.end), None)
    if piece is None:
        return None
    place = Span(source, around.start + piece.span.start, around.start + piece.span.end)
    if (occurrence := occurrence_at(names, source, offset)) is not None and place.start == occurrence.span.start:
        shown = _declaration(checked, occurrence, names)
        if shown:
            return occurrence.span, shown
    if piece.text in WORDS and piece.type != "NAME":
        return place, f"`{piece.text}`: {WORDS[piece.text]}"
    if piece.type != "NAME":
        return None
    spot = next(spot for lexeme, spot in spots(pieces) if lexeme.span == piece.span)
    role = next(role for one, role in roles(text) if one.span.start == piece.span.start)
    meaning = _meaning(piece, spot, role)
    return (place, meaning) if meaning else None


def _statement(checked: Checked, source: int, offset: int) -> Span:
    """Return the statement of a file at an offset; the whole text where there is none, or it could not all be read.

    To divide a long policy into words for one of them takes seconds.
    """
    for file in checked.files:
        if file.source == source and not file.damaged:
            for statement in file.statements:
                if statement.span.start <= offset < statement.span.end:
                    return statement.span
    return Span(source, 0, len(checked.sources[source].text))


def _meaning(piece: Lexeme, spot: Spot, role: Role) -> str:
    name = piece.text
    match role:
        case Role.DECLARATION:
            return f"`{name}`: {DECLARATIONS[name].doc}"
        case Role.SETTING if spot.path and word(spot.path[0]) == "test":
            return TESTS.get(name, f"`{name}`: {LOAD[name].shown()}" if name in LOAD else "")
        case Role.SETTING:
            setting = settings_in(spot.path)[name]
            return f"`{name}` {takes(setting)}\n\n{described(setting)}".strip()
        case Role.OPTION:
            return _option(name, spot)
        case Role.FIELD:
            family = name.partition(".")[0]
            return f"`{name}`: {FIELDS.get(name) or FAMILIES[family]}"
        case Role.FUNCTION:
            what = "a variable of the environment" if name == "env" else "a file, relative to the policy"
            return f"`{name}(...)`: a secret from {what}. Never shown, never written down."
        case Role.NAME if spot.asks and (family := name.partition(".")[0]) != name and family in OUTCOME_FAMILIES:
            return f"`{name}`: {OUTCOME_FAMILIES[family]}"
        case Role.NAME if spot.asks and name in OUTCOMES:
            return f"`{name}`: {OUTCOMES[name]}"
        case _:
            return ""


def _option(name: str, spot: Spot) -> str:
    if name in WORDS:
        return f"`{name}`: {WORDS[name]}"
    head = word(spot.statement)
    if not spot.path:
        slot = DECLARATIONS[head].options[name]
    elif word(spot.path[0]) != "test":
        slot = settings_in(spot.path)[head].options[name]
    else:
        return ""
    return f"`{name}` {slot.shown()}, of `{head}`"


def _declaration(checked: Checked, occurrence: Occurrence, names: Sequence[Occurrence]) -> str:
    """Return the declaration, and the number of its uses."""
    symbol = occurrence.symbol
    declared = next((one for one in names if one.symbol == symbol and one.declares), None)
    if declared is None:
        return ""
    statement = next(
        (
            statement
            for file in checked.files
            if file.source == declared.span.source
            for statement in file.statements
            if statement.span.start <= declared.span.start < statement.span.end
        ),
        None,
    )
    if statement is None or symbol.kind == "load":
        return f"`load {symbol.name}`"
    text = checked.sources[declared.span.source].text
    lines = masked(text[statement.span.start : statement.span.end]).splitlines()
    shown = "\n".join(lines[:LINES_MAX] + ["  ..."] * (len(lines) > LINES_MAX))
    uses = sum(one.symbol == symbol and not one.declares for one in names)
    return f"```hmp\n{shown}\n```\nNamed {uses} time{'' if uses == 1 else 's'}."
