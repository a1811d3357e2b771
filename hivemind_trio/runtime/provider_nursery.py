"""One provider's nursery: the lifetime of the attempts that run there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

import attrs
import trio

Job = Callable[[], Awaitable[None]]


@final
@attrs.define(eq=False)
class Branch:
    """A nursery that is opened by the engine and ends by itself: when the provider is gone and its last attempt too."""

    provider: str
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _early: list[Job] = attrs.field(init=False, factory=list)
    """Attempts that a reload let start before Trio had come round to opening the nursery."""
    _removed: trio.Event = attrs.field(init=False, factory=trio.Event)

    def start(self, job: Job) -> None:
        """Run an attempt here. It must not raise: one attempt's end is not another's."""
        if self._nursery is None:
            self._early.append(job)
        else:
            self._nursery.start_soon(job)

    def remove(self) -> None:
        """End after the last attempt: the policy no longer names this provider."""
        self._removed.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the nursery open until removed and empty."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for job in self._early:
                nursery.start_soon(job)
            self._early.clear()
            task_status.started()
            await self._removed.wait()
