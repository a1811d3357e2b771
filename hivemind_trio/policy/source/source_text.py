"""One source file of a policy and its line index."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, final

import attrs

_NEWLINE: Final = re.compile("\n")


@final
@attrs.frozen
class Source:
    """One file of the closure as it was read."""

    name: str
    """As the user would write it: relative to where they stand."""
    text: str
    """Decoded; empty where the bytes were not text."""
    _starts: list[int] = attrs.field(init=False, factory=list, eq=False, repr=False)
    """Offsets at which lines begin, once somebody has asked."""

    def line(self, offset: int) -> int:
        """Return the number of the line of an offset, from 0."""
        if not self._starts:
            self._starts.append(0)
            self._starts.extend(match.end() for match in _NEWLINE.finditer(self.text))
        return bisect_right(self._starts, offset) - 1
