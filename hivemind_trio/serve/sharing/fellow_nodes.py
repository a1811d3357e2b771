"""Nodes that share with this one, as operators see them: share of each provider, policy, and silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from hivemind_trio import __version__
from hivemind_trio.admin import KnownFleet
from hivemind_trio.admin.views import NodeShareView, NodeState, NodeView
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler.sharing.node_shares import NodeShares
from hivemind_trio.scheduler.sharing.shared_pool import LAST_SEQ
from hivemind_trio.store.fleet.interface import FleetStore, StoreUnreachable
from hivemind_trio.store.fleet.node_cards import ListedNode, NodeCard

from .store_answers import StoreAnswers

INTRODUCE_S: Final = 30.0
"""Between two introductions of a node that nobody looks at."""

FRESH_S: Final = 1.0
"""Age up to which a list is shown again: a page and a collector of metrics may ask at the same time."""

LOOK_WITHIN_S: Final = 0.5
"""Longest wait of an operator for the store; after that the list is shown as it was known last."""

LOOK_S: Final = 2.0
"""Between two looks at the reports of others, which tell when a node was heard last."""


@final
@attrs.define(eq=False)
class FellowNodes:
    """Nodes that share, as this one knows them.

    Args:
        shares: Of this node.
        answers: Waits for answers of the store.
        away_s: How long the store has not answered; None: it does.
        learns_s: How long the store has granted no slots, for it has started anew; None: it does.
    """

    _store: FleetStore
    _engine: Engine
    _shares: NodeShares
    _answers: StoreAnswers
    _away_s: Callable[[], float | None]
    _learns_s: Callable[[], float | None]
    _listed: tuple[ListedNode, ...] = attrs.field(init=False, default=())
    _listed_at_s: float = attrs.field(init=False, default=float("-inf"))
    """When the list was asked for last, and came."""
    _leaders: dict[str, str] = attrs.field(init=False, factory=dict)
    """Provider -> the node that leads."""
    _heard_at_s: dict[str, float] = attrs.field(init=False, factory=dict)
    """Node -> when it reported last, on this node's clock."""

    async def run(self) -> None:
        """Introduce this node to the others, and notice when they report, until cancelled."""
        introduced, known = float("-inf"), None
        while True:
            self._hear()
            # A store that was emptied has no list any more.
            now = self._engine.program.hash, [law.life for law in self._shares.laws.values()]
            if (trio.current_time() - introduced >= INTRODUCE_S or known != now) and await self._ask():
                introduced, known = trio.current_time(), now
            await trio.sleep(LOOK_S)

    async def look(self) -> KnownFleet:
        """Return the nodes after a look at the store, if it answers in time."""
        if trio.current_time() - self._listed_at_s > FRESH_S and self._away_s() is None:
            with trio.move_on_after(LOOK_WITHIN_S):
                await self._ask()
        return self.known()

    def known(self) -> KnownFleet:
        """Return the nodes as they were known last."""
        self._hear()
        now_s, away_s, node = trio.current_time(), self._away_s(), self._shares.node
        listed = {one.card.node: one for one in self._listed}
        rows = (item for law in self._shares.laws.values() for item in law.rows.items())
        # The row of a node that has ended in order stays for a while.
        names = {node, *listed, *(name for name, row in rows if row.seq < LAST_SEQ)}
        self._heard_at_s = {name: at_s for name, at_s in self._heard_at_s.items() if name in names}
        return KnownFleet(
            nodes=tuple(self._view(name, listed.get(name), now_s, away_s) for name in sorted(names)),
            away_s=away_s,
            slow_s=self._answers.slow_s,
            learns_s=self._learns_s(),
            blind=self._shares.blind,
        )

    async def _ask(self) -> bool:
        """Introduce this node, and ask for all others; False: the store does not answer."""
        shares = self._shares
        card = NodeCard(node=shares.node, epoch=shares.epoch, policy=self._engine.program.hash, version=__version__)
        leaders: dict[str, str] = {}

        async def introduce() -> tuple[ListedNode, ...]:
            found = await self._store.introduce(card)
            for pool in shares.laws:
                leaders[pool] = await self._store.leader(pool)
            return found

        try:
            listed = await self._answers.of(introduce, 1 + len(shares.laws))
        except StoreUnreachable:
            return False
        self._listed, self._leaders, self._listed_at_s = listed, leaders, trio.current_time()
        for one in listed:
            self._note(one.card.node, self._listed_at_s - one.age_ms / 1_000)
        return True

    def _hear(self) -> None:
        """Note when nodes reported last, by their rows in the store's answers."""
        for law in self._shares.laws.values():
            own = law.rows.get(self._shares.node)
            if own is None or law.answered_ns is None:
                continue
            for name, row in law.rows.items():
                self._note(name, law.answered_ns / 1e9 - max(0, own.seen_ms - row.seen_ms) / 1_000)

    def _note(self, name: str, at_s: float) -> None:
        self._heard_at_s[name] = max(at_s, self._heard_at_s.get(name, at_s))

    def _view(self, name: str, listed: ListedNode | None, now_s: float, away_s: float | None) -> NodeView:
        own = name == self._shares.node
        heard_at_s = self._heard_at_s.get(name)
        seen_s = round(max(0.0, now_s - heard_at_s), 1) if heard_at_s is not None else None
        policy, version = (listed.card.policy, listed.card.version) if listed is not None else (None, None)
        if own:
            state, seen_s, policy, version = NodeState.ALIVE, 0.0, self._engine.program.hash, __version__
        elif away_s is not None:
            state = NodeState.UNKNOWN
        elif seen_s is not None and seen_s < self._shares.terms.gone_ms / 1_000 and (listed is None or listed.present):
            state = NodeState.ALIVE
        else:
            state = NodeState.SILENT
        return NodeView(
            name=name,
            own=own,
            state=state,
            seen_s=seen_s,
            policy=policy,
            version=version,
            shares=tuple(self._shares_of(name, own)),
        )

    def _shares_of(self, name: str, own: bool) -> list[NodeShareView]:
        demand, found = self._engine.scheduler.demand(), []
        now_ns = round(trio.current_time() * 1e9)
        for pool, law in self._shares.laws.items():
            leads = self._leaders.get(pool) == name
            row = law.rows.get(name)
            if own:
                held, wanted = demand.get(pool, (0, 0))
                share = law.allowance(now_ns, held, wanted)
            elif row is not None:
                held, wanted, share = row.held, row.demand, row.share
            else:
                held = wanted = share = 0
            found.append(
                NodeShareView(provider=pool, share=share, inflight=held, waiting=max(0, wanted - held), leads=leads)
            )
        return found
