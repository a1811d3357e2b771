"""Address of the page: that of `server { admin }`, or one on loopback that is opened when it is first asked for."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final, final
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from hivemind_trio.control import ControlAnswer, ControlRequest, ControlRoute

from .page_sessions import LOGIN, PageSessions

EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - read, and not listened at
"""Addresses to listen at that no browser can open, and the one of this machine."""


@final
@attrs.define(eq=False)
class PageAddress:
    """Knows where the page is.

    Args:
        open_loopback: Begins to listen on loopback, and returns the URL.
        url: Where the page is already; None: nowhere.
    """

    _open_loopback: Callable[[], Awaitable[str]]
    _url: str | None
    _opening: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def is_loopback(self) -> bool:
        """Return True if no other machine, and no host of this container, can open it."""
        host = urlsplit(await self._listens()).hostname or ""
        return ipaddress.ip_address(host).is_loopback

    async def url(self) -> str:
        """Return the URL for a browser of this machine; open an address if there is none."""
        url = await self._listens()
        for every, own in EVERY_ADDRESS.items():
            url = url.replace(f"//{every}:", f"//{own}:")
        return url

    async def _listens(self) -> str:
        async with self._opening:
            if self._url is None:
                self._url = await self._open_loopback()
            return self._url


def link_route(sessions: PageSessions, address: PageAddress) -> ControlRoute:
    """Return the route that gives links: who may ask for one may do everything already."""

    async def link(_: ControlRequest) -> ControlAnswer:
        url = f"{await address.url()}{LOGIN}?token={sessions.link()}"
        return ControlAnswer(body=msgspec.json.encode({"url": url, "loopback": await address.is_loopback()}))

    return ControlRoute("POST", "/v1/dashboard", link)
