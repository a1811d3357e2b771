"""Store through which the nodes of a fleet share one account: its interface, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, final

from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk
from hivemind_trio.scheduler.sharing.budget_ask import BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.share_row import RowNotice, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowShape

from .node_cards import ListedNode, NodeCard

Notice: TypeAlias = str | RowNotice
"""Message to a node: the word of a call to speak to the store, or another node's row."""

BUDGETS: Final = "budgets"
"""Word of a call that is about budgets."""


LEARNED: Final = "learned:"
"""Beginning of the word of a call that is about what is learned of a provider."""


def learned(pool: str) -> str:
    """Return the word of a call that is about what is learned of a provider."""
    return f"{LEARNED}{pool}"


@final
class StoreUnreachable(Exception):  # noqa: N818 - what is the case, in words
    """The store gives no answer, or none that can be used."""


@final
class CreditNotKept(Exception):  # noqa: N818 - what is the case, in words
    """The store answers, and cannot write the credit of a budget that it would give."""


class FleetStore(Protocol):
    """Store of a fleet. Every method raises `StoreUnreachable` where the store cannot be used.

    `spend` of a store that keeps credit on a disk of its own raises `CreditNotKept`, too.

    The rules are those of `scheduler/sharing`: every store answers the same history alike.
    """

    async def epoch(self) -> int:
        """Return the store's time, in milliseconds: the start of a node."""

    async def sync(self, pool: str, ask: ShareRequest) -> ShareAnswer:
        """Report on a pool of slots, and return what is granted.

        Raises:
            FencedNode: A newer process serves under the node's name.
        """

    async def draw(self, pool: str, window: str, ask: WindowAsk, shape: WindowShape) -> WindowAnswer:
        """Draw of a window, and return what is granted.

        Raises:
            FencedNode: A newer process serves under the node's name.
        """

    async def spend(self, ask: BudgetsAsk) -> BudgetsAnswer:
        """Report on budgets, and return what is granted.

        Raises:
            FencedNode: A newer process serves under the node's name.
        """

    async def learn(self, pool: str, ask: LearnAsk) -> LearnAnswer:
        """Report on attempts at a provider, and return what all nodes have learned of it."""

    async def bye(self, pool: str, node: str, epoch: int) -> None:
        """Free what a node has that ends in order."""

    async def introduce(self, card: NodeCard) -> tuple[ListedNode, ...]:
        """Put a node on the list of nodes, and return the list by name."""

    async def leave(self, node: str, epoch: int) -> None:
        """Take a node that ends in order off the list."""

    async def leader(self, pool: str) -> str:
        """Return the node that leads what is learned of a provider; empty: none does."""

    async def listen(self, node: str, on_open: Callable[[], None], on_call: Callable[[Notice], None]) -> None:
        """Hear of what other nodes do until the connection breaks, which raises `StoreUnreachable`.

        Args:
            on_call: Told the row of another node; or the pool, `BUDGETS`, or `learned` of a pool, on which this node is
                to speak to the store.
        """
