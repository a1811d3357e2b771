"""Credential headers of each dialect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hivemind_trio.model import Api

from .registry import DIALECTS

CREDENTIAL_HEADERS: Final = tuple(dict.fromkeys(DIALECTS[api].credential_header for api in Api))
"""Any of these may carry an agent's credential: newer Anthropic SDKs send a bearer, older ones `x-api-key`."""

CREDENTIAL_PARAMETERS: Final = frozenset(
    name for dialect in DIALECTS.values() if (name := dialect.credential_parameter) is not None
)
"""Parameters of the query that may carry one."""


def credential_places(apis: Iterable[Api]) -> Iterator[bytes]:
    """Yield the headers and parameters where providers of these dialects look for a credential, in their order."""
    for api in apis:
        yield DIALECTS[api].credential_header
        if (parameter := DIALECTS[api].credential_parameter) is not None:
            yield parameter


def credential_header(api: Api, secret: str) -> tuple[bytes, bytes]:
    """Return the header with which a provider's key goes upstream."""
    dialect = DIALECTS[api]
    return dialect.credential_header, dialect.credential_prefix + secret.encode()
