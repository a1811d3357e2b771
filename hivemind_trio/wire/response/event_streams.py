"""Phases of an event stream: preamble, content, closing event.

A preamble (`message_start`, `ping`, `response.created`, a chat delta with a role alone) holds nothing of the answer, so
a client notices no other attempt until it is over. Text counts as content once it is not empty, a tool call from its
first delta, thinking from its first event: a provider may stream nothing of it.

After the streaming references of Anthropic (Messages), OpenAI (Chat Completions, Completions, Responses), Google
(`streamGenerateContent` with `alt=sse`) and Ollama, as they stood in November 2026. An event of an unknown form counts
as content, and a stream of an unknown form needs no closing event. Total: any bytes have an answer.
"""

from __future__ import annotations

import json
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.dialects import IN_ORDER, EventKind, StreamFormat

from .stream_errors import UNNAMED, StreamError, event_error

FORMATS: Final = tuple(one for dialect in IN_ORDER for one in dialect.streams)

DONE: Final = b"[DONE]"

_NOTHING_YET: Final = frozenset({"ping", "keepalive", "codex.rate_limits"})
_SPACE: Final = b" \t\r\n"
_BETWEEN: Final = _SPACE + b","
_DECODER: Final = json.JSONDecoder()
_FIELDS: Final = (b":", b"event:", b"id:", b"retry:")


@final
@attrs.define(eq=False)
class ArrayReader:
    """Reader of the elements of a JSON array that arrives in pieces: Google's streams without `alt=sse`."""

    is_array: bool | None = attrs.field(default=None, init=False)
    """None: nothing but space has come."""
    _rest: bytes = attrs.field(default=b"", init=False)

    def take(self, piece: bytes) -> list[bytes]:
        """Return the objects that the piece completes, each in one line."""
        self._rest = (self._rest + piece).lstrip(_BETWEEN if self.is_array else _SPACE)
        if self.is_array is None and self._rest:
            self.is_array = self._rest.startswith(b"[")
            self._rest = self._rest[1:].lstrip(_SPACE)
        elements: list[bytes] = []
        while self.is_array and b"}" in self._rest:
            text = self._rest.decode("utf-8", "surrogateescape")
            try:
                element, end = _DECODER.raw_decode(text)
            except (ValueError, RecursionError):
                break  # the rest of it is still to come
            elements.append(json.dumps(element).encode())
            self._rest = text[end:].encode("utf-8", "surrogateescape").lstrip(_BETWEEN)
        return elements


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
    format: StreamFormat | None = attrs.field(default=None, init=False)
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
        if self.begun and self.format is not None and not self.closed:
            self.closed = self.format.closing.search(text) is not None

    def begin(self) -> None:
        """End the preamble, whatever has come."""
        self.begun = True
        if self.format is None:
            names = self._name
            self.format = next((one for one in FORMATS if one.names and names.startswith(one.names)), None)

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
        kind = self._classified(event) if isinstance(event, dict) else EventKind.CONTENT
        self.begun, self.closed = kind is not EventKind.PREAMBLE, kind is EventKind.CLOSING

    def _classified(self, event: dict[str, Any]) -> EventKind:
        """Classify an event by its type, or by the `event:` field where it says none."""
        said = event.get("type")
        name = said if isinstance(said, str) else self._name
        for one in FORMATS if self.format is None else (self.format, *FORMATS):
            kind = one.kind(name, event)
            if kind is not None:
                self.format = self.format or one
                return kind
        return EventKind.PREAMBLE if name in _NOTHING_YET else EventKind.CONTENT
