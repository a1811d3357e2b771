"""Rate limits of a provider, from a policy's `limits`."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

from hivemind_trio.model import Dimension as Dimension
from hivemind_trio.policy.language.unit_text import window_name


class Window(StrEnum):
    """Kind of window. All but the bucket are kept alike: what is granted passes a window of any kind."""

    LEARN = "learn"
    BUCKET = "bucket"
    FIXED = "fixed"
    SLIDING = "sliding"


@final
@attrs.frozen(kw_only=True)
class RateLimitSettings:
    """So much of one dimension per window."""

    dimension: Dimension
    amount: int
    window_ns: int
    headroom: float | None = None
    """Share that is left unused; None: nothing, until answers show that others use the key."""
    window: Window = Window.LEARN

    def __str__(self) -> str:
        counted = self.dimension.value
        if self.dimension in (Dimension.INPUT, Dimension.OUTPUT):
            counted = f"{counted} tokens"
        return f"{self.amount:,} {counted} per {window_name(self.window_ns)}"
