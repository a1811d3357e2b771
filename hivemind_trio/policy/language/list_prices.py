"""List prices, for policies that declare none. Data, not truth: a `model` declaration of the same glob replaces a row.

As of November 2026, the rows of `policies/common/models.hmp`; micro-dollars for a million tokens.
"""

from __future__ import annotations

from typing import Final

from .model_price import ModelPrice

PRICES_DATE: Final = "2026-11"


def _row(
    glob: str, input_: float, output: float, cache_read: float | None, cache_write: float | None, context: int
) -> ModelPrice:
    def micro(dollars: float | None) -> int | None:
        return None if dollars is None else round(dollars * 10**6)

    return ModelPrice(
        glob=glob,
        input=micro(input_),
        output=micro(output),
        cache_read=micro(cache_read),
        cache_write=micro(cache_write),
        context=context,
        max_output=None,
    )


BUILT_IN_PRICES: Final = (
    _row("claude-opus-4-*", 15, 75, 1.50, 18.75, 200_000),
    _row("claude-sonnet-4-*", 3, 15, 0.30, 3.75, 200_000),
    _row("claude-haiku-*", 1, 5, 0.10, 1.25, 200_000),
    _row("gpt-4.1-mini*", 0.40, 1.60, None, None, 1_000_000),
    _row("gpt-*", 2, 8, None, None, 1_000_000),
)
