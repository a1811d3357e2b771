"""Live state as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import OPERATIONS, Ask
from hivemind_trio.control import ControlAnswer, ControlRequest, ControlRoute, problem

EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
STEP_S: Final = 1.0
SLOW_STEPS: Final = 5
"""Usage and the newest points of the time series are sent every so many steps."""
FEEDS_MAX: Final = 16
"""Pages that are open at the same time."""
NEWEST: Final = 2
"""Points of each series: one may have been added while an event was on its way."""
SESSIONS_MAX: Final = 12
"""Sessions, those with the fullest context."""
ENDED_MAX: Final = 50
"""Calls that are over, in each event."""


@final
@attrs.define(eq=False)
class Feed:
    """Sends what the operations of the page return, as long as somebody listens."""

    _run: Ask
    _open: int = attrs.field(default=0, init=False)

    async def answer(self, _: ControlRequest) -> ControlAnswer:
        """Begin a stream."""
        if self._open >= FEEDS_MAX:
            return problem(503, f"{FEEDS_MAX} pages are open; close one", "too-many-feeds")
        return ControlAnswer(content_type=EVENT_STREAM, stream=self._events())

    async def _events(self) -> AsyncIterator[bytes]:
        """Yield an event every second; the first has everything, and so does the first after a lost connection."""
        self._open += 1
        try:
            number = 0
            while True:
                yield _event("state", number, await self._state())
                if number % SLOW_STEPS == 0:
                    yield _event("hour", number, await self._hour())
                number += 1
                await trio.sleep(STEP_S)
        finally:
            self._open -= 1

    async def _state(self) -> dict[str, Any]:
        return {
            "status": await self._ask("status"),
            "queue": await self._ask("queue"),
            "budgets": await self._ask("budgets"),
            "paused": await self._ask("paused"),
            "resources": await self._ask("resources"),
            "ended": await self._ask("calls", state="ended", limit=ENDED_MAX),
        }

    async def _hour(self) -> dict[str, Any]:
        return {
            "usage": await self._ask("usage"),
            "sessions": await self._ask("sessions", limit=SESSIONS_MAX),
            "series": await self._ask("series", last=NEWEST),
            "advice": await self._ask("advice"),
        }

    async def _ask(self, name: str, **arguments: object) -> Any:
        operation = OPERATIONS[name]
        return await self._run(operation, msgspec.convert(arguments, operation.arguments), "page")


def feed_route(ask: Ask) -> ControlRoute:
    """Return the route of live events."""
    return ControlRoute("GET", "/v1/events", Feed(ask).answer)


def _event(name: str, number: int, data: object) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name.encode(), number, msgspec.json.encode(data))
