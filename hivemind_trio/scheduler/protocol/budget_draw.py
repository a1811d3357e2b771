"""Messages between scheduler and store about budgets that several nodes share."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.scheduler.sharing.budget_ask import BudgetAsk, BudgetsAnswer

from .account_key import AccountKey


@final
@attrs.frozen
class BudgetsShared:
    """From now on every budget is drawn from a store. Sent once, before the first call and after `LedgerOpened`."""

    epoch: int = 0
    """Start of the process before this one at the node; 0: its ledger does not know what it has spent."""
    settled: tuple[tuple[AccountKey, int], ...] = ()
    """Amounts that it has spent, by its ledger, with the claims of calls that were in flight."""


@final
@attrs.frozen
class BudgetsAnswered:
    """The store has answered `AskBudgets`."""

    answer: BudgetsAnswer


@final
@attrs.frozen
class BudgetsUnanswered:
    """The store has not answered in time; its answer, should it come, is not told."""

    seq: int


@final
@attrs.frozen
class BudgetsCalled:
    """Another node waits for what is drawn here, or there may be what calls wait for here."""

    closing: bool = False
    """True: this node ends, and gives back everything."""


@final
@attrs.frozen
class BudgetDraw:
    """Words on one account."""

    account: AccountKey
    left_ns: int | None
    """Time until its calendar window ends, which the sender names (`BudgetAsk.slot`); None: it has none."""
    ask: BudgetAsk


@final
@attrs.frozen(kw_only=True)
class AskBudgets:
    """Ask the store, and answer with `BudgetsAnswered` or `BudgetsUnanswered`. At most one is under way."""

    seq: int
    run: str
    """As in `BudgetsAsk`, and so is `complete`."""
    complete: bool
    accounts: tuple[BudgetDraw, ...]
