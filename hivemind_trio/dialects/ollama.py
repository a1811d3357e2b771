"""Ollama's own API; its server has Anthropic's and OpenAI's paths as well.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api

from .dialect import NDJSON, Dialect, EndpointPattern, KeepAlive
from .events import ErrorBody
from .limits import LimitSigns
from .openai import SIMULATED, error_event
from .requests import CHAT_LIMIT, RequestFormat
from .streams import Event, EventKind, StreamFormat, object_of
from .usage import TokenCounts, UsageFormat

_FIGURES: Final = re.compile(rb'"(prompt_eval_count|eval_count)"\s*:\s*(\d{1,12})(?!\d)')


def _event_kind(kind: str, event: Event) -> EventKind | None:
    if not isinstance(event.get("done"), bool):
        return None
    if event["done"]:
        return EventKind.CLOSING
    message = object_of(event.get("message"))
    said = [event.get("response"), event.get("thinking"), *(value for name, value in message.items() if name != "role")]
    return EventKind.CONTENT if any(said) else EventKind.PREAMBLE


_STREAM: Final = StreamFormat(kind=_event_kind, closing=re.compile(rb'"done"\s*:\s*true'))


def _usage(line: bytes) -> TokenCounts | None:
    figures = {name: int(digits) for name, digits in _FIGURES.findall(line)}
    if not figures:
        return None
    return TokenCounts(input=figures.get(b"prompt_eval_count"), output=figures.get(b"eval_count"))


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
        EndpointPattern(r"/api/(?:chat|generate)", generates=True, output_max=("options", "num_predict")),
        EndpointPattern(r"/api/(?:embed|embeddings)", generates=True),
        EndpointPattern(r"/api/.*", generates=False),
    ),
    compatible_with={Api.ANTHROPIC: 2, Api.OPENAI: 3},
    streams_by_default=True,
    request=RequestFormat(
        prompt=("messages", "input", "prompt"),
        renamed=CHAT_LIMIT,
        output_max_within=(("options", "num_predict"),),
        pictures=(rb'"images"\s{0,8}:\s{0,8}\[\s{0,8}"',),
    ),
    streams=(_STREAM,),
    usage=(
        UsageFormat(
            marks=(b'eval_count"',),
            read_line=_usage,
            deltas=(b'"done":false', b'"done": false'),
            finish="done_reason",
            is_single=True,
        ),
    ),
    limits=LimitSigns(billing_words=r"reached your (?:\w+ )?usage limit"),  # a plan's hours and weeks
    error=_error,
    error_event=error_event,
    keep_alive=_keep_alive,
    simulated=SIMULATED,
)
