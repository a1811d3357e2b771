"""Lines and columns of a span, counted from 1 in code points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import final

import attrs

from .secret_scan import masked
from .source_text import Source
from .span import Span


@final
@attrs.frozen
class Position:
    """A point in a text."""

    line: int
    column: int
    offset: int
    """From 0, in code points."""


def readable(name: str) -> str:
    """Return a file's name as text: one that is not UTF-8 comes from the system with halves of characters in it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@final
@attrs.define(eq=False)
class Lines:
    """A source cut into lines, its keys hidden; made once per source that is shown."""

    name: str
    text: str
    _starts: list[int]

    @classmethod
    def of(cls, source: Source, secrets: Iterable[Span] = ()) -> Lines:
        """Index a source. A key keeps its length when it is hidden, so every offset still holds.

        Args:
            secrets: Where a quoted text stands for a secret, whatever it looks like.
        """
        starts = [0]
        starts += [index + 1 for index, letter in enumerate(source.text) if letter == "\n"]
        text = masked(source.text)
        for span in secrets:
            if text[span.start : span.start + 1] == '"':
                text = text[: span.start + 1] + "*" * (span.end - span.start - 2) + text[span.end - 1 :]
        return cls(readable(source.name), text, starts)

    def position(self, offset: int) -> Position:
        """Return the position of a code point, or of the end of the text."""
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1, offset)

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its end."""
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].removesuffix("\r")

    def ends(self, span: Span) -> tuple[Position, Position]:
        """First and last, half-open."""
        return self.position(span.start), self.position(span.end)
