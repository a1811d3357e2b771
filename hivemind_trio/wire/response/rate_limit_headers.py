"""Rate-limit headers: what is left of which quota, and when it is whole again. Total: any headers have an answer.

After the public pages of Anthropic, OpenAI, Azure OpenAI, Groq, Cerebras and DigitalOcean on rate limits, OpenRouter's
on its `X-RateLimit-*`, and captures of real answers, as they stood in November 2026. The names are in the dialects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, final

import attrs

from hivemind_trio.dialects import IN_ORDER
from hivemind_trio.model import Dimension, QuotaReading
from hivemind_trio.wire.body.bodies import decoded

from .retry_after import SECOND_NS, from_now_ns

_PATTERNS: Final = tuple((re.compile(one.pattern), one) for d in IN_ORDER for one in d.limits.quota_headers)

_WINDOWS: Final = {
    "10-second": 10 * SECOND_NS,
    "second": SECOND_NS,
    "minute": 60 * SECOND_NS,
    "hour": 3_600 * SECOND_NS,
    "day": 86_400 * SECOND_NS,
}

_WHOLE: Final = re.compile(r"[0-9]{1,15}(?:\.0{1,9})?")
"""Counts. Negative ones mean "unknown" where they occur, and what has more digits counts nothing."""

_NAMED: Final = tuple(
    (dimension, re.compile("|".join(words), re.I))
    for dimension in (Dimension.INPUT, Dimension.OUTPUT, Dimension.REQUESTS, Dimension.TOKENS)
    if (words := [one.limits.quota_words[dimension] for one in IN_ORDER if dimension in one.limits.quota_words])
)
"""Phrases by which errors name a used-up quota."""

NAMES_MAX: Final = 256
"""Names of headers whose reading is kept: a provider sends a dozen, in every answer."""

WORDS_MAX: Final = 16 * 1024
"""Bytes of an error in which such words are looked for."""

_PLANS: Final = tuple(prefix for one in IN_ORDER if (prefix := one.limits.plan_prefix) is not None)


@final
@attrs.frozen
class _QuotaHeader:
    """Name of a header, taken apart."""

    quota: tuple[Dimension, str | None, str | None]
    """Dimension, window and scope."""
    part: str
    rounded_to: int


def read_ratelimits(headers: Mapping[str, str]) -> tuple[QuotaReading, ...]:
    """Return the readings of an answer's head, good or bad; at most one for each dimension and window.

    Args:
        headers: Lower-case names; of repeated ones the first.
    """
    found: dict[tuple[Dimension, str | None, str | None], dict[str, str]] = {}
    rounded_to = 1
    for name, text in headers.items():
        if "ratelimit" not in name:
            continue
        said = _quota_header(name)
        if said is not None:
            found.setdefault(said.quota, {})[said.part] = text
            rounded_to = max(rounded_to, said.rounded_to)
    tightest: dict[tuple[Dimension, int | None], QuotaReading] = {}
    for (dimension, window, _), told in found.items():
        reading = _reading(dimension, window, told, headers, 1 if dimension is Dimension.REQUESTS else rounded_to)
        if reading.limit is None and reading.remaining is None:
            continue
        span = dimension, reading.window_ns
        tightest[span] = min(tightest.get(span, reading), reading, key=_left)
    return tuple(tightest.values())


@lru_cache(maxsize=NAMES_MAX)
def _quota_header(name: str) -> _QuotaHeader | None:
    """Return what a header tells of which quota; None: it is of another kind."""
    for pattern, one in _PATTERNS:
        match = pattern.fullmatch(name)
        if match is not None:
            parts = match.groupdict()
            quota = one.counted[parts.get("what")], parts.get("window"), parts.get("scope")
            return _QuotaHeader(quota, parts["part"], one.rounded_to)
    return None


def _reading(
    dimension: Dimension, window: str | None, told: Mapping[str, str], headers: Mapping[str, str], rounded_to: int
) -> QuotaReading:
    limit, remaining = _count(told.get("limit")) or None, _count(told.get("remaining"))
    if limit is not None and remaining is not None:
        remaining = min(limit, remaining)
    return QuotaReading(
        dimension=dimension,
        limit=limit,
        remaining=remaining,
        # Azure sends 0 for a window that has hardly begun.
        resets_ns=from_now_ns(told.get("reset", ""), headers) or None,
        window_ns=_WINDOWS.get(window or "") or from_now_ns(told.get("renewalperiod", ""), headers) or None,
        rounding=rounded_to // 2 if remaining is not None and remaining % rounded_to == 0 else 0,
    )


def _count(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text.partition(".")[0]) if _WHOLE.fullmatch(text) else None


def _left(reading: QuotaReading) -> tuple[bool, int]:
    """Return the order of readings: of an organisation's quota and a project's, the one that binds first."""
    return reading.remaining is None, reading.remaining or 0


def used_up(headers: Mapping[str, str], body: bytes) -> tuple[Dimension, ...]:
    """Return the quotas that a 429 names; empty: none.

    Args:
        headers: Lower-case names.
        body: As received; empty where it is not at hand.
    """
    text = decoded(body, headers.get("content-encoding", ""))[:WORDS_MAX].decode("utf-8", "replace")
    text += f" {headers.get('x-ratelimit-type', '')} per"  # Azure: `Tokens` or `Requests`
    return tuple(dimension for dimension, pattern in _NAMED if pattern.search(text))


def plan_resets_ns(headers: Mapping[str, str]) -> int | None:
    """Until there is room in an Anthropic plan that has turned a request away; None: none has, or it does not say.

    The windows of five hours and of seven days hold together, so the latest of those that are used up.
    """
    waits = [
        from_now_ns(headers.get(f"{name.removesuffix('status')}reset", ""), headers)
        for plan in _PLANS
        if headers.get(f"{plan}status", "").strip().lower() == "rejected"
        for name, text in headers.items()
        if name.startswith(plan) and name.endswith("-status") and text.strip().lower() == "rejected"
    ]
    return max((wait for wait in waits if wait is not None), default=None)
