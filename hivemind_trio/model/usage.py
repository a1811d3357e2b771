"""Usage of one call."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen(kw_only=True)
class Usage:
    """Tokens, counted once each: what is read from a cache is in `cache_read` and not in `input`."""

    input: int | None = None
    """Neither read from a cache nor written to one; None: the provider did not say."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    exact: bool = True
    """The provider's own count; False: what could be counted as it went by."""

    @property
    def total(self) -> int:
        """All tokens that are known of."""
        return (self.input or 0) + self.cache_read + self.cache_write + self.output
