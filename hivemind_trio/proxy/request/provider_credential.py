"""Credential that a request carries towards its provider: the provider's key, or the caller's own."""

from __future__ import annotations

from hivemind_trio.dialects import CREDENTIAL_HEADERS, credential_header
from hivemind_trio.policy import ProviderSettings
from hivemind_trio.wire import is_root

from .caller_identity import with_one_credential, without_key
from .head import RequestHead
from .header_filter import Headers, for_upstream


def with_key(head: RequestHead, provider: ProviderSettings, key: str | None) -> tuple[Headers, bytes]:
    """Return headers and query for the provider, with its key in place of the caller's credential if it has one."""
    if key is None:
        headers = for_upstream(head.headers)
        return (
            (headers, head.query)
            if head.credential is None
            else with_one_credential(headers, head.query, head.credential)
        )
    headers = [
        *for_upstream(head.headers, without=frozenset(CREDENTIAL_HEADERS)),
        # A connectivity probe is anybody's: it needs no key, and gets none.
        *([] if is_root(head.path_text) else [credential_header(provider.api, key)]),
    ]
    return headers, without_key(head.query)
