"""Frozen view of single calls and of budget accounts. O(calls) to take: for operators, never for the path of a call."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Decision, Reason
from hivemind_trio.policy import BudgetAllowance

from .account_key import AccountKey
from .call import CallId


@final
@attrs.frozen(kw_only=True)
class QueuedCall:
    """A call that waits."""

    call_id: CallId
    decision: Decision
    caller: str
    model: str
    """As asked for."""
    reason: Reason
    """Limit that blocks it, as far as known."""
    arrived_ns: int
    waited_ns: int
    """In all, without the time that earlier attempts took."""
    attempts: int
    """That have ended."""
    not_before_ns: int | None
    """Earliest start by what is known now; None: no time is known."""
    deadline_ns: int | None
    """When it is rejected if it still waits; None: never."""
    let_through: bool
    """An operator lets it go before others, as soon as its provider has room."""


@final
@attrs.frozen(kw_only=True)
class CallInFlight:
    """A call with an attempt in flight."""

    call_id: CallId
    decision: Decision
    caller: str
    model: str
    """As asked for."""
    arrived_ns: int
    granted_ns: int
    """When its attempt began."""
    waited_ns: int
    """Before the attempt."""
    attempt: int
    """1 for the first."""


@final
@attrs.frozen(kw_only=True)
class Occupancy:
    """Every call that the scheduler knows."""

    waiting: tuple[QueuedCall, ...]
    """In order of arrival."""
    inflight: tuple[CallInFlight, ...]
    """In the order in which they were granted."""


@final
@attrs.frozen(kw_only=True)
class AccountSnapshot:
    """One account of one budget."""

    key: AccountKey
    allowance: BudgetAllowance
    spent: int
    """In the window of now."""
    claimed: int
    """Most that calls on their way may take."""
    held: int
    """Calls that wait for room in it."""
