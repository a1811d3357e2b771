"""Profile of the client program: its timeout, its retries, and the statuses that end it.

Read from the headers of the SDKs that are made by Stainless, and from the names of others. Tried with the clients
themselves, or read in their sources, in November 2026. Where nothing is known nothing is assumed.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Final, final

import attrs

from hivemind_trio.wire import STEP_BYTES, Steps, Text

JAVASCRIPT_S: Final = 300.0
"""Node's own `fetch` gives up after so long without headers, and sends again, whatever the SDK's timeout says."""

CLIENTS: Final = (
    (re.compile(r"^(?:codex|ChatGPT)\b|^codex_", re.I), 300.0, 4, True),
    (re.compile(r"^claude-cli/"), JAVASCRIPT_S, 10, False),
    (re.compile(r"^(?:OpenAI|AsyncOpenAI|Anthropic|AsyncAnthropic)/(?:JS|TS)\b"), JAVASCRIPT_S, 2, False),
    (re.compile(r"\bai-sdk/|\bgl-node/|^node\b|^undici\b|^GeminiCLI|^ollama-js|^opencode/"), JAVASCRIPT_S, 0, False),
    (re.compile(r"^(?:OpenAI|AsyncOpenAI|Anthropic|AsyncAnthropic)/Python\b"), 600.0, 2, False),
    (re.compile(r"^litellm/"), 600.0, 0, False),
)
"""User-agent -> seconds that it waits for an answer to begin, how often it tries again, whether a 429 is its end."""

PATIENCE_MAX_S: Final = 86_400.0
"""Longest timeout that a client can announce, in seconds."""

RETRIES_MAX: Final = 100
"""Largest number of retries that a client can announce."""

_SECONDS: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_COUNT: Final = re.compile(r"\d{1,3}")


@final
@attrs.frozen(kw_only=True)
class ClientProfile:
    """One request's sender."""

    waits_s: float | None = None
    """Timeout of the client until the answer begins; None: unknown."""
    tries_left: int = 0
    """Number of retries left, as far as known."""
    dies_of_429: bool = False
    """True if a 429 ends the client and a 503 is retried."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> ClientProfile:
        """Read a request. Total: what cannot be read says nothing.

        Args:
            headers: Lower-case names.
        """
        waits_s, tries, dies_of_429 = _known(headers.get("user-agent", ""))
        said_s = _seconds(headers.get("x-stainless-read-timeout", "")) or _seconds(
            headers.get("x-stainless-timeout", "")
        )
        if said_s is not None:
            javascript = headers.get("x-stainless-lang", "") == "js"
            waits_s = min(said_s, JAVASCRIPT_S) if javascript else said_s
        tried = headers.get("x-stainless-retry-count", "").strip()
        if _COUNT.fullmatch(tried):
            # What its user has set the number to is not said; two is the SDKs' own.
            tries = max(0, max(tries, 2) - min(int(tried), RETRIES_MAX))
        return cls(waits_s=waits_s, tries_left=tries, dies_of_429=dies_of_429)


@functools.lru_cache(maxsize=256)
def _known(name: str) -> tuple[float | None, int, bool]:
    """Return the entry of a user-agent in the table.

    A fleet has a handful of them, each of which comes with every call.
    """
    return next((row[1:] for row in CLIENTS if row[0].search(name)), (None, 0, False))


def _seconds(text: str) -> float | None:
    # anthropic-python says `NOT_GIVEN` and `None` where there is no timeout.
    text = text.strip()
    if not _SECONDS.fullmatch(text):
        return None
    return float(text) if 0 < float(text) <= PATIENCE_MAX_S else None


def fingerprint(body: Text) -> Steps[bytes]:
    """Digest a body, in steps if it is long."""
    digest = hashlib.blake2b(digest_size=16)
    view = memoryview(body)
    for begin in range(0, len(view), STEP_BYTES):
        digest.update(view[begin : begin + STEP_BYTES])
        if begin:
            yield
    return digest.digest()


def known_by(whose: str, method: str, path: bytes, query: bytes, headers: Mapping[str, str], body: bytes) -> str:
    """Return the identity of a call over its client's retries.

    The caller, the target, and `Idempotency-Key` or the body, which no two turns of a conversation share.

    Args:
        body: Its fingerprint.
    """
    digest = hashlib.blake2b(digest_size=16)
    key = headers.get("idempotency-key", "").encode("latin-1")
    for part in (whose.encode("utf-8", "surrogatepass"), method.encode(), path, query, key or body):
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()
