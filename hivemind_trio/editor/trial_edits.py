"""Changes that are tried before they are offered: the policy is checked again with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import final

import attrs

from hivemind_trio.policy import Checked, Diagnostic, Files, Severity, Span, check


@final
@attrs.frozen(order=True)
class Edit:
    """Put `text` in the place of `span`."""

    span: Span
    text: str


@final
@attrs.frozen
class _Amended:
    """Files, some of them with other texts."""

    files: Files
    texts: Mapping[str, str]

    def read(self, path: str) -> bytes:
        return self.texts[path].encode("utf-8", "surrogatepass") if path in self.texts else self.files.read(path)

    def glob(self, pattern: str) -> list[str]:
        return self.files.glob(pattern)


def applied(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits of it made, none of which overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def amended(checked: Checked, edits: Iterable[Edit], files: Files) -> Checked:
    """The same policy with edits made."""
    by_source: dict[int, list[Edit]] = {}
    for edit in edits:
        by_source.setdefault(edit.span.source, []).append(edit)
    texts = {
        checked.paths[source]: applied(checked.sources[source].text, of_source)
        for source, of_source in by_source.items()
    }
    return check(checked.paths[0], _Amended(files, texts))


def made_worse(before: Checked, after: Checked, *, least: Severity = Severity.ERROR) -> Diagnostic | None:
    """The first problem that is there now and was not, however places have moved; None: there is none.

    Args:
        least: Warnings count too, or errors alone.
    """
    counts = {Severity.ERROR} | ({Severity.WARNING} if least is Severity.WARNING else set())
    known = Counter((one.code, one.message) for one in before.diagnostics)
    for one in after.diagnostics:
        if one.severity in counts:
            known[one.code, one.message] -= 1
            if known[one.code, one.message] < 0:
                return one
    return None
