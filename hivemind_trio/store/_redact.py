"""What a journal may hold of a request: nothing that somebody could pay, or pass for somebody, with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

SECRET_NAME: Final = re.compile(r"auth|key|token|secret|cookie|passw|credential|signature|jwt", re.IGNORECASE)
"""Headers and metadata that are called so are left out, whatever they hold."""

SECRET_VALUE: Final = re.compile(
    r"^(?:bearer|basic|digest|negotiate|token)\s|\bsk-|\bAIza|\beyJ|\bgh[opsu]_|\bxox[abp]-", re.IGNORECASE
)
"""And those that look so, whatever they are called: schemes, and how well-known keys begin."""


def told(words: Mapping[str, str]) -> dict[str, str]:
    """Headers or metadata without what is, or looks like, a credential."""
    return {
        name: value for name, value in words.items() if not SECRET_NAME.search(name) and not SECRET_VALUE.search(value)
    }


def alias(credential: str, salt: bytes) -> str:
    """A name for a credential's digest that is good for one session: who does not have the salt can try none on it."""
    return blake2b(credential.encode(), key=salt, digest_size=6).hexdigest() if credential else ""
