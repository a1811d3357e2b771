"""The parts of a policy that could not be read, and the findings that are only about what stood there."""

from __future__ import annotations

import re
from typing import Final, final

import attrs

from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic, Severity
from hivemind_trio.policy.source.span import Span

from .includes import Closure

ABOUT_A_WORD: Final = frozenset({"HM201", "HM211", "HM212", "HM213"})
"""Findings about a name, which may be that of a `let`."""

_REFERENCES: Final = ABOUT_A_WORD | {"HM107", "HM109", "HM214", "HM308"}
"""Findings that a declaration or a use of the name would settle."""

_LACKING: Final = frozenset({"HM106", "HM112"})
"""Findings that a setting in the same declaration would settle; so would `expect` in a test (HM502)."""

_SETTLED_BY: Final = {"HM307": "provider", "HM415": "store", "HM419": "api", "HM420": "resident", "HM601": "token"}
"""Code -> the word that settles it, wherever it stands."""

_FOLLOW_UPS: Final = frozenset({"HM106", "HM107", "HM112", "HM307", "HM308"})
"""Findings that a file that is missing would settle."""

_NOT_READ: Final = frozenset({"HM008", "HM009", "HM011"})
"""Findings about an `include` whose file was not read."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@final
@attrs.frozen
class Damage:
    """Spans without a meaning, and every word in them."""

    spans: tuple[Span, ...]
    statements: tuple[Span, ...]
    """Statements at the top of the files."""
    words: frozenset[str]
    is_missing: bool
    """Some file of the policy could not be read at all."""

    @classmethod
    def of(cls, closure: Closure) -> Damage:
        """Collect what the parser left out."""
        spans = tuple(span for file in closure.files for span in file.damaged)
        words = frozenset(
            word for span in spans for word in _NAME.findall(closure.sources[span.source].text[span.start : span.end])
        )
        statements = tuple(one.span for file in closure.files for one in file.statements)
        is_missing = closure.unreadable or any(one.code in _NOT_READ for one in closure.diagnostics)
        return cls(spans, statements, words, is_missing or "include" in words)

    def explains(self, one: Diagnostic, written: str) -> bool:
        """Return True if the finding may only be about what could not be read.

        Args:
            written: The text of its span.
        """
        about_a_test = one.code == "HM502" and one.message.startswith("this test ")
        if self.is_missing and (one.code in _FOLLOW_UPS or about_a_test):
            return True
        if one.code in _REFERENCES:
            return not self.words.isdisjoint(_NAME.findall(written))
        if one.code in _LACKING or about_a_test:
            return self._touches(one.span)
        if one.code == "HM307" and one.severity is Severity.ERROR:  # the policy is empty only as far as it was read
            return bool(self.spans)
        return _SETTLED_BY.get(one.code, "") in self.words

    def _touches(self, place: Span) -> bool:
        """Return True if something was left out of the declaration that a place is in."""
        return any(
            inside(span, statement) for statement in self.statements if inside(place, statement) for span in self.spans
        )


def inside(span: Span, whole: Span) -> bool:
    """Return True if a span lies within another one."""
    return span.source == whole.source and whole.start <= span.start and span.end <= whole.end
