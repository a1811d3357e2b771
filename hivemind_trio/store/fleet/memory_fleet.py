"""Store of a fleet in the memory of one process: the models of the rules, behind the interface of all stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from hivemind_trio.scheduler.sharing.budget_ask import BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.budget_pot import BudgetPots
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.shared_pool import SharedPool
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowRing, WindowShape

from .interface import BUDGETS

RUN: Final = "memory"
"""Process of the store: it ends with all that it knows."""


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
    pools: dict[str, SharedPool] = attrs.field(init=False, factory=dict)
    windows: dict[tuple[str, str], WindowRing] = attrs.field(init=False, factory=dict)
    budgets: BudgetPots = attrs.field(init=False)
    _calls: dict[str, Callable[[str], None]] = attrs.field(init=False, factory=dict)
    """Node that listens -> how it is called."""

    def __attrs_post_init__(self) -> None:
        self.budgets = BudgetPots(self._terms.learning_ms)

    async def epoch(self) -> int:
        """Return the time."""
        await trio.lowlevel.checkpoint()
        return self._now_ms()

    async def sync(self, pool: str, ask: ShareRequest) -> ShareAnswer:
        """Report on a pool of slots, and return what is granted."""
        await trio.lowlevel.checkpoint()
        answer = self._pool(pool).sync(ask, self._now_ms(), RUN, self._calls)
        self._wake(answer.wake, pool)
        return answer

    async def draw(self, pool: str, window: str, ask: WindowAsk, shape: WindowShape) -> WindowAnswer:
        """Draw of a window, and return what is granted."""
        await trio.lowlevel.checkpoint()
        ring = self.windows.get((pool, window))
        if ring is None:
            ring = self.windows[pool, window] = WindowRing(shape, self._terms.learning_ms)
            if self._is_first:
                ring.begin(RUN)
        return ring.draw(ask, self._now_ms(), RUN)

    async def spend(self, ask: BudgetsAsk) -> BudgetsAnswer:
        """Report on budgets, and return what is granted."""
        await trio.lowlevel.checkpoint()
        answer = self.budgets.spend(ask, self._now_ms(), RUN)
        self._wake(answer.wake, BUDGETS)
        return answer

    async def bye(self, pool: str, node: str, epoch: int) -> None:
        """Free what a node has that ends in order."""
        await trio.lowlevel.checkpoint()
        self._pool(pool).bye(node, epoch)
        self._wake(tuple(name for name in self._calls if name != node), pool)

    async def listen(self, node: str, on_open: Callable[[], None], on_call: Callable[[str], None]) -> None:
        """Hear what other nodes say to this one, until cancelled."""
        self._calls[node] = on_call
        on_open()
        try:
            await trio.sleep_forever()
        finally:
            if self._calls.get(node) is on_call:
                del self._calls[node]

    def _pool(self, name: str) -> SharedPool:
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = SharedPool(self._terms)
            if self._is_first:
                pool.begin(RUN)
        return pool

    def _wake(self, names: tuple[str, ...], about: str) -> None:
        for name in names:
            call = self._calls.get(name)
            if call is not None:
                call(about)
