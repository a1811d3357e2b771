"""Page of a diagnostic code: title, explanation, and an example of wrong and right.

Codes are append-only and a retired one is never used again. The examples are checked by the tests: what stands under
"wrong" gives this code, and what stands under "right" does not.
"""

from __future__ import annotations

import textwrap
from typing import Final, final

import attrs

PAGE_WIDTH: Final = 100


@final
@attrs.frozen
class Page:
    """Page of `hivemind-trio explain CODE`."""

    code: str
    title: str
    why: str
    wrong: str = ""
    """A policy that gives this code; empty where it takes more than a text to show."""
    right: str = ""
    reported: bool = True
    """False: the code is spoken for, and this version does not look for it."""


def not_reported(code: str, title: str, because: str = "") -> Page:
    """Return the page of a code that this version does not report."""
    return Page(code, title, f"This version does not report it.{because and ' '}{because}", reported=False)


def page_text(page: Page) -> str:
    """Return the page as `explain` prints it."""
    parts = [f"{page.code}: {page.title}", textwrap.fill(page.why, PAGE_WIDTH, break_on_hyphens=False)]
    for word, example in (("Wrong", page.wrong), ("Right", page.right)):
        if example:
            parts.append(f"{word}:\n\n" + "\n".join(f"  {line}" for line in example.splitlines()))
    return "\n\n".join(parts) + "\n"
