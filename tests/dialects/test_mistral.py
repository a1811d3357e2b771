"""Mistral's API: its calls, limits, streams and errors.

Answers are literal up to identifiers. The headers are those of mistralai/client-ts#169 (2026) and lobehub/lobehub#6825
(2025), the stream is that of BerriAI/litellm#16272 with a closing event after the API reference; other error bodies are
in `tests/wire/transcripts.py`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Dimension, Outcome, QuotaReading, Usage
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.sim import Metered, Reading
from hivemind_trio.sim.provider.wire_format import told
from hivemind_trio.wire import (
    UsageMeter,
    endpoint,
    error_event,
    provider_error,
    read_ratelimits,
    read_signal,
    recognise,
    refusal_body,
    used_up,
)

MINUTE_NS: Final = 60_000_000_000
SECOND_NS: Final = 1_000_000_000
SSE: Final = "text/event-stream; charset=utf-8"
LIMITED: Final = {
    "object": "error",
    "message": "Rate limit exceeded",
    "type": "rate_limited",
    "param": None,
    "code": "1300",
}
FIM: Final = "/v1/fim/completions"


def program(text: str) -> Program:
    checked = check("p.hmp", MemoryFiles({"p.hmp": "hmp 1\n" + text}))
    assert not checked.diagnostics, checked.diagnostics
    assert checked.program is not None
    return checked.program


# ---- calls ----


def test_a_provider_of_its_name_needs_neither_api_nor_base() -> None:
    provider = program("provider mistral { key env(K) }").providers["mistral"]

    assert (provider.api, provider.base) == (Api.MISTRAL, "https://api.mistral.ai")


@pytest.mark.parametrize("path", ["/v1/chat/completions", FIM, "/v1/agents/completions", "/v1/ocr", "/v1/models"])
def test_its_calls_go_to_its_provider(path: str) -> None:
    apis = endpoint(path, {}).apis

    assert program("provider mistral { key env(K) }").route(apis, "codestral-latest") == "mistral"


@pytest.mark.parametrize("api", ["openai", "generic"])
def test_its_own_calls_go_to_a_server_that_was_declared_as_another_s(api: str) -> None:
    policy = program(f'provider codestral {{ api {api}; base "https://codestral.mistral.ai"; key env(K) }}')

    assert policy.route(endpoint(FIM, {}).apis, "codestral-latest") == "codestral"


def test_openai_s_calls_prefer_openai() -> None:
    policy = program("provider mistral { key env(K) }\nprovider openai { key env(L) }")

    assert policy.route(endpoint("/v1/chat/completions", {}).apis, "m") == "openai"
    assert policy.route(endpoint(FIM, {}).apis, "m") == "mistral"


def test_a_fill_in_the_middle_call_is_understood() -> None:
    body = {"model": "codestral-latest", "prompt": "def f(", "suffix": "return a", "max_tokens": 64, "stream": True}
    seen = recognise("POST", FIM, {}, json.dumps(body).encode())

    assert seen.apis[0] is Api.MISTRAL
    assert (seen.generates, seen.model, seen.stream, seen.tokens_max_out) == (True, "codestral-latest", True, 64)


# ---- limits ----


def test_its_headers_are_read() -> None:
    headers = {
        "x-ratelimit-limit-tokens-minute": "5000000",
        "x-ratelimit-remaining-tokens-minute": "4999911",
        "x-ratelimit-tokens-query-cost": "52",
        "x-ratelimit-limit-req-minute": "720",
        "x-ratelimit-remaining-req-minute": "717",
        "x-ratelimit-limit-req-10-second": "120",
        "x-ratelimit-remaining-req-10-second": "118",
        "x-ratelimit-limit-tokens-month": "1000000000000",
        "x-ratelimit-remaining-tokens-month": "999998798434",
    }

    assert set(read_ratelimits(headers)) == {
        QuotaReading(dimension=Dimension.TOKENS, limit=5_000_000, remaining=4_999_911, window_ns=MINUTE_NS),
        QuotaReading(dimension=Dimension.REQUESTS, limit=720, remaining=717, window_ns=MINUTE_NS),
        QuotaReading(dimension=Dimension.REQUESTS, limit=120, remaining=118, window_ns=10 * SECOND_NS),
    }


def test_its_headers_before_2026_are_read() -> None:
    headers = {
        "ratelimitbysize-limit": "500000",
        "ratelimitbysize-query-cost": "32001",
        "ratelimitbysize-remaining": "467999",
        "ratelimitbysize-reset": "38",
        "x-ratelimitbysize-limit-minute": "500000",
        "x-ratelimitbysize-limit-month": "1000000000",
        "x-ratelimitbysize-remaining-minute": "467999",
        "x-ratelimitbysize-remaining-month": "995733790",
    }
    tokens = {"dimension": Dimension.TOKENS, "limit": 500_000, "remaining": 467_999}

    assert set(read_ratelimits(headers)) == {
        QuotaReading(**tokens, resets_ns=38 * SECOND_NS),  # type: ignore[arg-type]
        QuotaReading(**tokens, window_ns=MINUTE_NS),  # type: ignore[arg-type]
    }


def test_the_refusal_of_requests_names_them() -> None:
    assert used_up({}, b'{"message":"Requests rate limit exceeded"}') == (Dimension.REQUESTS,)
    assert used_up({}, json.dumps(LIMITED).encode()) == ()


readings = st.dictionaries(
    st.sampled_from(Metered),
    st.integers(1, 10**6).flatmap(
        lambda limit: st.builds(
            Reading, limit=st.just(limit), remaining=st.integers(0, limit), full_ns=st.integers(0, MINUTE_NS)
        )
    ),
)


@pytest.mark.slow
@given(readings, st.integers(0, 10**13))
def test_the_world_hears_what_its_headers_say(given: dict[Metered, Reading], now_ns: int) -> None:
    counted: dict[str, list[Reading]] = {}
    for dimension, reading in given.items():
        counted.setdefault("req" if dimension is Metered.REQUESTS else "tokens", []).append(reading)
    headers = {
        f"x-ratelimit-{part}-{name}-minute": str(sum(getattr(one, part) for one in some))
        for name, some in counted.items()
        for part in ("limit", "remaining")
    }

    assert set(told(Api.MISTRAL, given, now_ns)) == set(read_ratelimits(headers))


# ---- streams ----


def chunk(*, finish: str | None = None, usage: dict[str, int] | None = None, **delta: Any) -> bytes:
    said: dict[str, Any] = {"id": "c3", "object": "chat.completion.chunk", "created": 1762355135, "model": "magistral"}
    said["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps(said | ({"usage": usage} if usage else {})).encode() + b"\n\n"


PREAMBLE: Final = chunk(role="assistant", content="") + chunk(content="")
THINKING: Final = chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "So"}]}])
CLOSING: Final = (
    chunk(content="", finish="stop", usage={"prompt_tokens": 7, "total_tokens": 12, "completion_tokens": 5})
    + b"data: [DONE]\n\n"
)


def test_a_stream_begins_with_its_first_thought_and_ends_with_its_finish_reason() -> None:
    meter = UsageMeter(SSE)
    states = []
    for piece in (PREAMBLE, THINKING, CLOSING):
        meter.feed(piece)
        states.append((meter.begun, meter.unfinished))

    assert states == [(False, True), (True, True), (True, False)]
    assert meter.usage() == Usage(input=7, output=5)


def test_an_error_in_place_of_content_has_its_status() -> None:
    meter = UsageMeter(SSE)
    meter.feed(PREAMBLE + b"data: " + json.dumps(LIMITED).encode() + b"\n\n")

    assert meter.refusal is not None
    assert meter.refusal.status == 429
    assert meter.refusal.signal.outcome is Outcome.BURST


# ---- errors ----


@pytest.mark.parametrize(
    ("status", "kind"), [(403, "invalid_request_error"), (429, "rate_limited"), (503, "internal_server_error")]
)
def test_an_error_of_ours_is_flat_as_its_own(status: int, kind: str) -> None:
    body = json.loads(refusal_body(Api.MISTRAL, status, "too many", "queue-full"))

    assert body == {"object": "error", "message": "too many", "type": kind, "param": None, "code": "queue-full"}


def told_after_a_200(status: int, body: object) -> Any:
    error = provider_error(Api.MISTRAL, status, json.dumps(body).encode(), "", "upstream-refused")
    return json.loads(error_event(Api.MISTRAL, FIM, SSE, error, begun=False).removeprefix(b"data: "))


def test_its_error_is_told_in_its_own_words_after_a_200_of_ours() -> None:
    assert told_after_a_200(429, LIMITED) == LIMITED


def test_an_error_of_no_form_is_shown_with_its_status() -> None:
    said = told_after_a_200(422, {"detail": [{"msg": "Extra inputs are not permitted"}]})

    assert said["message"].startswith('the provider answered 422: {"detail"')
    assert said["object"] == "error"


def test_its_error_event_is_read_as_the_error_it_is() -> None:
    event = error_event(Api.MISTRAL, FIM, SSE, json.loads(refusal_body(Api.MISTRAL, 429, "too many", "queue-full")))
    meter = UsageMeter(SSE)
    meter.feed(event)

    assert meter.refusal is not None
    assert meter.refusal.status == 429


def test_a_full_model_is_the_provider_s_affair_and_no_limit_of_the_key() -> None:
    body = b'{"object":"error","message":"Service tier capacity exceeded for this model.","code":"3505"}'

    assert read_signal(429, {}, body).outcome is Outcome.OVERLOADED
