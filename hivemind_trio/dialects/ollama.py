"""Ollama's own API; its server has Anthropic's and OpenAI's paths as well.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api

from .dialect import NDJSON, Dialect, EndpointPattern, KeepAlive
from .events import ErrorBody
from .openai import SIMULATED, error_event


def _error(status: int, message: str, code: str) -> ErrorBody:
    return {"error": message}


def _keep_alive(path: str, query: str, model: str, headers: Mapping[str, str]) -> KeepAlive | None:
    """Return a line with an empty piece of an answer: Ollama's clients read JSON lines and nothing else."""
    said: dict[str, object] = {"model": model, "created_at": "1970-01-01T00:00:00Z"}
    if path.endswith("/api/chat"):
        said["message"] = {"role": "assistant", "content": ""}
    elif path.endswith("/api/generate"):
        said["response"] = ""
    else:
        return None
    return KeepAlive(NDJSON, json.dumps(said | {"done": False}, separators=(",", ":")).encode() + b"\n")


OLLAMA: Final = Dialect(
    api=Api.OLLAMA,
    base_url="http://127.0.0.1:11434",
    usual_path="/api/chat",
    endpoints=(
        EndpointPattern(r"/api/(?:chat|generate|embed|embeddings)", generates=True),
        EndpointPattern(r"/api/.*", generates=False),
    ),
    compatible_with={Api.ANTHROPIC: 2, Api.OPENAI: 3},
    streams_by_default=True,
    error=_error,
    error_event=error_event,
    keep_alive=_keep_alive,
    simulated=SIMULATED,
)
