"""Values that proxies and their store exchange about one pool of slots. Times are milliseconds of the store's clock."""

from __future__ import annotations

from typing import Final, final

import attrs

FORGET_MS: Final = 600_000
"""Silence after which a node that still seems connected is forgotten."""


@final
@attrs.frozen(kw_only=True)
class LeaseTerms:
    """Bounds of the time for which the share of a silent node stands.

    The node's own bounds (`NodeLaw`) end earlier than the store's, counted from what both have seen.
    """

    lease_ms: int = 60_000
    """Silence after which a node that seems connected loses all but its floor."""
    renew_ms: int = 2_000
    """Longest time between two requests of a node that has calls."""
    gone_ms: int = 10_000
    """Silence after which a node whose subscription has ended is taken for dead."""

    @property
    def grace_ms(self) -> int:
        """Time in which a node that is marked as missing may report: its store may have been the one that was away."""
        return 3 * self.renew_ms

    @property
    def idle_ms(self) -> int:
        """Longest time between two requests of a node without calls: it is called where another one lacks slots.

        A node hears of another one as late as both have spoken: twice this, and tries again, is less than `gone`.
        """
        return max(self.renew_ms, min(2 * self.renew_ms, (self.gone_ms - self.renew_ms) // 2, self.lease_ms // 4))

    @property
    def learning_ms(self) -> int:
        """Time for which a store that knows nothing believes what nodes say they have, and grants nothing."""
        return self.gone_ms + self.grace_ms


@final
@attrs.frozen(kw_only=True)
class ShareRequest:
    """A node's report on one pool, and what it asks for."""

    node: str
    epoch: int
    """Start of the node: a higher one replaces a lower one."""
    seq: int
    """Grows with every request; an older one that arrives late changes nothing."""
    cap: int
    """Slots of the pool, by this node's policy."""
    nodes: int
    """Most nodes, by this node's policy."""
    run: str
    """Life of the store whose answer this node has heard last; empty: none."""
    keep: int
    """Share that is in use from the moment of sending: the node lowers it first, and then reports."""
    held: int
    """Calls in flight."""
    demand: int
    """Calls in flight and calls that wait for nothing but a slot."""
    target: int
    """Part of the cap that this node is due, as it sees the others."""
    owed: int
    """Thousandths of slots that rounding has withheld so far."""
    floor: int
    """Slots that it goes on with while it cannot reach the store."""
    parts: tuple[tuple[str, int], ...] = ()
    """Other nodes that wait, and the part that each is due, as this node sees it: they get free slots in this order."""


@final
@attrs.define(kw_only=True)
class ShareRow:
    """A node as the store last heard of it."""

    epoch: int
    seq: int
    cap: int
    share: int
    """Slots that it may use. Calls in flight beyond them are not replaced."""
    held: int
    demand: int
    owed: int
    floor: int
    seen_ms: int
    heard: bool = True
    """True if it has reported to this life of the store after it had heard of it."""
    suspect_ms: int | None = None
    """When it was marked as missing."""
    changes: int = 0
    """Times that the store has changed the share since the report."""

    @property
    def occupied(self) -> int:
        """Slots that nobody else can have."""
        return max(self.share, self.held)

    def is_before(self, other: ShareRow) -> bool:
        """Return True if this is an older state of the same node."""
        return (self.epoch, self.seq, self.changes) < (other.epoch, other.seq, other.changes)


@final
@attrs.frozen(kw_only=True)
class ShareAnswer:
    """Grant of the store, and every node's row after it."""

    seq: int
    cap: int
    """The lowest cap of the policies present."""
    share: int
    run: str
    """Life of the store."""
    learning: bool
    """The store has started anew, and grants nothing until it has heard the nodes."""
    rows: dict[str, ShareRow]
    blind: bool = False
    """The store may not know which nodes are connected, and so learns for a whole lease."""
    tell: tuple[str, ...] = ()
    """Nodes that are told the row of this one: it has changed, or waits."""
    granted: tuple[str, ...] = ()
    """Nodes that wait and have been given free slots; they are among those that are told."""

    def notice(self, pool: str, node: str) -> RowNotice:
        """Return what the nodes in `tell` are told after the report of a node."""
        granted = {name: self.rows[name] for name in self.granted}
        return RowNotice(pool=pool, node=node, run=self.run, row=self.rows[node], granted=granted)


@final
@attrs.frozen(kw_only=True)
class RowNotice:
    """Row of a node that has just reported, as the other nodes are told of it."""

    pool: str
    node: str
    run: str
    """Life of the store."""
    row: ShareRow
    granted: dict[str, ShareRow] = attrs.field(factory=dict)
    """Rows of nodes that the store has given slots since they reported. Each of them is told so by its own row."""


@final
class FencedNode(Exception):  # noqa: N818 - the end of a node, not always an error
    """A newer process serves under this node's name."""
