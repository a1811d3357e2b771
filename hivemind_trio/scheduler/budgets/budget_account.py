"""One allowance of one budget: what was spent of it in its window, and what calls on their way have claimed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Protocol, final

import attrs

from hivemind_trio.policy import BudgetAllowance, BudgetWindow
from hivemind_trio.scheduler.protocol.account_key import AccountKey
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.sharing.budget_credit import BudgetCredit
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap, Rank
from hivemind_trio.scheduler.structures.sliding_window import SlidingWindow

Turns = Callable[[int, BudgetWindow], int]
"""When the calendar's window that holds a moment ends, both since the engine began. The calendar is the
world's, and comes from outside."""

CHUNKS: Final = 16
"""A chunk that is drawn from the ledger is such a part of the allowance. After a loss of power as much may be charged
too much, until the window ends; each chunk costs one write that is awaited by the disk and, mostly, by nobody else."""


OPENS_AGAIN_NS: Final = 1_000_000_000
"""Time until it is asked again whether there is room, where no time is known."""


class HeldCall(Hashable, Protocol):
    """A call that waits for room in a budget; `call.id` finds it in the waiting room."""

    @property
    def call(self) -> Call:
        """The call."""
        ...

    @property
    def rank(self) -> Rank:
        """Rank in the queue."""
        ...


