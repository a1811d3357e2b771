"""Text that looks like a key. It is an error wherever it stands, comments included, and is never shown again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hivemind_trio.dialects import IN_ORDER

KEY_SHAPES: Final = (
    *((re.compile(shape[0]), shape[1]) for dialect in IN_ORDER if (shape := dialect.key_shape) is not None),
    (re.compile(r"AKIA[A-Z0-9]{12,}"), "an AWS key"),
    (re.compile(r"gh[pousr]_[A-Za-z0-9]{16,}"), "a GitHub token"),
    (re.compile(r"xox[abprs]-[A-Za-z0-9-]{10,}"), "a Slack token"),
)
"""Public prefixes of the providers' keys, as secret scanners know them; of two that fit, the longer one first."""

SECRET_PLACES: Final = ("env(NAME)", 'file("path")')
"""References to a secret, with names to be changed."""

_WORD: Final = re.compile(r"(?:\\[nt])?([A-Za-z0-9_-]+)")
"""The letter of an escape is none of the word behind it: in `"\\nsk-..."` a key begins a line."""

_CREDENTIAL: Final = re.compile(r"(?<=://)[^\s/@\"]+(?=@)")
"""`user:password` in a URL."""


def find_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of each, in order. A key goes on to the end of its word: what is behind it may be another."""
    for word in _WORD.finditer(text):
        bare = word[1].lstrip("-_")  # the dash of a list, or of an option
        for shape, kind in KEY_SHAPES:
            if shape.match(bare):
                yield word.end() - len(bare), word.end(), kind
                break


def masked(text: str) -> str:
    """Return the text, as long as before, with keys hidden but for their first letters, and passwords in URLs."""
    pieces = []
    done = 0
    for start, end, _ in find_keys(text):
        shown = start + 6
        pieces += [text[done:shown], "*" * (end - shown)]
        done = end
    return _CREDENTIAL.sub(lambda match: "*" * len(match[0]), "".join([*pieces, text[done:]]))
