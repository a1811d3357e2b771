"""OpenAI's API: Chat Completions, Completions, Responses and Embeddings, and Codex with a ChatGPT plan.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hivemind_trio.model import Api, Dimension, QuotaReading

from .dialect import EVENT_STREAM, Dialect, EndpointPattern, KeepAlive
from .events import ErrorBody, data_event, error_fields, named_event
from .limits import LimitSigns, PlanHeaders, PlanPart, QuotaHeaders
from .requests import RequestFormat
from .simulated import Levels, SimulatedAnswers, SimulatedRefusal, no_headers
from .streams import Event, EventKind, StreamFormat, object_of, objects_of
from .usage import UsageFormat, read_usage

CHAT_PATH: Final = "/v1/chat/completions"

LAST_EVENT: Final = 2**31 - 1
"""`sequence_number` of an event behind a provider's own, which are not counted here."""

_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}

_COMMENT: Final = KeepAlive(EVENT_STREAM, b": ping\n")
"""Two newlines after a comment crash openai-python once events carry an `id:`; `event: ping` crashes Vercel's."""

_CODEX: Final = KeepAlive(EVENT_STREAM, b'event: keepalive\ndata: {"type":"keepalive"}\n\n')
"""Codex counts events, not bytes."""

_BEFORE_ITEMS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_AFTER_ITEMS: Final = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "response.cancelled"},
)
_BY_DELTAS: Final = frozenset({"message", "function_call", "custom_tool_call"})
"""Items of a response whose content follows in deltas."""


def _chat_kind(kind: str, event: Event) -> EventKind | None:
    choices = event.get("choices")
    return _of_choices(objects_of(choices)) if isinstance(choices, list) else None


def _of_choices(choices: list[dict[str, Any]]) -> EventKind:
    for choice in choices:
        delta = object_of(choice.get("delta"))
        if choice.get("text") or any(value for name, value in delta.items() if name != "role"):
            return EventKind.CONTENT
    finished = any(isinstance(choice.get("finish_reason"), str) for choice in choices)
    return EventKind.CLOSING if finished else EventKind.PREAMBLE


def _response_kind(kind: str, event: Event) -> EventKind | None:
    if not kind.startswith("response."):
        return None
    if kind in _AFTER_ITEMS:
        return EventKind.CLOSING
    if kind in _BEFORE_ITEMS or kind.endswith(".delta"):
        return EventKind.PREAMBLE if not event.get("delta") else EventKind.CONTENT
    if kind == "response.output_item.added":
        item = object_of(event.get("item"))
        empty = item.get("type") in _BY_DELTAS and not (
            item.get("content") or item.get("arguments") or item.get("input")
        )
        return EventKind.PREAMBLE if empty else EventKind.CONTENT
    if kind in ("response.content_part.added", "response.reasoning_summary_part.added"):
        return EventKind.CONTENT if object_of(event.get("part")).get("text") else EventKind.PREAMBLE
    return EventKind.CONTENT


_CHAT: Final = StreamFormat(
    kind=_chat_kind,
    # Some compatible servers send a `finish_reason` and no `[DONE]`.
    closing=re.compile(rb'"finish_reason"\s*:\s*"|^data: ?\[DONE\]', re.M),
)

_RESPONSES: Final = StreamFormat(
    kind=_response_kind,
    closing=re.compile(rb'"response\.(?:completed|failed|incomplete|cancelled)"|^data: ?\[DONE\]', re.M),
    names="response.",  # `response.created` repeats the instructions and may exceed any bound
)


