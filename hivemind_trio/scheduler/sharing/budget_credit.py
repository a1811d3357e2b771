"""A node's side of one account that several nodes share: credit that it has drawn, and what all nodes have spent.

Totals only grow, and each question carries all of them: a message that is lost, or its answer, is made good by the
next. Credit is claimed by calls without a trip to the store, and given back where another node waits for it.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from .budget_ask import BudgetAnswer, BudgetAsk
from .share_row import FORGET_MS

MS: Final = 1_000_000

RENEW_NS: Final = 2_000 * MS
"""Longest time for which the store does not know what was spent."""

SCARCE_NS: Final = 50 * MS
"""The same while another node waits for what is drawn."""

REFRESH_NS: Final = 10_000 * MS
"""Age of what all nodes have spent, at an account of which this node has no news."""

IDLE_NS: Final = 60_000 * MS
"""Time after which credit without a use is given back."""

GOOD_NS: Final = FORGET_MS * MS * 9 // 10
"""Time for which credit is good without an answer: after `FORGET_MS` the store charges it."""


@final
@attrs.frozen
class _Sent:
    at_ns: int
    settled: int
    waits: bool
    orders: int
    """Orders of the operator that were in it or before."""


@final
@attrs.define(eq=False)
class BudgetCredit:
    """Totals of one account at this node, since its process began or last forgot the account.

    Args:
        life: Number of these totals within the process.
        claimed: Most that calls in flight may take.
        touched_ns: When a call last claimed or spent.
    """

    life: int
    claimed: int
    touched_ns: int
    drawn: int = attrs.field(init=False)
    settled: int = attrs.field(init=False, default=0)
    returned: int = attrs.field(init=False, default=0)
    tells: bool = attrs.field(init=False, default=True)
    """True if the account is to speak at once."""
    reports: bool = attrs.field(init=False, default=True)
    """The store may not know what this node has spent before."""
    closes: tuple[int, int] | None = attrs.field(init=False, default=None)
    """As in `BudgetAsk`."""
    is_short: bool = attrs.field(init=False, default=False)
    """True if the first waiting call could not have what it lacks."""
    opens_ns: int | None = attrs.field(init=False, default=None)
    """When some of it is no more used up; None: it is not."""
    answered_ns: int | None = attrs.field(init=False, default=None)
    """When the last question that was answered was sent; None: none was."""
    _sent: _Sent | None = attrs.field(init=False, default=None)
    _asked_ns: int | None = attrs.field(init=False, default=None)
    """When it last spoke; None: never."""
    _wanted: int = attrs.field(init=False, default=0)
    """Largest claim that was refused since it last asked."""
    _usual: int = attrs.field(init=False, default=0)
    """Last claim."""
    _again_ns: int = attrs.field(init=False, default=0)
    """No question for what lacks before this."""
    _scarce: bool = attrs.field(init=False, default=False)
    _spent: int = attrs.field(init=False, default=0)
    """Amount that all nodes have spent, as the store last told."""
    _spent_settled: int = attrs.field(init=False, default=0)
    """Amount of this node that is included in that."""
    _sets: int | None = attrs.field(init=False, default=None)
    """Orders of operators, as the store last told."""
    _order: int | None = attrs.field(init=False, default=None)
    """Amount of an order that the store may not know."""
    _orders: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        # Claims in flight count as drawn: the store believes a node that reports more than it knows.
        self.drawn = self.claimed

    # ---- the account's ----

    @property
    def credit(self) -> int:
        """Amount that no call has claimed."""
        return self.drawn - self.settled - self.returned - self.claimed

    @property
    def spent(self) -> int | None:
        """Return what all nodes have spent in the window, as far as known; None: nothing is."""
        return None if self.answered_ns is None else self._spent + self.settled - self._spent_settled

    def lacks(self, amount: int, now_ns: int) -> bool:
        """Return True if a call cannot claim so much; the store is asked for it."""
        is_old = self.answered_ns is None or now_ns >= self.answered_ns + GOOD_NS
        if self.credit >= amount and not is_old:
            return False
        self._wanted = max(self._wanted, amount)
        return True

    def claim(self, amount: int, now_ns: int, *, stops: bool) -> None:
        """Put an amount aside for a call; of a budget that stops calls as much is drawn ahead for the next one."""
        self.claimed += amount
        self._usual, self.touched_ns = amount if stops else 0, now_ns

    def settle(self, amount: int, spent: int, now_ns: int) -> None:
        """End a claim, of which so much was spent."""
        self.claimed -= amount
        self.settled += spent
        self.touched_ns = now_ns

    def turn(self) -> None:
        """Begin another calendar window."""
        self._spent, self._spent_settled, self.opens_ns, self.is_short, self._again_ns = 0, self.settled, None, False, 0

    def order(self, spent: int) -> None:
        """Have so much count as spent, by all nodes."""
        self._order, self.tells = spent, True
        self._orders += 1
        self._spent, self._spent_settled, self.opens_ns = spent, self.settled, None

    # ---- the store's ----

    def due_ns(self, *, closing: bool) -> int:
        """Return when it is to speak to the store."""
        if self.tells or self._asked_ns is None:
            return 0
        if closing:
            return 0 if self.credit > 0 or self.settled != self._spent_settled else self._asked_ns + REFRESH_NS
        # The spend of others is asked for seldom where an account is used seldom.
        times = [self._asked_ns + max(REFRESH_NS, (self._asked_ns - self.touched_ns) // 10)]
        if self._wanted or self.credit < self._usual:
            times.append(self._again_ns)
        if self.touched_ns >= self._asked_ns or (self._scarce and self.credit > 0):
            times.append(self._asked_ns + (SCARCE_NS if self._scarce else RENEW_NS))
        if self.credit > 0:
            times.append(max(self.touched_ns + IDLE_NS, self._asked_ns))
        return min(times)

    def ask(
        self, limit: int, window_ms: int, report: tuple[tuple[int, int], ...], now_ns: int, *, closing: bool
    ) -> BudgetAsk:
        """Return what to say now; the calendar's window is the sender's to name."""
        waits = self._wanted > 0
        least = max(0, (self._wanted or self._usual) - self.credit) if now_ns >= self._again_ns and not closing else 0
        idle = max(0, self.credit)
        if not least and (closing or self._scarce or now_ns >= self.touched_ns + IDLE_NS):
            self.returned += idle
            idle, self._usual = 0, 0
        self._wanted, self.tells, self._asked_ns = 0, False, now_ns
        self._sent = _Sent(now_ns, self.settled, waits and least > 0, self._orders)
        return BudgetAsk(
            life=self.life,
            limit=limit,
            window_ms=window_ms,
            slot=0,
            drawn=self.drawn,
            settled=self.settled,
            returned=self.returned,
            least=least,
            waits=waits,
            idle=idle,
            report=report if self.reports else None,
            closes=self.closes,
            spent=self._order,
            spent_seq=self._orders,
        )

    def answered(self, answer: BudgetAnswer, now_ns: int) -> bool:
        """Take the store's answer; return True if what this node has spent was replaced by an operator's order."""
        if self._sent is None:
            return False
        sent, self._sent = self._sent, None
        if answer.anew:
            self.tells = self.reports = True
            self._again_ns = 0
            return False
        self.reports, self.closes, self.answered_ns = False, None, sent.at_ns
        self.drawn = max(self.drawn, answer.drawn)
        self.settled += max(0, answer.settled - sent.settled)  # charged while it was silent
        self._scarce = answer.scarce
        self.is_short = answer.short and sent.waits
        self._again_ns = now_ns + answer.again_ms * MS if answer.short else 0
        if answer.short and not sent.waits:
            self._usual = 0  # nothing is drawn ahead
        replaced = self._sets is not None and answer.sets != self._sets and self._order is None
        self._sets = answer.sets
        if self._orders == sent.orders:
            self._order = None
            self._spent, self._spent_settled = answer.spent, max(sent.settled, answer.settled)
            self.opens_ns = now_ns + answer.opens_ms * MS if answer.opens_ms else None
        return replaced

    def called(self) -> None:
        """Note that another node waits for what is drawn or was spent here, or that calls here may go on."""
        if self.credit > 0 or self.is_short or self.settled != self._spent_settled:
            self.tells = self._scarce = True
            self._again_ns = 0
        elif self.claimed > 0:
            self._scarce = True  # what its calls spend is told once they end

    def told_nothing(self) -> None:
        """Note that the store has lost what it was told."""
        self.tells = self.reports = True

    def unanswered(self) -> None:
        """Note that there was no answer in time."""
        if self._sent is not None:
            self._sent, self.tells = None, True

    @property
    def is_idle(self) -> bool:
        """True if the store knows everything, and nothing is drawn."""
        return (
            not self.tells
            and self._sent is None
            and self.settled == self._spent_settled
            and self.credit + self.claimed <= 0
        )
