"""Anthropic's API: Messages, and the Text Completions before them.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api, Dimension, QuotaReading

from .counting import ANTHROPIC_COUNTS
from .dialect import EVENT_STREAM, Dialect, EndpointPattern, KeepAlive
from .events import ErrorBody, named_event
from .limits import LimitSigns, PlanHeaders, PlanPart, QuotaHeaders
from .requests import RequestFormat
from .simulated import SECOND_NS, Levels, SimulatedAnswers, SimulatedRefusal
from .streams import Event, EventKind, StreamFormat, object_of
from .usage import UsageFormat, read_usage

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

_BLOCKS_BY_DELTAS: Final = frozenset({"text", "tool_use", "server_tool_use", "mcp_tool_use"})
"""Blocks whose content follows in deltas."""


def _event_kind(kind: str, event: Event) -> EventKind | None:
    """Classify an event. Thinking counts from its first event, for a provider may stream nothing of it."""
    if not kind.startswith(("message_", "content_block_")):
        return None
    match kind:
        case "message_stop":
            return EventKind.CLOSING
        case "content_block_start":
            block = object_of(event.get("content_block"))
            empty = block.get("type") in _BLOCKS_BY_DELTAS and not (block.get("text") or block.get("input"))
            return EventKind.PREAMBLE if empty else EventKind.CONTENT
        case "content_block_delta":
            delta = object_of(event.get("delta"))
            empty = delta.get("type", "text_delta") == "text_delta" and not delta.get("text")
            return EventKind.PREAMBLE if empty else EventKind.CONTENT
        case "message_start":
            return EventKind.CONTENT if object_of(event.get("message")).get("content") else EventKind.PREAMBLE
        case "content_block_stop" | "message_delta":
            return EventKind.PREAMBLE
        case _:
            return EventKind.CONTENT


_STREAM: Final = StreamFormat(
    kind=_event_kind, closing=re.compile(rb'"type"\s*:\s*"message_stop"|^event: ?message_stop', re.M)
)


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


def _plan_used_up(resets_s: int) -> tuple[str, Mapping[str, str]]:
    name = "anthropic-ratelimit-unified"
    told = {f"{name}-status": "rejected", f"{name}-reset": str(resets_s), "retry-after": str(resets_s)}
    return "rate_limit_error", told


def _refusal(refusal: SimulatedRefusal) -> ErrorBody:
    return {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}


ANTHROPIC: Final = Dialect(
    api=Api.ANTHROPIC,
    base_url="https://api.anthropic.com",
    key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    usual_path="/v1/messages",
    usual_model="claude-sonnet-4-5",
    endpoints=(
        EndpointPattern(r"/v1/messages", generates=True, output_max=("max_tokens",)),
        EndpointPattern(r"/v1/messages/.*", generates=False),
        EndpointPattern(r"/v1/complete", generates=True, output_max=("max_tokens_to_sample",)),
        EndpointPattern(r"/v1/(?:skills|organizations)(?:/.*)?", generates=False),
    ),
    client_headers={"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-claude-code-session-id": "x"},
    counts=ANTHROPIC_COUNTS,
    request=RequestFormat(
        prompt=("messages",),
        system=("system",),
        output_max=("max_tokens", "max_tokens_to_sample"),
        thinking=(("thinking", "budget_tokens"),),
        pictures=(rb'"type"\s{0,8}:\s{0,8}"image"',),
    ),
    credential_header=b"x-api-key",
    credential_prefix=b"",
    key_shape=(r"sk-ant-[A-Za-z0-9_-]{8,}", "an Anthropic key"),
    error=_error,
    error_event=_error_event,
    keep_alive=_keep_alive,
    streams=(_STREAM,),
    usage=(
        UsageFormat(
            marks=(b'"usage',),
            objects=("usage",),
            read=read_usage,
            deltas=(b'"delta":',),
            provisional=b'"message_start"',  # it counts a token or two that are to come
            finish="stop_reason",
            is_single=True,
        ),
    ),
    limits=LimitSigns(
        # Not `anthropic-priority-*`: who is over it is served at the standard tier, so it limits nobody. Not
        # `anthropic-fast-*`: it counts fast-mode requests alone, and the head of an answer does not say which is one.
        quota_headers=(
            QuotaHeaders(
                pattern=r"anthropic-ratelimit-(?P<what>requests|tokens|input-tokens|output-tokens)"
                r"-(?P<part>limit|remaining|reset)",
                rounded_to=ROUNDED_TO,
            ),
        ),
        remaining=tuple(
            (f"anthropic-ratelimit-{what}-remaining", f"anthropic-ratelimit-{what}-reset")
            for what in ("requests", "input-tokens", "output-tokens", "tokens")
        ),
        plan_prefix="anthropic-ratelimit-unified-",
        plan=PlanHeaders(
            pattern=r"anthropic-ratelimit-unified-(?P<window>[1-9][0-9]?[hd])(?:_(?P<scope>[a-z0-9_]+))?"
            r"-(?P<part>utilization|reset|status)",
            parts={"utilization": PlanPart.USED, "reset": PlanPart.RESETS_AT, "status": PlanPart.STATUS},
            whole=1,
            every_model=frozenset({"", "oi"}),  # `oi`: the week with what is paid beyond it
            overage=("anthropic-ratelimit-unified-overage-in-use",),
            of_account=frozenset({"anthropic-ratelimit-unified-overage-disabled-reason"}),
        ),
        quota_words={
            Dimension.INPUT: r"input[ _-]?tokens?|request tokens|\bITPM\b",  # `of 30,000 input tokens per minute`
            Dimension.OUTPUT: r"output[ _-]?tokens?|\bOTPM\b",
            Dimension.REQUESTS: r"requests?[ _-]?per",
        },
        window_words=r"\b(?:ITPM|OTPM)\b",
        billing_codes=frozenset({"enforced_spend_limit_reached", "billing_error"}),
        billing_words=r"specified API usage limits|credit balance is too low|spend limit|out of (?:extra )?usage\b",
        statuses={
            "invalid_request_error": 400,
            "authentication_error": 401,
            "billing_error": 402,
            "permission_error": 403,
            "not_found_error": 404,
            "request_too_large": 413,
            "rate_limit_error": 429,
            "api_error": 500,
            "timeout_error": 504,
            "overloaded_error": 529,
        },
    ),
    counts_cache_reads=False,
    simulated=SimulatedAnswers(error=_refusal, used_up=_used_up, readings=_readings, plan_used_up=_plan_used_up),
)
