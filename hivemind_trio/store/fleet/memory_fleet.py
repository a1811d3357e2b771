"""Store of a fleet in the memory of one process: the models of the rules, behind the interface of all stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs
import trio

from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk
from hivemind_trio.scheduler.sharing.budget_ask import BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.fleet_model import FleetModel
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowShape

from .interface import BUDGETS, Notice, learned
from .node_cards import ListedNode, NodeCard, NodeCards


@final
@attrs.define(eq=False)
class MemoryFleet:
    """`FleetStore` of nodes that reach this object.

    Args:
        terms: How long a silent node keeps what it has.
        now_ms: The clock: milliseconds, and no two starts of a node at the same one.
        is_first: It begins before all nodes, so that nothing is in flight anywhere: there is nothing to learn of them.
    """

    _terms: LeaseTerms
    _now_ms: Callable[[], int]
    _is_first: bool = False
    model: FleetModel = attrs.field(init=False)
    _cards: NodeCards = attrs.field(init=False, factory=NodeCards)
    _calls: dict[str, Callable[[Notice], None]] = attrs.field(init=False, factory=dict)
    """Node that listens -> how it is called."""

    def __attrs_post_init__(self) -> None:
        self.model = FleetModel(self._terms, self._is_first)

    async def epoch(self) -> int:
        """Return the time."""
        await trio.lowlevel.checkpoint()
        return self._now_ms()

    async def sync(self, pool: str, ask: ShareRequest) -> ShareAnswer:
        """Report on a pool of slots, and return what is granted."""
        await trio.lowlevel.checkpoint()
        answer = self.model.sync(pool, ask, self._now_ms(), self._calls)
        if answer.tell:
            self._wake(answer.tell, answer.notice(pool, ask.node))
        return answer

    async def draw(self, pool: str, window: str, ask: WindowAsk, shape: WindowShape) -> WindowAnswer:
        """Draw of a window, and return what is granted."""
        await trio.lowlevel.checkpoint()
        return self.model.draw(pool, window, ask, shape, self._now_ms())

    async def spend(self, ask: BudgetsAsk) -> BudgetsAnswer:
        """Report on budgets, and return what is granted."""
        await trio.lowlevel.checkpoint()
        answer = self.model.spend(ask, self._now_ms())
        self._wake(answer.wake, BUDGETS)
        return answer

    async def learn(self, pool: str, ask: LearnAsk) -> LearnAnswer:
        """Report on attempts, and return what all nodes have learned."""
        await trio.lowlevel.checkpoint()
        answer = self.model.learn(pool, ask, self._now_ms())
        self._wake(answer.wake, learned(pool))
        return answer

    async def bye(self, pool: str, node: str, epoch: int) -> None:
        """Free what a node has that ends in order."""
        await trio.lowlevel.checkpoint()
        self.model.bye(pool, node, epoch)
        self._wake(tuple(name for name in self._calls if name != node), pool)

    async def introduce(self, card: NodeCard) -> tuple[ListedNode, ...]:
        """Put a node on the list of nodes, and return the list by name."""
        await trio.lowlevel.checkpoint()
        return self._cards.introduce(card, self._now_ms(), self._calls)

    async def leave(self, node: str, epoch: int) -> None:
        """Take a node that ends in order off the list."""
        await trio.lowlevel.checkpoint()
        self._cards.leave(node, epoch)

    async def leader(self, pool: str) -> str:
        """Return the node that leads what is learned of a provider; empty: none does."""
        await trio.lowlevel.checkpoint()
        record = self.model.learned.get(pool)
        return record.leader if record is not None and record.leader in record.rows else ""

    async def listen(self, node: str, on_open: Callable[[], None], on_call: Callable[[Notice], None]) -> None:
        """Hear what other nodes say to this one, until cancelled."""
        self._calls[node] = on_call
        on_open()
        try:
            await trio.sleep_forever()
        finally:
            if self._calls.get(node) is on_call:
                del self._calls[node]

    def _wake(self, names: tuple[str, ...], about: Notice) -> None:
        for name in names:
            call = self._calls.get(name)
            if call is not None:
                call(about)
