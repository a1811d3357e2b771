"""Error signals: evidence about the provider in status, headers and error body.

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

from hivemind_trio.dialects import BILLING_CODES, IN_ORDER
from hivemind_trio.model import Outcome
from hivemind_trio.wire.body.bodies import decoded
from hivemind_trio.wire.body.steps import Text

from .rate_limit_headers import plan_resets_ns
from .retry_after import LONGEST_NS, from_now_ns, retry_after_ns, to_hour_ns


@final
@attrs.frozen(kw_only=True)
class Signal:
    """Evidence of one answer."""

    outcome: Outcome
    retry_after_ns: int | None = None
    final: bool = False
    """Trying again is of no use, says the provider, or its kind of error does."""
    by_reset: bool = False
    """`retry_after_ns` is when a rate limit is reset, by its headers: the provider has said nothing else."""


LIMITS: Final = tuple(dialect.limits for dialect in IN_ORDER)

SHORT_WAITS: Final = tuple(name for one in LIMITS for name in one.short_waits)
"""Beginnings of header names of providers whose `retry-after` is too short."""


PLAN_HEADERS: Final = tuple(name for one in LIMITS for name in one.plan_headers)
"""Headers of what a plan has left."""


def _any_of(*words: str | None) -> re.Pattern[str]:
    """Return a pattern of any of these words, in upper and lower case; of none, one that never matches."""
    return re.compile("|".join(word for word in words if word is not None) or r"(?!)", re.I)


_WINDOW: Final = _any_of(r"per[ _-]?(?:minute|hour|day|second)", *(one.window_words for one in LIMITS))
_CONCURRENT: Final = re.compile(r"concurren|simultaneous|parallel requests", re.I)
_USAGE_LIMIT: Final = _any_of(*(one.billing_words for one in LIMITS))
"""The same in words, where there is no code."""
_ONE_REQUEST: Final = re.compile(r"fewer max_tokens|prompt tokens limit exceeded", re.I)
"""OpenRouter's 402 for a request that could cost more than is left: a smaller one is served."""
_NOTHING_LEFT: Final = re.compile(r"can only afford 0\b", re.I)
_MINUTE: Final = _any_of(*(one.minute_words for one in LIMITS))
MINUTE_NS: Final = 60 * 1_000_000_000
_OVERLOADED: Final = _any_of(*(one.overload_words for one in LIMITS))
_TOO_FAST: Final = re.compile(r"^slow down\b|request rate increased too quickly", re.I)
_IN_WORDS: Final = re.compile(r"(?:try again in|retry in|retry after) (\d[\dhms.]*)( seconds?\b)?", re.I)
"""OpenAI's `try again in 9m38.016s`, Gemini's `retry in 34.07s`, Azure's `retry after 26 seconds`."""
_REGAIN: Final = re.compile(r"regain access on (\d{4}-\d\d-\d\d) at (\d\d:\d\d) UTC", re.I)
_DAILY: Final = re.compile(r"PerDay|Daily")

GOOGLE_DAY: Final = 7 * 3600, 86_400
"""Google's days begin at midnight in California, which is 07:00 UTC in summer, and an hour later in winter."""

TYPES_MAX: Final = 8
TYPE_CHARACTERS_MAX: Final = 100
"""Types and codes of one error that are told, and the length of each: they are the provider's words."""

BODY_MAX: Final = 64 * 1024
"""Error bodies are short; of a longer one, packed or unpacked, nothing is read."""

REMAINING: Final = tuple(pair for one in LIMITS for pair in one.remaining)
"""Headers of what is left of a quota, and of its reset."""


def read_signal(status: int, headers: Mapping[str, str], body: bytes) -> Signal:
    """Read an answer.

    Args:
        headers: Lower-case names.
        body: Of an error, as received; empty where it is not at hand.
    """
    if status < 400:
        return Signal(outcome=Outcome.SUCCEEDED)
    error = _error(decoded(body, headers.get("content-encoding", ""), BODY_MAX))
    headers = _one_spelling(headers)
    # To come back at once is no advice: the back-off says when. The SDKs heed only what is above zero as well.
    wait_ns = retry_after_ns(headers) or None
    never = headers.get("x-should-retry", "").strip().lower() == "false"
    if status < 500 and _is_spent(status, error):
        return Signal(outcome=Outcome.TERMINAL, retry_after_ns=_renewed_ns(headers, error, wait_ns), final=True)
    if status in (429, 503, 529):
        wait_ns = wait_ns or from_now_ns(error.delay, headers) or _in_words_ns(error.message, headers)
    if status in (429, 503) and ("slow_down" in error.codes or _TOO_FAST.search(error.message)):
        return Signal(outcome=Outcome.TOO_FAST, retry_after_ns=wait_ns, final=never)
    if status in (503, 529) or (status == 429 and _OVERLOADED.search(error.message)):
        return Signal(outcome=Outcome.OVERLOADED, retry_after_ns=wait_ns, final=never)
    if status == 429:
        return _of_429(headers, error, wait_ns, never)
    if status >= 500 or status == 408:
        return Signal(outcome=Outcome.FAILED, retry_after_ns=wait_ns, final=never)
    # A 409 or a 425 is the request's own affair as well, unless the provider says otherwise.
    return Signal(outcome=Outcome.IGNORED, retry_after_ns=wait_ns, final=never or status in (402, 413))


def error_types(headers: Mapping[str, str], body: bytes) -> tuple[str, ...]:
    """Return the types and codes of an error, as `retry { on }` may name them."""
    return _error(decoded(body, headers.get("content-encoding", ""), BODY_MAX)).types


