"""One model of a finding; every output format is rendered from it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import final

import attrs

from hivemind_trio.policy.source.edits import Edit
from hivemind_trio.policy.source.span import Span


class Severity(StrEnum):
    """Severity: an error stops, a warning may (`--deny`), an info never does."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@final
@attrs.frozen
class Label:
    """A second place that matters, and why."""

    span: Span
    text: str


@final
@attrs.frozen
class Fix:
    """Edits that mend a diagnostic; `check --fix` and editors apply them."""

    edits: tuple[Edit, ...]
    is_safe: bool = True
    """True if they keep the meaning of the policy, or mend an error without guessing a name or an amount."""

    @classmethod
    def choosing(cls, span: Span, texts: Iterable[str]) -> tuple[Fix, ...]:
        """Return a fix for each text in the place of a span."""
        return tuple(cls((Edit(span, text),), is_safe=False) for text in texts)

    @classmethod
    def replacing(cls, span: Span, text: str | None, *, is_safe: bool = True) -> Fix | None:
        """Return the fix that replaces one span; None if there is no text for it."""
        return None if text is None else cls((Edit(span, text),), is_safe)


@final
@attrs.frozen(kw_only=True)
class Diagnostic:
    """Diagnostic: the mistake, its place, and what to write instead.

    Lower case, no full stop, what the user wrote in backticks. `span` is the smallest thing to edit.
    """

    code: str
    """`HM203`."""
    severity: Severity
    message: str
    span: Span
    note: str = ""
    """Beside the carets, short: "expected `,` or `]`"."""
    labels: tuple[Label, ...] = ()
    help: str = ""
    """Text that can be pasted, in backticks, after "= help: "."""
    fix: Fix | None = None
    """None if no edit mends it without the author's decision."""
    choices: tuple[Fix, ...] = ()
    """Further edits that would mend it, among which the author has to choose: editors offer them."""

    @property
    def replacement(self) -> str | None:
        """The text that mends it in the place of `span`; None if another edit is needed, or none is known."""
        match self.fix:
            case Fix(edits=(Edit(span=span, text=text),)) if span == self.span:
                return text
        return None
