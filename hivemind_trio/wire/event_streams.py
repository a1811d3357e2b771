"""Phases of an event stream: preamble, content, closing event.

A preamble (`message_start`, `ping`, `response.created`, a chat delta with a role alone) holds nothing of the answer, so
a client notices no other attempt until it is over. Text counts as content once it is not empty, a tool call from its
first delta, thinking from its first event: a provider may stream nothing of it.

After the streaming references of Anthropic (Messages), OpenAI (Chat Completions, Completions, Responses), Google
(`streamGenerateContent` with `alt=sse`) and Ollama, as they stood in November 2026. An event of an unknown form counts
as content, and a stream of an unknown form needs no closing event. Total: any bytes have an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, final

import attrs
import msgspec

from .stream_errors import UNNAMED, StreamError, event_error


class StreamForm(Enum):
    """Known forms of streams."""

    MESSAGES = auto()
    CHAT = auto()
    RESPONSES = auto()
    GEMINI = auto()
    OLLAMA = auto()


class _EventKind(Enum):
    PREAMBLE = auto()
    CONTENT = auto()
    CLOSING = auto()


CLOSINGS: Final[Mapping[StreamForm, re.Pattern[bytes]]] = {
    StreamForm.MESSAGES: re.compile(rb'"type"\s*:\s*"message_stop"|^event: ?message_stop', re.M),
    # Some compatible servers send a `finish_reason` and no `[DONE]`.
    StreamForm.CHAT: re.compile(rb'"finish_reason"\s*:\s*"|^data: ?\[DONE\]', re.M),
    StreamForm.RESPONSES: re.compile(rb'"response\.(?:completed|failed|incomplete|cancelled)"|^data: ?\[DONE\]', re.M),
    # Google ends the stream of a blocked prompt with a `blockReason` and no candidate.
    StreamForm.GEMINI: re.compile(rb'"(?:finishReason|blockReason)"\s*:\s*"'),
    StreamForm.OLLAMA: re.compile(rb'"done"\s*:\s*true'),
}  # fmt: skip
"""Closing event of each form. A quotation mark within a text stands behind a backslash, so texts do not match."""

DONE: Final = b"[DONE]"

_NOTHING_YET: Final = frozenset({"ping", "keepalive", "codex.rate_limits"})
_BEFORE_ITEMS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_AFTER_ITEMS: Final = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "response.cancelled"},
)
_BY_DELTAS: Final = frozenset({"message", "function_call", "custom_tool_call"})
"""Items of a response whose content follows in deltas."""
_BLOCKS_BY_DELTAS: Final = frozenset({"text", "tool_use", "server_tool_use", "mcp_tool_use"})
"""The same of Anthropic's blocks."""
_FIELDS: Final = (b":", b"event:", b"id:", b"retry:")


@final
@attrs.define(eq=False)
class Stream:
    """Progress of one event stream."""

    _events: bool
    """True for server-sent events, False for NDJSON."""
    begun: bool = attrs.field(default=False, init=False)
    """The first content event has come, or the closing event."""
    closed: bool = attrs.field(default=False, init=False)
    """The closing event has come."""
    error: StreamError | None = attrs.field(default=None, init=False)
    """Error event before any content; None: there is none."""
    form: StreamForm | None = attrs.field(default=None, init=False)
    """None: unknown so far."""
    _name: str = attrs.field(default="", init=False)
    """Name of the event that the next data line belongs to."""
    _stray: bool = attrs.field(default=False, init=False)
    """A line that is no field has come and opened an object, which may be one of Google's errors."""

    def take(self, lines: bytes) -> None:
        """Read whole lines, or the last part of one at the end of the stream."""
        if not self.begun and self.error is None:
            for line in lines.split(b"\n"):
                if self._read(line.strip()):
                    break
        self.look(lines)

    def look(self, text: bytes) -> None:
        """Search for the closing event once the preamble is over."""
        if self.begun and self.form is not None and not self.closed:
            self.closed = CLOSINGS[self.form].search(text) is not None

    def begin(self) -> None:
        """End the preamble, whatever has come."""
        self.begun = True
        if self.form is None and self._name.startswith("response."):
            self.form = StreamForm.RESPONSES  # `response.created` repeats the instructions and may exceed any bound

    def _read(self, line: bytes) -> bool:
        """Read a line of the preamble. Return True if it ends there."""
        if not line:
            self._name = ""
        elif not self._events:
            self._read_data(line)
        elif line.startswith(b"data:"):
            self._read_data(line[5:].strip())
        elif line.startswith(_FIELDS):
            if line.startswith(b"event:"):
                self._name = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"{"):
            self._stray = True
        elif not self._stray:
            self.begun = True
        return self.begun or self.error is not None

    def _read_data(self, data: bytes) -> None:
        if data == DONE:
            self.begun = self.closed = True
            return
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = None
        if isinstance(event, dict):
            self.error = event_error(event)
        if self.error is None and self._name == "error":
            message = data.decode("utf-8", "replace")
            self.error = StreamError(UNNAMED, msgspec.json.encode({"error": {"message": message}}))
        if self.error is not None:
            return
        form, kind = _kind(self._name, event) if isinstance(event, dict) else (None, _EventKind.CONTENT)
        self.form = self.form or form
        self.begun, self.closed = kind is not _EventKind.PREAMBLE, kind is _EventKind.CLOSING


