"""What a provider says of its quotas."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs


class Dimension(StrEnum):
    """What is counted."""

    REQUESTS = "requests"
    INPUT = "input"
    OUTPUT = "output"
    TOKENS = "tokens"
    """Input and output together."""


@final
@attrs.frozen(kw_only=True)
class QuotaReading:
    """One quota, as the head of an answer tells of it."""

    dimension: Dimension
    limit: int | None = None
    """Per window; None: it is not told."""
    remaining: int | None = None
    """Of the limit, and no more than it; None: it is not told."""
    resets_ns: int | None = None
    """How long after the answer the quota is whole again; None: it is not told."""
    window_ns: int | None = None
    """How long the window is, where it is told."""
    rounding: int = 0
    """So much less than `remaining` may be left."""
