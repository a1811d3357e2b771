"""When a stream's content begins, and when the stream is complete, in each dialect and however its bytes are cut."""

from __future__ import annotations

import gzip
import json
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.demo.wire_dialects import ANSWER_FORMATS, Said
from hivemind_trio.wire import UsageMeter
from hivemind_trio.wire.response.usage import LINE_MAX

from .test_usage import NDJSON, SSE, ndjson, pieces, sse

HELD: Final = 64 * 1024


@attrs.frozen
class Sample:
    """A stream in three parts."""

    preamble: bytes
    content: bytes
    closing: bytes
    content_type: str = SSE


def delta(**said: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": said, "finish_reason": None}]}


def block(**said: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": said}


def part(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": parts, "role": "model"}, **more}], "usageMetadata": {}}


def item(**said: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": 0, "item": said}


def line(done: bool = False, **message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": "", **message}, "done": done}


START: Final = {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 9}}}
PING: Final = {"type": "ping"}
TEXT: Final = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "So"}}
EMPTY: Final = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}
STOP: Final = {"type": "message_stop"}
CREATED: Final = {"type": "response.created", "response": {"status": "in_progress", "error": None}}
WORKING: Final = {"type": "response.in_progress", "response": {"status": "in_progress", "error": None}}
FINISHED: Final = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def named(*events: Any) -> bytes:
    return sse(*events, named=True)


