"""Mistral's API: chat and fill-in-the-middle completions, agents, and OCR.

After its public API reference and page on rate limits, and captures of real answers in public issues, as they stood in
November 2026. Its chat completions are at OpenAI's path and in OpenAI's format, so a call there may be of either; the
proxy then answers in OpenAI's. `/v1/conversations` is OpenAI's, too, where it generates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api, Dimension, QuotaReading

from .dialect import Dialect, EndpointPattern
from .events import ErrorBody
from .limits import LimitSigns, QuotaHeaders
from .openai import CHAT_PATH, error_event, keep_alive, merged
from .requests import CHAT_LIMIT, RequestFormat
from .simulated import SECOND_NS, Levels, SimulatedAnswers, SimulatedRefusal

_WINDOW_NS: Final = 60 * SECOND_NS

_LIMITS: Final = {Dimension.REQUESTS: "req", Dimension.TOKENS: "tokens"}
"""Names in `x-ratelimit-*-minute`."""


def _error(status: int, message: str, code: str) -> ErrorBody:
    """Return an error, which is flat."""
    kind = "rate_limited" if status == 429 else "invalid_request_error" if status < 500 else "internal_server_error"
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def _readings(levels: Levels, now_ns: int) -> tuple[QuotaReading, ...]:
    """Return requests and all tokens, by the minute; when a window ends is not said."""
    return tuple(
        QuotaReading(dimension=dimension, limit=limit, remaining=left, window_ns=_WINDOW_NS)
        for dimension, limit, left, _ in merged(levels)
    )


def _used_up(dimension: Dimension) -> Mapping[str, str]:
    return {f"x-ratelimit-remaining-{_LIMITS.get(dimension, 'tokens')}-minute": "0"}


def _refusal(refused: SimulatedRefusal) -> ErrorBody:
    codes = {429: ("rate_limited", "1300"), 503: ("unreachable_backend", "1100")}
    kind, code = codes.get(refused.status, ("internal_server_error", "1000"))
    return {"object": "error", "message": refused.message, "type": kind, "param": None, "code": code}


MISTRAL: Final = Dialect(
    api=Api.MISTRAL,
    telemetry_name="mistral_ai",
    base_url="https://api.mistral.ai",
    key_variables=("MISTRAL_API_KEY",),
    version_in_base=True,
    usual_path=CHAT_PATH,
    usual_model="mistral-large-latest",
    shared_path="/v1/fim/completions",
    endpoints=(
        EndpointPattern(r"/v1/(?:fim|agents)/completions", generates=True, output_max=("max_tokens",)),
        EndpointPattern(r"/v1/ocr", generates=True),
    ),
    compatible_with={Api.OPENAI: 4},
    request=RequestFormat(renamed=CHAT_LIMIT),
    declared_as=(Api.OPENAI, Api.GENERIC),
    limits=LimitSigns(
        quota_headers=(
            # `x-ratelimit-limit-req-minute` is read as OpenAI's are.
            QuotaHeaders(pattern=r"x-ratelimit-(?P<part>limit|remaining)-(?P<what>req)-(?P<window>10-second)"),
            # Until 2026; the name without a window is of the one that is nearest to its end.
            QuotaHeaders(
                pattern=r"(?:x-)?ratelimitbysize-(?P<part>limit|remaining|reset)(?:-(?P<window>minute))?",
                counted={None: Dimension.TOKENS},
            ),
        ),
        remaining=(
            ("x-ratelimit-remaining-req-minute", "x-ratelimit-reset-req-minute"),
            ("x-ratelimit-remaining-req-10-second", "x-ratelimit-reset-req-10-second"),
            ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
            ("ratelimitbysize-remaining", "ratelimitbysize-reset"),
        ),
        plan_headers=(
            "x-ratelimit-limit-req-minute",  # the model is not in the plan
            "x-ratelimit-remaining-tokens-month",
            "x-ratelimitbysize-remaining-month",
        ),
        quota_words={Dimension.REQUESTS: r"\bRequests rate limit exceeded"},
        window_words=r"^Requests rate limit exceeded",
        overload_words=r"service tier capacity exceeded",
        statuses={
            "rate_limited": 429,
            "1300": 429,
            "invalid_model": 400,
            "1500": 400,
            "unreachable_backend": 503,
            "1100": 503,
            "service_tier_capacity_exceeded": 503,
            "3505": 503,
            "internal_server_error": 500,
        },
    ),
    error=_error,
    error_event=error_event,
    keep_alive=keep_alive,
    simulated=SimulatedAnswers(error=_refusal, used_up=_used_up, readings=_readings),
)
