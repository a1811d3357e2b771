"""White space and comments of other languages."""

from __future__ import annotations

import unicodedata
from typing import Final

from hivemind_trio.policy.syntax.lexeme import Lexeme

from .speller import Speller

_CONTROLS: Final = {"\r": "a carriage return", "\u2028": "a line separator", "\u0085": "a next-line character"}


def space(speller: Speller, piece: Lexeme) -> bool:
    """Read a blank other than space and tab, or an invisible character."""
    letter = piece.text
    if unicodedata.category(letter) not in ("Zs", "Zl", "Zp", "Cf", "Cc"):
        return False
    end = speller.at
    while end < len(speller.pieces) and speller.pieces[end].text == letter and _touch(speller, end):
        end += 1
    span = piece.span.to(speller.pieces[end - 1].span)
    name = _CONTROLS.get(letter) or f"a {unicodedata.name(letter, 'control character').lower()}"
    between_words = not speller.is_blank(span.start - 1) and not speller.is_blank(span.end)
    put = " " if between_words or unicodedata.category(letter) == "Zs" else ""
    message = f"{name} (U+{ord(letter):04X}) is not in the language"
    speller.report(span, message, "write a space" if put else "delete it", put)
    speller.at = end
    return True


def _touch(speller: Speller, index: int) -> bool:
    """Return True if a piece directly follows the one before it, or is the current one."""
    return index == speller.at or speller.pieces[index - 1].span.end == speller.pieces[index].span.start


def comment(speller: Speller, piece: Lexeme) -> bool:
    """`// ...`, `-- ...` and `/* ... */`."""
    start = piece.span.start
    mark = speller.text[start : start + 2]
    if mark == "/*":
        return _long_comment(speller, piece)
    if mark != "//" and not (mark == "--" and (speller.at_start() or speller.is_blank(start + 2))):
        return False
    span = speller.span_of(start, start + 2, piece)
    speller.report(span, f"`{mark}` is not in the language", "comments begin with `#`: write `#`", "#")
    speller.skip_to(speller.line_end(start))
    return True


def _long_comment(speller: Speller, piece: Lexeme) -> bool:
    start = piece.span.start
    close = speller.text.find("*/", start + 2)
    end = len(speller.text) if close < 0 else close + 2
    body = speller.text[start + 2 : end - 2 if close >= 0 else end]
    lines = [line.strip().removeprefix("*").strip() for line in body.split("\n")]
    put = "\n".join(f"# {line}".rstrip() for line in lines)
    if speller.text[end : speller.line_end(end)].strip():
        put += "\n"  # a statement stands behind it
    span = speller.span_of(start, end if close >= 0 else start + 2, piece)
    message = "`/*` is not in the language"
    speller.report(span, message, "a comment begins with `#`, on each of its lines", put if close >= 0 else None)
    speller.skip_to(end)
    return True
