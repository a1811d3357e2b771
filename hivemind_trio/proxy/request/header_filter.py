"""Filter of headers, in both directions.

Everything end-to-end does, in order, as often as it came (RFC 9110, section 7.6.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"proxy-authenticate",
        b"proxy-authorization",
    }
)
OURS: Final = b"x-hivemind-"
FRAMING: Final = frozenset({b"host", b"content-length", b"expect"})
"""Framing headers of a request, written anew towards the provider.

The body is here already, so nothing is to be expected.
"""
BROWSERS: Final = frozenset({b"cookie", b"origin", b"referer"})
"""Headers of a request that browsers set for the site that they believe this is.

A cookie of another local port is among them.
"""


def for_upstream(headers: Iterable[tuple[bytes, bytes]], *, without: frozenset[bytes] = frozenset()) -> Headers:
    """Return a request's headers as the provider may see them.

    Args:
        without: More names to leave out: credentials that are not for the provider.
    """
    headers = list(headers)
    dropped = HOP_BY_HOP | FRAMING | BROWSERS | _named(headers) | without
    return [
        (name, value)
        for name, value in headers
        if (lower := name.lower()) not in dropped and not lower.startswith(OURS)
    ]


def for_agent(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return a response's headers as the agent may see them."""
    headers = list(headers)
    dropped = HOP_BY_HOP | _named(headers)
    return [
        (name, value)
        for name, value in headers
        if (lower := name.lower()) not in dropped and not lower.startswith(OURS)
    ]


def first(headers: Headers) -> dict[bytes, str]:
    """Return lower-case names with their first values, in lower case."""
    return {name.lower(): value.decode("latin-1").lower() for name, value in reversed(headers)}


def _named(headers: Headers) -> frozenset[bytes]:
    """Return the headers that `Connection` names for this hop."""
    names = [value for name, value in headers if name.lower() == b"connection"]
    if not names:
        return frozenset()
    return frozenset(token.strip().lower() for value in names for token in value.split(b","))
