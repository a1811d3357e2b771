"""What a request says of the program that sent it: how long that waits, whether it tries again, what it dies of.

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

from hivemind_trio.dialects import STEP_BYTES, Steps, Text

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
"""What is asked for beyond this is no bound."""

RETRIES_MAX: Final = 100
"""What is said beyond this is no count."""

_SECONDS: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_COUNT: Final = re.compile(r"\d{1,3}")


@final
@attrs.frozen(kw_only=True)
class ClientProfile:
    """One request's sender."""

    waits_s: float | None = None
    """How long it waits for an answer to begin; None: nobody knows."""
    tries_left: int = 0
    """How often it will send the call again, as far as is known."""
    dies_of_429: bool = False
    """It takes a 429 for the end, and tries again after a 503."""

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
    """What the table says of a user-agent. A fleet has a handful of them, each of which comes with every call."""
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
    """What a call is known by when its client sends it again: whose it is, where it goes, and its `Idempotency-Key`, or
    else its body, which no two turns of a conversation share.

    Args:
        body: Its fingerprint.
    """
    digest = hashlib.blake2b(digest_size=16)
    key = headers.get("idempotency-key", "").encode("latin-1")
    for part in (whose.encode("utf-8", "surrogatepass"), method.encode(), path, query, key or body):
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()
