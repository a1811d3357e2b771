"""Text made safe for a terminal, and how wide it is there."""

from __future__ import annotations

import unicodedata
from typing import Final

TAB_WIDTH: Final = 4

_JOINERS: Final = "\u200c\u200d"
"""Formatting characters that words of some scripts need."""


def visible(text: str) -> str:
    """Return the same text, unable to move the cursor, reorder a line or hide in it; fit to be encoded as well."""
    return "".join(map(_shown, text))


def width(text: str) -> int:
    """Terminal columns that the text takes as `visible` shows it."""
    columns = 0
    for letter in text:
        shown = _shown(letter)
        if len(shown) > 1:
            columns += len(shown)
        elif unicodedata.category(shown) in ("Mn", "Me") or shown in _JOINERS:
            continue
        else:
            columns += 2 if unicodedata.east_asian_width(shown) in "WF" else 1
    return columns


def _shown(letter: str) -> str:
    if letter == "\t":
        return " " * TAB_WIDTH
    if letter < " ":
        return chr(0x2400 + ord(letter))
    # Controls; what reorders or hides text; line ends that are not ours; halves of characters, in names of files.
    hidden = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in _JOINERS
    return "\N{REPLACEMENT CHARACTER}" if hidden else letter
