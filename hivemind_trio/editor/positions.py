"""Places as editors count them: lines and characters from 0, a character being a unit of an encoding.

The language counts code points. An editor counts UTF-16 code units unless it says otherwise, so that `🙂` is two; and
a lone carriage return ends a line for it, which in a policy it does not.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import attrs

ALONE_MAX: Final = 200
"""Lines above and below one, at most, that are read without the rest of their text."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")

_UNITS: Final[Mapping[str, Callable[[str], int]]] = {
    "utf-8": lambda letter: len(letter.encode("utf-8", "surrogatepass")),
    "utf-16": lambda letter: 2 if ord(letter) > 0xFFFF else 1,
    "utf-32": lambda letter: 1,
}
"""Encoding -> how many characters a letter counts for."""


def line_before(before: str, now: str, line: int) -> int | None:
    """Return the line of an earlier text that a line of the text now is; None: it has changed, or is new.

    Lines that differ are told apart by those that both texts have once, in the same order (patience diff, Bram Cohen).
    """
    if before == now:
        return line
    old, new = _LINE_END.split(before), _LINE_END.split(now)
    least = min(len(old), len(new))
    same = next((number for number in range(least) if old[number] != new[number]), least)
    if line < same:
        return line
    after = next((number for number in range(least - same) if old[-1 - number] != new[-1 - number]), least - same)
    if line >= len(new) - after:
        return line + len(old) - len(new) if line < len(new) else None
    found = _line_between(old[same : len(old) - after], new[same : len(new) - after], line - same)
    return None if found is None else found + same


def _line_between(old: Sequence[str], new: Sequence[str], line: int) -> int | None:
    """Return the line of `old` that is reached from the nearest common line over lines that are equal in both."""
    kept = _common(old, new)
    for step in (-1, 1):
        at = line
        while 0 <= at < len(new) and at not in kept:
            at += step
        if at in kept:
            shift = kept[at] - at
            if all(0 <= one + shift < len(old) and old[one + shift] == new[one] for one in range(line, at, step)):
                return line + shift
    return None


def _common(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Return lines of `new` and the same of `old`: the longest increasing sequence of those that both have once."""
    often_old, often_new = Counter(old), Counter(new)
    places = {text: number for number, text in enumerate(old) if often_old[text] == 1}
    ends: list[int] = []  # of the best sequences of each length, the last line of `old`
    lasts: list[tuple[int, int]] = []
    previous: dict[tuple[int, int], tuple[int, int] | None] = {}
    for number, text in enumerate(new):
        if often_new[text] == 1 and (place := places.get(text)) is not None:
            length = bisect_left(ends, place)
            ends[length : length + 1] = [place]
            lasts[length : length + 1] = [(number, place)]
            previous[number, place] = lasts[length - 1] if length else None
    kept: dict[int, int] = {}
    one = lasts[-1] if lasts else None
    while one is not None:
        kept[one[0]] = one[1]
        one = previous[one]
    return kept


_BEGINS: Final = re.compile(r"[a-z]", re.IGNORECASE)


def declaration_around(text: str, line: int) -> tuple[int, str] | None:
    """Return the first line and the text of what is declared around a line; None: it is longer than `ALONE_MAX`.

    A declaration begins in the first column, as `fmt` writes it.
    """
    lines = _LINE_END.split(text)
    if line >= len(lines):
        return None
    first = next((one for one in range(line, max(-1, line - ALONE_MAX), -1) if _BEGINS.match(lines[one])), None)
    last = min(len(lines), line + ALONE_MAX)
    end = next((one for one in range(line + 1, last) if _BEGINS.match(lines[one])), last)
    if first is None or (end == last < len(lines)):
        return None
    return first, "\n".join([*lines[first:end], ""])


@final
@attrs.define(eq=False)
class Positions:
    """A text and its lines.

    Args:
        encoding: `utf-8`, `utf-16` or `utf-32`, whichever client and server have agreed on.
    """

    text: str
    encoding: str = "utf-16"
    _starts: list[int] = attrs.field(init=False)
    _ends: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        ends = list(_LINE_END.finditer(self.text))
        self._starts = [0, *(end.end() for end in ends)]
        self._ends = [*(end.start() for end in ends), len(self.text)]

    def place(self, offset: int) -> tuple[int, int]:
        r"""Return line and character of a code point. Between `\r` and `\n` is the end of the line."""
        line = bisect_right(self._starts, offset) - 1
        start = self._starts[line]
        return line, self._length(self.text[start : min(offset, self._ends[line])])

    def offset(self, line: int, character: int) -> int:
        """Return the code point at a place: at most the end of the line or text, and before a letter that it is in."""
        if line >= len(self._starts):
            return len(self.text)
        units = _UNITS[self.encoding]
        seen = 0
        for offset in range(self._starts[line], self._ends[line]):
            seen += units(self.text[offset])
            if seen > character:
                return offset
        return self._ends[line]

    def _length(self, part: str) -> int:
        return len(part) if self.encoding == "utf-32" or part.isascii() else sum(map(_UNITS[self.encoding], part))
