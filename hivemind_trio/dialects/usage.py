"""Formats of usage: what an answer says of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import attrs

COUNT_MAX: Final = 1 << 40
"""More tokens than that are no count."""


@final
@attrs.frozen(kw_only=True)
class TokenCounts:
    """Tokens of an answer so far. What is read from a cache is in `cache_read` and not in `input`."""

    input: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    output: int | None = None


@final
@attrs.frozen(kw_only=True, eq=False)
class UsageFormat:
    """Format in which answers say usage."""

    marks: tuple[bytes, ...]
    """One of these is in every line that says usage. Within a text it would stand behind a backslash."""
    objects: tuple[str, ...] = ()
    """Names of the members whose values are objects with usage."""
    read: Callable[[dict[str, Any]], TokenCounts | None] | None = None
    """Reads such an object; None: it holds no figure of this format."""
    read_line: Callable[[bytes], TokenCounts | None] | None = None
    """Reads a line that has figures and no such object; None: it has none."""
    deltas: tuple[bytes, ...] = ()
    """One in each event with a piece of the answer, which is about a token, and seldom none."""
    provisional: bytes | None = None
    """Mark of a line whose figure of the output is only its beginning."""
    model: str = "model"
    """Name of the member that names the model which answered."""
    finish: str | None = None
    """Name of the member that says why an answer ended; None: none does."""
    is_single: bool = False
    """True if an answer ends for one reason, and not each of its choices for one."""


def first_count(found: dict[str, Any], *names: str) -> int | None:
    """Return the first of these members that is a count; None: none is."""
    for name in names:
        value = found.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_MAX:
            return value
    return None


def read_usage(found: dict[str, Any]) -> TokenCounts | None:
    """Read the usage that Anthropic and OpenAI write, and whoever follows one of them.

    Anthropic names what the cache had beside the input; OpenAI includes it.
    """
    prompt = first_count(found, "input_tokens", "prompt_tokens")
    output = first_count(found, "output_tokens", "completion_tokens")
    if prompt is None and output is None:
        return None
    cached = _cached(found, "input_tokens_details", "prompt_tokens_details")
    return TokenCounts(
        input=None if prompt is None else max(0, prompt - cached),
        cache_read=first_count(found, "cache_read_input_tokens") or cached,
        cache_write=first_count(found, "cache_creation_input_tokens") or 0,
        output=output,
    )


def _cached(found: dict[str, Any], *names: str) -> int:
    for name in names:
        inner = found.get(name)
        if isinstance(inner, dict) and (cached := first_count(inner, "cached_tokens")) is not None:
            return cached
    return 0
