"""Windows of `limits` that several nodes share: carries the scheduler's draws to the store, and its answers back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import DrawWindow, WindowAnswered, WindowUnanswered
from hivemind_trio.scheduler.sharing.share_row import FencedNode
from hivemind_trio.scheduler.sharing.window_ring import WindowShape
from hivemind_trio.store.fleet.interface import FleetStore, StoreUnreachable

from .store_answers import StoreAnswers

MS: Final = 1_000_000


@final
@attrs.define(eq=False)
class WindowSharing:
    """Messenger between scheduler and store.

    Args:
        answers: Waits for answers of the store.
        say_trouble: Told why the store cannot be used, and "" where it answers.
    """

    _pools: FleetStore
    _node: str
    _engine: Engine
    _answers: StoreAnswers
    _say_trouble: Callable[[str], None]
    _asked: list[DrawWindow] = attrs.field(init=False, factory=list)
    """Not sent yet."""
    _stirred: trio.Event = attrs.field(init=False, factory=trio.Event)

    def ask(self, draw: DrawWindow) -> None:
        """Send it soon."""
        self._asked.append(draw)
        self._stirred.set()

    async def run(self, epoch: int) -> None:
        """Send what is asked, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                asked, self._asked = self._asked, []
                for draw in asked:
                    nursery.start_soon(self._draw, draw, epoch)
                self._stirred = trio.Event()
                if not self._asked:
                    await self._stirred.wait()

    async def _draw(self, draw: DrawWindow, epoch: int) -> None:
        ask = draw.of_node(self._node, epoch, self._engine.program.server.sharers)
        key = draw.window
        name, shape = (
            f"w:{key.glob or ''}:{key.dimension}:{key.window_ns // MS}",
            WindowShape(max(1, key.window_ns // MS)),
        )
        try:
            answer = await self._answers.of(lambda: self._pools.draw(key.provider, name, ask, shape))
        except FencedNode:
            pass  # the pools of slots say so
        except StoreUnreachable as error:
            self._say_trouble(str(error))
        else:
            self._say_trouble("")
            self._engine.post(WindowAnswered(key, answer))
            return
        self._engine.post(WindowUnanswered(key, draw.seq))
