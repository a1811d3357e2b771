"""Messages between scheduler and ledger, which keeps budgets beyond the end of the process.

A budget that can stop a call draws credit from the ledger in chunks, ahead of use. A chunk is durable before a call
claims any of it, so that a crash can charge too much and never too little.
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from .account_key import AccountKey
from .call import CallId

Parts: TypeAlias = tuple[tuple[AccountKey, int], ...]
"""Amounts by account, in the unit of its measure: millionths of a dollar, tokens or requests."""


@final
@attrs.frozen(kw_only=True)
class RestoredAccount:
    """Account as an earlier process left it."""

    key: AccountKey
    spent: tuple[tuple[int, int], ...]
    """(When, ns since the engine began and mostly negative; amount), oldest first, of the window that holds now."""


@final
@attrs.frozen
class LedgerOpened:
    """From now on budgets are kept by a ledger. Sent once, before the first call."""

    accounts: tuple[RestoredAccount, ...]


@final
@attrs.frozen
class CreditDrawn:
    """A chunk that was asked for (`Draw`) is durable: calls may claim it."""

    account: AccountKey
    amount: int


@final
@attrs.frozen
class LedgerWritable:
    """The ledger can take entries again, or cannot: then calls that draw on it wait."""

    writable: bool


@final
@attrs.frozen
class SpendingSet:
    """An operator has so much of an account count as spent in the window of now. Unknown accounts are ignored."""

    account: AccountKey
    spent: int


@final
@attrs.frozen
class Correction:
    """An operator has changed what was spent of an account: (age in ns, change) of each part of its window."""

    account: AccountKey
    changes: tuple[tuple[int, int], ...]


@final
@attrs.frozen
class Draw:
    """Make a chunk durable, and answer with `CreditDrawn`. At most one per account is under way."""

    account: AccountKey
    amount: int


@final
@attrs.frozen
class Spend:
    """A claim that a `Grant` carried is over: so much of each account was spent, maybe nothing."""

    call_id: CallId
    parts: Parts
