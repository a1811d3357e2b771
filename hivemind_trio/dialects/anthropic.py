"""Anthropic's API: Messages, and the Text Completions before them.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api, Dimension, QuotaReading

from .dialect import EVENT_STREAM, Dialect, EndpointPattern, KeepAlive
from .events import ErrorBody, named_event
from .simulated import SECOND_NS, Levels, SimulatedAnswers, SimulatedRefusal

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


ROUNDED_TO: Final = 1_000
"""Rate-limit headers: "the token counts are rounded to the nearest thousand"."""

_LIMITS: Final = {
    Dimension.REQUESTS: "requests",
    Dimension.INPUT: "input-tokens",
    Dimension.OUTPUT: "output-tokens",
    Dimension.TOKENS: "tokens",
}
"""Names in `anthropic-ratelimit-*`."""


def _readings(levels: Levels, now_ns: int) -> tuple[QuotaReading, ...]:
    return tuple(
        _reading(dimension, level.limit, level.remaining, level.full_ns, now_ns) for dimension, level in levels.items()
    )


def _reading(dimension: Dimension, limit: int, left: int, full_ns: int, now_ns: int) -> QuotaReading:
    rounding = 0
    if dimension is not Dimension.REQUESTS:
        left = min(limit, (left + ROUNDED_TO // 2) // ROUNDED_TO * ROUNDED_TO)
        rounding = ROUNDED_TO // 2 if left % ROUNDED_TO == 0 else 0
    # A point in time in whole seconds, measured against the answer's `date`, which is one as well.
    resets_ns = -(-(now_ns + full_ns) // SECOND_NS) * SECOND_NS - now_ns // SECOND_NS * SECOND_NS
    return QuotaReading(
        dimension=dimension, limit=limit, remaining=left, resets_ns=resets_ns or None, rounding=rounding
    )


def _used_up(dimension: Dimension) -> Mapping[str, str]:
    return {f"anthropic-ratelimit-{_LIMITS[dimension]}-remaining": "0"}


def _refusal(refusal: SimulatedRefusal) -> ErrorBody:
    return {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}


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
    counts_cache_reads=False,
    simulated=SimulatedAnswers(error=_refusal, used_up=_used_up, readings=_readings),
)
