"""IP addresses as numbers: an IPv4 address is the IPv6 address that it is mapped to."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, ip_address, ip_network
from typing import Final

_MAPPED: Final = 0xFFFF << 32

ADDRESS_MOST: Final = (1 << 128) - 1
LOOPBACK: Final = _MAPPED | 0x7F000001
"""127.0.0.1, also for callers of a Unix socket."""


def address_number(text: str) -> int | None:
    """Return the number of an address; None: it is none. The zone of a link-local one is left out."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return int(address) if isinstance(address, IPv6Address) else _MAPPED | int(address)


def address_text(number: int) -> str:
    """Return an address as people write it."""
    address = IPv6Address(number)
    return str(address.ipv4_mapped or address)


def network_span(text: str) -> tuple[int, int] | None:
    """Return the first and the last number of a network, or of one address; None: it is none."""
    try:
        network = ip_network(text)
    except ValueError:
        return None
    base = _MAPPED if isinstance(network, IPv4Network) else 0
    return base | int(network.network_address), base | int(network.broadcast_address)


def as_network(text: str) -> str | None:
    """Return the network that was meant by one with bits set behind its prefix; None: nothing like one."""
    try:
        return str(ip_network(text.strip(), strict=False))
    except ValueError:
        return None
