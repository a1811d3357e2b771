"""Error responses of the proxy itself, in the shape of the API that was called."""

from __future__ import annotations

import math
from typing import Final, final

import attrs

from hivemind_trio.model import REJECTIONS, Api, Reason, rejection_text
from hivemind_trio.wire import endpoint, refusal_body

from .request.caller_identity import split_prefix
from .request.client_profile import ClientProfile
from .request.header_filter import Headers

UNKNOWN: Final = ClientProfile()

RETRY_AFTER_MAX_S: Final = 60
"""anthropic-python heeds no more than 60 s, and openai-python gives up beyond 120 s."""

SECOND_NS: Final = 1_000_000_000

ALLOWED: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""Methods that are forwarded, whatever the path; a provider takes fewer, and says so itself."""


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
    """Return the response for a reason.

    Args:
        message: Condition and what to do, without the time of a retry.
        retry_after_ns: Time until a retry is worth it; None: unknown.
        client: Some clients end at a 429 that others retry.
    """
    row = REJECTIONS[reason]
    status = 503 if row.status == 429 and client.dies_of_429 and not row.is_final else row.status
    seconds = _retry_after_s(reason, retry_after_ns)
    told_s = seconds if not row.is_final else None
    body = refusal_body(api, status, error_message(reason, message, retry_after_ns), str(reason), told_s)
    headers: Headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if seconds is not None:
        headers.append((b"retry-after", str(seconds).encode()))
    if row.is_final:
        headers.append((b"x-should-retry", b"false"))
    if reason is Reason.METHOD_REJECTED:
        headers.append((b"allow", ALLOWED))
    return Refusal(status, headers, body)


def overload_body(target: bytes) -> bytes:
    """Return the body with which a listener refuses a request that it has not read, in the dialect of its path."""
    _, path = split_prefix(target.partition(b"?")[0])
    apis = endpoint(path.decode("latin-1"), {}).apis
    message = f"{rejection_text(Reason.PROXY_OVERLOADED)}; retry later"
    return refusal(next(iter(apis), None), Reason.PROXY_OVERLOADED, message).body


def error_message(reason: Reason, message: str, retry_after_ns: int | None = None) -> str:
    """Return the message of an error: who says it, condition and what to do, and when to retry."""
    seconds = _retry_after_s(reason, retry_after_ns)
    retry = f"; retry after {seconds} s" if seconds is not None and not REJECTIONS[reason].is_final else ""
    return f"hivemind-trio: {message}{retry}"


def _retry_after_s(reason: Reason, retry_after_ns: int | None) -> int | None:
    if retry_after_ns is None:
        return None
    wanted = max(1, math.ceil(retry_after_ns / SECOND_NS))
    # SDKs do not retry a final answer, so it need not keep to what they heed.
    return wanted if REJECTIONS[reason].is_final else min(RETRY_AFTER_MAX_S, wanted)
