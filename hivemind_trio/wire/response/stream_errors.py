"""The error that an answer carries after its 200: an event of its stream, or all that its body is.

Such an event names its kind and seldom a status. It is read as the answer with the status that its kind has elsewhere,
so that there is one place that knows what errors mean. After the error references of Anthropic ("Errors": a stream may
end with `event: error`), OpenAI (Responses: `error`, `response.failed`; Chat Completions: a chunk that is an error
object), Google (`google.rpc.Code`; its SDKs look for such an object without `data:` as well), Ollama, vLLM and
OpenRouter ("Errors and Debugging"), as they stood in November 2026. Total: any bytes have an answer.
"""

from __future__ import annotations

import re
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.dialects import ERROR_STATUSES

from .error_signals import Signal, read_signal

MARK: Final = b'"error"'
"""In every line that says one. Within a text it would stand behind a backslash."""

UNNAMED: Final = 500
"""An answer had begun and broke: whatever the word for it, the provider's doing, unless it says otherwise."""

BEGINNINGS_MAX: Final = 4
"""Tried in the tail of a body: an error object may hold another."""

_WRAPPING: Final = (("type", "error"), ("object", "error"))
_NULL: Final = re.compile(rb'"error"\s*:\s*null')
_LAST: Final = re.compile(rb'\{\s*"error"\s*:')


@final
@attrs.frozen
class StreamError:
    """An error that an event carries."""

    status: int
    """Status of a plain answer with this error."""
    body: bytes
    """JSON body of that answer, in the dialect of the event."""

    @property
    def signal(self) -> Signal:
        """Meaning for its provider."""
        return read_signal(self.status, {}, self.body)


def event_error(event: dict[str, Any]) -> StreamError | None:
    """Return the error that a decoded event is; None: it is none."""
    error = _error_in(event)
    if error is None:
        return None
    if error is event:  # OpenAI's `error` event and vLLM's error object are the error themselves
        error = {name: value for name, value in event.items() if (name, value) not in _WRAPPING}
        error.pop("sequence_number", None)
    around = {name: event[name] for name in ("type", "request_id") if name in event and "error" in event}
    return StreamError(_status(error), msgspec.json.encode({**around, "error": error}))


def line_error(line: bytes) -> Signal | None:
    """Return the signal of an error line of an event stream or NDJSON; None: the line is no error."""
    if MARK not in line:
        return None
    line = line.strip()
    if line.startswith(b"data:"):
        line = line[5:]
    error = _read(line)
    return None if error is None else error.signal


def body_error(text: bytes) -> StreamError | None:
    """Return the same of a whole body, or the tail of one: an error object, or an array that ends with one."""
    if MARK not in text:
        return None
    found = _read(text)
    if found is not None:
        return found
    # The last in one of Google's arrays, which are long; of a long body only the tail is at hand.
    end = text.rstrip().removesuffix(b"]")
    for match in list(_LAST.finditer(text))[-BEGINNINGS_MAX:]:
        found = _read(end[match.start() :])
        if found is not None:
            return found
    return None


def _read(text: bytes) -> StreamError | None:
    if text.count(MARK) == len(_NULL.findall(text)):
        return None  # so says every event of OpenAI's Responses that holds the whole answer
    try:
        return event_error(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _error_in(whole: Any) -> dict[str, Any] | str | None:
    """Return the error that a decoded event is; None: it is none."""
    if not isinstance(whole, dict):
        return None
    if whole.get("type") == "response.failed":
        whole = whole.get("response")
        if not isinstance(whole, dict):
            return None
    error = whole.get("error")
    if isinstance(error, (dict, str)) and error:
        return error
    return whole if "error" in (whole.get("type"), whole.get("object")) else None


def _status(error: dict[str, Any] | str) -> int:
    if isinstance(error, str):
        return UNNAMED
    for name in ("code", "type", "status"):
        said = error.get(name)
        if isinstance(said, str):
            said = int(said) if said.isdecimal() and len(said) == 3 else ERROR_STATUSES.get(said.lower())
        if isinstance(said, int) and 400 <= said < 600:
            return said
    return UNNAMED
