"""Keep-alive of a streaming call in the queue, so that no client takes the connection for dead.

Each form was tried with the SDKs that read the dialect (November 2026). Two newlines after a comment crash
openai-python once events carry an `id:`; `event: ping` crashes Vercel's OpenAI client; a comment crashes google-genai;
Ollama's clients read JSON lines and nothing else; Codex counts events, not bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, final

import attrs

from hivemind_trio.model import Api

EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"
NDJSON: Final = b"application/x-ndjson"
JSON: Final = b"application/json"


@final
@attrs.frozen
class KeepAlive:
    """Preamble and empty events of one dialect's streams."""

    content_type: bytes
    nothing: bytes

    def fits(self, content_type: str) -> bool:
        """Return True if an answer of this type can follow the bytes already sent."""
        return content_type.partition(";")[0].strip() == self.content_type.partition(b";")[0].decode()


def keep_alive(api: Api | None, path: str, query: str, model: str, headers: Mapping[str, str]) -> KeepAlive | None:
    """For a streaming call; None: nothing can be said in its dialect without being taken for something.

    Args:
        query: As it came; Gemini's says whether it wants events or an array.
        headers: Lower-case names.
    """
    match api:
        case Api.ANTHROPIC:
            return KeepAlive(EVENT_STREAM, b'event: ping\ndata: {"type": "ping"}\n\n')
        case Api.GEMINI:
            return KeepAlive(EVENT_STREAM if "alt=sse" in query else JSON, b"\n")
        case Api.OLLAMA:
            return _of_ollama(path, model)
        case Api.OPENAI | Api.AZURE | Api.VLLM:
            client = headers.get("originator", "") + headers.get("user-agent", "")
            if path.endswith("/responses") and "codex" in client.lower():
                return KeepAlive(EVENT_STREAM, b'event: keepalive\ndata: {"type":"keepalive"}\n\n')
            return KeepAlive(EVENT_STREAM, b": ping\n")
        case _:
            return None


def _of_ollama(path: str, model: str) -> KeepAlive | None:
    said: dict[str, object] = {"model": model, "created_at": "1970-01-01T00:00:00Z"}
    if path.endswith("/api/chat"):
        said["message"] = {"role": "assistant", "content": ""}
    elif path.endswith("/api/generate"):
        said["response"] = ""
    else:
        return None
    return KeepAlive(NDJSON, json.dumps(said | {"done": False}, separators=(",", ":")).encode() + b"\n")
