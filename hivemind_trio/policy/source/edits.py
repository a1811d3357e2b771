"""Edits of source text, and where an edit that deletes or adds a statement begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, final

import attrs

from .span import Span

_BLANKS: Final = " \t"
_AFTER: Final = re.compile(r"[ \t]*;?[ \t]*")


@final
@attrs.frozen(order=True)
class Edit:
    """Replacement of a span by a text."""

    span: Span
    text: str


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return the text of one source with its edits applied, none of which overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def deletion(text: str, span: Span) -> Edit:
    """Return the edit that deletes a statement or a comment, with its separator, or its lines if nothing else is there.

    Args:
        text: The text of the source that the span is in.
        span: The statement or comment.
    """
    if text[span.end - 1 : span.end + 1] == "\r\n":  # a comment goes on to the end of its line
        span = Span(span.source, span.start, span.end - 1)
    start = len(text[: span.start].rstrip(_BLANKS))
    begins_line = start == 0 or text[start - 1] == "\n"
    line_end = text.find("\n", span.end)
    line_end = len(text) if line_end < 0 else line_end + 1
    if begins_line and text[span.end : line_end].strip() in ("", ";"):
        return Edit(Span(span.source, start, line_end), "")
    after = _AFTER.match(text, span.end)
    assert after is not None
    if ";" in after[0]:
        return Edit(Span(span.source, span.start, after.end()), "")
    if start and text[start - 1] == ";":
        return Edit(Span(span.source, len(text[: start - 1].rstrip(_BLANKS)), span.end), "")
    if begins_line:
        return Edit(Span(span.source, span.start, after.end()), "")
    return Edit(Span(span.source, start, span.end), "")


def addition(text: str, source: int, statement: str) -> Edit:
    """Return the edit that adds a declaration at the end of a file."""
    gap = "" if not text or text.endswith("\n") else "\n"
    return Edit(Span(source, len(text), len(text)), f"{gap}\n{statement}\n" if text.strip() else f"{gap}{statement}\n")


def insertion(text: str, block: Span, setting: str, *, is_empty: bool) -> Edit:
    """Return the edit that adds a setting at the beginning of a block.

    Args:
        text: The text of the source that the block is in.
        block: The span of the block, braces included.
        setting: What is added.
        is_empty: True if the block has no statement.
    """
    after = Span(block.source, block.start + 1, block.start + 1)
    on_lines = "\n" in text[block.start : block.end]
    return Edit(after, f"\n  {setting}" if on_lines else f" {setting}{'' if is_empty else ';'}")


def swapped(text: str) -> str:
    """Return a range `LOW..HIGH` with its bounds swapped."""
    low, _, high = text.partition("..")
    return f"{high.strip()}..{low.strip()}"
