"""What an answer says of its provider, read from status, headers and error body.

After the public pages of Anthropic ("Errors", "Rate limits"), OpenAI ("Error codes", "Rate limits"), Azure OpenAI and
Google (`google.rpc.RetryInfo`, `QuotaFailure`), and the retry code of their SDKs, as they stood in November 2026.
Total: any bytes have an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.model import Outcome

from ._bodies import decoded
from ._times import from_now_ns, retry_after_ns


@final
@attrs.frozen(kw_only=True)
class Signal:
    """What is to be learned from one answer."""

    outcome: Outcome
    retry_after_ns: int | None = None
    final: bool = False
    """Trying again is of no use, says the provider, or its kind of error does."""


BILLING: Final = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "billing_hard_limit_reached",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "enforced_spend_limit_reached",
        "INSUFFICIENT_G1_CREDITS_BALANCE",
    }
)
"""Error codes of money or plan used up: waiting for minutes does not help."""

AZURE: Final = ("x-ratelimit-renewalperiod-", "apim-request-id", "x-ms-")
"""How the names of Azure's headers begin."""

_WINDOW: Final = re.compile(r"per[ _-]?(?:minute|hour|day|second)|\b(?:RPM|RPD|TPM|TPD|ITPM|OTPM)\b", re.I)
_CONCURRENT: Final = re.compile(r"concurren|simultaneous|parallel requests", re.I)
_USAGE_LIMIT: Final = re.compile(
    r"specified API usage limits|credit balance is too low|spend limit|reached your (?:\w+ )?usage limit", re.I
)
"""The same in words, where there is no code: Anthropic's limits of money, Ollama's of a plan's hours and weeks."""

BODY_MAX: Final = 64 * 1024
"""Error bodies are short; of a longer one nothing is read."""

REMAINING: Final = (
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining-project-tokens", "x-ratelimit-reset-project-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)
"""What is left of a quota, and when it is whole again."""


def read_signal(status: int, headers: Mapping[str, str], body: bytes) -> Signal:
    """Read an answer.

    Args:
        headers: Lower-case names.
        body: Of an error, as received; empty where it is not at hand.
    """
    if status < 400:
        return Signal(outcome=Outcome.SUCCEEDED)
    # To come back at once is no advice: the back-off says when. The SDKs heed only what is above zero as well.
    wait_ns = retry_after_ns(headers) or None
    never = headers.get("x-should-retry", "").strip().lower() == "false"
    if status == 529 or status == 503:
        return Signal(outcome=Outcome.OVERLOADED, retry_after_ns=wait_ns, final=never)
    error = _error(decoded(body, headers.get("content-encoding", "")))
    if status == 429:
        return _of_429(headers, error, wait_ns, never)
    if status >= 500 or status == 408:
        return Signal(outcome=Outcome.FAILED, retry_after_ns=wait_ns, final=never)
    if _USAGE_LIMIT.search(error.message):
        return Signal(outcome=Outcome.TERMINAL, final=True)
    # A 409 or a 425 is the request's own affair as well, unless the provider says otherwise.
    return Signal(outcome=Outcome.IGNORED, retry_after_ns=wait_ns, final=never or status == 413)


def _of_429(headers: Mapping[str, str], error: _Error, wait_ns: int | None, never: bool) -> Signal:
    plan_used_up = error.codes & BILLING or _USAGE_LIMIT.search(error.message)
    if plan_used_up or any("PerDay" in quota for quota in error.quotas):
        return Signal(outcome=Outcome.TERMINAL, retry_after_ns=wait_ns, final=True)
    if _CONCURRENT.search(error.message):
        return Signal(outcome=Outcome.CONCURRENCY, retry_after_ns=wait_ns, final=never)
    used_up = [pair for pair in REMAINING if headers.get(pair[0], "").strip() in ("0", "0.0")]
    if wait_ns is None and error.delay:
        wait_ns = from_now_ns(error.delay, headers) or None
    if used_up or error.quotas or _WINDOW.search(error.message):
        if wait_ns is None or any(name.startswith(AZURE) for name in headers):
            # Elsewhere the reset is when the quota is whole again, long after there is room for one more. But Azure
            # says one second under a window of sixty: what is used up is believed rather than the hint.
            resets = [_whole_again_ns(left, reset, headers) for left, reset in used_up]
            wait_ns = max((each for each in (wait_ns, *resets) if each is not None), default=None)
        return Signal(outcome=Outcome.QUOTA, retry_after_ns=wait_ns, final=never)
    return Signal(outcome=Outcome.BURST, retry_after_ns=wait_ns, final=never)


def _whole_again_ns(left: str, reset: str, headers: Mapping[str, str]) -> int | None:
    """How long until a quota that is used up is whole again."""
    # Azure may say 0 here as well, which is not so; then its window is all there is to go by.
    window = left.replace("remaining", "renewalperiod")
    return from_now_ns(headers.get(reset, ""), headers) or from_now_ns(headers.get(window, ""), headers) or None


@final
@attrs.frozen
class _Error:
    """What an error body says, in whichever dialect."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    quotas: tuple[str, ...] = ()
    """Google's `quotaId`s."""
    delay: str = ""
    """Google's `retryDelay`."""


def _error(body: bytes) -> _Error:
    if not body or len(body) > BODY_MAX:
        return _Error()
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Error(message=body[:1024].decode("utf-8", "replace"))
    if isinstance(whole, list) and whole:
        whole = whole[0]  # Gemini streams its errors as an array of one
    error = _dict(_dict(whole).get("error"))
    details = error.get("details")
    parts = [_dict(part) for part in details] if isinstance(details, list) else [_dict(details)]
    violations = [_dict(each) for part in parts for each in _list(part.get("violations"))]
    codes = [error.get("type"), error.get("code"), *(part.get("error_code") for part in parts)]
    codes += [part.get("reason") for part in parts]
    message = error.get("message") or _dict(whole).get("message") or _dict(whole).get("error")
    return _Error(
        message=message if isinstance(message, str) else "",
        codes=frozenset(code for code in codes if isinstance(code, str)),
        quotas=tuple(each["quotaId"] for each in violations if isinstance(each.get("quotaId"), str)),
        delay=next((part["retryDelay"] for part in parts if isinstance(part.get("retryDelay"), str)), ""),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
