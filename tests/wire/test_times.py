"""How long from now: every form in which a provider says it, and whatever else may stand in such a header."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.wire.response.retry_after import from_now_ns, retry_after_ns

MS, SECOND, MINUTE, HOUR, DAY = 10**6, 10**9, 60 * 10**9, 3_600 * 10**9, 86_400 * 10**9

NOW = {"date": "Sat, 21 Nov 2026 07:00:00 GMT"}
"""1 795 244 400 s after 1970."""

SAID = {
    # RFC 9110, section 10.2.3: delay-seconds. Groq sends fractions, as do proxies before other providers.
    "seconds": ("30", 30 * SECOND),
    "no seconds": ("0", 0),
    "a fraction": ("7.66", 7_660 * MS),
    "nine digits of a second": ("1.000000001", SECOND + 1),
    "with white space": ("\t 30 ", 30 * SECOND),
    "leading zeros": ("007", 7 * SECOND),
    # The three dates that RFC 9110, section 5.6.7, obliges a reader to know; all of them are GMT.
    "an HTTP date": ("Sat, 21 Nov 2026 07:01:30 GMT", 90 * SECOND),
    "a date of RFC 850": ("Saturday, 21-Nov-26 07:00:05 GMT", 5 * SECOND),
    "a date of asctime": ("Sat Nov 21 07:00:05 2026", 5 * SECOND),
    "a date that names no zone": ("Sat, 21 Nov 2026 07:00:30", 30 * SECOND),
    "a date elsewhere": ("Sat, 21 Nov 2026 08:00:30 +0100", 30 * SECOND),
    "a date that is over": ("Sat, 21 Nov 2026 06:59:59 GMT", 0),
    "a date more than a week ahead": ("Fri, 01 Jan 2027 00:00:00 GMT", 7 * DAY),
    # Go durations: `x-ratelimit-reset-*` of OpenAI and Groq, and Google's `retryDelay`.
    "20ms": ("20ms", 20 * MS),
    "1s": ("1s", SECOND),
    "6m0s": ("6m0s", 6 * MINUTE),
    "2m59.56s": ("2m59.56s", 2 * MINUTE + 59_560 * MS),
    "1h30m0s": ("1h30m0s", HOUR + 30 * MINUTE),
    "1h": ("1h", HOUR),
    "3m": ("3m", 3 * MINUTE),
    "0.5m": ("0.5m", 30 * SECOND),
    "0s": ("0s", 0),
    "RetryInfo": ("34.074824224s", 34_074_824_224),
    "RetryInfo in milliseconds": ("900ms", 900 * MS),
    "milliseconds with a fraction": ("1.5ms", 1_500_000),
    # RFC 3339: `anthropic-ratelimit-*-reset`.
    "RFC 3339": ("2026-11-21T07:00:41Z", 41 * SECOND),
    "RFC 3339, small letters": ("2026-11-21t07:00:41z", 41 * SECOND),
    "RFC 3339, a space": ("2026-11-21 07:00:41Z", 41 * SECOND),
    "RFC 3339, a fraction": ("2026-11-21T07:00:41.999Z", 41 * SECOND),
    "RFC 3339, east": ("2026-11-21T12:31:00+05:30", MINUTE),
    "RFC 3339, west": ("2026-11-20T23:01:00-08:00", MINUTE),
    "RFC 3339, over": ("2026-11-21T06:00:00Z", 0),
    "RFC 3339, a leap second": ("2026-11-21T07:00:60Z", MINUTE),
    "RFC 3339, no such hour": ("2026-11-21T24:00:00Z", None),
    # Since 1970: `anthropic-ratelimit-unified-*-reset` in seconds, OpenRouter's `x-ratelimit-reset` in milliseconds.
    "seconds since 1970": ("1795244460", MINUTE),
    "milliseconds since 1970": ("1795244460000", MINUTE),
    "milliseconds since 1970, not whole seconds": ("1795244400250", 250 * MS),
    "seconds since 1970, over": ("1795244399", 0),
    # A longer wait is no matter of waiting, and counts as a week: far more than any class of retries waits for.
    "a week": ("604800", 7 * DAY),
    "more than a week": ("604801", 7 * DAY),
    "a month": ("2592000", 7 * DAY),
    "more than a week of hours": ("169h", 7 * DAY),
    "a billion seconds is a date": ("1000000000", 0),
    "one less is a wait": ("999999999", 7 * DAY),
}

UNSAID = [
    "",
    " ",
    "-1",
    "-5s",
    "+5",
    "1e3",
    "0x10",
    "1,5",
    "1.",
    ".5",
    "NaN",
    "inf",
    "soon",
    "12 seconds",
    "5 s",
    "1s1h",
    "ms",
    "T",
    "never",
    "2026-11-21",
    "2026-11-21T07:00:41",
    "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z",
    "2026-11-21T07:61:00Z",
    "1969-12-31T23:59:59Z",
    "9" * 400,
    "9" * 60 + "s",
    "Sat, 21 Nov 2026 07:01:30 GMT" + " " * 40 + "x",
    "Sat, 21 Nov 99999 07:01:30 GMT",
    "Sat, 21 Nov " + "9" * 40 + " 07:01:30 GMT",
    "\x00",
    "∞",
]


@pytest.mark.parametrize(("text", "expected_ns"), SAID.values(), ids=SAID)
def test_a_time_is_read_in_every_form(text: str, expected_ns: int | None) -> None:
    assert from_now_ns(text, NOW) == expected_ns
    assert retry_after_ns(NOW | {"retry-after": text}) == expected_ns


@pytest.mark.parametrize("text", UNSAID, ids=repr)
def test_what_is_no_time_is_none(text: str) -> None:
    assert from_now_ns(text, NOW) is None
    assert retry_after_ns(NOW | {"retry-after": text, "retry-after-ms": text}) is None


MILLISECONDS = {
    "alone": ({"retry-after-ms": "1500"}, 1_500 * MS),
    "before seconds, which are rounded": ({"retry-after-ms": "250", "retry-after": "1"}, 250 * MS),
    "a fraction": ({"retry-after-ms": "0.5"}, 500_000),
    "with white space": ({"retry-after-ms": " 20 "}, 20 * MS),
    "no number: seconds": ({"retry-after-ms": "20ms", "retry-after": "3"}, 3 * SECOND),
    "empty: seconds": ({"retry-after-ms": "", "retry-after": "3"}, 3 * SECOND),
    "never a date": ({"retry-after-ms": "1795244460000"}, 7 * DAY),
    "nothing said": ({}, None),
}


@pytest.mark.parametrize(("headers", "expected_ns"), MILLISECONDS.values(), ids=MILLISECONDS)
def test_milliseconds_go_before_seconds(headers: dict[str, str], expected_ns: int | None) -> None:
    assert retry_after_ns(NOW | headers) == expected_ns


POINTS = ["Sat, 21 Nov 2026 07:01:30 GMT", "2026-11-21T07:00:41Z", "1795244460", "1795244460000"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "date", [{}, {"date": ""}, {"date": "yesterday"}, {"date": "21 Nov 99999 07:00 GMT"}], ids=repr
)
def test_a_point_in_time_is_nothing_without_the_provider_s_own_clock(point: str, date: dict[str, str]) -> None:
    assert from_now_ns(point, date) is None


@pytest.mark.parametrize("length", ["20ms", "1s", "6m0s", "1h"])
def test_a_length_of_time_needs_no_clock(length: str) -> None:
    assert from_now_ns(length, {}) == SAID[length][1]


# ---- properties ----

seconds = st.integers(0, 7 * 86_400)
moments = st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(moments, seconds, zones)
def test_a_point_in_time_is_as_far_away_as_a_calendar_says(now: datetime, ahead_s: int, zone: timezone) -> None:
    date = {"date": format_datetime(now, usegmt=True)}
    then = now + timedelta(seconds=ahead_s)
    forms = [
        format_datetime(then, usegmt=True),
        then.astimezone(zone).isoformat(),
        then.astimezone(zone).isoformat(sep=" "),
        then.strftime("%Y-%m-%dT%H:%M:%SZ"),
    ]
    if then.timestamp() >= 1e9:
        forms += [f"{then.timestamp():.0f}", f"{then.timestamp() * 1000:.0f}"]

    assert {form: from_now_ns(form, date) for form in forms} == dict.fromkeys(forms, ahead_s * SECOND)


@given(st.integers(0, 150), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, whole: int, rest: int) -> None:
    expected_ns = hours * HOUR + minutes * MINUTE + whole * SECOND + rest * MS

    assert from_now_ns(f"{hours}h{minutes}m{whole}.{rest:03}s", {}) == expected_ns
    assert from_now_ns(f"{hours}h{minutes}m{whole}s{rest}ms", {}) == expected_ns


fragments = st.sampled_from(
    [
        *("Sat", ", ", " ", "Nov", "21", "2026", "07:00:00", "GMT", "+0100", "-", "+", ":", ".", "0", "1", "9" * 30),
        *("(c)", "T", "Z", "h", "m", "s", "ms", "AM", "٣", "²", "\x00", "99:99:99", "0000-00-00", "Feb 30", "e9"),
    ]
)
texts = (
    st.text(max_size=80)
    | st.binary(max_size=80).map(lambda raw: raw.decode("latin-1"))
    | st.lists(fragments, max_size=10).map("".join)
)


@given(texts, texts, texts)
def test_any_bytes_are_a_time_or_none(after: str, after_ms: str, date: str) -> None:
    headers = {"retry-after": after, "retry-after-ms": after_ms, "date": date}

    for found in (retry_after_ns(headers), from_now_ns(after, headers), from_now_ns(date, NOW)):
        assert found is None or 0 <= found <= 7 * DAY
