"""Collector of diagnostics."""

from __future__ import annotations

from typing import Protocol, final

import attrs

from hivemind_trio.policy.source.source_text import Source
from hivemind_trio.policy.source.span import Span

from .diagnostic import Diagnostic, Fix, Label, Severity
from .suggest import one_of, suggestion


class ProgressListener(Protocol):
    """Told of how far a check is, some thousand times for a large policy."""

    def __call__(self, doing: str, done: int, of: int, /) -> None:
        """Note that `done` of `of` steps of a task are over."""
        ...


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
        fix: Fix | None = None,
        is_safe_fix: bool = True,
        choices: tuple[Fix, ...] = (),
    ) -> None:
        """Report a diagnostic; once, however often the `let` that it is in is read.

        Args:
            code: Such as `HM203`.
            message: The condition.
            span: The smallest piece of text to edit.
            severity: An error unless given.
            note: Text beside the carets.
            help: What to write or do instead.
            labels: Other places that matter.
            replacement: Text that mends it in the place of `span`.
            fix: The edits, if they are elsewhere.
            is_safe_fix: False if the replacement guesses a name or an amount.
            choices: Further edits, of which the author chooses one.
        """
        diagnostic = Diagnostic(
            code=code,
            severity=severity,
            message=message,
            span=span,
            note=note,
            help=help,
            labels=labels,
            fix=fix or Fix.replacing(span, replacement, is_safe=is_safe_fix),
            choices=choices,
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
        fix: Fix | None = None,
        choices: tuple[Fix, ...] = (),
    ) -> None:
        """Report a warning."""
        self.add(
            code,
            message,
            span,
            severity=Severity.WARNING,
            note=note,
            help=help,
            labels=labels,
            fix=fix,
            choices=choices,
        )

    def unknown(
        self,
        code: str,
        what: str,
        word: str,
        span: Span,
        known: list[str],
        *,
        hint: str = "",
        fix: Fix | None = None,
        is_of_language: bool = True,
        choices: tuple[Fix, ...] = (),
    ) -> str | None:
        """Report a name that is not one of `known`; return the one that was probably meant.

        Args:
            code: Such as `HM107`.
            what: The message, to which the word is added.
            word: The name.
            span: Its place.
            known: Names that would be right.
            hint: The help if none of them is close.
            fix: The edits if none of them is close.
            is_of_language: False if the policy declares `known`: the fix is a guess then.
            choices: Further edits if none of them is close.
        """
        meant = suggestion(word, known)
        if meant is not None:
            help_ = f"did you mean `{meant}`?"
        elif hint:
            help_ = hint
        elif known:
            help_ = f"expected {one_of(known)}"
        else:
            help_ = ""
        near = Fix.replacing(span, meant, is_safe=is_of_language)
        self.add(code, f"{what} `{word}`", span, help=help_, fix=near or fix, choices=() if near else choices)
        return meant

    def text(self, span: Span) -> str:
        """Return the text of a span."""
        return self.sources[span.source].text[span.start : span.end]

    def at(self, span: Span) -> str:
        """`team.hmp:24`."""
        source = self.sources[span.source]
        return f"{source.name}:{source.line(span.start) + 1}"
