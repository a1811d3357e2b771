"""Times to wait, in every form in which providers write them. Total: any text has an answer, a time or None.

`retry-after` in seconds or as a date (RFC 9110), `retry-after-ms` (Azure OpenAI, the SDKs), Go durations (OpenAI), RFC
3339 (Anthropic), seconds or milliseconds since 1970 (Anthropic's unified limits, OpenRouter), Google's `RetryInfo`.
Points in time are taken relative to the answer's own `date`: the two clocks need not agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Final

SECOND_NS: Final = 1_000_000_000
LONGEST_S: Final = 7 * 86_400
LONGEST_NS: Final = LONGEST_S * SECOND_NS
"""A longer wait is a mistake of somebody's, or no matter of waiting: it counts as this one."""

_GO: Final = re.compile(r"(?:(\d{1,6}(?:\.\d{1,9})?)h)?(?:(\d{1,6}(?:\.\d{1,9})?)m)?(?:(\d{1,6}(?:\.\d{1,9})?)s)?"
                        r"(?:(\d{1,9}(?:\.\d{1,9})?)ms)?")  # fmt: skip
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?(?:[Zz]|([+-])(\d\d):(\d\d))"
)


def retry_after_ns(headers: Mapping[str, str]) -> int | None:
    """Return the provider's word on when to come back; None: it has none that can be read.

    Args:
        headers: Lower-case names.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        return _ns(float(milliseconds) / 1000)
    return from_now_ns(headers.get("retry-after", ""), headers)


def from_now_ns(text: str, headers: Mapping[str, str]) -> int | None:
    """Return a time of any of the forms above, relative to the answer's `date` where it is a point in time."""
    text = text.strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        value = float(text)
        if value >= 1e12:
            return _since(value / 1000, headers)
        return _since(value, headers) if value >= 1e9 else _ns(value)
    go = _GO.fullmatch(text)
    if go is not None and any(go.groups()):
        hours, minutes, seconds, rest = (float(part or 0) for part in go.groups())
        return _ns(hours * 3600 + minutes * 60 + seconds + rest / 1000)
    match = _RFC3339.fullmatch(text)
    if match is not None:
        return _since(_epoch_s(match), headers)
    return _since(since_1970_s(text), headers)


def to_hour_ns(hour_s: int, every_s: int, headers: Mapping[str, str]) -> int | None:
    """Return the time until the next time of day; None: the answer has no `date`.

    Args:
        hour_s: Seconds after midnight, UTC.
        every_s: How often: 86,400 for once a day.
    """
    now_s = since_1970_s(headers.get("date", ""))
    return None if now_s is None else _ns(every_s - (now_s - hour_s) % every_s)


def _since(epoch_s: float | None, headers: Mapping[str, str]) -> int | None:
    if epoch_s is None:
        return None
    now_s = since_1970_s(headers.get("date", ""))
    return None if now_s is None else _ns(max(0.0, epoch_s - now_s))


def _ns(seconds: float) -> int:
    return round(min(seconds, LONGEST_S) * SECOND_NS)


def since_1970_s(text: str) -> float | None:
    """Return the seconds since 1970 of an HTTP date; None: it is none."""
    if len(text) > 64:
        return None
    try:
        parts = parsedate_tz(text)
        return None if parts is None else float(mktime_tz(parts))
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _epoch_s(match: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60 and year >= 1970):
        return None
    # Days since 1970 in the Gregorian calendar, March first (Hinnant, "chrono-compatible low-level date algorithms").
    shifted = year - (month <= 2)
    era_day = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + era_day - 719_468
    offset_s = 0
    if match[7]:
        offset_s = (int(match[8]) * 3600 + int(match[9]) * 60) * (1 if match[7] == "+" else -1)
    return float(days * 86_400 + hour * 3600 + minute * 60 + second - offset_s)
