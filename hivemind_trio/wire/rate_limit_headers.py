"""Rate-limit headers: what is left of which quota, and when it is whole again. Total: any headers have an answer.

After the public pages of Anthropic, OpenAI, Azure OpenAI, Groq, Cerebras and DigitalOcean on rate limits, OpenRouter's
on its `X-RateLimit-*`, and captures of real answers, as they stood in November 2026. What is not named here on purpose:

- `anthropic-priority-*`: who is over it is served at the standard tier, so it limits nobody.
- `anthropic-fast-*`: counts fast-mode requests alone, and the head of an answer does not say whether it was one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Dimension, QuotaReading

from .bodies import decoded
from .retry_after import SECOND_NS, from_now_ns

_NAME: Final = re.compile(
    r"(?:anthropic-ratelimit-(?P<anthropic>requests|tokens|input-tokens|output-tokens)-(?P<part>limit|remaining|reset)"
    r"|x-ratelimit-(?P<other_part>limit|remaining|reset|renewalperiod)"
    r"(?:-(?P<scope>project))?(?:-(?P<what>requests?|req|tokens|input-tokens|output-tokens|tokens-prompt|tokens-generated))?"
    r"(?:-(?:per-)?(?P<window>second|minute|hour|day))?)"
)

_COUNTED: Final = {
    None: Dimension.REQUESTS,
    "req": Dimension.REQUESTS,
    "request": Dimension.REQUESTS,
    "requests": Dimension.REQUESTS,
    "tokens": Dimension.TOKENS,
    "input-tokens": Dimension.INPUT,
    "tokens-prompt": Dimension.INPUT,
    "output-tokens": Dimension.OUTPUT,
    "tokens-generated": Dimension.OUTPUT,
}

_WINDOWS: Final = {
    "second": SECOND_NS,
    "minute": 60 * SECOND_NS,
    "hour": 3_600 * SECOND_NS,
    "day": 86_400 * SECOND_NS,
}

_WHOLE: Final = re.compile(r"[0-9]{1,15}(?:\.0{1,9})?")
"""Counts. Negative ones mean "unknown" where they occur, and what has more digits counts nothing."""

_ROUNDED_TO: Final = 1_000
"""Anthropic rounds what is left of tokens to the nearest thousand."""

_NAMED: Final = (
    (Dimension.INPUT, re.compile(r"input[ _-]?tokens?|request tokens|\bITPM\b", re.I)),
    (Dimension.OUTPUT, re.compile(r"output[ _-]?tokens?|\bOTPM\b", re.I)),
    (Dimension.REQUESTS, re.compile(r"requests?[ _-]?per|\bRP[MD]\b|call rate limit", re.I)),
    (Dimension.TOKENS, re.compile(r"(?<!put )(?<!put_)(?<!put-)tokens?[ _-]per|\bTP[MD]\b|token rate limit", re.I)),
)
"""Phrases by which errors name a used-up quota.

`of 30,000 input tokens per minute` (Anthropic), `on tokens per min (TPM)` (OpenAI, Groq), `exceeded call rate limit`
(Azure), `GenerateRequestsPerMinutePerProjectPerModel` (Google).
"""

WORDS_MAX: Final = 16 * 1024
"""Bytes of an error in which such words are looked for."""

_PLAN: Final = "anthropic-ratelimit-unified-"


def read_ratelimits(headers: Mapping[str, str]) -> tuple[QuotaReading, ...]:
    """Return the readings of an answer's head, good or bad; at most one for each dimension and window.

    Args:
        headers: Lower-case names; of repeated ones the first.
    """
    found: dict[tuple[Dimension, str | None, str | None], dict[str, str]] = {}
    anthropic = False
    for name, text in headers.items():
        if "-ratelimit" not in name:
            continue
        match = _NAME.fullmatch(name)
        if match is not None:
            anthropic = anthropic or match["part"] is not None
            dimension = _COUNTED[match["anthropic"] or match["what"]]
            told = found.setdefault((dimension, match["window"], match["scope"]), {})
            told[match["part"] or match["other_part"]] = text
    tightest: dict[tuple[Dimension, int | None], QuotaReading] = {}
    for (dimension, window, _), told in found.items():
        reading = _reading(dimension, window, told, headers, rounds=anthropic and dimension is not Dimension.REQUESTS)
        if reading.limit is None and reading.remaining is None:
            continue
        key = dimension, reading.window_ns
        tightest[key] = min(tightest.get(key, reading), reading, key=_left)
    return tuple(tightest.values())


def _reading(
    dimension: Dimension, window: str | None, told: Mapping[str, str], headers: Mapping[str, str], *, rounds: bool
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
        rounding=_ROUNDED_TO // 2 if rounds and remaining is not None and remaining % _ROUNDED_TO == 0 else 0,
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
    if headers.get(f"{_PLAN}status", "").strip().lower() != "rejected":
        return None
    rejected = [
        name.removesuffix("status")
        for name, text in headers.items()
        if name.startswith(_PLAN) and name.endswith("-status") and text.strip().lower() == "rejected"
    ]
    waits = [from_now_ns(headers.get(f"{name}reset", ""), headers) for name in rejected]
    return max((wait for wait in waits if wait is not None), default=None)
