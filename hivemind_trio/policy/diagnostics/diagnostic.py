"""One model of a finding; every output format is rendered from it."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

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
    replacement: str | None = None
    """Replacement of `span`, where one edit mends it: for editors."""
