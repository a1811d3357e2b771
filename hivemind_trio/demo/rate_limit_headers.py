"""The rate-limit headers of Anthropic and OpenAI, as their public pages had them in November 2026 ("Rate limits")."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final

from hivemind_trio.sim import Metered, Reading

BEGAN: Final = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
"""When a simulated provider claims to have begun: a fixed instant, so that answers are the same on every run. It is not
its client's idea of the time, and no client may need it to be."""

CREATED: Final = int(BEGAN.timestamp())
"""The same in seconds since the epoch."""

_ROUNDED_TO: Final = 1000
"""Anthropic: "the token counts are rounded to the nearest thousand"."""

Headers = list[tuple[bytes, bytes]]


def anthropic(readings: Mapping[Metered, Reading], now_ns: int) -> Headers:
    """`anthropic-ratelimit-requests-remaining: 59` and their like; when a bucket is full again, as RFC 3339."""
    said: Headers = []
    for dimension, reading in readings.items():
        name = f"anthropic-ratelimit-{dimension.value.replace(' ', '-')}"
        left = reading.remaining
        if dimension is not Metered.REQUESTS:
            left = (left + _ROUNDED_TO // 2) // _ROUNDED_TO * _ROUNDED_TO
        # Upwards, for whoever comes at the time that was named should find what was promised.
        full = _at(now_ns + reading.full_ns + 999_999_999).strftime("%Y-%m-%dT%H:%M:%SZ")
        said += _three(f"{name}-limit", reading.limit, f"{name}-remaining", left, f"{name}-reset", full)
    return said + _date(now_ns) if said else []


def openai(readings: Mapping[Metered, Reading], now_ns: int) -> Headers:
    """`x-ratelimit-remaining-requests: 59` and their like; how long until a bucket is full again, as Go prints it.

    There is one figure for tokens, of both directions together.
    """
    said: Headers = []
    for name, reading in _shown(readings).items():
        full, left = go_duration(reading.full_ns), reading.remaining
        said += _three(f"x-ratelimit-limit-{name}", reading.limit, f"x-ratelimit-remaining-{name}", left,
                       f"x-ratelimit-reset-{name}", full)  # fmt: skip
    return said + _date(now_ns) if said else []


def azure(readings: Mapping[Metered, Reading], now_ns: int) -> Headers:
    """Return the same figures; instead of when a window ends, how many seconds one is long."""
    said: Headers = []
    for name, reading in _shown(readings).items():
        period = "10" if name == "requests" else "60"
        said += _three(f"x-ratelimit-limit-{name}", reading.limit, f"x-ratelimit-remaining-{name}", reading.remaining,
                       f"x-ratelimit-renewalperiod-{name}", period)  # fmt: skip
    return said + _date(now_ns) if said else []


def _shown(readings: Mapping[Metered, Reading]) -> dict[str, Reading]:
    """Return the figures that the headers have: requests, and one figure for all tokens."""
    tokens = [reading for dimension, reading in readings.items() if dimension is not Metered.REQUESTS]
    shown = {"requests": readings[Metered.REQUESTS]} if Metered.REQUESTS in readings else {}
    if tokens:
        shown["tokens"] = Reading(
            limit=sum(reading.limit for reading in tokens),
            remaining=sum(reading.remaining for reading in tokens),
            full_ns=max(reading.full_ns for reading in tokens),
        )
    return shown


def retry_after(wait_ns: int) -> Headers:
    """In whole seconds, upwards: earlier retries will fail."""
    return [(b"retry-after", str(-(-wait_ns // 1_000_000_000)).encode())]


def go_duration(ns: int) -> str:
    """`20ms`, `1.5s`, `6m0s`: what Go's `Duration.String` gives, to the millisecond, upwards."""
    ms = -(-ns // 1_000_000)
    if ms < 1000:
        return f"{ms}ms" if ms else "0s"
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{ms / 1000:g}s"
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}" if minutes else seconds


def _three(limit_name: str, limit: int, left_name: str, left: int, reset_name: str, reset: str) -> Headers:
    named = {limit_name: str(limit), left_name: str(left), reset_name: reset}
    return [(name.encode(), value.encode()) for name, value in named.items()]


def _date(now_ns: int) -> Headers:
    """Return the `date` header, which points in time are measured against."""
    return [(b"date", format_datetime(_at(now_ns), usegmt=True).encode())]


def _at(now_ns: int) -> datetime:
    return BEGAN + timedelta(microseconds=now_ns // 1000)
