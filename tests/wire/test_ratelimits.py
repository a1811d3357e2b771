"""Rate-limit headers: every form that providers are known to send, and any that they are not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Dimension, QuotaReading
from hivemind_trio.wire import read_ratelimits, used_up

S = 1_000_000_000
DATE = {"date": "Sat, 21 Nov 2026 07:00:00 GMT"}
EPOCH_S = 1_795_244_400
"""The same moment, in seconds since 1970."""


def requests(**said: Any) -> QuotaReading:
    return QuotaReading(dimension=Dimension.REQUESTS, **said)


def tokens(**said: Any) -> QuotaReading:
    return QuotaReading(dimension=Dimension.TOKENS, **said)


def tokens_in(**said: Any) -> QuotaReading:
    return QuotaReading(dimension=Dimension.INPUT, **said)


def tokens_out(**said: Any) -> QuotaReading:
    return QuotaReading(dimension=Dimension.OUTPUT, **said)


ANTHROPIC = "anthropic-ratelimit-"

KNOWN: dict[str, tuple[dict[str, str], set[QuotaReading]]] = {
    # platform.claude.com/docs/en/api/rate-limits; figures of a recorded answer of the R package tidyllm
    "anthropic: four quotas, reset as RFC 3339": (
        {
            f"{ANTHROPIC}requests-limit": "1000",
            f"{ANTHROPIC}requests-remaining": "999",
            f"{ANTHROPIC}requests-reset": "2026-11-21T07:00:01Z",
            f"{ANTHROPIC}input-tokens-limit": "80000",
            f"{ANTHROPIC}input-tokens-remaining": "80000",
            f"{ANTHROPIC}input-tokens-reset": "2026-11-21T07:00:00Z",
            f"{ANTHROPIC}output-tokens-limit": "16000",
            f"{ANTHROPIC}output-tokens-remaining": "15000",
            f"{ANTHROPIC}output-tokens-reset": "2026-11-21T07:00:04Z",
            f"{ANTHROPIC}tokens-limit": "96000",
            f"{ANTHROPIC}tokens-remaining": "95120",
            f"{ANTHROPIC}tokens-reset": "2026-11-21T08:00:02+01:00",
        },
        {
            requests(limit=1000, remaining=999, resets_ns=S),
            tokens_in(limit=80_000, remaining=80_000, rounding=500),
            tokens_out(limit=16_000, remaining=15_000, resets_ns=4 * S, rounding=500),
            tokens(limit=96_000, remaining=95_120, resets_ns=2 * S),
        },
    ),
    # platform.claude.com/docs/en/api/service-tiers: who is over the priority tier is served at the standard one
    "anthropic: the priority tier is no limit": (
        {
            "anthropic-priority-input-tokens-limit": "10000",
            "anthropic-priority-input-tokens-remaining": "0",
            "anthropic-priority-input-tokens-reset": "2026-11-21T07:00:01Z",
        },
        set(),
    ),
    # anomalyco/opencode#49653 and Kilo-Org/kilocode#14220: shares of a plan, not counts
    "anthropic: a plan's windows are shares, and no counts": (
        {
            f"{ANTHROPIC}unified-status": "allowed",
            f"{ANTHROPIC}unified-5h-utilization": "0.42",
            f"{ANTHROPIC}unified-5h-reset": str(EPOCH_S + 9_000),
            f"{ANTHROPIC}requests-limit": "50",
            f"{ANTHROPIC}requests-remaining": "49",
        },
        {requests(limit=50, remaining=49)},
    ),
    # developers.openai.com/api/docs/guides/rate-limits, "Rate limits in headers"
    "openai: Go durations": (
        {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        {
            requests(limit=60, remaining=59, resets_ns=S),
            tokens(limit=150_000, remaining=149_984, resets_ns=360 * S),
        },
    ),
    # an answer recorded in a public test suite: 20 ms are 60 s / 3000
    "openai: milliseconds": (
        {
            "x-ratelimit-limit-requests": "3000",
            "x-ratelimit-remaining-requests": "2999",
            "x-ratelimit-reset-requests": "20ms",
        },
        {requests(limit=3000, remaining=2999, resets_ns=20_000_000)},
    ),
    # the same guide: "when a project limit applies"
    "openai: of the organisation's and the project's, the one with less left": (
        {
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-tokens": "100000",
            "x-ratelimit-limit-project-tokens": "50000",
            "x-ratelimit-remaining-project-tokens": "20",
            "x-ratelimit-reset-project-tokens": "59s",
        },
        {tokens(limit=50_000, remaining=20, resets_ns=59 * S)},
    ),
    # two captures of Azure OpenAI: seconds without a unit, the window told, 0 for what is not known
    "azure: the window's length, and a reset of nothing": (
        {
            "x-ratelimit-limit-tokens": "10000",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "0",
            "x-ratelimit-renewalperiod-tokens": "60",
            "x-ratelimit-limit-requests": "10",
            "x-ratelimit-remaining-requests": "9",
            "x-ratelimit-reset-requests": "8",
            "x-ratelimit-renewalperiod-requests": "10",
        },
        {
            tokens(limit=10_000, remaining=0, window_ns=60 * S),
            requests(limit=10, remaining=9, resets_ns=8 * S, window_ns=10 * S),
        },
    ),
    # console.groq.com/docs/rate-limits: the requests are those of a day
    "groq: minutes and hundredths": (
        {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-limit-tokens": "18000",
            "x-ratelimit-remaining-tokens": "17997",
            "x-ratelimit-reset-tokens": "7.66s",
        },
        {
            requests(limit=14_400, remaining=14_370, resets_ns=179_560_000_000),
            tokens(limit=18_000, remaining=17_997, resets_ns=7_660_000_000),
        },
    ),
    # inference-docs.cerebras.ai/support/rate-limits: the window is in the name
    "cerebras: by day and by minute": (
        {
            "x-ratelimit-limit-requests-day": "1000000000",
            "x-ratelimit-remaining-requests-day": "999997455",
            "x-ratelimit-reset-requests-day": "33011.382867097855",
            "x-ratelimit-limit-tokens-minute": "1000000000",
            "x-ratelimit-remaining-tokens-minute": "999998416",
            "x-ratelimit-reset-tokens-minute": "11.38286",
        },
        {
            requests(limit=10**9, remaining=999_997_455, window_ns=86_400 * S),
            tokens(limit=10**9, remaining=999_998_416, resets_ns=11_382_860_000, window_ns=60 * S),
        },
    ),
    # docs.digitalocean.com/products/inference/reference/quota-specific-response-headers
    "digitalocean: two windows of one dimension, seconds since 1970": (
        {
            "x-ratelimit-limit-tokens-per-day": "5000000",
            "x-ratelimit-remaining-tokens-per-day": "4000000",
            "x-ratelimit-reset-tokens-per-day": str(EPOCH_S + 7_200),
            "x-ratelimit-limit-tokens-per-minute": "60000",
            "x-ratelimit-remaining-tokens-per-minute": "59000",
            "x-ratelimit-reset-tokens-per-minute": str(EPOCH_S + 1),
        },
        {
            tokens(limit=5_000_000, remaining=4_000_000, resets_ns=7_200 * S, window_ns=86_400 * S),
            tokens(limit=60_000, remaining=59_000, resets_ns=S, window_ns=60 * S),
        },
    ),
    # openrouter.ai/docs/api/reference/limits: milliseconds since 1970
    "openrouter: requests, milliseconds since 1970": (
        {
            "x-ratelimit-limit": "50",
            "x-ratelimit-remaining": "13",
            "x-ratelimit-reset": str(EPOCH_S * 1000 + 30_500),
        },
        {requests(limit=50, remaining=13, resets_ns=30_500_000_000)},
    ),
    # docs.fireworks.ai/guides/quotas_usage/rate-limits
    "fireworks: prompt and generated": (
        {
            "x-ratelimit-limit-tokens-prompt": "60000",
            "x-ratelimit-remaining-tokens-prompt": "59000",
            "x-ratelimit-limit-tokens-generated": "6000",
            "x-ratelimit-remaining-tokens-generated": "5000",
        },
        {tokens_in(limit=60_000, remaining=59_000), tokens_out(limit=6_000, remaining=5_000)},
    ),
    "gemini, ollama, vllm: none": ({"content-type": "application/json"}, set()),
}


@pytest.mark.parametrize(("headers", "readings"), KNOWN.values(), ids=KNOWN)
def test_the_headers_of_each_provider_are_read(headers: dict[str, str], readings: set[QuotaReading]) -> None:
    assert set(read_ratelimits(DATE | headers)) == readings


ODD: dict[str, tuple[dict[str, str], set[QuotaReading]]] = {
    "words": ({"limit": "many", "remaining": "some", "reset": "soon"}, set()),
    "empty": ({"limit": "", "remaining": "", "reset": ""}, set()),
    "what is left alone": ({"limit": "x", "remaining": "5"}, {requests(remaining=5)}),
    "below nothing": ({"limit": "-1", "remaining": "-1", "reset": "-1"}, set()),
    "a limit of nothing": ({"limit": "0", "remaining": "0"}, {requests(remaining=0)}),
    "more left than there is": ({"limit": "10", "remaining": "11"}, {requests(limit=10, remaining=10)}),
    "a number without end": ({"limit": "9" * 400, "remaining": "9" * 400}, set()),
    "exponents and signs": ({"limit": "1e9", "remaining": "+5"}, set()),
    "figures of another script": ({"limit": "٥", "remaining": "５"}, set()),
    "two in one line": ({"limit": "10, 20", "remaining": "5"}, {requests(remaining=5)}),
    "a fraction of nothing": ({"limit": "10.0", "remaining": "4.000"}, {requests(limit=10, remaining=4)}),
    "a fraction": ({"limit": "10", "remaining": "4.5"}, {requests(limit=10)}),
    "spaces around": ({"limit": " 10 ", "remaining": "\t4"}, {requests(limit=10, remaining=4)}),
    "a reset long ago": (
        {"limit": "10", "remaining": "4", "reset": "2020-01-01T00:00:00Z"},
        {requests(limit=10, remaining=4)},
    ),
    "a reset alone": ({"reset": "5"}, set()),
}


@pytest.mark.parametrize(("said", "readings"), ODD.values(), ids=ODD)
def test_what_is_no_figure_is_none(said: dict[str, str], readings: set[QuotaReading]) -> None:
    headers = {f"{ANTHROPIC}requests-{part}": text for part, text in said.items()}

    assert set(read_ratelimits(DATE | headers)) == readings


def test_a_point_in_time_wants_a_date_to_be_measured_against() -> None:
    headers = {"x-ratelimit-limit": "5", "x-ratelimit-remaining": "5", "x-ratelimit-reset": str(EPOCH_S + 5)}

    assert read_ratelimits(headers) == (requests(limit=5, remaining=5),)


words = st.sampled_from(["limit", "remaining", "reset", "renewalperiod", "requests", "tokens", "input-tokens", "day"])
names = st.builds(
    "-".join,
    st.tuples(st.sampled_from(["x-ratelimit", "anthropic-ratelimit", "x-rate-limit", "-ratelimit"]), words, words),
)
values = st.one_of(
    st.text(max_size=30),
    st.integers(-5, 10**20).map(str),
    st.floats().map(str),
    st.sampled_from(["1s", "6m0s", "2026-11-21T07:00:00Z", "9999-99-99T99:99:99Z", str(EPOCH_S), str(EPOCH_S * 1000)]),
)


@given(st.dictionaries(st.one_of(names, st.text(max_size=20), st.just("date")), values, max_size=12))
def test_any_headers_have_an_answer_within_its_bounds(headers: dict[str, str]) -> None:
    readings = read_ratelimits(headers)

    assert len({(each.dimension, each.window_ns) for each in readings}) == len(readings)
    for each in readings:
        assert each.limit is None or 0 < each.limit < 10**15
        assert each.remaining is None or 0 <= each.remaining < 10**15
        assert each.limit is None or each.remaining is None or each.remaining <= each.limit
        assert each.resets_ns is None or each.resets_ns > 0
        assert each.window_ns is None or each.window_ns > 0


# ---- which quota an error names ----

NAMING: dict[str, tuple[dict[str, str], str, set[Dimension]]] = {
    # OpenHands/OpenHands#9259
    "anthropic, input": (
        {},
        "would exceed the rate limit for your organization (0dcc) of 20,000 input tokens per minute. Please reduce the"
        " prompt length or the maximum tokens requested",
        {Dimension.INPUT},
    ),
    "anthropic, output": ({}, "rate limit of 8,000 output tokens per minute", {Dimension.OUTPUT}),
    "anthropic, requests": ({}, "rate limit of 50 requests per minute", {Dimension.REQUESTS}),
    # developers.openai.com/api/docs/guides/error-codes, and any issue on it
    "openai, tokens": (
        {},
        "Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29000, "
        "Requested 2000. Please try again in 2s.",
        {Dimension.TOKENS},
    ),
    "openai, requests": ({}, "Rate limit reached on requests per min (RPM): Limit 3, Used 3", {Dimension.REQUESTS}),
    "openai, a day's requests": ({}, "on requests per day (RPD): Limit 200", {Dimension.REQUESTS}),
    # learn.microsoft.com/azure/ai-foundry/openai/how-to/quota
    "azure, tokens": ({}, "have exceeded token rate limit of your current pricing tier", {Dimension.TOKENS}),
    "azure, calls": ({}, "have exceeded call rate limit of your current pricing tier", {Dimension.REQUESTS}),
    "azure, in a header": ({"x-ratelimit-type": "Tokens"}, "", {Dimension.TOKENS}),
    # google-gemini/gemini-cli, googleQuotaErrors.ts
    "gemini, requests": (
        {},
        '{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}',
        {Dimension.REQUESTS},
    ),
    "gemini, input": ({}, '{"quotaId": "GenerateContentInputTokensPerModelPerMinute"}', {Dimension.INPUT}),
    "groq, both directions": (
        {},
        "on input tokens per minute (ITPM) and output tokens per minute (OTPM)",
        {Dimension.INPUT, Dimension.OUTPUT},
    ),
    "nothing": ({}, "Too many requests", set()),
}


@pytest.mark.parametrize(("headers", "text", "dimensions"), NAMING.values(), ids=NAMING)
def test_an_error_names_what_is_used_up(headers: dict[str, str], text: str, dimensions: set[Dimension]) -> None:
    assert set(used_up(headers, text.encode())) == dimensions


@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "br", "x"]))
def test_any_body_names_something_or_nothing(body: bytes, coding: str) -> None:
    assert set(used_up({"content-encoding": coding}, body)) <= set(Dimension)
