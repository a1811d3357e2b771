"""Quoted texts: what their escapes mean."""

from __future__ import annotations

import re
from typing import Final

ESCAPES: Final = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
"""Characters that may follow a backslash in a quoted text."""

_ESCAPE: Final = re.compile(r"\\(.)")


def unescape(inner: str) -> str:
    """Return the text that was meant. An unknown escape stands for itself; the parser reports it (HM010)."""
    if "\\" not in inner:
        return inner
    return _ESCAPE.sub(lambda match: ESCAPES.get(match[1], match[0]), inner)


def bad_escapes(inner: str) -> list[int]:
    """Return the offsets of backslashes, between the quotes, with no meaning."""
    return [match.start() for match in _ESCAPE.finditer(inner) if match[1] not in ESCAPES]


def quote(text: str) -> str:
    """As it would be written in a policy."""
    back = {meaning: f"\\{mark}" for mark, meaning in ESCAPES.items()}
    return '"' + "".join(back.get(char, char) for char in text) + '"'