def error(status: int, message: str, code: str) -> ErrorBody:
    """Return an error as OpenAI and most others write it."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_event(error: ErrorBody, path: str, model: str, begun: bool) -> bytes:
    """Return the events that fail a stream."""
    if path.endswith("/responses"):
        return b"".join(named_event(event["type"], event) for event in _of_responses(error, begun=begun, model=model))
    return data_event(error)


def _of_responses(error: ErrorBody, *, begun: bool, model: str) -> list[dict[str, Any]]:
    """Return the events that fail a response.

    A client that follows the lifecycle wants `response.created` first and `response.failed` last; openai-python raises
    its `APIError` at the `error` that its events carry at their top, and at nothing else.
    """
    words = error_fields(error)
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


def keep_alive(path: str, query: str, model: str, headers: Mapping[str, str]) -> KeepAlive:
    """Return a comment, or an event for a client that reads events alone."""
    client = headers.get("originator", "") + headers.get("user-agent", "")
    return _CODEX if path.endswith("/responses") and "codex" in client.lower() else _COMMENT


_MS: Final = 1_000_000


def merged(levels: Levels) -> Iterator[tuple[Dimension, int, int, int]]:
    """Yield dimension, limit, rest and time to the whole: of requests, and of all tokens in one figure."""
    requests = levels.get(Dimension.REQUESTS)
    if requests is not None:
        yield Dimension.REQUESTS, requests.limit, requests.remaining, requests.full_ns
    tokens = [level for dimension, level in levels.items() if dimension is not Dimension.REQUESTS]
    if tokens:
        limit, left = sum(level.limit for level in tokens), sum(level.remaining for level in tokens)
        yield Dimension.TOKENS, limit, left, max(level.full_ns for level in tokens)


def _readings(levels: Levels, now_ns: int) -> tuple[QuotaReading, ...]:
    return tuple(
        QuotaReading(dimension=dimension, limit=limit, remaining=left, resets_ns=-(-full_ns // _MS) * _MS or None)
        for dimension, limit, left, full_ns in merged(levels)
    )


def limit_name(dimension: Dimension) -> str:
    """Return the name of a limit in `x-ratelimit-*`."""
    return "requests" if dimension is Dimension.REQUESTS else "tokens"


def _used_up(dimension: Dimension) -> Mapping[str, str]:
    return {f"x-ratelimit-remaining-{limit_name(dimension)}": "0"}


def refusal(refused: SimulatedRefusal) -> ErrorBody:
    """Return the error of a simulated provider."""
    return {"error": {"type": refused.kind, "code": refused.kind, "message": refused.message}}


def _plan_used_up(resets_s: int) -> tuple[str, Mapping[str, str]]:
    return "usage_limit_reached", {"retry-after": str(resets_s)}


SIMULATED: Final = SimulatedAnswers(error=refusal, used_up=no_headers)
"""Answers of a server that speaks as OpenAI does and says nothing of its limits."""

OPENAI: Final = Dialect(
    api=Api.OPENAI,
    base_url="https://api.openai.com",
    key_variables=("OPENAI_API_KEY",),
    version_in_base=True,
    usual_path=CHAT_PATH,
    usual_model="gpt-4.1",
    endpoints=(
        EndpointPattern(r"/v1/chat/completions", generates=True, output_max=("max_completion_tokens",)),
        EndpointPattern(r"/v1/completions", generates=True, output_max=("max_tokens",)),
        EndpointPattern(r"/v1/responses", generates=True, output_max=("max_output_tokens",)),
        EndpointPattern(r"/v1/(?:responses/compact|embeddings|rerank|score)", generates=True),
        EndpointPattern(r"/v1/(?:images/(?:generations|edits|variations)|audio/\w+)", generates=True),
        EndpointPattern(r"/backend-api/codex/responses(?:/compact)?", generates=True),
        EndpointPattern(r"/v1/(?:responses|chat/completions)/.*", generates=False),
        EndpointPattern(
            r"/v1/(?:moderations|batches|uploads|vector_stores|assistants|threads|fine_tuning)(?:/.*)?",
            generates=False,
        ),
        EndpointPattern(r"/v1/conversations(?:/.*)?", generates=False),
    ),
    key_shape=(r"sk-[A-Za-z0-9_-]{16,}", "an OpenAI key"),
    has_openai_tokens=True,
    request=RequestFormat(
        prompt=("messages", "input", "prompt"),
        system=("instructions",),
        output_max=("max_tokens", "max_completion_tokens", "max_output_tokens"),
        user=("safety_identifier", "user", "prompt_cache_key"),
        pictures=(rb'"type"\s{0,8}:\s{0,8}"(?:image_url|input_image)"',),
    ),
    error=error,
    error_event=error_event,
    keep_alive=keep_alive,
    streams=(_RESPONSES, _CHAT),
    usage=(
        UsageFormat(
            marks=(b'"usage',), objects=("usage",), read=read_usage, deltas=(b'"delta":',), finish="finish_reason"
        ),
    ),
    limits=LimitSigns(
        quota_headers=(
            QuotaHeaders(
                pattern=r"x-ratelimit-(?P<part>limit|remaining|reset|renewalperiod)(?:-(?P<scope>project))?"
                r"(?:-(?P<what>requests?|req|tokens|input-tokens|output-tokens|tokens-prompt|tokens-generated))?"
                r"(?:-(?:per-)?(?P<window>second|minute|hour|day))?"
            ),
        ),
        plan=PlanHeaders(  # codex-rs, `codex-api/src/rate_limits.rs`
            pattern=r"x-codex(?:-(?P<scope>[a-z0-9-]{1,64}?))??-(?:(?P<window>primary|secondary)-)?"
            r"(?P<part>used-percent|window-minutes|reset-at|reset-after-seconds|limit-name)",
            parts={
                "used-percent": PlanPart.USED,
                "window-minutes": PlanPart.MINUTES,
                "reset-at": PlanPart.RESETS_AT,
                "reset-after-seconds": PlanPart.RESETS_IN,
                "limit-name": PlanPart.MODELS,
            },
            whole=100,
            lengths={"primary": 5 * 3_600, "secondary": 7 * 86_400},
            named_scopes=True,
            credit=("x-codex-credits-has-credits", "x-codex-credits-unlimited"),
        ),
        remaining=(
            ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
            ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
            ("x-ratelimit-remaining-project-tokens", "x-ratelimit-reset-project-tokens"),
            ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ),
        quota_words={
            Dimension.REQUESTS: r"\bRP[MD]\b",
            Dimension.TOKENS: r"(?<!put )(?<!put_)(?<!put-)tokens?[ _-]per|\bTP[MD]\b",  # `on tokens per min (TPM)`
        },
        window_words=r"\b(?:RPM|RPD|TPM|TPD)\b",
        billing_codes=frozenset(
            {
                "insufficient_quota",
                "credit_balance_exhausted",
                "billing_hard_limit_reached",
                "organization_spend_limit_exceeded",
                "project_spend_limit_exceeded",
                "organization_usage_limit_exceeded",
                "usage_limit_reached",
            }
        ),
        statuses={
            "invalid_prompt": 400,
            "context_length_exceeded": 400,
            "content_filter": 400,
            "rate_limit_exceeded": 429,
            "insufficient_quota": 429,
            "server_error": 500,
            "internal_error": 500,
            "slow_down": 503,
            "server_is_overloaded": 503,
            "service_unavailable": 503,
            "service_unavailable_error": 503,
            "upstream_error": 502,
        },
    ),
    tokens_on_arrival=max,  # its page on rate limits, November 2026
    simulated=SimulatedAnswers(error=refusal, used_up=_used_up, readings=_readings, plan_used_up=_plan_used_up),
)