def _kind(name: str, event: dict[str, Any]) -> tuple[StreamForm | None, _EventKind]:
    """Classify an event.

    Args:
        name: From the `event:` field; used where the event names no type itself.
    """
    said = event.get("type")
    kind = said if isinstance(said, str) else name
    if kind.startswith("response."):
        return StreamForm.RESPONSES, _of_responses(kind, event)
    if kind.startswith(("message_", "content_block_")):
        return StreamForm.MESSAGES, _of_messages(kind, event)
    if isinstance(event.get("choices"), list):
        return StreamForm.CHAT, _of_chat(_dicts(event["choices"]))
    if "candidates" in event or "promptFeedback" in event or "usageMetadata" in event:
        return StreamForm.GEMINI, _of_gemini(event)
    if isinstance(event.get("done"), bool):
        return StreamForm.OLLAMA, _of_ollama(event)
    return None, _EventKind.PREAMBLE if kind in _NOTHING_YET else _EventKind.CONTENT


def _of_messages(kind: str, event: dict[str, Any]) -> _EventKind:
    match kind:
        case "message_stop":
            return _EventKind.CLOSING
        case "content_block_start":
            block = _dict(event.get("content_block"))
            empty = block.get("type") in _BLOCKS_BY_DELTAS and not (block.get("text") or block.get("input"))
            return _EventKind.PREAMBLE if empty else _EventKind.CONTENT
        case "content_block_delta":
            delta = _dict(event.get("delta"))
            empty = delta.get("type", "text_delta") == "text_delta" and not delta.get("text")
            return _EventKind.PREAMBLE if empty else _EventKind.CONTENT
        case "message_start":
            return _EventKind.CONTENT if _dict(event.get("message")).get("content") else _EventKind.PREAMBLE
        case "content_block_stop" | "message_delta":
            return _EventKind.PREAMBLE
        case _:
            return _EventKind.CONTENT


def _of_chat(choices: list[dict[str, Any]]) -> _EventKind:
    for choice in choices:
        delta = _dict(choice.get("delta"))
        if choice.get("text") or any(value for name, value in delta.items() if name != "role"):
            return _EventKind.CONTENT
    finished = any(isinstance(choice.get("finish_reason"), str) for choice in choices)
    return _EventKind.CLOSING if finished else _EventKind.PREAMBLE


def _of_responses(kind: str, event: dict[str, Any]) -> _EventKind:
    if kind in _AFTER_ITEMS:
        return _EventKind.CLOSING
    if kind in _BEFORE_ITEMS or kind.endswith(".delta"):
        return _EventKind.PREAMBLE if not event.get("delta") else _EventKind.CONTENT
    if kind == "response.output_item.added":
        item = _dict(event.get("item"))
        empty = item.get("type") in _BY_DELTAS and not (
            item.get("content") or item.get("arguments") or item.get("input")
        )
        return _EventKind.PREAMBLE if empty else _EventKind.CONTENT
    if kind in ("response.content_part.added", "response.reasoning_summary_part.added"):
        return _EventKind.CONTENT if _dict(event.get("part")).get("text") else _EventKind.PREAMBLE
    return _EventKind.CONTENT


def _of_gemini(event: dict[str, Any]) -> _EventKind:
    candidates = _dicts(event.get("candidates"))
    parts = [part for each in candidates for part in _dicts(_dict(each.get("content")).get("parts"))]
    if any(value for part in parts for name, value in part.items() if name != "thought"):
        return _EventKind.CONTENT
    blocked = _dict(event.get("promptFeedback")).get("blockReason")
    return (
        _EventKind.CLOSING if blocked or any(each.get("finishReason") for each in candidates) else _EventKind.PREAMBLE
    )


def _of_ollama(event: dict[str, Any]) -> _EventKind:
    if event["done"]:
        return _EventKind.CLOSING
    message = _dict(event.get("message"))
    said = [event.get("response"), event.get("thinking"), *(value for name, value in message.items() if name != "role")]
    return _EventKind.CONTENT if any(said) else _EventKind.PREAMBLE


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
