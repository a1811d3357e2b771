"""Limit and circuit that several nodes learn together: carries reports to the store, and its answers back."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs
import trio

from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import AskLearning, LearnAnswered, LearnUnanswered
from hivemind_trio.scheduler.learning.lesson import SharedVerdict
from hivemind_trio.store.fleet.interface import FleetStore, StoreUnreachable

from .store_answers import StoreAnswers


@final
@attrs.define(eq=False)
class LearnSharing:
    """Messenger between scheduler and store.

    Args:
        answers: Waits for answers of the store.
        say_trouble: Told why the store cannot be used, and "" where it answers.
        limited: Told a provider and what nodes have learned of it, before the scheduler is.
    """

    _store: FleetStore
    _node: str
    _engine: Engine
    _answers: StoreAnswers
    _say_trouble: Callable[[str], None]
    _limited: Callable[[str, SharedVerdict | None], None]
    _asked: list[AskLearning] = attrs.field(init=False, factory=list)
    """Not sent yet."""
    _stirred: trio.Event = attrs.field(init=False, factory=trio.Event)

    def ask(self, ask: AskLearning) -> None:
        """Send it soon."""
        self._asked.append(ask)
        self._stirred.set()

    async def run(self, epoch: int) -> None:
        """Send what is asked, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                asked, self._asked = self._asked, []
                for ask in asked:
                    nursery.start_soon(self._learn, ask, epoch)
                self._stirred = trio.Event()
                if not self._asked:
                    await self._stirred.wait()

    async def _learn(self, asked: AskLearning, epoch: int) -> None:
        ask = attrs.evolve(asked.ask, node=self._node, epoch=epoch)
        if ask.leads:
            self._limited(asked.provider, ask.verdict)  # lowered before it is told
        try:
            answer = await self._answers.of(lambda: self._store.learn(asked.provider, ask))
        except StoreUnreachable as error:
            self._say_trouble(str(error))
            self._engine.post(LearnUnanswered(asked.provider, ask.seq))
        else:
            self._say_trouble("")
            self._limited(asked.provider, answer.verdict)
            self._engine.post(LearnAnswered(asked.provider, answer))
