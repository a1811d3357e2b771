"""This node's part in a fleet: the shares of its providers, kept by the store that all nodes reach."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, final

import attrs
import trio

from hivemind_trio.admin import KnownFleet
from hivemind_trio.policy import Program, StoreSettings
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import BudgetsCalled, BudgetsShared, LearnCalled, LearningShared, SharesSet, WindowsShared
from hivemind_trio.scheduler.learning.lesson import SharedVerdict
from hivemind_trio.scheduler.sharing.node_law import MS, NodeLaw
from hivemind_trio.scheduler.sharing.node_shares import NodeShares
from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms, RowNotice, ShareRequest
from hivemind_trio.store import Ledger, Restored
from hivemind_trio.store.fleet.interface import BUDGETS, LEARNED, FleetStore, Notice, StoreUnreachable

from .budget_sharing import BudgetSharing
from .fellow_nodes import FellowNodes
from .learn_sharing import LearnSharing
from .store_answers import StoreAnswers
from .window_sharing import WindowSharing

CONNECT_TRIPS: Final = 4
"""Trips that the first answer may take: there is no connection yet."""

RETRY_S: Final = 0.5
"""Between two tries to reach the store."""

BYE_S: Final = 1.0
"""Time to give the shares back at the end."""

BYE_TRIPS: Final = 4
"""The same where the store is slow, in the waits for an answer."""

BYE_MOST_S: Final = 2.0
"""The same at most: the store may be silent."""


def lease_terms(store: StoreSettings) -> LeaseTerms:
    """Return the terms of the policy's store."""
    return LeaseTerms(lease_ms=store.lease_ns // MS, renew_ms=store.renew_ns // MS, gone_ms=store.gone_ns // MS)


@final
@attrs.frozen(kw_only=True)
class SharingTold:
    """Callbacks for the log."""

    joined: Callable[[], None]
    away: Callable[[str], None]
    """Told once why the store cannot be used, and with "" when it can be again."""
    slow: Callable[[float], None]
    """Told once how long an answer of a store took that has become slow."""
    fenced: Callable[[], None]
    learns: Callable[[bool], None]
    """Told once that the store has started anew and grants no slots, with True if that lasts for a whole lease."""
    learned: Callable[[float], None]
    """Told that it does, after so many seconds."""


@final
@attrs.define(eq=False)
class NodeSharing:
    """Shares of one node: asks the store, and tells the scheduler what this node may use.

    Args:
        node: Name of the node; no two that run have the same.
        engine: The engine, whose scheduler has no slots from the first line on.
        ledger: Keeper of what this node has spent; None: it ends with the process.
    """

    _pools: FleetStore
    node: str
    _engine: Engine
    _terms: LeaseTerms
    _told: SharingTold
    _ledger: Ledger | None = None
    _shares: NodeShares | None = attrs.field(init=False, default=None)
    """None: the store has not been reached yet."""
    _followed: Program | None = attrs.field(init=False, default=None)
    """Policy of the last event that was heard of."""
    _answers: StoreAnswers = attrs.field(init=False)
    _windows: WindowSharing = attrs.field(init=False)
    _budgets: BudgetSharing = attrs.field(init=False)
    _learning: LearnSharing = attrs.field(init=False)
    _fellows: FellowNodes | None = attrs.field(init=False, default=None)
    _stirred: trio.Event = attrs.field(init=False, factory=trio.Event)
    _trouble: str = attrs.field(init=False, default="")
    _trouble_since_s: float = attrs.field(init=False, factory=trio.current_time)
    _ended: bool = attrs.field(init=False, default=False)
    _learns_since_s: float | None = attrs.field(init=False, default=None)
    """When the store was first seen to grant no slots; None: it does."""

    def begin(self, restored: Restored | None) -> None:
        """Take every slot and all credit away until the store gives some.

        Args:
            restored: State of the process before at this node; None: unknown.
        """
        server, store = self._engine.program.server, self._engine.program.store
        answers = self._answers = StoreAnswers(self._told.slow)
        self._windows = WindowSharing(self._pools, self.node, self._engine, answers, self._say_trouble)
        self._engine.on_draw_window = self._windows.ask
        self._budgets = BudgetSharing(self._pools, self.node, self._engine, answers, self._say_trouble)
        self._engine.on_ask_budgets = self._budgets.ask
        self._learning = LearnSharing(self._pools, self.node, self._engine, answers, self._say_trouble, self._limit)
        self._engine.on_ask_learning = self._learning.ask
        self._engine.post(SharesSet({}))
        self._engine.post(WindowsShared(server.sharers, store.local))
        self._engine.post(LearningShared(self._terms.renew_ms * MS, self._terms.gone_ms * MS))
        known = restored is not None and restored.shared_by is not None and restored.shared_by[0] == self.node
        if known and restored is not None and restored.shared_by is not None:
            self._engine.post(BudgetsShared(restored.shared_by[1], tuple(restored.settled.items())))
        else:
            self._engine.post(BudgetsShared())
        self._engine.on_event = self._look

    def _look(self) -> None:
        """Take note of an event: the store may have to hear of it where calls wait, here or at another node."""
        shares, program = self._shares, self._engine.program
        if shares is not None and (
            shares.contended or program is not self._followed or self._engine.scheduler.has_waiting()
        ):
            self._followed = program
            self.stir()

    def stir(self) -> None:
        """Something has happened that the store may have to hear of."""
        self._stirred.set()

    async def run(self) -> None:
        """Keep the shares until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            epoch = await self._first_answer()
            if self._ledger is not None:
                await self._ledger.join(self.node, epoch)
            self._shares = NodeShares(self.node, epoch, self._terms)
            self._fellows = FellowNodes(
                self._pools, self._engine, self._shares, self._answers, self._away_s, self._learns_s
            )
            self._told.joined()
            nursery.start_soon(self._windows.run, epoch)
            nursery.start_soon(self._budgets.run, epoch)
            nursery.start_soon(self._learning.run, epoch)
            nursery.start_soon(self._fellows.run)
            while True:
                self._stirred = trio.Event()
                wakes_ns = self._round(nursery)
                with trio.move_on_at(wakes_ns / 1e9):
                    await self._stirred.wait()

    async def _first_answer(self) -> int:
        """Reach the store, and return the start of this node by its clock."""
        while True:
            try:
                return await self._answers.of(self._pools.epoch, CONNECT_TRIPS)
            except StoreUnreachable as error:
                self._say_trouble(str(error))
                await trio.sleep(RETRY_S)

    def _round(self, nursery: trio.Nursery) -> int:
        """Speak to the store where it is due; return when time alone matters next."""
        shares = self._shares
        assert shares is not None
        shares.follow(self._engine.program)
        demand = self._engine.scheduler.demand()
        now_ns = self._now_ns()
        due = shares.due(now_ns, demand)
        self._use_shares(now_ns, demand)  # lowered before it is reported
        for name, ask in due:
            nursery.start_soon(self._sync, name, shares.laws[name], ask)
        return shares.wakes_ns(now_ns, demand)

    def _use_shares(self, now_ns: int, demand: Mapping[str, tuple[int, int]]) -> None:
        assert self._shares is not None
        usable = self._shares.usable(now_ns, demand)
        if usable is None:
            return
        until_ns = usable.until_ns
        if until_ns is not None:
            until_ns += self._engine.now_ns() - self._now_ns()
        self._engine.post(SharesSet(usable.shares, until_ns, usable.then))

    def _limit(self, pool: str, verdict: SharedVerdict | None) -> None:
        """Use no more than this node's part of what nodes have learned, before anything more is granted."""
        if self._shares is not None:
            self._shares.limited(pool, verdict)
            self._use_shares(self._now_ns(), self._engine.scheduler.demand())
            self.stir()

    async def _sync(self, pool: str, law: NodeLaw, ask: ShareRequest) -> None:
        try:
            answer = await self._answers.of(lambda: self._pools.sync(pool, ask))
        except FencedNode:
            law.fenced()
            if not self._ended:
                self._ended = True
                self._told.fenced()
        except StoreUnreachable as error:
            law.failed(self._now_ns())
            self._say_trouble(str(error))
        else:
            law.answered(answer)
            self._say_learning()
            self._say_trouble("")
        self.stir()

    def _say_trouble(self, trouble: str) -> None:
        if bool(trouble) is not bool(self._trouble):
            self._trouble_since_s = trio.current_time()
            self._told.away(trouble)
        self._trouble = trouble

    def _say_learning(self) -> None:
        shares = self._shares
        assert shares is not None
        if shares.learns is (self._learns_since_s is not None):
            return
        if self._learns_since_s is None:
            self._learns_since_s = trio.current_time()
            self._told.learns(shares.blind)
        else:
            after_s, self._learns_since_s = trio.current_time() - self._learns_since_s, None
            self._told.learned(after_s)

    def _learns_s(self) -> float | None:
        return trio.current_time() - self._learns_since_s if self._learns_since_s is not None else None

    def _away_s(self) -> float | None:
        """Return how long the store has not answered; None: it does."""
        return trio.current_time() - self._trouble_since_s if self._trouble else None

    async def look(self) -> KnownFleet:
        """Return the nodes after a look at the store, if it answers in time."""
        return await self._fellows.look() if self._fellows is not None else self.known()

    def known(self) -> KnownFleet:
        """Return the nodes as they were known last; none before the store was reached."""
        return self._fellows.known() if self._fellows is not None else KnownFleet(away_s=self._away_s())

    async def _listen(self) -> None:
        while True:
            try:
                await self._pools.listen(self.node, self._opened, self._call)
            except StoreUnreachable:
                if self._shares is not None:
                    self._shares.cut(self._now_ns())
                self.stir()
            await trio.sleep(RETRY_S)

    def _opened(self) -> None:
        # Messages of the store are missed while the connection is broken.
        self._call("")
        self._engine.post(BudgetsCalled())

    def _call(self, about: Notice) -> None:
        if isinstance(about, RowNotice):
            if self._shares is not None and self._shares.told(about):
                self.stir()
            return
        if about == BUDGETS:
            self._engine.post(BudgetsCalled())
            return
        if about.startswith(LEARNED):
            self._engine.post(LearnCalled(about.removeprefix(LEARNED)))
            return
        if self._shares is not None:
            self._shares.heard()
        self.stir()

    async def leave(self) -> None:
        """Give everything back; calls in flight have ended."""
        shares = self._shares
        if shares is None:
            return
        with trio.move_on_after(min(BYE_MOST_S, max(BYE_S, BYE_TRIPS * self._answers.within_s)), shield=True):
            await self._budgets.close(shares.epoch)
            try:
                for name in shares.laws:
                    await self._pools.bye(name, self.node, shares.epoch)
                await self._pools.leave(self.node, shares.epoch)
            except StoreUnreachable:
                return

    def _now_ns(self) -> int:
        return round(trio.current_time() * 1e9)


@final
@attrs.frozen(kw_only=True)
class SharedSlots:
    """Store of the slots that several nodes share, this node's name, and what is told of it."""

    pools: FleetStore
    node: str
    told: SharingTold


@asynccontextmanager
async def sharing(
    engine: Engine, shared: SharedSlots | None, ledger: Ledger | None = None, restored: Restored | None = None
) -> AsyncIterator[NodeSharing | None]:
    """Share within the context, and give what shares; `shared` None: this node is alone."""
    if shared is None:
        yield None
        return
    one = NodeSharing(shared.pools, shared.node, engine, lease_terms(engine.program.store), shared.told, ledger)
    one.begin(restored)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        yield one
        nursery.cancel_scope.cancel()
    await one.leave()
