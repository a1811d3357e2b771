"""Redaction of requests in the journal: no credentials, and nothing of unbounded length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

SECRET_NAME: Final = re.compile(r"auth|key|token|secret|cookie|passw|credential|signature|jwt", re.IGNORECASE)
"""Headers and metadata that are called so are left out, whatever they hold."""

SECRET_VALUE: Final = re.compile(
    r"(?i:^(?:basic|digest|negotiate|token)\s|\bbearer\s)"
    r"|\b(?:sk-|AIza|eyJ|gh[oprsu]_|github_pat_|glpat-|xox[abp]-|gsk_|hf_|xai-|pplx-|nvapi-|ya29\.)"
)
"""And those that look so, whatever they are called: schemes, and how well-known keys begin."""

HEADERS: Final = frozenset(
    {
        *("user-agent", "content-type", "content-encoding", "accept", "accept-encoding", "accept-language", "host"),
        *("session-id", "session_id", "thread-id", "thread_id", "conversation_id", "x-session-id", "originator"),
        *("x-app", "x-goog-api-client", "traceparent", "version"),
    }
)
"""Headers that say something of a call and hold no secret of its client."""

PREFIXES: Final = ("anthropic-", "openai-", "x-stainless-", "x-claude-code-", "x-codex-", "x-hivemind-")
"""Headers that SDKs and agents name so are kept too."""

METADATA: Final = frozenset({"user_id"})

LONGEST: Final = 2_048
"""Characters of a value. A body says of itself what its sender likes, and what is longer is no word about a call."""

WORDS_MAX: Final = 128
"""Headers, or words of metadata, of one call."""


def told(words: Mapping[str, str], allowed: frozenset[str]) -> dict[str, str]:
    """Return the headers or metadata that are allowed, without what is, or looks like, a credential.

    Args:
        allowed: The names to keep, beside those that begin with one of `PREFIXES`.
    """
    known = ((name, value) for name, value in words.items() if name in allowed or name.startswith(PREFIXES))
    cut = ((name[:LONGEST], value[:LONGEST]) for name, value in known)
    harmless = ((name, value) for name, value in cut if not SECRET_NAME.search(name) and not SECRET_VALUE.search(value))
    return dict(islice(harmless, WORDS_MAX))


CREDENTIAL_KEPT: Final = 12
"""Characters of a credential's name that rows have; what is shown is their beginning."""


def kept_credential(name: str) -> str:
    """Return what rows keep of the name of a credential, a keyed hash: no credential can be tried on it."""
    return name[:CREDENTIAL_KEPT]
