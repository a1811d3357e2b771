"""Quick fixes of a finding. Each mend has been tried: with it the finding is gone and there is no other error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, final

import attrs

from hivemind_trio.policy import (
    DECLARATIONS,
    Checked,
    Diagnostic,
    Edit,
    Files,
    Fix,
    Item,
    Severity,
    Span,
    Statement,
    amended,
    made_worse,
)

_QUOTED: Final = re.compile(r"`([^`\n]+)`")
_DECLARE: Final = re.compile(r"declare it: `([^`\n]+)`")
_ADD: Final = re.compile(r"(?:add|or) `([^`\n]+)`")
_SIGN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\s*(?:==|!=|~|not\s+in|in)\s*\Z")
_STATEMENT_END: Final = re.compile(r"[^;}\n#]*")

CANDIDATES_MAX: Final = 12
"""Edits that are tried for one finding."""


@final
@attrs.frozen
class Mend:
    """Something to do about a finding."""

    title: str
    edits: tuple[Edit, ...]
    preferred: bool = False
    """True if it is the diagnostic's own fix, and safe: the one that `check --fix` applies."""


def mends(checked: Checked, found: Diagnostic, files: Files, tries: int = CANDIDATES_MAX) -> Iterator[Mend]:
    """Yield fixes of a finding, the likeliest first; last, for what is no error, to accept it.

    Args:
        tries: The policy is checked so many times at most, and never more often than `CANDIDATES_MAX`.
    """
    offered: set[str] = set()
    for title, fix in islice(dict.fromkeys(_candidates(checked, found)), min(tries, CANDIDATES_MAX)):
        if title not in offered and _mended(checked, found, fix, files):
            offered.add(title)
            yield Mend(title, fix.edits, preferred=fix == found.fix and fix.is_safe)
    if found.severity is not Severity.ERROR and found.code != "HM904":
        yield Mend(f"accept {found.code} here", (_allow(checked, found),))


def _candidates(checked: Checked, found: Diagnostic) -> Iterator[tuple[str, Fix]]:
    """Yield the diagnostic's own fix, then edits by the examples of its help, which are guesses."""
    if found.fix is not None:
        yield _fix_title(checked, found, found.fix), found.fix
    for title, edit in _by_help(checked, found):
        yield title, Fix((edit,), is_safe=False)


def _fix_title(checked: Checked, found: Diagnostic, fix: Fix) -> str:
    if found.help.startswith("write"):
        return found.help
    if found.replacement is not None:
        return _title(found.replacement)
    edit = fix.edits[0]
    if edit.text:
        return f"{'add' if edit.span.start == edit.span.end else 'write'} `{edit.text.strip()}`"
    if found.code == "HM904":
        return "delete the comment"
    return f"delete `{checked.sources[found.span.source].text[found.span.start : found.span.end]}`"


def _by_help(checked: Checked, found: Diagnostic) -> Iterator[tuple[str, Edit]]:
    span, text, help_ = found.span, checked.sources[found.span.source].text, found.help
    match found.code:
        case "HM212" if declare := _DECLARE.search(help_):
            yield f"declare `{declare[1]}`", _at_end(text, span, f"\n{declare[1]}\n")
        case "HM208":
            quoted = Span(span.source, span.start - 1, span.end + 1)
            around = quoted if text[span.start - 1 : span.start] == '"' else span
            for secret in _QUOTED.findall(help_):
                yield _title(secret), Edit(around, secret)
            return
        case "HM215":
            yield from _compared(text, found)
    for add in _ADD.findall(help_):
        if add.partition(" ")[0] in DECLARATIONS and "{" in add:
            yield f"add `{add}`", _at_end(text, span, f"\n{add}\n")
        else:
            yield from _in_block(checked, span, add)
    if help_.startswith(("write", "did you mean", "compare")):
        for quoted_ in _QUOTED.findall(help_):
            if "..." not in quoted_ and "//host" not in quoted_:
                for place in (span, *_statements(text, span)):
                    yield _title(quoted_), Edit(place, quoted_)


def _title(replacement: str) -> str:
    return f"write `{replacement}`" if replacement else "delete it"


def _at_end(text: str, span: Span, put: str) -> Edit:
    gap = "" if text.endswith("\n") else "\n"
    return Edit(Span(span.source, len(text), len(text)), gap + put)


def _compared(text: str, found: Diagnostic) -> Iterator[tuple[str, Edit]]:
    """Another sign between a field and a value: "write `model ~ ...`" is said of the value."""
    before = _SIGN.search(text, 0, found.span.start)
    for quoted in _QUOTED.findall(found.help):
        if before is not None and quoted.endswith(" ..."):
            value = text[found.span.start : found.span.end]
            put = f"{quoted.removesuffix('...')}{value}"
            yield _title(put), Edit(Span(found.span.source, before.start(), found.span.end), put)


def _around(checked: Checked, span: Span) -> Iterator[Statement]:
    """Yield the statement at the top of a file that a place is in."""
    for file in checked.files:
        for statement in file.statements if file.source == span.source else ():
            if statement.span.start <= span.start < statement.span.end:
                yield statement


def _in_block(checked: Checked, span: Span, setting: str) -> Iterator[tuple[str, Edit]]:
    """Yield a setting put at the beginning of the block of the declaration that the finding is in."""
    text = checked.sources[span.source].text
    for statement in _around(checked, span):
        if isinstance(statement, Item) and (block := statement.block) is not None:
            after = Span(span.source, block.span.start + 1, block.span.start + 1)
            on_lines = "\n" in text[block.span.start : block.span.end]
            put = f"\n  {setting}" if on_lines else f" {setting}{';' if block.statements else ''}"
            yield f"add `{setting}`", Edit(after, put)


def _statements(text: str, span: Span) -> Iterator[Span]:
    """Yield other spans of the statement that could be meant: from there to its end, and all of it."""
    end = _STATEMENT_END.match(text, span.end)
    last = max(span.end, len(text[: end.end() if end is not None else span.end].rstrip()))
    yield Span(span.source, span.start, last)
    start = max(text.rfind(mark, 0, span.start) for mark in "{;\n") + 1
    yield Span(span.source, start + len(text[start:last]) - len(text[start:last].lstrip()), last)


def _mended(checked: Checked, found: Diagnostic, fix: Fix, files: Files) -> bool:
    after = amended(checked, fix.edits, files)
    if made_worse(checked, after) is not None:
        return False

    def count(of: Checked) -> int:
        return sum((one.code, one.message) == (found.code, found.message) for one in of.diagnostics)

    return count(after) < count(checked)


def _allow(checked: Checked, found: Diagnostic) -> Edit:
    """Return a comment on a line of its own, above."""
    text = checked.sources[found.span.source].text
    start = text.rfind("\n", 0, found.span.start) + 1
    line = text[start : found.span.start]
    indent = line[: len(line) - len(line.lstrip())]
    return Edit(Span(found.span.source, start, start), f"{indent}# hmp: allow {found.code} why it is meant so\n")
