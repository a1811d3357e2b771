"""The bytes that the overhead bench sends: built once, so that neither end is what is measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import Final

BODY_BYTES: Final = 10_000
ANSWER_BYTES: Final = 1_024


class Answer(Enum):
    """What the provider does; a model is called `bench-` and one of these, and numbers."""

    JSON = "json"
    """A whole answer of 1 KB; after so many milliseconds, if there is a number."""
    STREAM = "stream"
    """So many events, so many milliseconds apart."""
    FLOOD = "flood"
    """So many megabytes of events, as fast as they are taken."""
    HOLD = "hold"
    """Nothing, ever: what a waiting call costs is measured behind it."""

    def model(self, *numbers: int) -> str:
        """Its name, with such numbers."""
        return "-".join(["bench", self.value, *map(str, numbers)])


def request(
    model: str, *, body_bytes: int = BODY_BYTES, extra: Sequence[tuple[str, str]] = (), authority: str = "127.0.0.1"
) -> bytes:
    """An OpenAI SDK's call: 17 headers, and so much JSON.

    Args:
        extra: Headers behind those that the SDK sends.
    """
    stream = model.startswith(("bench-stream", "bench-flood"))
    # The model stands first, where the provider looks for it.
    asked = {"model": model, "stream": stream, "messages": [{"role": "user", "content": ""}]}
    asked["messages"] = [{"role": "user", "content": "x" * (body_bytes - len(json.dumps(asked)))}]
    body = json.dumps(asked).encode()
    headers = [
        ("Host", authority),
        ("Accept-Encoding", "gzip, deflate"),
        ("Connection", "keep-alive"),
        ("Accept", "text/event-stream" if stream else "application/json"),
        ("Content-Type", "application/json"),
        ("User-Agent", "OpenAI/Python 2.41.0"),
        ("X-Stainless-Lang", "python"),
        ("X-Stainless-Package-Version", "2.41.0"),
        ("X-Stainless-OS", "Linux"),
        ("X-Stainless-Arch", "x64"),
        ("X-Stainless-Runtime", "CPython"),
        ("X-Stainless-Runtime-Version", "3.11.7"),
        ("X-Stainless-Async", "false"),
        ("X-Stainless-Retry-Count", "0"),
        ("X-Stainless-Read-Timeout", "600"),
        ("Authorization", "Bearer bench"),
        *extra,
        ("Content-Length", str(len(body))),
    ]
    head = "POST /v1/chat/completions HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers)
    return head.encode() + b"\r\n" + body


def _head(kind: str, *framing: tuple[str, str]) -> bytes:
    """22 headers, as many as OpenAI sends."""
    headers = [
        ("Date", "Fri, 20 Nov 2026 12:00:00 GMT"),
        ("Content-Type", kind),
        *framing,
        ("Connection", "keep-alive"),
        ("access-control-expose-headers", "X-Request-ID"),
        ("openai-organization", "bench"),
        ("openai-processing-ms", "412"),
        ("openai-version", "2020-10-01"),
        ("x-ratelimit-limit-requests", "100000000"),
        ("x-ratelimit-limit-tokens", "1000000000"),
        ("x-ratelimit-remaining-requests", "99999999"),
        ("x-ratelimit-remaining-tokens", "999999990"),
        ("x-ratelimit-reset-requests", "6ms"),
        ("x-ratelimit-reset-tokens", "0s"),
        ("x-request-id", "req_0123456789abcdef0123456789abcdef"),
        ("strict-transport-security", "max-age=31536000; includeSubDomains; preload"),
        ("cf-cache-status", "DYNAMIC"),
        ("x-content-type-options", "nosniff"),
        ("cf-ray", "0123456789abcdef-CDG"),
        ("alt-svc", 'h3=":443"; ma=86400'),
        ("server", "bench"),
        ("via", "1.1 bench"),
    ]
    return ("HTTP/1.1 200 OK\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers)).encode() + b"\r\n"


def answer() -> bytes:
    """A whole answer with a body of 1 KB."""
    said = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2500, "completion_tokens": 180, "total_tokens": 2680},
    }
    message = {"role": "assistant", "content": "y" * (ANSWER_BYTES - len(json.dumps(said)))}
    said["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = json.dumps(said).encode()
    return _head("application/json", ("Content-Length", str(len(body)))) + body


def stream_head() -> bytes:
    """What comes before the events."""
    return _head("text/event-stream; charset=utf-8", ("Transfer-Encoding", "chunked"))


def event() -> bytes:
    """One event of about 230 bytes in a chunk of its own."""
    said = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "bench",
        "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}],
    }
    return chunk(b"data: " + json.dumps(said).encode() + b"\n\n")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM_END: Final = chunk(b"data: [DONE]\n\n") + chunk(b"")
FLOOD: Final = event() * 256
FLOOD_BYTES: Final = len(FLOOD)
NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


def body_length(head: bytes) -> int | None:
    """`content-length`, or None if the body is chunked. For heads of our own and what proxies make of them."""
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    if at < 0:
        return None
    return int(lowered[at + 17 : lowered.index(b"\r\n", at + 17)])
