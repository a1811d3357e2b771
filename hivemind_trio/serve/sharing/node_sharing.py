"""This node's part in a fleet: the shares of its providers, kept by the store that all nodes reach."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, final

import attrs
import trio

from hivemind_trio.policy import Program, StoreSettings
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import BudgetsCalled, BudgetsShared, SharesSet, WindowsShared
from hivemind_trio.scheduler.sharing.node_law import MS, NodeLaw
from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms, ShareRequest
from hivemind_trio.store import Ledger, Restored
from hivemind_trio.store.fleet.interface import BUDGETS, FleetStore, StoreUnreachable

from .budget_sharing import BudgetSharing
from .window_sharing import WindowSharing

ANSWER_S: Final = 0.25
"""Longest wait for an answer of the store."""

RETRY_S: Final = 0.5
"""Between two tries to reach the store."""

BYE_S: Final = 1.0
"""Time to give the shares back at the end."""


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
    fenced: Callable[[], None]


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
    laws: dict[str, NodeLaw] = attrs.field(init=False, factory=dict)
    """Provider -> its law."""
    _epoch: int | None = attrs.field(init=False, default=None)
    """Start of this node; None: the store has not been reached yet."""
    _windows: WindowSharing = attrs.field(init=False)
    _budgets: BudgetSharing = attrs.field(init=False)
    _stirred: trio.Event = attrs.field(init=False, factory=trio.Event)
    _shares: dict[str, int] = attrs.field(init=False, factory=dict)
    _until_ns: int | None = attrs.field(init=False, default=None)
    """When the shares that the scheduler has end by themselves."""
    _trouble: str = attrs.field(init=False, default="")
    _ended: bool = attrs.field(init=False, default=False)

    def begin(self, restored: Restored | None) -> None:
        """Take every slot and all credit away until the store gives some.

        Args:
            restored: State of the process before at this node; None: unknown.
        """
        server, store = self._engine.program.server, self._engine.program.store
        self._windows = WindowSharing(self._pools, self.node, self._engine, ANSWER_S, self._say_trouble)
        self._engine.on_draw_window = self._windows.ask
        self._budgets = BudgetSharing(self._pools, self.node, self._engine, ANSWER_S, self._say_trouble)
        self._engine.on_ask_budgets = self._budgets.ask
        self._engine.post(SharesSet({}))
        self._engine.post(WindowsShared(server.sharers, store.local))
        known = restored is not None and restored.shared_by is not None and restored.shared_by[0] == self.node
        if known and restored is not None and restored.shared_by is not None:
            self._engine.post(BudgetsShared(restored.shared_by[1], tuple(restored.settled.items())))
        else:
            self._engine.post(BudgetsShared())
        self._engine.on_event = self.stir

    def stir(self) -> None:
        """Something has happened that the store may have to hear of."""
        self._stirred.set()

    async def run(self) -> None:
        """Keep the shares until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            while self._epoch is None:
                try:
                    with trio.fail_after(ANSWER_S * 4):
                        self._epoch = await self._pools.epoch()
                except (StoreUnreachable, trio.TooSlowError) as error:
                    self._say_trouble(f"{error}" or "no answer")
                    await trio.sleep(RETRY_S)
            if self._ledger is not None:
                await self._ledger.join(self.node, self._epoch)
            self._told.joined()
            nursery.start_soon(self._windows.run, self._epoch)
            nursery.start_soon(self._budgets.run, self._epoch)
            while True:
                self._stirred = trio.Event()
                wakes_ns = self._round(nursery)
                with trio.move_on_at(wakes_ns / 1e9):
                    await self._stirred.wait()

    def _round(self, nursery: trio.Nursery) -> int:
        """Speak to the store where it is due; return when time alone matters next."""
        program = self._engine.program
        self._follow(program)
        demand = self._engine.scheduler.demand()
        now_ns = self._now_ns()
        wakes_ns = now_ns + self._terms.renew_ms * MS
        for name, law in self.laws.items():
            held, wanted = demand.get(name, (0, 0))
            if law.is_due(now_ns, held, wanted):
                ask = law.request(now_ns, held, wanted)
                self._use_shares(now_ns)  # lowered before it is reported
                nursery.start_soon(self._sync, name, law, ask)
            wakes_ns = min(wakes_ns, law.wakeup_ns(now_ns))
            if wanted > held:
                # An event may have come too soon after the last report; it is looked at again then.
                soonest_ns = law.soonest_ns()
                wakes_ns = min(wakes_ns, soonest_ns) if soonest_ns > now_ns else wakes_ns
        self._use_shares(now_ns)
        return wakes_ns

    def _follow(self, program: Program) -> None:
        """Have a law for each provider of the policy that runs."""
        assert self._epoch is not None
        nodes, local = program.server.sharers, round(program.store.local * 1_000)
        for name, provider in program.pools.items():
            law = self.laws.get(name)
            if law is None:
                self.laws[name] = NodeLaw(self.node, self._epoch, provider.limit, nodes, local, self._terms)
            elif (law.cap, law.nodes, law.local) != (provider.limit, nodes, local):
                law.load(provider.limit, nodes, local)

    def _use_shares(self, now_ns: int) -> None:
        shares = {name: law.allowance(now_ns) for name, law in self.laws.items()}
        # The scheduler itself ends them: after a stop of this process it may hear of an answer before this task runs.
        falls = {name: fall for name, law in self.laws.items() if (fall := law.falls(now_ns)) is not None}
        until_ns = min((at_ns for at_ns, _ in falls.values()), default=None)
        if (shares, until_ns) == (self._shares, self._until_ns):
            return
        self._shares, self._until_ns = shares, until_ns
        if until_ns is not None:
            until_ns += self._engine.now_ns() - self._now_ns()
        then = shares | {name: slots for name, (_, slots) in falls.items()}
        self._engine.post(SharesSet(shares, until_ns, then))

    async def _sync(self, pool: str, law: NodeLaw, ask: ShareRequest) -> None:
        trouble = "no answer in time"
        with trio.move_on_after(ANSWER_S):
            try:
                answer = await self._pools.sync(pool, ask)
            except FencedNode:
                law.fenced()
                if not self._ended:
                    self._ended = True
                    self._told.fenced()
                self.stir()
                return
            except StoreUnreachable as error:
                trouble = str(error)
            else:
                trouble = ""
                law.answered(answer)
        if trouble:
            law.failed(self._now_ns())
        self._say_trouble(trouble)
        self.stir()

    def _say_trouble(self, trouble: str) -> None:
        if bool(trouble) is not bool(self._trouble):
            self._told.away(trouble)
        self._trouble = trouble

    async def _listen(self) -> None:
        while True:
            try:
                await self._pools.listen(self.node, self._opened, self._call)
            except StoreUnreachable:
                now_ns = self._now_ns()
                for law in self.laws.values():
                    law.cut(now_ns)
                self.stir()
            await trio.sleep(RETRY_S)

    def _opened(self) -> None:
        # Messages of the store are missed while the connection is broken.
        self._call("")
        self._engine.post(BudgetsCalled())

    def _call(self, about: str) -> None:
        if about == BUDGETS:
            self._engine.post(BudgetsCalled())
            return
        for law in self.laws.values():
            law.heard()
        self.stir()

    async def leave(self) -> None:
        """Give everything back; calls in flight have ended."""
        if self._epoch is None:
            return
        with trio.move_on_after(BYE_S, shield=True):
            await self._budgets.close(self._epoch)
            for name in self.laws:
                try:
                    await self._pools.bye(name, self.node, self._epoch)
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
) -> AsyncIterator[None]:
    """Share within the context; `shared` None: this node is alone."""
    if shared is None:
        yield
        return
    one = NodeSharing(shared.pools, shared.node, engine, lease_terms(engine.program.store), shared.told, ledger)
    one.begin(restored)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        yield
        nursery.cancel_scope.cancel()
    await one.leave()
