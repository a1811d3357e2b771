"""Quick fixes of a finding. Each mend has been tried: with it the finding is gone and there is no other error."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, final

import attrs

from hivemind_trio.policy import (
    Checked,
    Diagnostic,
    Edit,
    Files,
    Fix,
    Severity,
    Span,
    amended,
    made_worse,
)

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
    """Yield the diagnostic's own fix, then the edits among which the author chooses."""
    for fix in (found.fix, *found.choices):
        if fix is not None:
            yield _title(checked, found, fix), fix


def _title(checked: Checked, found: Diagnostic, fix: Fix) -> str:
    if fix == found.fix and found.help.startswith("write") and not found.choices:
        return found.help
    edit = fix.edits[0]
    if edit.text:
        return f"{'add' if edit.span.start == edit.span.end else 'write'} `{edit.text.strip().removesuffix(';')}`"
    if found.code == "HM904":
        return "delete the comment"
    if found.replacement is not None:
        return "delete it"
    return f"delete `{checked.sources[found.span.source].text[found.span.start : found.span.end]}`"


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
