"""Refusals and failures in the words of the API that was called.

After the error references of Anthropic, OpenAI, Gemini (`google.rpc.Status`) and Ollama, November 2026.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import msgspec

from hivemind_trio.model import Api

from .bodies import decoded
from .stream_errors import event_error

SHOWN_MAX: Final = 2_048
"""Characters of an error's body that is none of its dialect: as many are told."""

BODY_MAX: Final = 256 * 1024
"""Largest body of an error, decoded."""

LAST_EVENT: Final = 2**31 - 1
"""`sequence_number` of an event behind a provider's own, which are not counted here."""

_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_GOOGLE_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}


def refusal_body(api: Api | None, status: int, message: str, code: str, retry_after_s: int | None = None) -> bytes:
    """A JSON body for a status that we answer ourselves.

    Args:
        api: The dialect of the call; None, and those without one of their own, get OpenAI's.
        code: Our public reason.
        retry_after_s: When to come back, for the dialect whose clients look for it in the body; None: no such word.
    """
    error = own_error(api, status, message, code)
    if api is Api.GEMINI and retry_after_s is not None:
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after_s}s"}
        error = {"error": {**error["error"], "details": [info]}}
    return _dump(error)


def own_error(api: Api | None, status: int, message: str, code: str) -> dict[str, Any]:
    """Return an error of ours as the dialect's plain answers have it.

    Args:
        code: Our public reason.
    """
    match api:
        case Api.ANTHROPIC:
            return {"type": "error", "error": {"type": _anthropic_type(status), "message": message}}
        case Api.GEMINI:
            return {"error": {"code": status, "message": message, "status": _google_status(status)}}
        case Api.OLLAMA:
            return {"error": message}
        case _:
            return {"error": {"message": message, "type": _openai_type(status), "param": None, "code": code}}


def provider_error(api: Api | None, status: int, body: bytes, encoding: str, code: str) -> dict[str, Any]:
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
    if api is Api.OLLAMA:
        return known
    filled = {**known["error"], **{name: value for name, value in fields.items() if value is not None}}
    if filled.get("code") == "":
        filled["code"] = None
    return {**known, **said, "error": filled}


def error_event(
    api: Api | None,
    path: str,
    content_type: str,
    error: dict[str, Any],
    *,
    mid_line: bool = False,
    begun: bool = True,
    model: str = "",
) -> bytes:
    """Return what ends an answer that cannot be finished; empty where the dialect has no place for it.

    Args:
        content_type: Of the answer: only event streams and NDJSON can hold an error after their 200.
        error: As the dialect's plain answers have it.
        mid_line: The bytes so far do not end with an empty line (SSE) or a newline (NDJSON).
        begun: The provider's own events have come; else nothing but keep-alive events.
        model: As asked for.
    """
    if content_type.startswith("application/x-ndjson"):
        return (b"\n" if mid_line else b"") + _dump({"error": _words(error)["message"]}) + b"\n"
    if api is Api.GEMINI and not begun and content_type.startswith("application/json"):
        return _dump([error])
    if not content_type.startswith("text/event-stream"):
        return b""
    begin = b"\n\n" if mid_line else b""
    if api is Api.ANTHROPIC:
        return begin + b"event: error\ndata: " + _dump(error) + b"\n\n"
    if path.endswith("/responses"):
        return begin + b"".join(map(_named, _of_responses(error, begun=begun, model=model)))
    return begin + b"data: " + _dump(error) + b"\n\n"


def _of_responses(error: dict[str, Any], *, begun: bool, model: str) -> list[dict[str, Any]]:
    """Return the events that fail a response.

    A client that follows the lifecycle wants `response.created` first and `response.failed` last; openai-python raises
    its `APIError` at the `error` that its events carry at their top, and at nothing else.
    """
    words = _words(error)
    code = str(words.get("code") or words.get("type") or "server_error")
    said = {"code": code, "message": words["message"], "param": words.get("param")}
    event = {"type": "error", **said, "sequence_number": LAST_EVENT, "error": words}
    if begun:
        return [event]
    response = {
        "id": "resp_hivemind",
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }
    failed = {**response, "status": "failed", "error": {"code": code, "message": words["message"]}}
    return [
        {"type": "response.created", "sequence_number": 0, "response": response},
        {"type": "response.failed", "sequence_number": 1, "response": failed},
        {**event, "sequence_number": 2},
    ]


def _words(error: dict[str, Any]) -> dict[str, Any]:
    words = error["error"]
    return words if isinstance(words, dict) else {"message": words}


def _named(event: dict[str, Any]) -> bytes:
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + _dump(event) + b"\n\n"


def _anthropic_type(status: int) -> str:
    return _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def _openai_type(status: int) -> str:
    return _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def _google_status(status: int) -> str:
    return _GOOGLE_STATUSES.get(status, "FAILED_PRECONDITION" if status < 500 else "INTERNAL")


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
