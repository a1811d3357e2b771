"""The canonical layout of a policy. Only white space changes; where lines are broken stays the author's choice.

Two spaces a level; one between words; a block over several lines opens at the end of one and closes on one of its own;
at most one empty line. In a run of neighbouring lines, settings have their values in one column, and blocks of the same
kind that are written on one line have their braces in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, final

import attrs

from .lexeme import Lexeme
from .lexer import CONTINUES_AFTER, CONTINUES_BEFORE, lexemes, significant
from .parser import parse

INDENT: Final = "  "
CONTINUED: Final = INDENT * 2
"""Before what goes on from the line above outside of brackets."""
BEFORE_COMMENT: Final = "  "

_OPENS: Final = {"LBRACE": "RBRACE", "LPAR": "RPAR", "LSQB": "RSQB"}
_CLOSES: Final = frozenset(_OPENS.values())
_TIGHT_AFTER: Final = frozenset({"LPAR", "LSQB", "_DOTDOT", "SLASH"})
_TIGHT_BEFORE: Final = frozenset({"RPAR", "RSQB", "COMMA", "_DOTDOT", "SLASH", "_NL"})


class FormatError(ValueError):
    """The text is left alone, and why."""


@final
@attrs.define
class _Line:
    """One line; empty: a blank one."""

    words: list[Lexeme]
    depth: int = 0
    """Open brackets of every kind where it begins, less those that it begins by closing."""
    braces: int = 0
    """Open braces where it begins."""
    whole: bool = False
    """One statement, and all of it."""
    continues: bool = False
    """Goes on from the line above, outside of brackets."""


def format_text(text: str) -> str:
    """Return the same policy in its canonical layout. Formatting that again changes nothing.

    Raises:
        FormatError: The text has a syntax error, so that nobody knows what its layout should be.
    """
    _, problems = parse(text, 0)
    if problems:
        line = text.count("\n", 0, problems[0].span.start) + 1
        raise FormatError(f"line {line}: {problems[0].message}")
    before = lexemes(text, 0)
    lines = _without_stray_blanks(_broken_at_braces(_lines(before)))
    _measure(lines)
    formatted = "".join(line.rstrip() + "\n" for line in _laid_out(lines))
    if _meaning(lexemes(formatted, 0)) != _meaning(before):
        raise FormatError("its words or comments would change; this is a bug of the formatter, please report it")
    return formatted


def _meaning(pieces: Sequence[Lexeme]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the invariants of formatting: the parser's words, with `;` for any separator, and all other text."""
    seen = [(piece.type, "" if piece.type == "_NL" else piece.text) for piece in significant(pieces)]
    if seen and seen[-1][0] == "_NL":
        seen.pop()
    written = [piece.text.rstrip() for piece in pieces if piece.type != "WS" and piece.text.strip()]
    return seen, written


# ---- which lines there are ----


def _lines(pieces: Sequence[Lexeme]) -> list[_Line]:
    lines = [_Line([])]
    for piece in pieces:
        if piece.type == "_NL" and piece.text != ";":
            lines.append(_Line([]))
        elif piece.type != "WS":
            lines[-1].words.append(piece)
    joined: list[_Line] = []
    for line in lines:
        previous = joined[-1].words if joined else []
        if line.words and line.words[0].type == "LBRACE" and previous and previous[-1].type != "COMMENT":
            previous += line.words  # a block begins on the line of what it belongs to
        else:
            joined.append(line)
    return joined


def _broken_at_braces(lines: Sequence[_Line]) -> list[_Line]:
    """With a line of its own for what stands behind the `{`, and before the `}`, of a block over several lines."""
    opened: list[int] = []
    open_ends, close_starts = set(), set()
    where: list[tuple[int, Lexeme]] = []
    for number, line in enumerate(lines):
        for word in line.words:
            if word.type == "LBRACE":
                opened.append(len(where))
            elif word.type == "RBRACE" and opened:
                begin = opened.pop()
                if where[begin][0] != number:
                    open_ends.add(begin)
                    close_starts.add(len(where))
            where.append((number, word))
    broken: list[_Line] = []
    index = 0
    for line in lines:
        broken.append(_Line([]))
        for position, word in enumerate(line.words):
            if index in close_starts and position:
                broken.append(_Line([]))
            broken[-1].words.append(word)
            following = line.words[position + 1].type if position + 1 < len(line.words) else "COMMENT"
            if index in open_ends and following != "COMMENT":
                broken.append(_Line([]))
            index += 1
    return broken


def _without_stray_blanks(lines: Sequence[_Line]) -> list[_Line]:
    """No empty line at an end of the file or of a block, and never two together."""
    kept: list[_Line] = []
    for line in lines:
        if not line.words:
            previous = _last(kept[-1]) if kept else None
            if previous is None or previous.type == "LBRACE":
                continue
        elif line.words[0].type == "RBRACE" and kept and not kept[-1].words:
            kept.pop()
        kept.append(line)
    while kept and not kept[-1].words:
        kept.pop()
    return kept


