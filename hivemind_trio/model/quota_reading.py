"""Quotas as the headers of a provider report them."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs


class Dimension(StrEnum):
    """Unit that a rate limit counts."""

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
    """Remaining part of the limit, never more than it; None: not reported."""
    resets_ns: int | None = None
    """Time from the answer until the quota is whole again; None: not reported."""
    window_ns: int | None = None
    """Length of the window, if the headers report it."""
    rounding: int = 0
    """So much less than `remaining` may be left."""
