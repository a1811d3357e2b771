"""One model of a finding; every output format is rendered from it."""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import StrEnum
from typing import Final, final

import attrs

from hivemind_trio.policy.syntax.ast import Span

_NEWLINE: Final = re.compile("\n")


class Severity(StrEnum):
    """How much it matters: an error stops, a warning may (`--deny`), an info never does."""

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
    """What is wrong, where, and what to write instead.

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
    """What to put in place of `span`, where one edit mends it: for editors."""


@final
@attrs.frozen
class Source:
    """One file of the closure as it was read."""

    name: str
    """As the user would write it: relative to where they stand."""
    text: str
    """Decoded; empty where the bytes were not text."""
    _starts: list[int] = attrs.field(init=False, factory=list, eq=False, repr=False)
    """Offsets at which lines begin, once somebody has asked."""

    def line(self, offset: int) -> int:
        """The number of the line of an offset, from 0."""
        if not self._starts:
            self._starts.append(0)
            self._starts.extend(match.end() for match in _NEWLINE.finditer(self.text))
        return bisect_right(self._starts, offset) - 1