def _last(line: _Line) -> Lexeme | None:
    """Return the last word that is no comment; of a comment's own line, the comment."""
    words = [word for word in line.words if word.type != "COMMENT"] or line.words
    return words[-1] if words else None


def _measure(lines: Sequence[_Line]) -> None:
    """Note for each line how deep it is, and whether it is a statement."""
    brackets: list[str] = []
    for line in lines:
        leading = 0
        for word in line.words:
            if word.type not in _CLOSES:
                break
            leading += 1
        line.depth = max(0, len(brackets) - leading)
        line.braces = brackets.count("LBRACE")
        line.whole = not brackets or brackets[-1] == "LBRACE"
        for word in line.words:
            if word.type in _OPENS:
                brackets.append(word.type)
            elif word.type in _CLOSES and brackets:
                brackets.pop()
        line.whole = line.whole and line.braces == brackets.count("LBRACE") and len(brackets) == line.braces
    filled = [line for line in lines if line.words and line.words[0].type != "COMMENT"]
    for above, below in pairwise(filled):
        before, after = _last(above), below.words[0]
        assert before is not None
        if before.type in CONTINUES_AFTER or (
            after.type in CONTINUES_BEFORE and after.type not in ("LBRACE", "RBRACE")
        ):
            above.whole = below.whole = False
            below.continues = True


# ---- how they are laid out ----


def _laid_out(lines: Sequence[_Line]) -> list[str]:
    pads = _pads(lines, _value_of_setting, None) | _pads(lines, _brace_of_block, lambda line: line.words[0].text)
    out = []
    for number, line in enumerate(lines):
        in_brackets = line.depth > line.braces
        indent = INDENT * line.depth + (CONTINUED if line.continues and not in_brackets else "")
        at, pad = pads.get(number, (0, 0))
        out.append(indent + _joined(line.words, at, pad))
    return out


def _joined(words: Sequence[Lexeme], pad_before: int = 0, pad: int = 0) -> str:
    """Words with the space that belongs between them, and `pad` more before one of them."""
    text = words[0].text.rstrip() if words else ""
    for index in range(1, len(words)):
        text += _space(words[index - 1], words[index])
        if index == pad_before:
            text += " " * pad
        text += words[index].text.rstrip()
    return text


def _space(left: Lexeme, right: Lexeme) -> str:
    if right.type == "COMMENT":
        return BEFORE_COMMENT
    if left.type in _TIGHT_AFTER or right.type in _TIGHT_BEFORE:
        return ""
    if left.type == "NAME" and right.type == "LPAR":
        return ""
    return " "


def _pads(
    lines: Sequence[_Line], column: Callable[[_Line], int], kind: Callable[[_Line], str] | None
) -> dict[int, tuple[int, int]]:
    """Line number -> the word to move, and by how much, so that in a run of lines it stands in one column.

    Args:
        column: The index of that word; 0 for a line that is not of this sort.
        kind: A run ends where this changes.
    """
    pads: dict[int, tuple[int, int]] = {}
    run: list[int] = []

    def close() -> None:
        if len(run) > 1:
            widths = [len(_joined(lines[number].words[: column(lines[number])])) for number in run]
            for number, width in zip(run, widths, strict=True):
                pads[number] = (column(lines[number]), max(widths) - width)
        run.clear()

    for number, line in enumerate(lines):
        if line.words and line.words[0].type == "COMMENT":
            continue  # a remark within a run does not end it
        if not column(line):
            close()
            continue
        previous = lines[run[-1]] if run else line
        if previous.depth != line.depth or (kind is not None and kind(previous) != kind(line)):
            close()
        run.append(number)
    close()
    return pads


def _value_of_setting(line: _Line) -> int:
    """Return the first value of `key value ...` alone on its line in a block."""
    types = [word.type for word in line.words]
    if not line.whole or not line.braces or types[:1] != ["NAME"] or {"LBRACE", "WHEN", "_NL"} & set(types):
        return 0
    return 1 if len(types) > 1 and types[1] != "COMMENT" else 0


def _brace_of_block(line: _Line) -> int:
    """Return the brace of `head ... { ... }` without a condition, alone on its line."""
    types = [word.type for word in line.words if word.type != "COMMENT"]
    if not (line.whole and types and types[0] == "NAME" and types[-1] == "RBRACE") or "LBRACE" not in types:
        return 0
    brace = types.index("LBRACE")
    depth = 0
    for index, type_ in enumerate(types):
        depth += (type_ == "LBRACE") - (type_ == "RBRACE")
        if depth == 0 and brace < index < len(types) - 1:
            return 0  # a second statement on the line
    return 0 if "WHEN" in types[:brace] or "_NL" in types[:brace] else brace
