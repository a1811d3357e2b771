"""A call that waits: since when, for what, and where it stands."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Decision, Reason
from hivemind_trio.scheduler.budgets.budget_account import BudgetAccount
from hivemind_trio.scheduler.budgets.budgets import Reservation
from hivemind_trio.scheduler.limits.cost import Cost
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.structures.indexed_heap import Rank

from .placement import Placement

PATIENCE_NS: Final = 120 * 1_000_000_000
"""Time for which a client waits if nothing is known of it."""


@final
@attrs.define(eq=False, kw_only=True)
class WaitingCall:
    """Queued call: a reload keeps its identity and age and sets the rest anew."""

    call: Call
    seq: int
    """The order of arrival. Breaks every tie, so that equals are served first come, first served."""
    arrived_ns: int
    treatment: Decision
    deadline_ns: int | None
    """When it has waited long enough, since the engine began; None: never."""
    place: Placement
    rank: Rank
    """Its order within its lane, lowest first."""
    is_fair: bool
    """Agents of its team take turns by what they have had; False: the best call goes first, whosever it is."""
    blocked: Reason
    """Limit that blocked it when it was queued."""
    since_ns: int
    """When this wait began: when it arrived, or when its last attempt ended."""
    waited_ns: int = 0
    """Before that, for earlier attempts."""
    attempts: int = 0
    """That have ended."""
    uncounted: int = 0
    """Number of those that do not count against its retry class."""
    given_up: int = 0
    """Number of those that made no progress for too long."""
    due_ns: int | None = None
    """When its next attempt may begin; None: it has had none."""
    unasked_due_ns: int | None = None
    """When it might begin if its provider had not asked for a longer pause; None: it has not."""
    rests_until_ns: int | None = None
    """Until then it is in no line: its next attempt is not due, or a budget is used up. None: there is no such time."""
    thread: str = ""
    """Thread that it belongs to, where its lane is sticky."""
    warm_until_ns: int | None = None
    """Until when the provider remembers its prompt, where that matters."""
    unbudgeted_due_ns: int | None = None
    """When it might begin if its provider's retry budget had had one for it; None: it had, or none is needed."""
    asked: tuple[ProviderQueue, int] | None = None
    """Provider that refused its last attempt, and the end of the pause that it asked for; None: no pause."""
    spared: tuple[Placement, int] | None = None
    """Place and start of its last attempt, while what that took may be given back; None: nothing may be."""
    started: tuple[int, Cost] | None = None
    """Start of its first attempt, and its estimated cost in the limits of its agent."""
    claim: Reservation | None = None
    """Reservation in budgets; None: it is held."""
    held_in: BudgetAccount | None = None
    """Account in which it waits for room; it is in no queue then. None: it has its claim."""

    is_held: bool = False
    """A rule holds it: it is in no line, and has claimed nothing."""
    held_until_ns: int | None = None
    """When by the clock and its plan's resets it is held no more; None: unknown, or it is not held."""
    plan_read: tuple[str, str] | None = None
    """Provider and account whose plan the rules read for it, while it is held; None: of none."""
    held_by: str = ""
    """Rule that holds it, or held it last; empty: none did."""
    released_ns: int | None = None
    """When it was held no more and joined the line; None: it was not held, or is."""
    claimed_ns: int | None = None
    """When its budgets had room again and it joined the line; None: it has not waited for a budget."""
    ledger_until_ns: int | None = None
    """When it is refused, if the ledger cannot be written until then; None: it does not wait for the ledger."""

    @property
    def agent_key(self) -> AgentKey:
        """The agent that it belongs to."""
        return self.place.agent.key

    @property
    def overdue_ns(self) -> int:
        """Time at which half of its wait is over: from then on it may go before others.

        At the end of that wait its client is sent away, or is thought to give up. Further tries of the client are no
        part of it: each costs it a pause, and a stream that has begun has none.
        """
        held_ns = self.call.held_ns
        gone_ns = self.arrived_ns + (PATIENCE_NS if held_ns is None else held_ns)
        if self.deadline_ns is not None and self.deadline_ns < gone_ns:
            gone_ns = self.deadline_ns
        # One that comes back after such a wait is overdue at once: else those who came meanwhile would go before it.
        first_ns = self.arrived_ns if self.call.since_ns is None else self.call.since_ns
        return first_ns + (gone_ns - self.arrived_ns) // 2

    @property
    def in_line(self) -> bool:
        """Among those who are granted slots."""
        return self.rests_until_ns is None and self.held_in is None and not self.is_held

    def stays_away_ns(self, pool: ProviderQueue) -> int:
        """Until when that provider has asked it to; 0: it has not."""
        return self.asked[1] if self.asked is not None and self.asked[0] is pool else 0


def rank(priority: int, aging_ns: int | None, key: int, arrived_ns: int, seq: int) -> Rank:
    """Return the order within a lane and an agent: by priority, by what the lane is for, by arrival.

    With aging, `aging_ns` of waiting is worth one step of priority: calls whose arrivals, less what their priorities
    are worth, fall in the same span of that length are equals. The spans do not move, so the order between two calls
    never changes, and a heap need not be told that time has passed.

    Args:
        key: By the lane's objective, lowest first.
    """
    number = -priority if aging_ns is None else (arrived_ns - priority * aging_ns) // aging_ns
    return (number, key, arrived_ns, seq)
