"""Collector of diagnostics."""

from __future__ import annotations

from typing import Protocol, final

import attrs

from hivemind_trio.policy.source.source_text import Source
from hivemind_trio.policy.source.span import Span

from .diagnostic import Diagnostic, Label, Severity
from .suggest import one_of, suggestion


class ProgressListener(Protocol):
    """Told of how far a check is, some thousand times for a large policy."""

    def __call__(self, doing: str, done: int, of: int, /) -> None: ...


def untold(doing: str, done: int, of: int, /) -> None:
    """Tell nobody."""


@final
@attrs.define(eq=False)
class DiagnosticCollector:
    """Collects diagnostics; a check goes on after each."""

    sources: tuple[Source, ...]
    found: list[Diagnostic] = attrs.field(factory=list)
    _seen: set[Diagnostic] = attrs.field(init=False, factory=set)

    def add(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        severity: Severity = Severity.ERROR,
        note: str = "",
        help: str = "",  # noqa: A002 - the diagnostic's field
        labels: tuple[Label, ...] = (),
        replacement: str | None = None,
    ) -> None:
        """Report an error, or what `severity` says; once, however often a `let` is read that it stands in."""
        diagnostic = Diagnostic(
            code=code,
            severity=severity,
            message=message,
            span=span,
            note=note,
            help=help,
            labels=labels,
            replacement=replacement,
        )
        if diagnostic not in self._seen:
            self._seen.add(diagnostic)
            self.found.append(diagnostic)

    def warn(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        note: str = "",
        help: str = "",  # noqa: A002 - see above
        labels: tuple[Label, ...] = (),
    ) -> None:
        """Report a warning."""
        self.add(code, message, span, severity=Severity.WARNING, note=note, help=help, labels=labels)

    def unknown(self, code: str, what: str, word: str, span: Span, known: list[str], *, hint: str = "") -> str | None:
        """Report a name that is not one of `known`; the one that was probably meant."""
        meant = suggestion(word, known)
        if meant is not None:
            help_ = f"did you mean `{meant}`?"
        elif hint:
            help_ = hint
        elif known:
            help_ = f"there {'are' if len(known) > 1 else 'is'} {one_of(known).replace(' or ', ' and ')}"
        else:
            help_ = ""
        self.add(code, f"{what} `{word}`", span, help=help_, replacement=meant)
        return meant

    def text(self, span: Span) -> str:
        """Return the text of a span."""
        return self.sources[span.source].text[span.start : span.end]

    def at(self, span: Span) -> str:
        """`team.hmp:24`."""
        source = self.sources[span.source]
        return f"{source.name}:{source.line(span.start) + 1}"
