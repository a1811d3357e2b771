"""Address of the caller, from the connection or from a proxy that the policy believes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hivemind_trio.model.addresses import LOOPBACK, address_number, address_text

from .caller_identity import network

Span = tuple[int, int]

HOPS_MAX: Final = 32
"""Addresses of one list that are read, from its end."""

_FOR: Final = re.compile(r'(?:^|[;,])\s*for\s*=\s*("[^"]*"|[^;,\s]*)', re.IGNORECASE)
_PORT: Final = re.compile(r"\[([^\]]*)\](?::\w+)?|([^:]*):\w+")


def client_address(
    peer: tuple[str, int] | None, headers: Iterable[tuple[bytes, bytes]], forwarded_by: Sequence[Span]
) -> int | None:
    """Return the address of the caller as a number; None: two headers name different ones.

    A peer of `forwarded-by` says it, in `X-Forwarded-For` or `Forwarded` (RFC 7239): the last address there that is
    not of `forwarded-by` itself. A proxy extends one of the two and hands on the other as the caller sent it, so of
    two that disagree either may be the caller's own word. No address stands for that: any is inside some network.
    """
    number = LOOPBACK if peer is None else address_number(peer[0])
    if number is None:
        return LOOPBACK
    if not _is_one(number, forwarded_by):
        return number
    lists: dict[bytes, list[str]] = {b"x-forwarded-for": [], b"forwarded": []}
    for name, value in headers:
        if (lines := lists.get(name.lower())) is not None:
            lines.append(value.decode("latin-1"))
    plain, standard = ", ".join(lists[b"x-forwarded-for"]), ", ".join(lists[b"forwarded"])
    said = [
        _last(hops, number, forwarded_by)
        for hops in ([*plain.split(",")] if plain else [], [match.strip('"') for match in _FOR.findall(standard)])
        if hops
    ]
    if not said:
        return number
    return said[0] if said.count(said[0]) == len(said) else None


def counted_address(peer: tuple[str, int] | None, address: int) -> str:
    """Return what a caller is counted by: its address, or that it came by a socket of this machine.

    Args:
        address: Of the caller, maybe behind the peer.
    """
    return network((address_text(address), 0)) if peer is not None else "local"


def _last(hops: Sequence[str], number: int, forwarded_by: Sequence[Span]) -> int:
    for address in _numbers(hops[: -HOPS_MAX - 1 : -1]):
        if address is None:
            return number  # `unknown`, or a name: the proxy that said so is the last that is known
        number = address
        if not _is_one(number, forwarded_by):
            break
    return number


def _numbers(hops: Iterable[str]) -> Iterator[int | None]:
    for hop in hops:
        text = hop.strip()
        number = address_number(text)
        match = _PORT.fullmatch(text) if number is None else None
        yield address_number(match[1] or match[2] or "") if match is not None else number


def _is_one(number: int, spans: Sequence[Span]) -> bool:
    return any(low <= number <= high for low, high in spans)
