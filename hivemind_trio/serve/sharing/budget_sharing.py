"""Budgets that several nodes share: carries the scheduler's questions to the store, and its answers back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import AccountKey, AskBudgets, BudgetsAnswered, BudgetsCalled, BudgetsUnanswered
from hivemind_trio.scheduler.sharing.budget_ask import BudgetsAsk
from hivemind_trio.scheduler.sharing.share_row import FencedNode
from hivemind_trio.store.fleet.interface import CreditNotKept, FleetStore, StoreUnreachable
from hivemind_trio.store.state.interface import account_text

from .store_answers import StoreAnswers

S: Final = 1_000_000_000

GRAIN_NS: Final = 900 * S
"""Calendar windows begin and end at a quarter of an hour in every time zone; clocks of nodes differ by less."""


TEXTS_MAX: Final = 20_000
"""Names of accounts that are kept; most questions are about a few."""


def slot_of(wall_ns: int, left_ns: int | None) -> int:
    """Return the number of a calendar window, the same at every node: its end, in seconds; 0: it has none."""
    if left_ns is None:
        return 0
    return (wall_ns + left_ns + GRAIN_NS // 2) // GRAIN_NS * GRAIN_NS // S


@final
@attrs.define(eq=False)
class BudgetSharing:
    """Messenger between scheduler and store.

    Args:
        answers: Waits for answers of the store.
        say_trouble: Told why the store cannot be used, and "" where it answers.
    """

    _store: FleetStore
    _node: str
    _engine: Engine
    _answers: StoreAnswers
    _say_trouble: Callable[[str], None]
    _asked: AskBudgets | None = attrs.field(init=False, default=None)
    """Not sent yet; the scheduler asks one thing at a time."""
    _stirred: trio.Event = attrs.field(init=False, factory=trio.Event)
    _at_rest: trio.Event = attrs.field(init=False, factory=trio.Event)
    _texts: dict[AccountKey, str] = attrs.field(init=False, factory=dict)

    def ask(self, ask: AskBudgets) -> None:
        """Send it soon."""
        self._asked = ask
        self._at_rest = trio.Event()
        self._stirred.set()

    async def run(self, epoch: int) -> None:
        """Send what is asked, until cancelled."""
        while True:
            asked, self._asked = self._asked, None
            if asked is not None:
                await self._spend(asked, epoch)
                if self._asked is None:
                    self._at_rest.set()
                continue
            self._stirred = trio.Event()
            await self._stirred.wait()

    async def close(self, epoch: int) -> None:
        """Have the scheduler give everything back, and tell the store; `run` has ended."""
        self._engine.post(BudgetsCalled(closing=True))
        if self._asked is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, epoch)
            await self._at_rest.wait()
            nursery.cancel_scope.cancel()

    async def _spend(self, asked: AskBudgets, epoch: int) -> None:
        wall_ns = time.time_ns()
        ask = BudgetsAsk(
            node=self._node,
            epoch=epoch,
            seq=asked.seq,
            nodes=self._engine.program.server.sharers,
            run=asked.run,
            complete=asked.complete,
            accounts=tuple(
                (self._text(draw.account), attrs.evolve(draw.ask, slot=slot_of(wall_ns, draw.left_ns)))
                for draw in asked.accounts
            ),
        )
        try:
            answer = await self._answers.of(lambda: self._store.spend(ask))
        except (FencedNode, CreditNotKept):
            pass  # the pools of slots say so, or who keeps the state
        except StoreUnreachable as error:
            self._say_trouble(str(error))
        except trio.Cancelled:
            self._engine.post(BudgetsUnanswered(asked.seq))  # it is asked again when this node leaves
            raise
        else:
            self._say_trouble("")
            self._engine.post(BudgetsAnswered(answer))
            return
        self._engine.post(BudgetsUnanswered(asked.seq))

    def _text(self, key: AccountKey) -> str:
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
            text = self._texts[key] = account_text(key)
        return text
