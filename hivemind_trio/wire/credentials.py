"""Credential headers of each dialect."""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

CREDENTIAL_HEADERS: Final = (b"x-api-key", b"authorization", b"api-key", b"x-goog-api-key")
"""Any of these may carry an agent's credential: newer Anthropic SDKs send a bearer, older ones `x-api-key`."""


def credential_header(api: Api, secret: str) -> tuple[bytes, bytes]:
    """The header with which a provider's key goes upstream."""
    match api:
        case Api.ANTHROPIC:
            return b"x-api-key", secret.encode()
        case Api.AZURE:
            return b"api-key", secret.encode()
        case Api.GEMINI:
            return b"x-goog-api-key", secret.encode()
        case _:
            return b"authorization", b"Bearer " + secret.encode()
