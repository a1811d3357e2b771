"""A lexeme: one piece of source text and its kind."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.policy.source.span import Span


@final
@attrs.frozen
class Lexeme:
    """A piece of the text. `type` is the grammar's terminal; Lark's parser looks at nothing else."""

    type: str
    text: str
    span: Span
