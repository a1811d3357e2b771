"""Price of a model, in dollars a million tokens."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Usage


@final
@attrs.frozen(kw_only=True)
class ModelPrice:
    """`model "glob" [on PROVIDER]`: micro-dollars per million tokens, and the window."""

    glob: str
    provider: str | None = None
    """`on PROVIDER`; None: every provider."""
    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    context: int | None
    max_output: int | None
    name: str | None = None
    """Name that the provider has for these models; None: the one asked for."""
    at: str = attrs.field(default="", eq=False)
    """Place of the declaration; empty for list prices."""

    @property
    def has_price(self) -> bool:
        """True if it sets `price`."""
        return any(one is not None for one in (self.input, self.output, self.cache_read, self.cache_write))

    def cost_of(self, usage: Usage) -> int:
        """Micro-dollars. Cached tokens at their own price, or at that of the input where none is declared."""
        price = self.input or 0
        read = price if self.cache_read is None else self.cache_read
        write = price if self.cache_write is None else self.cache_write
        total = (usage.input or 0) * price + usage.cache_read * read + usage.cache_write * write
        return (total + usage.output * (self.output or 0)) // 10**6

    def cost_microusd(self, tokens_in: int, tokens_out: int) -> int:
        """Return the cost of so many uncached tokens; an undeclared price counts as zero."""
        return self.cost_of(Usage(input=tokens_in, output=tokens_out))
