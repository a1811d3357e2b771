"""Facts that an answer tells of itself."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen
class AnswerFacts:
    """Model that answered, and why it stopped, in the words of the provider."""

    model: str = ""
    """Empty: the answer does not tell."""
    finish_reasons: tuple[str, ...] = ()
    """One for each choice, as far as it has ended."""
