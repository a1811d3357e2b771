"""List of the nodes that share a store: what each says of itself. It decides nothing; operators read it.

This is the model of the script that Redis runs (`card_script.py`): both answer every history alike.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final, final

import attrs

from hivemind_trio.scheduler.sharing.share_row import FORGET_MS

CARDS_MAX: Final = 256
"""Nodes in the list: names of nodes that change at every start must not fill it."""


@final
@attrs.frozen(kw_only=True)
class NodeCard:
    """A node, as it introduces itself."""

    node: str
    epoch: int
    policy: str
    """Hash of the policy that it runs."""
    version: str


@final
@attrs.frozen(kw_only=True)
class ListedNode:
    """A node in the list."""

    card: NodeCard
    age_ms: int
    """Since it introduced itself last."""
    present: bool
    """True: the connection on which others call it is open."""


@final
@attrs.define(eq=False)
class NodeCards:
    """Cards of all nodes."""

    _cards: dict[str, tuple[NodeCard, int]] = attrs.field(init=False, factory=dict)
    """Node -> its card, and when it came."""

    @property
    def cards(self) -> Mapping[str, tuple[NodeCard, int]]:
        """Node -> its card, and when it came."""
        return self._cards

    def introduce(self, card: NodeCard, now_ms: int, present: Container[str]) -> tuple[ListedNode, ...]:
        """Take a card, and return all of them by name; an older process does not replace a newer one."""
        known = self._cards.get(card.node)
        if known is None or card.epoch >= known[0].epoch:
            self._cards[card.node] = card, now_ms
        shown = {name: (one, min(at_ms, now_ms)) for name, (one, at_ms) in self._cards.items()}
        newest = sorted(shown.items(), key=lambda item: (-item[1][1], item[0]))[:CARDS_MAX]
        self._cards = {name: (one, at_ms) for name, (one, at_ms) in newest if now_ms - at_ms < FORGET_MS}
        return tuple(
            ListedNode(card=one, age_ms=now_ms - at_ms, present=name in present)
            for name, (one, at_ms) in sorted(self._cards.items())
        )

    def leave(self, node: str, epoch: int) -> None:
        """Remove the card of a node that ends in order."""
        known = self._cards.get(node)
        if known is not None and known[0].epoch == epoch:
            del self._cards[node]
