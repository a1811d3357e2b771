"""Address of the page: that of `server { admin }`, or one on loopback that is opened when it is first asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

import attrs
import msgspec
import trio

from hivemind_trio.control import ControlAnswer, ControlRequest, ControlRoute

from .page_sessions import LOGIN, PageSessions


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

    async def url(self) -> str:
        """Return the URL; open an address if there is none."""
        async with self._opening:
            if self._url is None:
                self._url = await self._open_loopback()
            return self._url


def link_route(sessions: PageSessions, address: PageAddress) -> ControlRoute:
    """Return the route that gives links: who may ask for one may do everything already."""

    async def link(_: ControlRequest) -> ControlAnswer:
        url = f"{await address.url()}{LOGIN}?token={sessions.link()}"
        return ControlAnswer(body=msgspec.json.encode({"url": url}))

    return ControlRoute("POST", "/v1/dashboard", link)
