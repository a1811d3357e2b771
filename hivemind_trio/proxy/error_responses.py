"""Answers of our own, in the shape of the API that was called: who refuses, why, and when to come back."""

from __future__ import annotations

import math
from typing import Final, final

import attrs

from hivemind_trio.model import Api, Reason
from hivemind_trio.wire import refusal_body

from .client_profile import ClientProfile
from .header_filter import Headers

STATUS: Final = {
    Reason.QUEUE_FULL: 429,
    Reason.SHED_OLDEST: 429,
    Reason.DEADLINE: 429,
    Reason.PROVIDER_SPENT: 429,
    Reason.CLIENT_PATIENCE: 429,
    Reason.HELD_TOO_LONG: 429,
    Reason.OVER_LIMITS: 413,
    Reason.BUDGET: 429,
    Reason.DENIED: 403,
    Reason.UNKNOWN_AGENT: 401,
    Reason.NO_PROVIDER: 404,
    Reason.BODY_TOO_LARGE: 413,
    Reason.BAD_REQUEST: 400,
    Reason.HEADER_TOO_LARGE: 431,
    Reason.METHOD_REFUSED: 405,
    Reason.UPGRADE_REFUSED: 426,
    Reason.FOREIGN_HOST: 421,
    Reason.FOREIGN_ORIGIN: 403,
    Reason.PROXY_OVERLOADED: 503,
    Reason.DRAINING: 503,
    Reason.JOURNAL_BEHIND: 503,
    Reason.BREAKER_OPEN: 503,
    Reason.UPSTREAM_UNREACHABLE: 503,
    Reason.UPSTREAM_TIMEOUT: 504,
    Reason.UPSTREAM_BROKE: 502,
}
"""Never 529: it counts towards Claude Code's overload fallback."""

FINAL: Final = frozenset(
    {
        *(Reason.DENIED, Reason.UNKNOWN_AGENT, Reason.NO_PROVIDER, Reason.BODY_TOO_LARGE, Reason.OVER_LIMITS),
        *(Reason.BUDGET, Reason.PROVIDER_SPENT, Reason.FOREIGN_HOST, Reason.FOREIGN_ORIGIN),
        Reason.METHOD_REFUSED,
    }
)
"""Trying again changes nothing, and the SDKs are told so."""

UNKNOWN: Final = ClientProfile()

RETRY_AFTER_MAX_S: Final = 60
"""anthropic-python heeds no more than 60 s, and openai-python gives up beyond 120 s."""

SECOND_NS: Final = 1_000_000_000


@final
@attrs.frozen
class Refusal:
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


def refusal(
    api: Api | None,
    reason: Reason,
    message: str,
    retry_after_ns: int | None = None,
    client: ClientProfile = UNKNOWN,
) -> Refusal:
    """An answer for a reason.

    Args:
        retry_after_ns: When it is worth coming back; None: no such word.
        client: Whose it is: what one takes for a word to come back is the end of another.
    """
    status = STATUS[reason]
    if status == 429 and client.dies_of_429 and reason not in FINAL:
        status = 503
    seconds = None
    if retry_after_ns is not None:
        wanted = max(1, math.ceil(retry_after_ns / SECOND_NS))
        # A final answer is not retried by the SDKs, so it need not say what they heed.
        seconds = wanted if reason in FINAL else min(RETRY_AFTER_MAX_S, wanted)
        if wanted > seconds:
            message += f" (`retry-after` is capped at {seconds} s, the most that SDKs heed)"
    told_s = seconds if reason not in FINAL else None
    body = refusal_body(api, status, f"hivemind-trio: {message}", str(reason), told_s)
    headers: Headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if seconds is not None:
        headers.append((b"retry-after", str(seconds).encode()))
    if reason in FINAL:
        headers.append((b"x-should-retry", b"false"))
    return Refusal(status, headers, body)
