"""Leases of an agent whose MCP server this process is: each is held by a session that ends with the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Self, final

import attrs
import trio

from hivemind_trio.control import LeaseNotGranted, NotReachable, PlaceInLine, RequestRefused, held_lease
from hivemind_trio.mcp.tools import ToolFailed

LEASES_MAX: Final = 100
"""Leases that one agent holds, and waits for, at the same time."""

Progress = Callable[[float, str], Awaitable[None]]


@final
@attrs.define(eq=False)
class HeldLeases:
    """Sessions of an agent's leases."""

    where: Callable[[], str]
    """Finds the proxy."""
    _nursery: trio.Nursery
    _open: int = attrs.field(default=0, init=False)
    _own: dict[str, None] = attrs.field(factory=dict, init=False)
    """Ids of the leases in hand."""

    @classmethod
    @asynccontextmanager
    async def open(cls, where: Callable[[], str]) -> AsyncIterator[Self]:
        """Hold leases within the context; leaving it releases them."""
        async with trio.open_nursery() as nursery:
            yield cls(where, nursery)
            nursery.cancel_scope.cancel()

    def check_own(self, lease_id: object) -> None:
        """Raise if a lease is not held here: those of others are the operator's to end.

        Raises:
            ToolFailed: It is not.
        """
        if lease_id not in self._own:
            mine = ", ".join(self._own) or "none"
            raise ToolFailed(f"lease `{lease_id}` is none of yours, or has ended; you hold {mine}")

    async def lease(self, wanted: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Return the answer to a request, as the operation `lease` gives it.

        Raises:
            ToolFailed: The proxy refuses the request, or none runs.
        """
        if self._open >= LEASES_MAX:
            raise ToolFailed(f"{LEASES_MAX} leases are held; release one")
        if not isinstance(wanted.get("resource"), str):
            raise ToolFailed("`resource` is the name of the resource to lease")
        body = {"wait_s": 0.0} | wanted
        if not isinstance(body["wait_s"], int | float) or not 0 <= body["wait_s"] <= 3_600:
            raise ToolFailed("`wait_s` is a number of seconds, at most 3600")
        places = [PlaceInLine(0)]
        told, news = trio.open_memory_channel[PlaceInLine](100)
        result: dict[str, Any] = {}
        done = trio.Event()
        scope = trio.CancelScope()
        self._nursery.start_soon(partial(self._hold, body, told, result, done, scope))
        try:
            async with trio.open_nursery() as nursery:

                async def say() -> None:
                    async for place in news:
                        places.append(place)
                        await progress(float(len(places)), f"requests before this one: {place.before}{_why(place)}")

                nursery.start_soon(say)
                await done.wait()
                nursery.cancel_scope.cancel()
        except BaseException:
            scope.cancel()  # the agent has given up
            raise
        if "error" in result:
            raise result["error"]
        found = result.get("lease")
        if found is None:
            last = places[-1]
            free = "is free" if last.unwritten is None else "is given"
            text = f"no lease of `{wanted['resource']}` {free}; requests before this one: {last.before}{_why(last)}. "
            text += "Ask again."
            return {"lease": None, "before_you": last.before, "text": text, "unwritten": last.unwritten}
        text = (
            f"renew it within {found['expires_in_s']:.0f} s, and release it when done; it ends with your session; "
            "pass the fence on with each change"
        )
        return {"lease": found, "before_you": 0, "text": text}

    async def _hold(
        self,
        body: dict[str, Any],
        told: trio.MemorySendChannel[PlaceInLine],
        result: dict[str, Any],
        done: trio.Event,
        scope: trio.CancelScope,
    ) -> None:
        """Hold one lease until it has ended."""

        def waits(place: PlaceInLine) -> None:
            try:
                told.send_nowait(place)
            except trio.WouldBlock:
                return  # the client reads slowly, and is told the next one

        self._open += 1
        try:
            with scope:
                async with held_lease(self.where, body, waits, renews=False) as session:
                    result["lease"] = session.lease
                    self._own[session.lease["lease"]] = None
                    done.set()
                    await session.lost.wait()
        except LeaseNotGranted:
            return
        except RequestRefused as refused:
            result["error"] = ToolFailed(str(refused))
        except NotReachable as none:
            result["error"] = ToolFailed(str(none))
        finally:
            self._own.pop(result.get("lease", {}).get("lease", ""), None)
            self._open -= 1
            done.set()


def _why(place: PlaceInLine) -> str:
    """Return why a request waits for longer than its place tells; empty: it does not."""
    return f"; leases cannot be written to disk ({place.unwritten})" if place.unwritten is not None else ""
