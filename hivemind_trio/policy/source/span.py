"""Spans of source text, in code points."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen(order=True)
class Span:
    """Half-open, in code points, into the text of source number `source` of the closure (0 is the file asked for)."""

    source: int
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the start of this to the end of that."""
        return Span(self.source, self.start, other.end)
