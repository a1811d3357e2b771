"""Places as editors count them: lines and characters from 0, a character being a unit of an encoding.

The language counts code points. An editor counts UTF-16 code units unless it says otherwise, so that `🙂` is two; and
a lone carriage return ends a line for it, which in a policy it does not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final, final

import attrs

_LINE_END: Final = re.compile(r"\r\n|\n|\r")

_UNITS: Final[Mapping[str, Callable[[str], int]]] = {
    "utf-8": lambda letter: len(letter.encode("utf-8", "surrogatepass")),
    "utf-16": lambda letter: 2 if ord(letter) > 0xFFFF else 1,
    "utf-32": lambda letter: 1,
}
"""Encoding -> how many characters a letter counts for."""


def line_before(before: str, now: str, line: int) -> int | None:
    """Return the line of an earlier text that a line of the text now is; None: it has changed, or is new.

    What stands between the first and the last lines that differ counts as changed.
    """
    if before == now:
        return line
    old, new = _LINE_END.split(before), _LINE_END.split(now)
    least = min(len(old), len(new))
    same = next((number for number in range(least) if old[number] != new[number]), least)
    if line < same:
        return line
    after = next((number for number in range(least - same) if old[-1 - number] != new[-1 - number]), least - same)
    return line + len(old) - len(new) if len(new) - after <= line < len(new) else None


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