ANTHROPIC_HEAD: Final = named(START, block(type="text", text=""), PING, EMPTY)
SAMPLES: Final = {
    "anthropic, text": Sample(ANTHROPIC_HEAD, named(TEXT), named(STOP)),
    "anthropic, thinking": Sample(named(START, PING), named(block(type="thinking", thinking="")), named(STOP)),
    "anthropic, redacted thinking": Sample(
        named(START), named(block(type="redacted_thinking", data="x")), named(STOP)
    ),
    "anthropic, a tool": Sample(
        named(START, block(type="tool_use", id="t", name="ls", input={})),
        named({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        named(STOP),
    ),
    "anthropic, a search's results": Sample(
        named(START), named(block(type="web_search_tool_result", content=[])), named(STOP)
    ),
    "anthropic, without types in the data": Sample(
        b"event: message_start\ndata: {}\n\n", b'event: content_block_delta\ndata: {"delta":{"text":"a"}}\n\n',
        b"event: message_stop\ndata: {}\n\n",
    ),
    "chat": Sample(sse(delta(role="assistant", content="", refusal=None)), sse(delta(content="So")), sse("[DONE]")),
    "chat, reasoning": Sample(
        sse(delta(role="assistant", content=None)), sse(delta(reasoning_content="Hm")), sse("[DONE]")
    ),
    "chat, a tool": Sample(
        sse(delta(role="assistant", content=None, tool_calls=[])),
        sse(delta(tool_calls=[{"index": 0, "id": "t", "function": {"name": "ls", "arguments": ""}}])),
        sse("[DONE]"),
    ),
    "chat, azure": Sample(
        sse({"choices": [], "prompt_filter_results": [1]}, delta(role="assistant")), sse(delta(content="S")),
        sse("[DONE]"),
    ),
    "chat, without [DONE]": Sample(b": OPENROUTER PROCESSING\n\n", sse(delta(content="So")), sse(FINISHED)),
    "completions": Sample(
        sse({"choices": [{"text": "", "finish_reason": None}]}),
        sse({"choices": [{"text": "So", "finish_reason": None}]}),
        sse("[DONE]"),
    ),
    "responses": Sample(
        named(CREATED, WORKING, item(type="message", content=[]))
        + named({"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}}),
        named({"type": "response.output_text.delta", "delta": "So"}),
        named({"type": "response.completed", "response": {"status": "completed"}}),
    ),
    "responses, reasoning of which nothing is streamed": Sample(
        named(CREATED, WORKING), named(item(type="reasoning", summary=[])),
        named({"type": "response.incomplete", "response": {}}),
    ),
    "responses, a tool": Sample(
        named(CREATED, item(type="function_call", name="ls", arguments="")),
        named({"type": "response.function_call_arguments.delta", "delta": "{"}),
        named({"type": "response.completed", "response": {}}),
    ),
    "responses, codex": Sample(
        named({"type": "codex.rate_limits"}, CREATED, {"type": "keepalive"}),
        named({"type": "response.reasoning_summary_text.delta", "delta": "Hm"}),
        named({"type": "response.completed", "response": {}}),
    ),
    "gemini": Sample(
        sse({"usageMetadata": {}}, part({"text": ""})), sse(part({"text": "So"})),
        sse(part({"text": ""}, finishReason="STOP")),
    ),
    "gemini, thinking": Sample(
        sse(part()), sse(part({"text": "Hm", "thought": True})), sse(part(finishReason="MAX_TOKENS"))
    ),
    "gemini, a tool": Sample(b"", sse(part({"functionCall": {"name": "ls"}})), sse(part(finishReason="STOP"))),
    "ollama": Sample(ndjson(line()), ndjson(line(content="So")), ndjson(line(done=True)), NDJSON),
    "ollama, thinking": Sample(ndjson(line()), ndjson(line(thinking="Hm")), ndjson(line(done=True)), NDJSON),
    "ollama, generate": Sample(
        ndjson({"response": "", "done": False}), ndjson({"response": "So", "done": False}),
        ndjson({"response": "", "done": True}), NDJSON,
    ),
}  # fmt: skip


def fed(content_type: str, body: bytes, size: int = 1_000_000, coding: str = "") -> UsageMeter:
    meter = UsageMeter(content_type, coding)
    for piece in pieces(body, size):
        meter.feed(piece)
    return meter


@pytest.mark.parametrize("size", [1, 7, 1_000_000], ids="by {}".format)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_content_begins_with_its_first_event_and_not_before(sample: Sample, size: int) -> None:
    meter = UsageMeter(sample.content_type)
    for piece in pieces(sample.preamble, size):
        meter.feed(piece)
        assert not meter.begun

    for piece in pieces(sample.content, size):
        meter.feed(piece)

    assert meter.begun
    assert meter.refusal is None


@pytest.mark.parametrize("size", [7, 1_000_000], ids="by {}".format)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_stream_is_complete_with_its_closing_event_and_not_without(sample: Sample, size: int) -> None:
    whole = sample.preamble + sample.content + sample.closing

    assert not fed(sample.content_type, whole, size).unfinished
    assert fed(sample.content_type, sample.preamble + sample.content * 3, size).unfinished
    assert fed(sample.content_type, sample.preamble, size).unfinished


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_an_answer_without_content_is_complete_if_it_says_so(sample: Sample) -> None:
    meter = fed(sample.content_type, sample.preamble + sample.closing)

    assert (meter.begun, meter.unfinished, meter.last_refusal()) == (True, False, None)


def test_a_blocked_prompt_is_a_whole_answer() -> None:
    meter = fed(SSE, sse({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}))

    assert (meter.begun, meter.unfinished) == (True, False)
    assert not fed(SSE, sse(part({"text": "So"}), {"promptFeedback": {"blockReason": "SAFETY"}})).unfinished


@pytest.mark.parametrize("path", ANSWER_FORMATS)
def test_what_the_simulated_provider_streams_is_understood(path: str) -> None:
    streamed = ANSWER_FORMATS[path].streamed(Said(number=1, model="m", tokens_in=9, events=[1, 2]))

    assert not fed(SSE, streamed.opening).begun
    assert fed(SSE, streamed.opening + streamed.pieces[0]).begun
    assert fed(SSE, streamed.opening + b"".join(streamed.pieces)).unfinished
    assert not fed(SSE, streamed.opening + b"".join(streamed.pieces) + streamed.closing).unfinished


UNKNOWN: Final = {
    "no events at all": (SSE, b"one two\n"),
    "data that is no JSON": (SSE, b"data: hello\n\n"),
    "data that is no object": (SSE, b"data: 1\n\n"),
    "an event of another API": (SSE, sse({"type": "speech.audio.delta", "audio": "x"})),
    "Anthropic's old completions": (SSE, named({"type": "completion", "completion": "So", "stop_reason": None})),
    "lines that end with a carriage return": (SSE, b'data: {"type":"message_start"}\rdata: {}\r'),
    "lines without `done`": (NDJSON, ndjson({"status": "pulling"})),
    "a coding that nothing reads": ("text/event-stream", b"??"),
}


@pytest.mark.parametrize(("content_type", "body"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_unknown_counts_as_content_and_may_end_as_it_likes(content_type: str, body: bytes) -> None:
    meter = fed(content_type, body, coding="x-odd" if body == b"??" else "")

    assert (meter.begun, meter.unfinished) == (True, False)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"half', json.dumps({"error": {"code": 529}}).encode()])
def test_a_plain_answer_is_no_stream(body: bytes) -> None:
    meter = fed("application/json", body)

    assert (meter.begun, meter.refusal, meter.unfinished) == (True, None, False)


@pytest.mark.parametrize("body", [b"", b": ping\n\n", b"event: ping\ndata: {}\n\n", b"\n\n"])
def test_a_stream_of_nothing_is_not_complete(body: bytes) -> None:
    meter = fed(SSE, body)

    assert (meter.begun, meter.unfinished) == (False, True)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_array_is_a_stream_where_the_call_asks_for_one(size: int) -> None:
    def meter(text: str, *, asked: bool = True) -> UsageMeter:
        found = UsageMeter("application/json", may_be_array=asked)
        for piece in pieces(text.encode(), size):
            found.feed(piece)
        return found

    empty, words = '[{"usageMetadata": {}}', ',\n{"candidates": [{"content": {"parts": [{"text": "So"}]}}]}'
    closing = ',\n{"candidates": [{"finishReason": "STOP"}]}]'
    error = ',\n{"error": {"code": 503, "message": "no"}}]'

    assert not meter("").begun
    assert not meter(empty).begun
    assert not meter(empty + words[:-1]).begun
    assert meter(empty + words).begun
    assert meter(empty + words).unfinished
    assert not meter(empty + words + closing).unfinished
    assert not meter(empty + closing).unfinished
    refused = meter(empty + error).refusal
    assert refused is not None
    assert refused.status == 503
    assert meter(empty + words + error).refusal is None
    # Whatever else comes is a plain answer.
    assert meter('{"candidates": []').begun
    assert meter("[", asked=False).begun


def test_words_within_a_text_close_nothing() -> None:
    quoted = 'data: [DONE]\n"type": "message_stop" "finish_reason": "stop" "response.completed" "done": true'
    meter = fed(SSE, sse(delta(content=quoted)))
    assert meter.unfinished
    meter = fed(SSE, named(START, {**TEXT, "delta": {"type": "text_delta", "text": quoted}}))
    assert meter.unfinished


def test_a_closing_event_that_is_too_long_to_keep_counts() -> None:
    whole = {"type": "response.completed", "response": {"output": "x" * 3 * LINE_MAX}}

    assert not fed(SSE, sse(CREATED, {"type": "response.output_text.delta", "delta": "a"}, whole), 50_000).unfinished
    assert fed(SSE, sse(CREATED, {"type": "response.text.done", "text": "x" * 3 * LINE_MAX}), 50_000).unfinished


def test_a_preamble_that_was_too_long_to_hold_still_needs_its_closing_event() -> None:
    long = named({"type": "response.created", "response": {"instructions": "x" * 2 * HELD}})
    meter = fed(SSE, long[:HELD])
    meter.begin()
    meter.feed(long[HELD:])
    assert meter.unfinished

    meter = fed(SSE, long[:HELD])
    meter.begin()
    meter.feed(long[HELD:] + named({"type": "response.completed", "response": {}}))
    assert not meter.unfinished


# ---- errors before any content ----

OVERLOADED: Final = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
FAILED: Final = {"type": "response.failed", "response": {"error": {"code": "server_is_overloaded", "message": "no"}}}
GOOGLE: Final = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no"}}
REFUSALS: Final[dict[str, tuple[str, bytes, int, object]]] = {
    "anthropic": (SSE, named(START, PING, OVERLOADED), 529, OVERLOADED),
    "anthropic, at once": (SSE, named({**OVERLOADED, "request_id": "r"}), 529, {**OVERLOADED, "request_id": "r"}),
    "chat": (
        SSE, sse(delta(role="assistant"), {"error": {"type": "rate_limit_error", "message": "no"}}, "[DONE]"), 429,
        {"error": {"type": "rate_limit_error", "message": "no"}},
    ),
    "chat, beside its choices": (
        SSE, sse({"id": "c", "choices": [{"finish_reason": "error"}], "error": {"code": 502}}), 502,
        {"error": {"code": 502}},
    ),
    "vllm": (
        SSE, sse({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}), 400,
        {"error": {"message": "no", "type": "BadRequestError", "code": 400}},
    ),
    "responses": (
        SSE, named(CREATED, FAILED), 503, {"error": {"code": "server_is_overloaded", "message": "no"}}
    ),
    "responses, an event": (
        SSE, named(CREATED, {"type": "error", "code": "rate_limit_exceeded", "message": "no", "sequence_number": 1}),
        429, {"error": {"code": "rate_limit_exceeded", "message": "no"}},
    ),
    "gemini": (SSE, sse(GOOGLE), 429, GOOGLE),
    "gemini, without `data:`": (SSE, json.dumps(GOOGLE, indent=2).encode(), 429, GOOGLE),
    "ollama": (NDJSON, ndjson(line(), {"error": "the runner stopped"}), 500, {"error": "the runner stopped"}),
    "in words alone": (SSE, b"event: error\ndata: too busy\n\n", 500, {"error": {"message": "too busy"}}),
    "without an end of its line": (SSE, named(START) + sse(OVERLOADED).rstrip(), 529, OVERLOADED),
}  # fmt: skip


@pytest.mark.parametrize("size", [7, 1_000_000], ids="by {}".format)
@pytest.mark.parametrize("name", REFUSALS)
def test_an_error_before_any_content_has_a_status_and_its_own_words(name: str, size: int) -> None:
    content_type, body, status, said = REFUSALS[name]

    meter = fed(content_type, body, size)
    refusal = meter.last_refusal()

    assert refusal is not None
    assert (refusal.status, json.loads(refusal.body), meter.begun) == (status, said, False)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_compressed_one_is_read_in_a_copy(name: str) -> None:
    content_type, body, status, _ = REFUSALS[name]
    refusal = fed(content_type, gzip.compress(body), 20, "gzip").last_refusal()

    assert refusal is not None
    assert refusal.status == status


@pytest.mark.parametrize("size", [7, 1_000_000], ids="by {}".format)
def test_an_error_behind_content_is_no_refusal(size: int) -> None:
    meter = fed(SSE, named(START, TEXT, OVERLOADED), size)

    assert (meter.begun, meter.refusal, meter.last_refusal(), meter.unfinished) == (True, None, None, False)


@given(
    st.sampled_from([SSE, NDJSON]),
    st.lists(
        st.binary() | st.sampled_from([each for one in SAMPLES.values() for each in attrs.astuple(one)[:3]]), max_size=6
    ),
    st.integers(1, 50),
)
def test_any_bytes_have_an_answer_however_they_are_cut(content_type: str, parts: list[bytes], size: int) -> None:
    cut, whole = fed(content_type, b"".join(parts), size), fed(content_type, b"".join(parts))

    assert cut.unfinished == whole.unfinished
    assert cut.begun == whole.begun
    assert cut.last_refusal() == whole.last_refusal()