def _is_spent(status: int, error: _Error) -> bool:
    """Return True if money or plan is used up."""
    if status == 402:
        return not _ONE_REQUEST.search(error.message) or bool(_NOTHING_LEFT.search(error.message))
    if error.codes & BILLING_CODES or _USAGE_LIMIT.search(error.message):
        return True
    return status == 429 and any(_DAILY.search(quota) for quota in error.quotas)


def _renewed_ns(headers: Mapping[str, str], error: _Error, wait_ns: int | None) -> int | None:
    """Return the time until plan or money is renewed; None: not reported."""
    regained = _REGAIN.search(error.message)
    if regained is not None:
        return from_now_ns(f"{regained[1]}T{regained[2]}:00Z", headers) or wait_ns
    if wait_ns is not None:
        return wait_ns
    if any(_DAILY.search(quota) for quota in error.quotas):
        # Its `retryDelay` is of the minute's quota, which is told of in the same answer.
        return to_hour_ns(*GOOGLE_DAY, headers)
    return from_now_ns(error.delay, headers) or None


def _of_429(headers: Mapping[str, str], error: _Error, wait_ns: int | None, never: bool) -> Signal:
    plan_ns = plan_resets_ns(headers)
    if plan_ns is not None:
        return Signal(outcome=Outcome.TERMINAL, retry_after_ns=max(plan_ns, wait_ns or 0), final=True)
    if any(headers.get(name, "").strip() in ("0", "0.0") for name in PLAN_HEADERS):
        return Signal(outcome=Outcome.TERMINAL, retry_after_ns=wait_ns, final=True)
    if _CONCURRENT.search(error.message):
        return Signal(outcome=Outcome.CONCURRENCY, retry_after_ns=wait_ns, final=never)
    used_up = [pair for pair in REMAINING if headers.get(pair[0], "").strip() in ("0", "0.0")]
    if used_up or error.quotas or _WINDOW.search(error.message):
        by_reset = wait_ns is None
        if by_reset or any(name.startswith(SHORT_WAITS) for name in headers):
            # Elsewhere the reset is when the quota is whole again, long after there is room for one more. But Azure
            # says one second under a window of sixty: what is used up is believed rather than the hint.
            resets = [_whole_again_ns(left, reset, headers) for left, reset in used_up]
            wait_ns = max((each for each in (wait_ns, *resets) if each is not None), default=None)
        if wait_ns == LONGEST_NS:
            return Signal(outcome=Outcome.TERMINAL, retry_after_ns=wait_ns, final=True)
        by_reset &= wait_ns is not None
        return Signal(outcome=Outcome.QUOTA, retry_after_ns=wait_ns, final=never, by_reset=by_reset)
    minute = _MINUTE.search(error.message) and (wait_ns is None or wait_ns <= MINUTE_NS)
    return Signal(outcome=Outcome.QUOTA if minute else Outcome.BURST, retry_after_ns=wait_ns, final=never)


def _whole_again_ns(left: str, reset: str, headers: Mapping[str, str]) -> int | None:
    """Return the time until a quota that is used up is whole again."""
    # Azure may say 0 here as well, which is not so; then its window is all there is to go by.
    window = left.replace("remaining", "renewalperiod")
    return from_now_ns(headers.get(reset, ""), headers) or from_now_ns(headers.get(window, ""), headers) or None


def _one_spelling(headers: Mapping[str, str]) -> Mapping[str, str]:
    """`x-rate-limit-*`, as Azure and xAI spell some of them, under the name that everybody else uses."""
    odd = {name: text for name, text in headers.items() if name.startswith("x-rate-limit-")}
    if not odd:
        return headers
    spelled = {name.replace("x-rate-limit-", "x-ratelimit-", 1): text for name, text in odd.items()}
    for name in [name for name in spelled if "-reset-" in name]:
        # Azure of 2023 sends no `retry-after` beside it, and nothing of what is left: it is sent when nothing is.
        spelled.setdefault(name.replace("-reset-", "-remaining-"), "0")
    return {**spelled, **headers}


def _in_words_ns(message: str, headers: Mapping[str, str]) -> int | None:
    """Return the wait that an error message names; None without one, or for Azure's one second, which is never true."""
    found = _IN_WORDS.search(message)
    if found is None:
        return None
    if found[2] and found[1] == "1":
        return None
    return from_now_ns(found[1].rstrip("."), headers) or None


@final
@attrs.frozen
class _Error:
    """Error body, whichever dialect."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()
    """The same with Google's `status`, as far as they are told."""
    quotas: tuple[str, ...] = ()
    """Google's `quotaId`s."""
    delay: str = ""
    """Google's `retryDelay`, or the `resets_in_seconds` of ChatGPT's plans."""


def _error(body: Text) -> _Error:
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
    named = dict.fromkeys(code for code in (*codes, error.get("status")) if isinstance(code, str))
    return _Error(
        message=message if isinstance(message, str) else "",
        codes=frozenset(code for code in codes if isinstance(code, str)),
        types=tuple(name for name in named if 0 < len(name) <= TYPE_CHARACTERS_MAX)[:TYPES_MAX],
        quotas=tuple(each["quotaId"] for each in violations if isinstance(each.get("quotaId"), str)),
        delay=next((part["retryDelay"] for part in parts if isinstance(part.get("retryDelay"), str)), _seconds(error)),
    )


def _seconds(error: dict[str, Any]) -> str:
    resets = error.get("resets_in_seconds")
    return str(resets) if isinstance(resets, int) else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
