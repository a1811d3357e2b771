"""Anthropic's API: Messages, and the Text Completions before them.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api

from .dialect import EVENT_STREAM, Dialect, EndpointPattern, KeepAlive
from .events import ErrorBody, named_event

_ERROR_TYPES: Final = {
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

_PING: Final = KeepAlive(EVENT_STREAM, b'event: ping\ndata: {"type": "ping"}\n\n')


def _error(status: int, message: str, code: str) -> ErrorBody:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _error_event(error: ErrorBody, path: str, model: str, begun: bool) -> bytes:
    return named_event("error", error)


def _keep_alive(path: str, query: str, model: str, headers: Mapping[str, str]) -> KeepAlive:
    return _PING


ANTHROPIC: Final = Dialect(
    api=Api.ANTHROPIC,
    base_url="https://api.anthropic.com",
    key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    usual_path="/v1/messages",
    usual_model="claude-sonnet-4-5",
    endpoints=(
        EndpointPattern(r"/v1/messages", generates=True),
        EndpointPattern(r"/v1/messages/.*", generates=False),
        EndpointPattern(r"/v1/complete", generates=True),
        EndpointPattern(r"/v1/(?:skills|organizations)(?:/.*)?", generates=False),
    ),
    client_headers={"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-claude-code-session-id": "x"},
    credential_header=b"x-api-key",
    credential_prefix=b"",
    error=_error,
    error_event=_error_event,
    keep_alive=_keep_alive,
)
