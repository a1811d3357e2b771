"""Errors that an answer carries after its 200: what each says of its provider, however it comes, and what is none."""

from __future__ import annotations

import gzip
import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome
from hivemind_trio.wire import Signal, UsageMeter
from hivemind_trio.wire.response.usage import TAIL_MAX

from .test_usage import (
    ANTHROPIC_DELTA,
    ANTHROPIC_START,
    CHAT_DELTA,
    JSON,
    NDJSON,
    SSE,
    TRANSCRIPTS,
    ndjson,
    pieces,
    sse,
)

S: Final = 1_000_000_000


def anthropic(kind: str, message: str = "") -> bytes:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return sse(ANTHROPIC_START, ANTHROPIC_DELTA, {"type": "ping"}, error, named=True)


def chat(**error: object) -> bytes:
    return sse(CHAT_DELTA, {"error": {"message": "It broke.", "param": None} | error}, "[DONE]")


def failed(code: str, message: str = "") -> bytes:
    """As OpenAI's Responses end: every event that holds the whole response has an `error`, mostly null."""
    whole = {"object": "response", "status": "in_progress", "error": None}
    return sse(
        {"type": "response.created", "response": whole},
        {"type": "response.output_text.delta", "delta": "So"},
        {
            "type": "response.failed",
            "response": whole | {"status": "failed", "error": {"code": code, "message": message}},
        },
        named=True,
    )


GOOGLE: Final = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
WORDS: Final = {"candidates": [{"content": {"parts": [{"text": "So"}]}}]}

