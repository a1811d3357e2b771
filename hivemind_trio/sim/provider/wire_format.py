"""Wire format of simulated providers: refusals and quota headers, read by the readers of real answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api, Outcome
from hivemind_trio.model import Dimension as Counted
from hivemind_trio.model import QuotaReading as Told
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.wire import read_signal, used_up

from .profile import MS, SECOND_NS
from .provider import Refused
from .token_bucket import Metered, Reading

_COUNTED: Final = {
    Metered.REQUESTS: Counted.REQUESTS,
    Metered.INPUT: Counted.INPUT,
    Metered.OUTPUT: Counted.OUTPUT,
    Metered.TOKENS: Counted.TOKENS,
}

_ROUNDED_TO: Final = 1_000
"""Anthropic: "the token counts are rounded to the nearest thousand"."""

_GEMINI_QUOTA = {
    Metered.REQUESTS: "GenerateRequestsPerMinutePerProjectPerModel",
    Metered.INPUT: "GenerateContentInputTokensPerModelPerMinute",
}


def ended(api: Api, refused: Refused) -> AttemptResult:
    """Return the result of an attempt that was refused."""
    headers, body = words(api, refused)
    signal = read_signal(refused.status, headers, body)
    return AttemptResult(
        outcome=signal.outcome,
        status=refused.status,
        retry_after_ns=signal.retry_after_ns,
        used_up=used_up(headers, body) if signal.outcome is Outcome.QUOTA else (),
        final=signal.final,
    )


def told(api: Api, readings: Mapping[Metered, Reading], now_ns: int) -> tuple[Told, ...]:
    """Return the readings of the head of an answer sent at `now_ns`; empty where the provider reports none.

    Made without the text, which would take most of the time of a run: `tests/demo/test_told.py` holds that it is what
    the headers of the provider behind a socket come to. Times are in whole units, upwards.
    """
    match api:
        case Api.ANTHROPIC:
            return tuple(_anthropic(dimension, reading, now_ns) for dimension, reading in readings.items())
        case Api.OPENAI | Api.AZURE:
            tokens = [reading for dimension, reading in readings.items() if dimension is not Metered.REQUESTS]
            shown = {Counted.REQUESTS: readings.get(Metered.REQUESTS)}
            if tokens:
                shown[Counted.TOKENS] = Reading(
                    limit=sum(reading.limit for reading in tokens),
                    remaining=sum(reading.remaining for reading in tokens),
                    full_ns=max(reading.full_ns for reading in tokens),
                )
            return tuple(_openai(api, counted, reading) for counted, reading in shown.items() if reading is not None)
        case _:
            return ()


def _anthropic(dimension: Metered, reading: Reading, now_ns: int) -> Told:
    left, rounding = reading.remaining, 0
    if dimension is not Metered.REQUESTS:
        left = min(reading.limit, (left + _ROUNDED_TO // 2) // _ROUNDED_TO * _ROUNDED_TO)
        rounding = _ROUNDED_TO // 2 if left % _ROUNDED_TO == 0 else 0
    # A point in time in whole seconds, measured against the answer's `date`, which is one as well.
    full_ns = -(-(now_ns + reading.full_ns) // SECOND_NS) * SECOND_NS - now_ns // SECOND_NS * SECOND_NS
    return Told(
        dimension=_COUNTED[dimension],
        limit=reading.limit,
        remaining=left,
        resets_ns=full_ns or None,
        rounding=rounding,
    )


def _openai(api: Api, counted: Counted, reading: Reading) -> Told:
    """Azure tells how long its window is, and not when it ends."""
    azure = api is Api.AZURE
    return Told(
        dimension=counted,
        limit=reading.limit,
        remaining=reading.remaining,
        resets_ns=None if azure else -(-reading.full_ns // MS) * MS or None,
        window_ns=(10 if counted is Counted.REQUESTS else 60) * SECOND_NS if azure else None,
    )


def words(api: Api, refused: Refused) -> tuple[dict[str, str], bytes]:
    """Headers, lower-case, and the body. A gateway's page says nothing; times are in whole seconds, upwards."""
    headers: dict[str, str] = {}
    if refused.retry_after_ns is not None and api is not Api.GEMINI:
        headers["retry-after"] = str(-(-refused.retry_after_ns // 1_000_000_000))
    if refused.dimension is not None:
        headers |= _used_up(api, refused.dimension)
    if refused.status == 502:
        return headers, b"<html><body>502 Bad Gateway</body></html>"
    return headers, json.dumps(_error(api, refused)).encode()


def _used_up(api: Api, dimension: Metered) -> dict[str, str]:
    match api:
        case Api.ANTHROPIC:
            return {f"anthropic-ratelimit-{dimension.value.replace(' ', '-')}-remaining": "0"}
        case Api.OPENAI | Api.AZURE:
            named = "requests" if dimension is Metered.REQUESTS else "tokens"
            said = {f"x-ratelimit-remaining-{named}": "0"}
            if api is Api.AZURE:
                said[f"x-ratelimit-renewalperiod-{named}"] = "10" if dimension is Metered.REQUESTS else "60"
            return said
        case _:
            return {}


def _error(api: Api, refused: Refused) -> dict[str, object]:
    if api is Api.ANTHROPIC:
        return {"type": "error", "error": {"type": refused.kind, "message": refused.message}}
    if api is not Api.GEMINI:
        return {"error": {"type": refused.kind, "code": refused.kind, "message": refused.message}}
    details: list[dict[str, object]] = []
    if refused.dimension is not None:
        quota = _GEMINI_QUOTA.get(refused.dimension, "GenerateContentTokensPerMinute")
        details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]})
    if refused.retry_after_ns is not None:
        delay = f"{refused.retry_after_ns / 1e9:g}s"
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    return {"error": {"code": refused.status, "message": refused.message, "details": details}}
