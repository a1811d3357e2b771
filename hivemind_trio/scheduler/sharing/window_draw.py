"""Messages between scheduler and store about windows of `limits` that several nodes share.

A node draws amounts from the store before it uses them; they are good for a short time.
"""

from __future__ import annotations

from typing import NamedTuple, final

import attrs

from hivemind_trio.model import Dimension
from hivemind_trio.policy import Renames
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk


class WindowKey(NamedTuple):
    """Key of a window that nodes share."""

    provider: str
    glob: str | None
    """Models of the block; None: those that no other covers."""
    dimension: Dimension
    window_ns: int

    def renamed(self, renames: Renames) -> WindowKey:
        """Return the same window in the names of the new policy."""
        return self._replace(provider=renames.swapped("provider", self.provider))


@final
@attrs.frozen
class WindowsShared:
    """From now on every window that the policy declares is drawn from a store. Sent once, before the first call."""

    nodes: int
    """Most nodes that share them."""
    local: float
    """Share of each that all nodes together use while the store is away."""


@final
@attrs.frozen
class WindowAnswered:
    """The store has answered a draw."""

    window: WindowKey
    answer: WindowAnswer


@final
@attrs.frozen
class WindowUnanswered:
    """The store has not answered a draw in time; its answer, should it come, is not told."""

    window: WindowKey
    seq: int


@final
@attrs.frozen(kw_only=True)
class DrawWindow:
    """Ask the store, and answer with `WindowAnswered` or `WindowUnanswered`. At most one per window is under way."""

    window: WindowKey
    seq: int
    run: str
    """As in `WindowAsk`, and so are the others."""
    limit: int
    least: int
    want: int
    more: int
    back: tuple[tuple[int, int], ...]
    report: tuple[tuple[int, int], ...] | None

    def of_node(self, node: str, epoch: int, nodes: int) -> WindowAsk:
        """Return the request to the store.

        Args:
            node: Name of the node that draws.
            epoch: Its start.
            nodes: Most nodes, by its policy.
        """
        return WindowAsk(
            node=node,
            epoch=epoch,
            seq=self.seq,
            run=self.run,
            nodes=nodes,
            limit=self.limit,
            least=self.least,
            want=self.want,
            more=self.more,
            back=self.back,
            report=self.report,
        )
