"""The store's rule for one pool of slots: whatever is asked, no more is granted than there is.

This is the model of the script that Redis runs (`SYNC` in `store/fleet/scripts.py`): both answer every history alike.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from .share_row import FORGET_MS, FencedNode, LeaseTerms, ShareAnswer, ShareRequest, ShareRow
from .store_life import StoreLife

LAST_SEQ: Final = 10**13
"""Sequence number of a node that has ended."""


@attrs.define(eq=False)
class SharedPool:
    """One pool of slots, and what each node has of it.

    After every request the sum over nodes of `max(share, held)` is at most what it was before, or at most the cap.

    Args:
        terms: How long a silent node keeps what it has.
    """

    terms: LeaseTerms
    rows: dict[str, ShareRow] = attrs.field(init=False, factory=dict)
    limit: int | None = attrs.field(init=False, default=None)
    """Slots that the provider is trusted with, as nodes have learned; None: all of the cap."""
    life: StoreLife = attrs.field(init=False)
    _strangers: bool = attrs.field(init=False, default=False)
    """At the last report a node was connected that this life had not heard."""

    def __attrs_post_init__(self) -> None:
        self.life = StoreLife(self.terms.learning_ms)

    def sync(self, ask: ShareRequest, now_ms: int, run: str, present: Collection[str]) -> ShareAnswer:
        """Take a node's report into account and return its share.

        Args:
            ask: The report.
            now_ms: On the store's clock.
            run: Process of the store: another one may have lost what this one has granted.
            present: Nodes whose subscription is open.

        Raises:
            FencedNode: The node's name is in newer hands.
        """
        if self.life.turns(run, now_ms):
            for row in self.rows.values():
                row.heard, row.seen_ms, row.suspect_ms = False, now_ms, None
        own = self.rows.get(ask.node)
        if own is not None and ask.epoch < own.epoch:
            raise FencedNode
        if own is not None and ask.epoch == own.epoch and ask.seq <= own.seq:
            return self._answer(ask, own)  # late or doubled: as it stands
        self._reclaim(ask.node, now_ms, present)
        known = own.share if own is not None and own.epoch == ask.epoch else 0
        cap = self._cap([ask.cap, *(row.cap for name, row in self.rows.items() if name != ask.node)])
        room = max(0, cap - sum(row.occupied for name, row in self.rows.items() if name != ask.node))
        learns = self._learns(ask, now_ms, present)
        share = ask.keep if learns else max(min(ask.keep, known), min(ask.target, room))
        row = ShareRow(
            epoch=ask.epoch,
            seq=ask.seq,
            cap=ask.cap,
            share=share,
            held=ask.held,
            demand=ask.demand,
            owed=ask.owed,
            floor=ask.floor,
            seen_ms=now_ms,
            heard=ask.run == self.life.name,
        )
        self.rows[ask.node] = row
        granted = () if learns else self._grant(ask, cap, now_ms, present)
        changed = own is None or (own.share, own.held, own.demand) != (row.share, row.held, row.demand)
        # Nodes are told again of one that waits: what they have for it they know best, and give back by themselves.
        tells = changed or granted or row.demand > row.occupied
        tell = tuple(name for name in sorted(self.rows) if name != ask.node) if tells else ()
        return attrs.evolve(self._answer(ask, row), tell=tell, granted=granted)

    def _cap(self, caps: list[int]) -> int:
        return min(caps) if self.limit is None else min(self.limit, *caps)

    def _grant(self, ask: ShareRequest, cap: int, now_ms: int, present: Collection[str]) -> tuple[str, ...]:
        """Give free slots to nodes that wait, by the parts that the sender sees; return the nodes that got some."""
        free, names = cap - sum(row.occupied for row in self.rows.values()), []
        for name, part in ask.parts:
            row = self.rows.get(name)
            if row is None or name == ask.node or name not in present or now_ms - row.seen_ms >= self.terms.grace_ms:
                continue  # it may have been stopped, and would keep the slots unused
            slots = min(free, min(part, row.demand) - row.occupied)
            if slots > 0:
                row.share, row.changes = row.occupied + slots, row.changes + 1
                free -= slots
                names.append(name)
        return tuple(names)

    def bye(self, node: str, epoch: int) -> None:
        """Free what a node has that ends in order. What it sent before and arrives later changes nothing."""
        row = self.rows.get(node)
        if row is not None and row.epoch == epoch:
            row.share = row.held = row.demand = 0
            row.seq = LAST_SEQ

    def _learns(self, ask: ShareRequest, now_ms: int, present: Collection[str]) -> bool:
        """Return True while the store believes what nodes say that they have."""
        if not self.life.is_learning:
            return False
        heard = {name for name, row in self.rows.items() if row.heard}
        speaks = {ask.node} if ask.run == self.life.name else set()
        strangers = any(name not in heard and name not in speaks for name in present)
        if strangers or self._strangers:
            # It may use what it has for a lease. If its connection ends, it notices that, and stops within a grace.
            self.life.extend(now_ms + self.terms.grace_ms, self.terms.lease_ms)
        self._strangers = strangers
        # One that has ended may have been replaced under another name: it is no longer one of them.
        known = sum(name == ask.node or name in present for name in heard)
        return self.life.learns(known, ask.nodes, now_ms)

    def _reclaim(self, sender: str, now_ms: int, present: Collection[str]) -> None:
        terms = self.terms
        for name, row in list(self.rows.items()):
            if name == sender:
                continue
            row.seen_ms = min(row.seen_ms, now_ms)  # the clock may have been put back
            silent_ms = now_ms - row.seen_ms
            connected = name in present
            if silent_ms < (terms.lease_ms if connected else terms.gone_ms):
                row.suspect_ms = None
            elif row.suspect_ms is None:
                row.suspect_ms = now_ms
            elif now_ms - row.suspect_ms >= terms.grace_ms:
                if not connected or silent_ms >= FORGET_MS:
                    del self.rows[name]
                else:
                    share = min(row.share, row.floor)
                    held = min(row.held, share)
                    row.changes += (share, held) != (row.share, row.held)
                    row.share, row.held = share, held

    def _answer(self, ask: ShareRequest, row: ShareRow) -> ShareAnswer:
        return ShareAnswer(
            seq=ask.seq,
            cap=self._cap([one.cap for one in self.rows.values()]),
            share=row.share,
            run=self.life.name,
            learning=self.life.is_learning,
            rows={name: attrs.evolve(one) for name, one in self.rows.items()},
        )
