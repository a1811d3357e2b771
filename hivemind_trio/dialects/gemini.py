"""Google's Gemini API, and Vertex AI, which has the project, the place and the publisher before the model.

After their public API references, as they stood in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hivemind_trio.model import Api, Dimension

from .counting import GEMINI_COUNTS
from .dialect import EVENT_STREAM, JSON, Dialect, EndpointPattern, KeepAlive
from .events import ErrorBody
from .limits import LimitSigns
from .openai import error_event
from .requests import RequestFormat
from .simulated import SimulatedAnswers, SimulatedRefusal, no_headers
from .streams import Event, EventKind, StreamFormat, object_of, objects_of
from .usage import TokenCounts, UsageFormat, first_count

_STATUSES: Final = {
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
"""Names of `google.rpc.Code`."""


_MODEL: Final = r"(?:/v1(?:beta|alpha)?\d*)?/(?:[^:]+/)?(?:m|tunedM)odels/(?P<model>[^/:]+)"

_QUOTAS: Final = {
    Dimension.REQUESTS: "GenerateRequestsPerMinutePerProjectPerModel",
    Dimension.INPUT: "GenerateContentInputTokensPerModelPerMinute",
}


def _event_kind(kind: str, event: Event) -> EventKind | None:
    if "candidates" not in event and "promptFeedback" not in event and "usageMetadata" not in event:
        return None
    candidates = objects_of(event.get("candidates"))
    parts = [part for each in candidates for part in objects_of(object_of(each.get("content")).get("parts"))]
    if any(value for part in parts for name, value in part.items() if name != "thought"):
        return EventKind.CONTENT
    blocked = object_of(event.get("promptFeedback")).get("blockReason")
    return EventKind.CLOSING if blocked or any(each.get("finishReason") for each in candidates) else EventKind.PREAMBLE


_STREAM: Final = StreamFormat(
    kind=_event_kind,
    # Google ends the stream of a blocked prompt with a `blockReason` and no candidate.
    closing=re.compile(rb'"(?:finishReason|blockReason)"\s*:\s*"'),
)


def _usage(found: dict[str, Any]) -> TokenCounts | None:
    prompt = first_count(found, "promptTokenCount")
    if prompt is None:
        return None
    cached = first_count(found, "cachedContentTokenCount") or 0
    parts = [first_count(found, name) for name in ("candidatesTokenCount", "thoughtsTokenCount")]
    return TokenCounts(
        input=max(0, prompt - cached) + (first_count(found, "toolUsePromptTokenCount") or 0),
        cache_read=cached,
        output=None if parts == [None, None] else sum(part or 0 for part in parts),
    )


def _error(status: int, message: str, code: str) -> ErrorBody:
    name = _STATUSES.get(status, "FAILED_PRECONDITION" if status < 500 else "INTERNAL")
    return {"error": {"code": status, "message": message, "status": name}}


def _with_retry(error: ErrorBody, seconds: int) -> ErrorBody:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"}
    return {"error": {**error["error"], "details": [info]}}


def _keep_alive(path: str, query: str, model: str, headers: Mapping[str, str]) -> KeepAlive:
    """Return an empty line, for a comment crashes google-genai. The query says whether it is of events or an array."""
    return KeepAlive(EVENT_STREAM if "alt=sse" in query else JSON, b"\n")


def _refusal(refusal: SimulatedRefusal) -> ErrorBody:
    details: list[dict[str, object]] = []
    if refusal.dimension is not None:
        quota = _QUOTAS.get(refusal.dimension, "GenerateContentTokensPerMinute")
        details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]})
    if refusal.retry_after_ns is not None:
        delay = f"{refusal.retry_after_ns / 1e9:g}s"
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    return {"error": {"code": refusal.status, "message": refusal.message, "details": details}}


_LIMIT: Final = ("generationConfig", "maxOutputTokens")

GEMINI: Final = Dialect(
    api=Api.GEMINI,
    telemetry_name="gcp.gemini",
    operation="generate_content",
    base_url="https://generativelanguage.googleapis.com",
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    usual_path="/v1beta/models",
    usual_model="gemini-2.5-pro",
    endpoints=(
        EndpointPattern(_MODEL + r":generateContent", generates=True, streams=False, output_max=_LIMIT),
        EndpointPattern(
            _MODEL + r":(?:embedContent|batchEmbedContents|predict|rawPredict)", generates=True, streams=False
        ),
        EndpointPattern(_MODEL + r":streamGenerateContent", generates=True, streams=True, output_max=_LIMIT),
        EndpointPattern(_MODEL + r":streamRawPredict", generates=True, streams=True),
        EndpointPattern(r"/v1(?:beta|alpha)?\d*/[^:]+:\w+", generates=False),
        EndpointPattern(r"/v1(?:beta|alpha)\d*/.*", generates=False),
    ),
    client_headers={"x-goog-api-client": "genai", "x-goog-api-key": "x"},  # the key is in `key=` as well
    counts=GEMINI_COUNTS,
    request=RequestFormat(
        prompt=("contents",),
        system=("systemInstruction",),
        output_max_within=(
            _LIMIT,
            ("generationConfig", "max_output_tokens"),
            ("generation_config", "maxOutputTokens"),
            ("generation_config", "max_output_tokens"),
        ),
        pictures=(rb'"(?:inlineData|inline_data)"\s{0,8}:\s{0,8}\{\s{0,8}"(?:mime|data)',),
    ),
    credential_header=b"x-goog-api-key",
    credential_prefix=b"",
    credential_parameter=b"key",
    key_shape=(r"AIza[A-Za-z0-9_-]{16,}", "a Google key"),
    model_segments=("models", "tunedModels"),
    streams=(_STREAM,),
    usage=(
        UsageFormat(
            marks=(b'"usage',), objects=("usageMetadata",), read=_usage, model="modelVersion", finish="finishReason"
        ),
    ),
    limits=LimitSigns(
        billing_codes=frozenset({"INSUFFICIENT_G1_CREDITS_BALANCE", "QUOTA_EXHAUSTED"}),
        statuses={
            "invalid_argument": 400,
            "failed_precondition": 400,
            "out_of_range": 400,
            "unauthenticated": 401,
            "permission_denied": 403,
            "not_found": 404,
            "resource_exhausted": 429,
            "cancelled": 499,
            "internal": 500,
            "unknown": 500,
            "data_loss": 500,
            "unavailable": 503,
            "deadline_exceeded": 504,
        },
    ),
    error=_error,
    with_retry=_with_retry,
    error_event=error_event,
    streams_arrays=True,
    keep_alive=_keep_alive,
    simulated=SimulatedAnswers(error=_refusal, used_up=no_headers, says_retry_after=False),
)
