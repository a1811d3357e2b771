"""What an error's answer says of its provider, over answers as providers give them, and over any bytes."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Final

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome
from hivemind_trio.wire import Signal, error_types, read_signal

from .transcripts import TRANSCRIPTS, Transcript

S = 1_000_000_000
WEEK_NS: Final = 7 * 86_400 * S


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.name)
def test_an_answer_is_understood(transcript: Transcript) -> None:
    status, headers, body = transcript.answer

    assert read_signal(status, headers, body) == transcript.signal


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    " GZIP ": gzip.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("coding", PACKED)
def test_a_compressed_answer_is_understood_as_well(coding: str) -> None:
    for transcript in TRANSCRIPTS:
        status, headers, body = transcript.answer

        assert read_signal(status, headers | {"content-encoding": coding}, PACKED[coding](body)) == transcript.signal


@pytest.mark.slow
@pytest.mark.parametrize("coding", PACKED)
def test_an_error_s_body_that_unfolds_to_a_lot_is_not_unfolded(coding: str) -> None:
    packed = PACKED[coding](bytes(64 << 20))
    tracemalloc.start()

    signal = read_signal(429, {"content-encoding": coding}, packed)

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert signal == Signal(outcome=Outcome.BURST)
    assert most < 1 << 20


# ---- what a provider wants to be asked again ----


@pytest.mark.parametrize("status", [400, 408, 409, 425, 429, 500, 502, 503, 504, 529])
@pytest.mark.parametrize(
    ("word", "final"), [("false", True), (" FALSE ", True), ("true", False), ("no", False), ("", False)]
)
def test_the_provider_may_forbid_another_attempt(status: int, word: str, final: bool) -> None:
    # `true` is the SDK's to heed, where the policy's class of retries says otherwise.
    assert read_signal(status, {"x-should-retry": word}, b"").final is final


@pytest.mark.parametrize("status", [409, 425, 429, 500, 502, 503, 504, 529])
def test_whoever_says_when_to_come_back_is_heard(status: int) -> None:
    assert read_signal(status, {"retry-after": "7"}, b"").retry_after_ns == 7 * S


@pytest.mark.parametrize("status", [429, 500, 503, 529])
@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "0"},
        {"retry-after-ms": "0", "retry-after": "1"},
        {"retry-after": "Sat, 21 Nov 2026 06:00:00 GMT", "date": "Sat, 21 Nov 2026 07:00:00 GMT"},
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "0s"},
    ],
    ids=["seconds", "milliseconds", "a date that is over", "a reset that is over"],
)
def test_to_come_back_at_once_is_left_to_the_back_off(status: int, headers: dict[str, str]) -> None:
    # Otherwise eight attempts would follow each other without a pause.
    assert read_signal(status, headers, b"").retry_after_ns is None


def test_google_s_delay_of_nothing_is_none_either() -> None:
    body = b'{"error":{"details":[{"retryDelay":"0s"}]}}'

    assert read_signal(429, {}, body) == Signal(outcome=Outcome.BURST)


def test_a_header_goes_before_google_s_delay() -> None:
    body = b'{"error":{"details":[{"retryDelay":"31s"}]}}'

    assert read_signal(429, {"retry-after": "5"}, body).retry_after_ns == 5 * S
    assert read_signal(429, {}, body).retry_after_ns == 31 * S


# ---- money ----


@pytest.mark.parametrize("status", [400, 402, 403, 429])
def test_a_code_of_money_counts_under_any_status(status: int) -> None:
    body = b'{"error":{"type":"billing_error","message":"..."}}'

    assert read_signal(status, {}, body) == Signal(outcome=Outcome.TERMINAL, final=True)


@pytest.mark.parametrize("status", [500, 503, 529])
def test_an_outage_that_speaks_of_money_is_an_outage(status: int) -> None:
    body = b'{"error":{"type":"billing_error","message":"the spend limit cannot be read"}}'

    assert read_signal(status, {}, body).outcome is not Outcome.TERMINAL


@pytest.mark.parametrize(
    ("date", "wait_h"),
    [
        ("Sat, 21 Nov 2026 06:00:00 GMT", 1),
        ("Sat, 21 Nov 2026 07:00:00 GMT", 24),
        ("Sat, 21 Nov 2026 23:00:00 GMT", 8),
        ("Sun, 22 Nov 2026 00:00:00 GMT", 7),
    ],
)
def test_a_day_of_google_s_ends_at_midnight_in_california(date: str, wait_h: int) -> None:
    body = b'{"error":{"details":[{"violations":[{"quotaId":"GenerateRequestsPerDay"}]},{"retryDelay":"31s"}]}}'

    assert read_signal(429, {"date": date}, body).retry_after_ns == wait_h * 3_600 * S
    assert read_signal(429, {}, body) == Signal(outcome=Outcome.TERMINAL, final=True)


# ---- which quota ----


@pytest.mark.parametrize(
    ("left", "reset"),
    [
        ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
        ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
        ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
        ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        ("x-ratelimit-remaining-project-tokens", "x-ratelimit-reset-project-tokens"),
        ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ],
)
def test_a_quota_of_which_nothing_is_left_is_waited_for(left: str, reset: str) -> None:
    told = Signal(outcome=Outcome.QUOTA, retry_after_ns=12 * S, by_reset=True)
    assert read_signal(429, {left: "0", reset: "12s"}, b"") == told
    assert not read_signal(429, {left: "0", reset: "12s", "retry-after": "12"}, b"").by_reset
    assert read_signal(429, {left: " 0.0 ", reset: "12s"}, b"").outcome is Outcome.QUOTA
    # Of what is left something: then it was no quota. Azure says -1 of what it does not count.
    for some in ("1", "-1", "00", "", "a lot"):
        assert read_signal(429, {left: some, reset: "12s"}, b"") == Signal(outcome=Outcome.BURST)


def test_of_several_quotas_the_one_that_takes_longest_counts() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }

    assert read_signal(429, headers, b"").retry_after_ns == 360 * S
    # By then the quota is whole again; the provider's own word is when there is room for one more.
    assert read_signal(429, headers | {"retry-after": "5"}, b"").retry_after_ns == 5 * S
    assert read_signal(429, headers | {"retry-after": "5", "apim-request-id": "a"}, b"").retry_after_ns == 360 * S
    assert read_signal(429, headers | {"x-ratelimit-remaining-tokens": "9"}, b"").retry_after_ns == 2 * S


def test_an_outage_is_none_though_a_quota_happens_to_be_used_up() -> None:
    assert read_signal(529, {"x-ratelimit-remaining-tokens": "0"}, b"").outcome is Outcome.OVERLOADED
    assert read_signal(500, {"x-ratelimit-remaining-tokens": "0"}, b"").outcome is Outcome.FAILED


# ---- bodies that say nothing ----

CONCURRENT: Final = b'{"error":{"message":"too many concurrent requests"}}'
PADDING: Final = b" " * 65_536


@pytest.mark.parametrize(
    ("headers", "body", "outcome"),
    [
        ({}, CONCURRENT, Outcome.CONCURRENCY),
        ({}, b"Too many concurrent requests", Outcome.CONCURRENCY),
        ({}, b'{"error":{"message":"too many concurrent', Outcome.CONCURRENCY),
        ({}, b"\xff\xfe concurrent", Outcome.CONCURRENCY),
        ({}, b" " * 2_000 + b"concurrent", Outcome.BURST),
        ({}, CONCURRENT + PADDING, Outcome.BURST),
        ({"content-encoding": "gzip"}, gzip.compress(CONCURRENT + PADDING), Outcome.BURST),
        ({"content-encoding": "gzip"}, CONCURRENT, Outcome.BURST),
        ({"content-encoding": "br"}, CONCURRENT, Outcome.BURST),
        ({"content-encoding": "identity"}, CONCURRENT, Outcome.CONCURRENCY),
        ({}, b"[" * 60_000, Outcome.BURST),
        ({}, b"[]", Outcome.BURST),
        ({}, b"[[]]", Outcome.BURST),
        ({}, b"null", Outcome.BURST),
        ({}, b'{"error":{"message":{"text":"concurrent"},"details":[[],{"violations":[7]}],"code":[]}}', Outcome.BURST),
        ({}, b'{"error":{"details":[{"violations":[{"quotaId":7}],"retryDelay":7}]}}', Outcome.BURST),
    ],
    ids=[
        *("JSON", "text", "JSON that breaks off", "no UTF-8", "text beyond the first lines", "too long"),
        *("too long once unpacked", "not packed after all", "a coding that is unknown", "identity", "a deep nest"),
        *("an empty list", "a list of a list", "null", "other types", "other types in details"),
    ],
)
def test_a_body_counts_as_far_as_it_can_be_read(headers: dict[str, str], body: bytes, outcome: Outcome) -> None:
    assert read_signal(429, headers, body) == Signal(outcome=outcome)


# ---- properties ----

NAMES = sorted({name for transcript in TRANSCRIPTS for name in transcript.answer[1]} | {"content-encoding"})
VALUES = sorted({value for transcript in TRANSCRIPTS for value in transcript.answer[1].values()})
WORDS = ["insufficient_quota", "GenerateRequestsPerDay", "per minute", "concurrent", "31s", "0s", "spend limit", "gzip"]
FIELDS = ["error", "message", "type", "code", "details", "violations", "quotaId", "retryDelay", "error_code", "reason"]

headers_st = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([*VALUES, *WORDS]) | st.text(max_size=20), max_size=6
)
documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


def as_body(document: object, cut: int | None) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")[:cut]


bodies = (
    st.binary(max_size=200)
    | st.builds(as_body, documents, st.none() | st.integers(0, 80))
    | st.sampled_from([transcript.answer[2] for transcript in TRANSCRIPTS])
    | st.builds(lambda raw: gzip.compress(raw), st.binary(max_size=50))
)


@given(st.integers(100, 999) | st.sampled_from([400, 429, 429, 429, 503, 529]), headers_st, bodies)
def test_any_answer_says_something(status: int, headers: dict[str, str], body: bytes) -> None:
    signal = read_signal(status, headers, body)

    assert (signal.outcome is Outcome.SUCCEEDED) == (status < 400)
    assert signal.retry_after_ns is None or 0 < signal.retry_after_ns <= WEEK_NS
    # Who has no money left is not asked again, and who forbids it neither.
    assert signal.final or signal.outcome is not Outcome.TERMINAL
    assert signal.final or status < 400 or headers.get("x-should-retry", "").strip().lower() != "false"
    # What says nothing of a provider's slots is never taken for a word on them.
    assert signal.outcome not in (Outcome.SLOW, Outcome.UNREACHABLE)


@pytest.mark.parametrize(
    ("headers", "outcome", "wait_s"),
    [
        ({"status": "rejected", "5h-status": "rejected", "5h-reset": "1795248000"}, Outcome.TERMINAL, 3_600),
        (
            {
                "status": "rejected",
                "5h-status": "rejected",
                "5h-reset": "1795248000",
                "7d-status": "rejected",
                "7d-reset": "1795330800",
            },
            Outcome.TERMINAL,
            86_400,
        ),
        ({"status": "rejected", "reset": "1795248000"}, Outcome.TERMINAL, 3_600),
        ({"status": "allowed", "5h-status": "allowed", "5h-reset": "1795248000"}, Outcome.BURST, 10),
        ({"status": "rejected"}, Outcome.BURST, 10),
    ],
    ids=["five hours", "the later of two", "in all", "not the plan", "no word on when"],
)
def test_an_anthropic_plan_that_is_used_up_says_so_in_headers(
    headers: dict[str, str], outcome: Outcome, wait_s: int
) -> None:
    # The header names after captures in anthropics/claude-code#12829 and lidge-jun/opencodex#3809.
    said = {f"anthropic-ratelimit-unified-{name}": text for name, text in headers.items()}

    signal = read_signal(429, {"date": "Sat, 21 Nov 2026 07:00:00 GMT", "retry-after": "10"} | said, b"")

    assert (signal.outcome, signal.retry_after_ns) == (outcome, wait_s * S)


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, ("overloaded_error",)),
        ({"type": "tokens", "code": "rate_limit_exceeded", "message": "Slow"}, ("tokens", "rate_limit_exceeded")),
        ({"code": 503, "status": "UNAVAILABLE", "message": "Busy"}, ("UNAVAILABLE",)),
        ({"code": 429, "details": [{"reason": "RATE_LIMIT_EXCEEDED"}]}, ("RATE_LIMIT_EXCEEDED",)),
        ({"type": "x" * 101, "code": ""}, ()),
        ({"type": ["overloaded_error"]}, ()),
        ("overloaded", ()),
    ],
)
def test_types_and_codes_of_an_error_are_told_as_they_are(error: object, named: tuple[str, ...]) -> None:
    body = json.dumps({"error": error}).encode()

    assert error_types({}, body) == named
    assert error_types({"content-encoding": "gzip"}, gzip.compress(body)) == named


@given(st.binary())
def test_any_bytes_have_error_types(body: bytes) -> None:
    assert len(error_types({}, body)) <= 8