@final
@attrs.define(eq=False)
class BudgetAccount:
    """In one's own name, or everybody's."""

    key: AccountKey
    allowance: BudgetAllowance
    _turns: Turns
    credit: int | None = None
    """Amount that is durable in the ledger and that no call has claimed or spent; None: no ledger keeps it."""
    shared: BudgetCredit | None = attrs.field(default=None, init=False)
    """Credit of this node, where several share the account; None: it is this node's alone."""
    drawing: bool = attrs.field(default=False, init=False)
    """A chunk has been asked for and is not there yet."""
    claimed: int = attrs.field(default=0, init=False)
    """By calls that wait or are in flight, at the most that they can take."""
    held: IndexedHeap[HeldCall] = attrs.field(factory=IndexedHeap, init=False)
    """Calls that wait for room here."""
    _spent: int = attrs.field(default=0, init=False)
    _turns_ns: int = attrs.field(default=0, init=False)
    """When the calendar's window ends."""
    _sliding: SlidingWindow = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sliding = SlidingWindow(self.allowance.window_ns)

    def spent(self, now_ns: int) -> int:
        """Return the amount spent in the window of now, by all nodes."""
        own = self._own(now_ns)
        told = self.shared.spent if self.shared is not None else None
        return own if told is None else told

    def _own(self, now_ns: int) -> int:
        """Return the amount that this node has spent in the window of now."""
        if not self.allowance.calendar:
            return self._sliding.sum(now_ns)
        if now_ns >= self._turns_ns:
            self._spent, self._turns_ns = 0, self._turns(now_ns, self.allowance.window)
            if self.shared is not None:
                self.shared.turn()
        return self._spent

    def seen(self, now_ns: int) -> int:
        """Return the same to whoever only looks: the calendar is not asked, which a recorded session would show."""
        if self.allowance.calendar and now_ns >= self._turns_ns:
            return 0
        told = self.shared.spent if self.shared is not None else None
        if told is not None:
            return told
        return self._spent if self.allowance.calendar else self._sliding.sum(now_ns)

    def left_ns(self, now_ns: int) -> int | None:
        """Return the time until the calendar window ends; None: the window is the time just past."""
        self._own(now_ns)
        return self._turns_ns - now_ns if self.allowance.calendar else None

    def report(self, now_ns: int) -> tuple[tuple[int, int], ...]:
        """Return (age in ms, amount) of what this node has spent in the window of now."""
        own = self._own(now_ns)
        if self.allowance.calendar:
            return ((0, own),) if own else ()
        return tuple((age_ns // 1_000_000, amount) for age_ns, amount in self._sliding.ages(now_ns))

    def share(self, now_ns: int) -> float:
        """Return the share of the amount that is spent: 1 and more is all."""
        return self.spent(now_ns) / self.allowance.amount if self.allowance.amount else 1.0

    def fits(self, amount: int, share: float, now_ns: int) -> bool:
        """Return True if so much more stays within a share of the amount, whatever the calls in flight take.

        What is thought to take more than is left may go alone: most calls take far less than they might.
        """
        limit = self.allowance.amount * share
        spent = self.spent(now_ns)
        if self.shared is not None:
            return spent < limit and (self.shared.credit >= amount or not self.shared.is_short)
        return spent < limit and (not self.claimed or spent + self.claimed + amount <= limit)

    def chunk(self, amount: int) -> int:
        """Return the size of a chunk: room for more claims of that size, and some part of the allowance."""
        return max(4 * amount, self.allowance.amount // CHUNKS, 1)

    def lacks(self, amount: int, now_ns: int) -> bool:
        """Return True if ledger or store have not granted enough for a claim of that size."""
        if self.shared is not None:
            return amount > 0 and self.shared.lacks(amount, now_ns)
        return self.credit is not None and self.credit < amount

    def put_aside(self, amount: int, now_ns: int, *, stops: bool) -> None:
        """Claim an amount of a budget that stops calls or not."""
        self.claimed += amount
        if self.credit is not None:
            self.credit -= amount
        if self.shared is not None:
            self.shared.claim(amount, now_ns, stops=stops)

    def put_back(self, amount: int, spent: int | None, now_ns: int) -> None:
        """End a claim. Less or more than it may have been spent; None: nothing was."""
        self.claimed -= amount
        if self.credit is not None:
            self.credit += amount - (spent or 0)
        if self.shared is not None:
            self._own(now_ns)  # a window that has ended has none of it
            self.shared.settle(amount, spent or 0, now_ns)
        if spent is not None:
            self.spend(spent, now_ns)

    def restore(self, spent: tuple[tuple[int, int], ...], now_ns: int) -> None:
        """Take over what an earlier process spent: (when, amount), oldest first."""
        self._own(now_ns)
        for at_ns, amount in spent:
            if self.allowance.calendar:
                self._spent += amount
            else:
                self._sliding.add(amount, min(at_ns, now_ns))

    def used_up(self, share: float, now_ns: int) -> bool:
        """Return True if that share of the amount is spent, so that only time makes room."""
        return self.spent(now_ns) >= self.allowance.amount * share

    def opens_ns(self, share: float, now_ns: int) -> int:
        """When time alone makes room again."""
        limit = int(self.allowance.amount * share)
        if self.spent(now_ns) < limit:
            return now_ns
        if self.allowance.calendar:
            return self._turns_ns
        if self.shared is not None:
            return self.shared.opens_ns or now_ns + OPENS_AGAIN_NS
        return self._sliding.at_most_ns(max(0, limit - 1), now_ns)

    def spend(self, amount: int, now_ns: int) -> None:
        """Spend an amount."""
        self._own(now_ns)
        if self.allowance.calendar:
            self._spent += amount
        else:
            self._sliding.add(amount, now_ns)

    def correct(self, spent: int, now_ns: int) -> tuple[tuple[int, int], ...]:
        """Have so much count as spent in the window of now; return (age in ns, change) for the ledger."""
        if self.allowance.calendar:
            change = spent - self._own(now_ns)
            self._spent = spent
            return ((0, change),)
        taken_back = tuple((age_ns, -amount) for age_ns, amount in self._sliding.ages(now_ns))
        self._sliding = SlidingWindow(self.allowance.window_ns)
        if spent:
            self._sliding.add(spent, now_ns)
        return (*taken_back, (0, spent))

    def idle(self, now_ns: int) -> bool:
        """Nothing would be lost with it."""
        has_news = self.shared is not None and not self.shared.is_idle
        return not self.claimed and not self.held and not self._own(now_ns) and not has_news
