"""Refusals and failures in the words of the API that was called.

After the error references of Anthropic, OpenAI, Gemini (`google.rpc.Status`) and Ollama, November 2026.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from hivemind_trio.dialects import ErrorBody, dialect_of, dump, error_fields
from hivemind_trio.model import Api
from hivemind_trio.wire.body.bodies import decoded

from .stream_errors import event_error

SHOWN_MAX: Final = 2_048
"""Characters of an error's body that is none of its dialect: as many are told."""

BODY_MAX: Final = 256 * 1024
"""Largest body of an error, decoded."""


def refusal_body(api: Api | None, status: int, message: str, code: str, retry_after_s: int | None = None) -> bytes:
    """Return a JSON body for a status that we answer ourselves.

    Args:
        api: The dialect of the call; None, and those without one of their own, get OpenAI's.
        code: Our public reason.
        retry_after_s: When to come back, for the dialect whose clients look for it in the body; None: no such word.
    """
    dialect = dialect_of(api)
    error = dialect.error(status, message, code)
    if dialect.with_retry is not None and retry_after_s is not None:
        error = dialect.with_retry(error, retry_after_s)
    return dump(error)


def own_error(api: Api | None, status: int, message: str, code: str) -> ErrorBody:
    """Return an error of ours as the dialect's plain answers have it.

    Args:
        code: Our public reason.
    """
    return dialect_of(api).error(status, message, code)


def provider_error(api: Api | None, status: int, body: bytes, encoding: str, code: str) -> ErrorBody:
    """Return a provider's error as the dialect's plain answers have it, with its own type, code and message.

    Args:
        body: As received.
        encoding: Its content-encoding.
        code: Our public reason, for a body that is no error of any dialect.
    """
    text = decoded(body, encoding, BODY_MAX)
    try:
        whole = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = None
    if isinstance(whole, list) and whole:
        whole = whole[0]  # Gemini streams its errors as an array of one
    found = event_error(whole) if isinstance(whole, dict) else None
    if found is None:
        shown = text[:SHOWN_MAX].decode("utf-8", "replace")
        return own_error(api, status, f"the provider answered {status}: {shown}", code)
    said = cast("dict[str, Any]", msgspec.json.decode(found.body))
    error = said["error"]
    fields = error if isinstance(error, dict) else {"message": error}
    message = fields.get("message")
    known = own_error(api, status, message if isinstance(message, str) else f"the provider answered {status}", "")
    inner = known.get("error", known)
    if not isinstance(inner, dict):
        return known
    filled = {**inner, **{name: value for name, value in fields.items() if _fits(value, inner.get(name))}}
    if filled.get("code") == "":
        filled["code"] = None
    return filled if inner is known else {**known, **said, "error": filled}


def _fits(value: object, own: object) -> bool:
    """Return True if a provider's field may replace our own of that name: google-genai compares `code` with numbers."""
    return value is not None and (isinstance(value, int) or not isinstance(own, int))


def at_boundary(content_type: str, tail: bytes) -> bool:
    """Return whether an event of ours can follow these last bytes of a stream.

    Behind half an event it could not: SDKs would fail to parse what comes of both, and raise no error of theirs.
    """
    if content_type.startswith("application/x-ndjson"):
        return not tail or tail.endswith(b"\n")
    return not tail or tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))


def error_event(
    api: Api | None,
    path: str,
    content_type: str,
    error: ErrorBody,
    *,
    begun: bool = True,
    model: str = "",
) -> bytes:
    """Return what ends an answer that cannot be finished; empty where the dialect has no place for it.

    Args:
        content_type: Of the answer: only event streams and NDJSON can hold an error after their 200.
        error: As the dialect's plain answers have it.
        begun: The provider's own events have come; else nothing but keep-alive events.
        model: As asked for.
    """
    if content_type.startswith("application/x-ndjson"):
        return dump({"error": error_fields(error)["message"]}) + b"\n"
    dialect = dialect_of(api)
    if dialect.streams_arrays and not begun and content_type.startswith("application/json"):
        return dump([error])
    if not content_type.startswith("text/event-stream"):
        return b""
    return dialect.error_event(error, path, model, begun)
