"""Rules of a store that nodes share, all in one: pools of slots, windows and budgets in the memory of one process."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

import attrs

from hivemind_trio.scheduler.learning.learn_record import LearnRecord
from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk

from .budget_ask import BudgetsAnswer, BudgetsAsk
from .budget_pot import BudgetPots
from .share_row import LeaseTerms, ShareAnswer, ShareRequest
from .shared_pool import SharedPool
from .window_ring import WindowAnswer, WindowAsk, WindowRing, WindowShape


@final
@attrs.define(eq=False)
class FleetModel:
    """Store without a clock and without a network.

    Args:
        terms: How long a silent node keeps what it has.
        is_first: It begins before all nodes, so that nothing is in flight anywhere: there is nothing to learn of them.
        run: Process of the store; another one has lost what this one knows.
    """

    terms: LeaseTerms
    is_first: bool = False
    run: str = "memory"
    pools: dict[str, SharedPool] = attrs.field(init=False, factory=dict)
    windows: dict[tuple[str, str], WindowRing] = attrs.field(init=False, factory=dict)
    learned: dict[str, LearnRecord] = attrs.field(init=False, factory=dict)
    budgets: BudgetPots = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.budgets = BudgetPots(self.terms.learning_ms)

    def sync(self, pool: str, ask: ShareRequest, now_ms: int, present: Collection[str]) -> ShareAnswer:
        """Take a report on a pool of slots into account, and return what is granted; see `SharedPool.sync`."""
        return self.pool(pool).sync(ask, now_ms, self.run, present)

    def draw(self, pool: str, window: str, ask: WindowAsk, shape: WindowShape, now_ms: int) -> WindowAnswer:
        """Draw of a window; see `WindowRing.draw`."""
        ring = self.windows.get((pool, window))
        if ring is None:
            ring = self.windows[pool, window] = WindowRing(shape, self.terms.learning_ms)
            if self.is_first:
                ring.life.begin(self.run)
        return ring.draw(ask, now_ms, self.run)

    def spend(self, ask: BudgetsAsk, now_ms: int) -> BudgetsAnswer:
        """Take a report on budgets into account; see `BudgetPots.spend`."""
        return self.budgets.spend(ask, now_ms, self.run)

    def learn(self, pool: str, ask: LearnAsk, now_ms: int) -> LearnAnswer:
        """Take a report on attempts into account; see `LearnRecord.learn`."""
        record = self.learned.get(pool)
        if record is None:
            record = self.learned[pool] = LearnRecord(self.terms.grace_ms, self.terms.gone_ms)
        answer = record.learn(ask, now_ms)
        self.pool(pool).limit = record.limit
        return answer

    def bye(self, pool: str, node: str, epoch: int) -> None:
        """Free what a node has that ends in order."""
        self.pool(pool).bye(node, epoch)
        if pool in self.learned:
            self.learned[pool].bye(node, epoch)

    def pool(self, name: str) -> SharedPool:
        """Return a pool of slots; a new one knows nothing."""
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = SharedPool(self.terms)
            if self.is_first:
                pool.life.begin(self.run)
        return pool
