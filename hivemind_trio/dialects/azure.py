"""Azure OpenAI: OpenAI's calls below `/openai/`, with a credential header and rate limits of its own.

After Microsoft's public reference, as it stood in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from typing import Final

from hivemind_trio.model import Api, Dimension, QuotaReading

from .dialect import Dialect, EndpointPattern
from .limits import LimitSigns
from .openai import error, error_event, keep_alive, limit_name, merged, refusal
from .simulated import SECOND_NS, Levels, SimulatedAnswers

_WINDOWS_S: Final = {Dimension.REQUESTS: 10, Dimension.TOKENS: 60}
"""Windows in `x-ratelimit-renewalperiod-*`. When one ends is not said."""


def _readings(levels: Levels, now_ns: int) -> tuple[QuotaReading, ...]:
    return tuple(
        QuotaReading(dimension=dimension, limit=limit, remaining=left, window_ns=_WINDOWS_S[dimension] * SECOND_NS)
        for dimension, limit, left, _ in merged(levels)
    )


def _used_up(dimension: Dimension) -> Mapping[str, str]:
    name, window_s = limit_name(dimension), _WINDOWS_S.get(dimension, _WINDOWS_S[Dimension.TOKENS])
    return {f"x-ratelimit-remaining-{name}": "0", f"x-ratelimit-renewalperiod-{name}": str(window_s)}


_DEPLOYMENT: Final = r"/openai/deployments/(?P<model>[^/]+)"

AZURE: Final = Dialect(
    api=Api.AZURE,
    telemetry_name="azure.ai.openai",
    usual_path="/openai/v1/chat/completions",
    usual_model="gpt-4.1",
    endpoints=(
        EndpointPattern(rf"{_DEPLOYMENT}/chat/completions", generates=True, output_max=("max_completion_tokens",)),
        EndpointPattern(rf"{_DEPLOYMENT}/completions", generates=True, output_max=("max_tokens",)),
        EndpointPattern(rf"{_DEPLOYMENT}/responses", generates=True, output_max=("max_output_tokens",)),
        EndpointPattern(rf"{_DEPLOYMENT}/embeddings", generates=True),
        EndpointPattern(rf"{_DEPLOYMENT}/(?:images|audio)/.*", generates=True),
        EndpointPattern(r"/openai/(?:v1/)?chat/completions", generates=True, output_max=("max_completion_tokens",)),
        EndpointPattern(r"/openai/(?:v1/)?completions", generates=True, output_max=("max_tokens",)),
        EndpointPattern(r"/openai/(?:v1/)?responses", generates=True, output_max=("max_output_tokens",)),
        EndpointPattern(r"/openai/(?:v1/)?embeddings", generates=True),
        EndpointPattern(r"/openai/.*", generates=False),
    ),
    credential_header=b"api-key",
    credential_prefix=b"",
    model_segments=("deployments",),
    has_openai_tokens=True,
    error=error,
    error_event=error_event,
    keep_alive=keep_alive,
    limits=LimitSigns(
        quota_words={Dimension.REQUESTS: r"call rate limit", Dimension.TOKENS: r"token rate limit"},
        minute_words=r"exceeded (?:the )?(?:token|call) rate limit",
        # It says one second under a window of sixty.
        short_waits=("x-ratelimit-renewalperiod-", "apim-request-id", "x-ms-"),
    ),
    tokens_on_arrival=add,  # its page on quotas, November 2026
    simulated=SimulatedAnswers(error=refusal, used_up=_used_up, readings=_readings),
)
