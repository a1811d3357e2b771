"""A reloader at work, and what came of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from hivemind_trio.runtime import Reloader

PATIENCE_S = 120.0
"""For what must come."""


@attrs.frozen
class Read:
    """Files as one reading found them. Bad if one is missing or holds the word `bad`."""

    texts: tuple[str | None, ...]
    directories: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        return repr(self.texts)

    @property
    def good(self) -> bool:
        return not any(text is None or "bad" in text for text in self.texts)


@attrs.define(eq=False)
class Desk:
    """What a reloader did, as it did it."""

    load: Callable[[], Any]
    own: tuple[str, ...] = ()
    applied: list[Any] = attrs.field(init=False, factory=list)
    reported: list[Any] = attrs.field(init=False, factory=list)
    loads: int = attrs.field(init=False, default=0)
    reloader: Reloader[Any] = attrs.field(init=False)
    _token: trio.lowlevel.TrioToken = attrs.field(init=False, factory=trio.lowlevel.current_trio_token)
    _bell: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.reloader = Reloader(self._load, self._apply, self._report, self.own)

    def _load(self) -> Any:
        loaded = self.load()
        self.loads += 1
        self._token.run_sync_soon(self._ring)
        return loaded

    def _apply(self, loaded: Any) -> None:
        self.applied.append(loaded)
        self._ring()

    def _report(self, loaded: Any) -> None:
        self.reported.append(loaded)
        self._ring()

    def _ring(self) -> None:
        self._bell.set()
        self._bell = trio.Event()

    def has_loaded(self, times: int) -> bool:
        return self.loads >= times

    def has_applied(self, times: int) -> bool:
        return len(self.applied) == times

    def has_secrets(self, values: list[str]) -> bool:
        return bool(self.applied) and [*self.applied[-1].secrets.values()] == values

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await self._bell.wait()


@asynccontextmanager
async def reloading(load: Callable[[], Any], own: tuple[str, ...] = ()) -> AsyncIterator[Desk]:
    """Beginning with what is loaded now; entered when it runs, but the watch may not be on yet."""
    desk = Desk(load, own)
    running = load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.reloader.run, running)
        yield desk
        nursery.cancel_scope.cancel()