ERRORS: dict[str, tuple[str, bytes, Signal]] = {
    "anthropic: overloaded": (SSE, anthropic("overloaded_error", "Overloaded"), Signal(outcome=Outcome.OVERLOADED)),
    "anthropic: broke": (SSE, anthropic("api_error", "Internal server error"), Signal(outcome=Outcome.FAILED)),
    "anthropic: too long": (SSE, anthropic("timeout_error"), Signal(outcome=Outcome.FAILED)),
    "anthropic: too much": (SSE, anthropic("rate_limit_error", "tokens per minute"), Signal(outcome=Outcome.QUOTA)),
    "anthropic: too much at once": (SSE, anthropic("rate_limit_error", "slow"), Signal(outcome=Outcome.BURST)),
    "anthropic: too many": (
        SSE, anthropic("rate_limit_error", "concurrent connections"), Signal(outcome=Outcome.CONCURRENCY)
    ),
    "anthropic: its own fault": (SSE, anthropic("invalid_request_error", "no"), Signal(outcome=Outcome.IGNORED)),
    "anthropic: credit": (
        SSE,
        anthropic("invalid_request_error", "Your credit balance is too low"),
        Signal(outcome=Outcome.TERMINAL, final=True),
    ),
    "anthropic: a word that nobody knows": (SSE, anthropic("moon_error"), Signal(outcome=Outcome.FAILED)),
    "chat: broke": (SSE, chat(type="server_error", code=None), Signal(outcome=Outcome.FAILED)),
    "chat: its own fault": (
        SSE, chat(type="invalid_request_error", code="context_length_exceeded"), Signal(outcome=Outcome.IGNORED)
    ),
    "chat: the plan": (
        SSE, chat(type="insufficient_quota", code="insufficient_quota"), Signal(outcome=Outcome.TERMINAL, final=True)
    ),
    "openrouter: in numbers": (SSE, chat(code=502), Signal(outcome=Outcome.FAILED)),
    "openrouter: in a chunk": (
        SSE,
        sse(CHAT_DELTA | {"error": {"code": 503, "message": "no provider"}}),
        Signal(outcome=Outcome.OVERLOADED),
    ),
    "openrouter: plain": (
        JSON, b'{"error": {"code": 502, "message": "Provider returned error"}}', Signal(outcome=Outcome.FAILED)
    ),
    "in numbers that are no status": (SSE, chat(code=200, type=""), Signal(outcome=Outcome.FAILED)),
    "in digits": (SSE, chat(code="529"), Signal(outcome=Outcome.OVERLOADED)),
    "vllm": (
        SSE,
        sse(CHAT_DELTA, {"object": "error", "message": "no", "type": "BadRequestError", "code": 400}),
        Signal(outcome=Outcome.IGNORED),
    ),
    "responses: overloaded": (SSE, failed("server_is_overloaded"), Signal(outcome=Outcome.OVERLOADED)),
    "responses: slow down": (SSE, failed("slow_down"), Signal(outcome=Outcome.TOO_FAST)),
    "responses: too much": (
        SSE,
        failed("rate_limit_exceeded", "Rate limit reached on tokens per min (TPM). Please try again in 1.25s. Visit"),
        Signal(outcome=Outcome.QUOTA, retry_after_ns=5 * S // 4),
    ),
    "responses: an event": (
        SSE,
        sse({"type": "error", "code": "server_error", "message": "It broke.", "sequence_number": 4}, named=True),
        Signal(outcome=Outcome.FAILED),
    ),
    "responses: plain": (
        JSON,
        json.dumps({"status": "failed", "error": {"code": "server_error", "message": ""}, "usage": None}).encode(),
        Signal(outcome=Outcome.FAILED),
    ),
    "gemini, sse": (SSE, sse(WORDS, GOOGLE), Signal(outcome=Outcome.OVERLOADED)),
    "gemini, sse, without `data:`": (
        SSE, sse(WORDS) + json.dumps(GOOGLE, indent=2).encode() + b"\n", Signal(outcome=Outcome.OVERLOADED)
    ),
    "gemini, nothing but that": (SSE, json.dumps(GOOGLE, indent=2).encode(), Signal(outcome=Outcome.OVERLOADED)),
    "gemini, an array": (JSON, json.dumps([WORDS, GOOGLE], indent=2).encode(), Signal(outcome=Outcome.OVERLOADED)),
    "gemini, a long array": (
        JSON, json.dumps([WORDS] * 2_000 + [GOOGLE]).encode(), Signal(outcome=Outcome.OVERLOADED)
    ),
    "gemini: in words alone": (
        SSE, sse({"error": {"message": "", "status": "RESOURCE_EXHAUSTED"}}), Signal(outcome=Outcome.BURST)
    ),
    "ollama": (
        NDJSON,
        ndjson({"response": "a", "done": False}, {"error": "model runner has unexpectedly stopped"}),
        Signal(outcome=Outcome.FAILED),
    ),
    "the first of two": (
        SSE, anthropic("overloaded_error") + anthropic("invalid_request_error"), Signal(outcome=Outcome.OVERLOADED)
    ),
}  # fmt: skip

QUOTED: Final = json.dumps({"type": "error", "error": {"type": "overloaded_error"}})
NONE: dict[str, tuple[str, bytes]] = {
    "a text about one": (SSE, sse({"delta": {"text": QUOTED}}, {"error": None}, {"error": ""}, {"error": {}})),
    "a tool's arguments": (SSE, sse({"candidates": [{"functionCall": {"args": {"error": "disk full"}}}]})),
    "a tool's input, plain": (JSON, json.dumps({"content": [{"input": json.loads(QUOTED)}]}).encode()),
    "a tool's input, the last of a long answer": (
        JSON, json.dumps({"text": "x" * TAIL_MAX, "content": [{"input": {"error": {"code": 503}}}]}).encode()
    ),
    "all that is said of one is null": (SSE, sse({"type": "response.created", "response": {"error": None}})),
    "no JSON": (SSE, b'data: "error"\n\ndata: {"error": {\n\nevent: error\n\n'),
    "a list of nothing": (SSE, b'data: [["error"]]\n\ndata: ["error", 1]\n\n'),
    "a failed response that is none": (SSE, b'data: {"type": "response.failed", "response": "error", "error": 1}\n\n'),
}  # fmt: skip


def read(content_type: str, body: bytes, size: int, coding: str = "") -> Signal | None:
    meter = UsageMeter(content_type, coding)
    for piece in pieces(body, size):
        meter.feed(piece)
    return meter.error()


@pytest.mark.parametrize("size", [7, 100, 1_000_000], ids="by {}".format)
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_after_a_200_is_understood_however_it_is_cut(name: str, size: int) -> None:
    content_type, body, signal = ERRORS[name]

    assert read(content_type, body, size if len(body) < 50_000 else 100 * size) == signal


@pytest.mark.parametrize("name", ERRORS)
def test_a_compressed_one_is_read_in_a_copy(name: str) -> None:
    content_type, body, signal = ERRORS[name]

    assert read(content_type, gzip.compress(body), 50, "gzip") == signal


@pytest.mark.parametrize("size", [100, 1_000_000], ids="by {}".format)
@pytest.mark.parametrize("name", NONE)
def test_what_is_no_error_is_not_taken_for_one(name: str, size: int) -> None:
    content_type, body = NONE[name]

    assert read(content_type, body, size if len(body) < 50_000 else 100 * size) is None


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_an_answer_that_went_well_has_none(name: str) -> None:
    content_type, body, _ = TRANSCRIPTS[name]

    assert read(content_type, body, len(body)) is None


def test_it_is_known_as_soon_as_its_line_has_come_though_the_stream_goes_on() -> None:
    meter = UsageMeter(SSE)
    meter.feed(anthropic("overloaded_error"))

    assert meter.error() == Signal(outcome=Outcome.OVERLOADED)
    assert meter.usage() is not None


NASTY: Final = st.sampled_from(
    [
        b'{"error":' * 9_000,
        b'[{"error":' + b"[" * 9_000,
        b'data: {"error": {"code": 1e400}}\n',
        b'data: {"error": {"code": "\xc2\xb2\xc2\xb2\xc2\xb2"}}\n',  # three superscript twos, which are digits to some
        b'data: {"error": {"code": true, "type": [], "status": 999, "message": {}}}\n',
        b'data: {"error": "try again in 999999h999999h"}\n',
        b'\n{"error":\n',
        b"}\n",
    ]
)


@given(
    st.sampled_from([SSE, JSON, NDJSON, ""]),
    st.lists(st.binary() | st.sampled_from([body[-900:] for _, body, _ in ERRORS.values()]) | NASTY, max_size=6),
)
def test_any_bytes_have_an_answer(content_type: str, fed: list[bytes]) -> None:
    meter = UsageMeter(content_type)
    for piece in fed:
        meter.feed(piece)
    error = meter.error()

    assert error is None or error.outcome not in (Outcome.SUCCEEDED, Outcome.SLOW, Outcome.UNREACHABLE)
