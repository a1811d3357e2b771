"""Usage, read from answers as providers send them, in whatever pieces and codings they come."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.dialects.usage import COUNT_MAX
from hivemind_trio.model import AnswerFacts, Usage
from hivemind_trio.wire import UsageMeter
from hivemind_trio.wire.body.content_codings import PIECE_MAX
from hivemind_trio.wire.response.usage import FINISHES_MAX, LINE_MAX, TAIL_MAX

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
NDJSON = "application/x-ndjson"


def sse(*events: object, named: bool = False, newline: str = "\n") -> bytes:
    """Events as providers write them; a text stands as it is."""
    lines = []
    for event in events:
        if named and isinstance(event, dict):
            lines.append(f"event: {event['type']}{newline}")
        data = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
        lines.append(f"data: {data}{newline}{newline}")
    return "".join(lines).encode()


def ndjson(*lines: object) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


ANTHROPIC_START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 2000,
            "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 1,
        },
    },
}
ANTHROPIC_DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "So"}}
ANTHROPIC_END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}
CHAT_DELTA = {"choices": [{"index": 0, "delta": {"content": "So"}, "finish_reason": None}], "usage": None}
CHAT_USAGE = {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}

TRANSCRIPTS: dict[str, tuple[str, bytes, Usage | None]] = {
    "anthropic": (
        JSON,
        json.dumps(
            {
                "content": [
                    {"type": "text", "text": 'it said "usage": {"input_tokens": 99}'},
                    {"type": "tool_use", "name": "report", "input": {"usage": {"input_tokens": 77}}},
                ],
                "usage": {"input_tokens": 12, "cache_read_input_tokens": 3, "output_tokens": 9},
            }
        ).encode(),
        Usage(input=12, cache_read=3, output=9),
    ),
    "anthropic, streamed": (
        SSE,
        sse(ANTHROPIC_START, ANTHROPIC_DELTA, ANTHROPIC_DELTA, ANTHROPIC_END, {"type": "message_stop"}, named=True),
        Usage(input=12, cache_read=2000, cache_write=5, output=15),
    ),
    "anthropic, cumulative, with carriage returns": (
        SSE,
        sse(
            ANTHROPIC_START,
            {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 12, "output_tokens": 4}},
            {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 40, "output_tokens": 15}},
            named=True,
            newline="\r\n",
        ),
        Usage(input=40, cache_read=2000, cache_write=5, output=15),
    ),
    "anthropic, broken off": (
        SSE,
        sse(ANTHROPIC_START, *[ANTHROPIC_DELTA] * 3, named=True),
        Usage(input=12, cache_read=2000, cache_write=5, output=3, exact=False),
    ),
    "chat": (
        JSON,
        json.dumps({"choices": [], "usage": CHAT_USAGE | {"prompt_tokens_details": {"cached_tokens": 20}}}).encode(),
        Usage(input=10, cache_read=20, output=7),
    ),
    "chat, streamed with include_usage": (
        SSE,
        sse(CHAT_DELTA, CHAT_DELTA, {"choices": [], "usage": CHAT_USAGE}, "[DONE]"),
        Usage(input=30, output=7),
    ),
    "chat, streamed without": (SSE, sse(CHAT_DELTA, CHAT_DELTA, "[DONE]"), Usage(output=2, exact=False)),
    "vllm, continuous": (
        SSE,
        sse(*(CHAT_DELTA | {"usage": {"prompt_tokens": 30, "completion_tokens": i}} for i in range(1, 5)), "[DONE]"),
        Usage(input=30, output=4),
    ),
    "responses, streamed": (
        SSE,
        sse(
            {"type": "response.created", "response": {"usage": None}},
            {"type": "response.output_text.delta", "delta": "So"},
            {
                "type": "response.completed",
                "response": {
                    "output": [{"text": "x" * 2 * LINE_MAX}],
                    "usage": {
                        "input_tokens": 40,
                        "input_tokens_details": {"cached_tokens": 32},
                        "output_tokens": 6,
                        "output_tokens_details": {"reasoning_tokens": 4},
                        "total_tokens": 46,
                    },
                    "metadata": {},
                },
            },
            named=True,
        ),
        Usage(input=8, cache_read=32, output=6),
    ),
    "embeddings": (
        JSON,
        json.dumps({"data": [0.25] * TAIL_MAX, "usage": {"prompt_tokens": 8, "total_tokens": 8}}).encode(),
        Usage(input=8, output=0),
    ),
    "gemini, sse": (
        SSE,
        sse(
            {"candidates": [{}], "usageMetadata": {"promptTokenCount": 50, "totalTokenCount": 50}},
            {
                "candidates": [{}],
                "usageMetadata": {
                    "promptTokenCount": 50,
                    "cachedContentTokenCount": 10,
                    "candidatesTokenCount": 4,
                    "thoughtsTokenCount": 16,
                    "toolUsePromptTokenCount": 3,
                },
            },
        ),
        # What the first event calls prompt, the second has learned was cached: the larger figure of each stands.
        Usage(input=50, cache_read=10, output=20),
    ),
    "gemini, an array": (
        JSON,
        json.dumps(
            [
                {"usageMetadata": {"promptTokenCount": 50}},
                {"usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 8}},
            ],
            indent=2,
        ).encode(),
        Usage(input=50, output=8),
    ),
    "ollama": (
        NDJSON,
        ndjson(
            {"message": {"content": "So"}, "done": False},
            {"message": {"content": ""}, "done": True, "prompt_eval_count": 26, "eval_count": 290},
        ),
        Usage(input=26, output=290),
    ),
    "ollama, broken off": (NDJSON, ndjson(*[{"response": "a", "done": False}] * 3), Usage(output=3, exact=False)),
    "ollama, plain": (
        JSON,
        b'{"response": "a", "done": true, "prompt_eval_count": 26, "eval_count": 2}',
        Usage(input=26, output=2),
    ),
    "nothing": (JSON, b'{"ok": true}', None),
    "usage of another kind": (JSON, b'{"usage": {"storage": 12}, "object": "file"}', None),
    "figures that are none": (
        JSON,
        json.dumps({"usage": {"input_tokens": -1, "output_tokens": True, "prompt_tokens": COUNT_MAX}}).encode(),
        None,
    ),
}

CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[begin : begin + size] for begin in range(0, len(body), size))


def metered(content_type: str, body: bytes, size: int, coding: str = "") -> Usage | None:
    meter = UsageMeter(content_type, coding)
    for piece in pieces(body, size):
        meter.feed(piece)
    return meter.usage()


@pytest.mark.parametrize("size", [7, 100, 1_000_000], ids="by {}".format)
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_an_answer_s_usage_is_read_however_it_is_cut(name: str, size: int) -> None:
    content_type, body, usage = TRANSCRIPTS[name]
    if len(body) > 100_000:
        size *= 100  # so that it takes no minute

    assert metered(content_type, body, size) == usage


@pytest.mark.parametrize("name", ["anthropic, streamed", "chat, streamed without", "ollama", "anthropic"])
def test_every_cut_in_two_reads_alike(name: str) -> None:
    content_type, body, usage = TRANSCRIPTS[name]

    for at in range(len(body)):
        meter = UsageMeter(content_type)
        meter.feed(body[:at])
        meter.feed(body[at:])
        assert meter.usage() == usage, at


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("name", ["anthropic, streamed", "chat", "responses, streamed"])
def test_compressed_answers_are_read_in_a_copy(name: str, coding: str) -> None:
    content_type, body, usage = TRANSCRIPTS[name]

    assert metered(content_type, CODINGS[coding](body), 50, coding) == usage


def test_an_event_is_read_as_soon_as_it_has_come_though_the_stream_goes_on() -> None:
    meter = UsageMeter(SSE, "gzip")
    compress = zlib.compressobj(wbits=31)
    for event in (ANTHROPIC_START, ANTHROPIC_DELTA):
        meter.feed(compress.compress(sse(event, named=True)) + compress.flush(zlib.Z_SYNC_FLUSH))

    assert meter.usage() == Usage(input=12, cache_read=2000, cache_write=5, output=1, exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_damage_and_bombs_leave_nothing_known_and_nothing_held(coding: str) -> None:
    _, body, _ = TRANSCRIPTS["chat"]
    bomb = CODINGS[coding](bytes(4 * PIECE_MAX) + body)
    damaged = b"\x00\xff" * 40 + CODINGS[coding](body)

    assert metered(JSON, bomb, len(bomb), coding) is None
    assert metered(JSON, damaged, len(damaged), coding) is None


def test_a_coding_that_nobody_knows_is_let_be() -> None:
    _, body, _ = TRANSCRIPTS["chat"]

    assert metered(JSON, body, 100, "dcb") is None


def test_a_line_without_an_end_is_not_kept_whole() -> None:
    meter = UsageMeter(SSE)
    for _ in range(40):
        meter.feed(b"x" * (LINE_MAX // 4))
        assert len(meter.unread) <= LINE_MAX


@pytest.mark.parametrize(
    "fed", [(), (b": ping\n\n", b"data: [DONE]\n\n")], ids=["nothing", "nothing but signs of life"]
)
def test_an_answer_without_any_object_has_put_out_nothing_once_it_is_whole(fed: tuple[bytes, ...]) -> None:
    meter = UsageMeter(SSE)
    for piece in fed:
        meter.feed(piece)

    assert meter.usage() is None
    assert meter.usage(whole=True) == Usage(output=0, exact=False)


NASTY = st.sampled_from([b'{"usage":' * 3, b'"usage":{"input_tokens":' + b"9" * 5000, b'"usage":' + b"[" * 9000])


@given(
    st.sampled_from([SSE, JSON, NDJSON, ""]),
    st.sampled_from([*CODINGS, "rot13"]),
    st.lists(st.binary() | st.sampled_from([body[-900:] for _, body, _ in TRANSCRIPTS.values()]) | NASTY),
)
def test_any_bytes_have_an_answer(content_type: str, coding: str, fed: list[bytes]) -> None:
    meter = UsageMeter(content_type, coding)
    for piece in fed:
        meter.feed(piece)
    usage = meter.usage()

    assert usage is None or (usage.output >= 0 and (usage.input is None or 0 <= usage.input < 2 * COUNT_MAX))


@pytest.mark.parametrize(
    ("content_type", "body", "model", "reasons"),
    [
        (
            SSE,
            b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","model":"claude-x-1",'
            b'"content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
            b'event: content_block_delta\ndata: {"type":"content_block_delta",'
            b'"delta":{"text":"\\"model\\":\\"no\\""}}\n\n'
            b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"max_tokens"},'
            b'"usage":{"output_tokens":9}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
            "claude-x-1",
            ("max_tokens",),
        ),
        (
            JSON,
            b'{"model": "claude-x-1", "content": [{"type": "tool_use", "input": {"stop_reason": "no", "model": "no"}}],'
            b' "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 9}}',
            "claude-x-1",
            ("tool_use",),
        ),
        (
            SSE,  # without usage
            b'data: {"id":"c","model":"gpt-x-7",'
            b'"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
            b'data: {"id":"c","model":"gpt-x-7","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
            b"data: [DONE]\n\n",
            "gpt-x-7",
            ("stop",),
        ),
        (
            JSON,
            b'{"model":"gpt-x-7","choices":[{"finish_reason":"stop","message":{"content":"\\"finish_reason\\":\\"no\\""}},'
            b'{"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
            "gpt-x-7",
            ("stop", "length"),
        ),
        (
            SSE,
            b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":3},'
            b'"modelVersion":"gemini-x"}\n\ndata: {"candidates":[{"content":{"parts":[{"text":"b"}]},'
            b'"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4},'
            b'"modelVersion":"gemini-x"}\n\n',
            "gemini-x",
            ("STOP",),
        ),
        (
            "application/x-ndjson",
            b'{"model":"llama","message":{"content":"a"},"done":false}\n'
            b'{"model":"llama","done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":4}\n',
            "llama",
            ("stop",),
        ),
        (JSON, b'{"error":{"message":"no"}}', "", ()),
    ],
    ids=["anthropic-stream", "anthropic", "chat-stream", "chat", "gemini-stream", "ollama", "nothing"],
)
@pytest.mark.parametrize("size", [7, 10_000])
def test_the_model_that_answered_and_why_it_stopped_are_read(
    content_type: str, body: bytes, model: str, reasons: tuple[str, ...], size: int
) -> None:
    meter = UsageMeter(content_type)
    for at in range(0, len(body), size):
        meter.feed(body[at : at + size])

    assert meter.facts() == meter.facts() == AnswerFacts(model, reasons)


def test_facts_of_an_answer_are_bounded() -> None:
    meter = UsageMeter(JSON)
    meter.feed(b'{"model":"' + b"m" * 500 + b'","choices":[' + b'{"finish_reason":"stop"},' * 50)
    meter.feed(b'{"finish_reason":"' + b"s" * 500 + b'"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}')

    assert meter.facts() == AnswerFacts("", ("stop",) * FINISHES_MAX)


def test_no_model_is_read_from_the_tail_of_a_long_answer() -> None:
    """Its beginning is gone, and what looks like a model may be an argument of a tool."""
    meter = UsageMeter(JSON)
    meter.feed(b'{"model":"claude-x-1","content":[{"text":"' + b"x" * TAIL_MAX + b'"},{"input":{"model":"no"}}],')
    meter.feed(b'"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}')

    assert meter.facts() == AnswerFacts("", ("end_turn",))
