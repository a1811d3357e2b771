"""Index of pages by code."""

from __future__ import annotations

from typing import Final

from . import capacity, policy_tests, reachability, reload, security, structure, style, syntax, values
from .page import Page

_FAMILIES: Final = (
    syntax,
    structure,
    values,
    reachability,
    capacity,
    policy_tests,
    security,
    reload,
    style,
)

PAGES: Final[dict[str, Page]] = {page.code: page for family in _FAMILIES for page in family.PAGES}
"""Code -> page, in order."""


def title(code: str) -> str:
    """Return the title of a code."""
    return PAGES[code].title
