"""Values that nodes and their store exchange about budgets. Times are milliseconds of the store's clock."""

from __future__ import annotations

from typing import Final, final

import attrs

ASK_AGAIN_MS: Final = 1_000
"""Time after which a node that was refused asks again."""

USED_UP_AGAIN_MS: Final = 60_000
"""The same where only time makes room; who makes room earlier calls the node."""

LEARN_AGAIN_MS: Final = 100

PRESENT_MS: Final = 60_000
"""Time for which a node's limit counts after it was last heard of: the lowest holds."""

NO_LIMIT: Final = -1
"""Limit of a budget that stops no call."""


@final
@attrs.frozen(kw_only=True)
class BudgetAsk:
    """Report of a node on one account, and what it lacks.

    What the node has drawn, spent and given back are totals, so that no message counts twice and none is missed.
    """

    life: int
    """Number of this account's totals within the node's process: a higher one begins them anew."""
    limit: int
    """Amount at which the budget stops calls, by this node's policy; `NO_LIMIT`: never."""
    window_ms: int
    slot: int
    """Calendar window that spends fall into, the same number at every node; 0: the window is the time just past."""
    drawn: int
    settled: int
    returned: int
    least: int = 0
    """Amount without which the next call cannot begin."""
    waits: bool = False
    """True if the call is there; else it is drawn ahead."""
    idle: int = 0
    """Credit that no call has claimed."""
    report: tuple[tuple[int, int], ...] | None = None
    """(Age in ms, amount) of what this node has spent in the window, for a store that does not know it."""
    closes: tuple[int, int] | None = None
    """(Epoch, settled) of the node's process before, by its ledger, claims of calls in flight included."""
    spent: int | None = None
    """Amount that an operator has count as spent of the window."""
    spent_seq: int = 0
    """Number of that order at this node."""


@final
@attrs.frozen(kw_only=True)
class BudgetsAsk:
    """Message of a node about some of its accounts."""

    node: str
    epoch: int
    """Start of the node: a higher one replaces a lower one."""
    seq: int
    """Grows with every message; an older one that arrives late changes nothing."""
    nodes: int
    """Most nodes, by this node's policy."""
    run: str
    """Life of the store whose answer this node has heard last; empty: none."""
    complete: bool
    """With this message, every account has been told of."""
    accounts: tuple[tuple[str, BudgetAsk], ...] = ()


@final
@attrs.frozen(kw_only=True)
class BudgetAnswer:
    """Answer of the store about one account."""

    drawn: int
    """In total, by this node."""
    settled: int
    """In total, by this node; more than it has said, if it was taken for dead meanwhile."""
    spent: int
    """Amount that all nodes have spent in the window, what this question told included."""
    out: int
    """Drawn by all nodes and not spent."""
    short: bool
    """True if the next call cannot have what it lacks."""
    scarce: bool
    """Another node waits for what is drawn: nobody is to keep credit without a use."""
    again_ms: int
    opens_ms: int
    """Time until some of it is not used up; 0: it is not."""
    sets: int
    """Orders of operators so far."""
    anew: bool = False
    """The store does not know what this node has spent: it is to send its report. Nothing was counted."""


@final
@attrs.frozen(kw_only=True)
class BudgetsAnswer:
    """Answer to a message."""

    seq: int
    run: str
    """Life of the store: another one has lost what was told."""
    accounts: tuple[BudgetAnswer, ...]
    """In the order of the question; none, if the message is late or doubled."""
    wake: tuple[str, ...] = ()
    """Nodes that are to speak now."""
