"""Budgets that several nodes share: which account is to speak to the store, and when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.scheduler.protocol.account_key import AccountKey
from hivemind_trio.scheduler.protocol.budget_draw import AskBudgets, BudgetDraw, BudgetsAnswered
from hivemind_trio.scheduler.sharing.budget_ask import NO_LIMIT
from hivemind_trio.scheduler.sharing.budget_credit import MS, BudgetCredit
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap

from .budget_account import BudgetAccount

BATCH: Final = 64
"""Accounts in one question."""

RETRY_NS: Final = 500 * MS
"""After a question without an answer."""


@final
@attrs.define(eq=False)
class SharedBudgets:
    """Questions of this node about its accounts, one at a time.

    Args:
        epoch: As in `BudgetsShared`.
        renew_ns: Longest time between two questions: a store that was emptied must hear of every node in time.
        settled: The same, by account.
    """

    _epoch: int
    renew_ns: int
    _settled: dict[AccountKey, int]
    agenda: IndexedHeap[BudgetAccount] = attrs.field(init=False, factory=IndexedHeap)
    """Accounts by when they are to speak."""
    _due_ns: dict[BudgetAccount, int] = attrs.field(init=False, factory=dict)
    _untold: dict[BudgetAccount, None] = attrs.field(init=False, factory=dict)
    """Accounts that this life of the store has not been told of."""
    _asked: tuple[BudgetAccount, ...] | None = attrs.field(init=False, default=None)
    """Accounts in the question under way."""
    _run: str = attrs.field(init=False, default="")
    _greets_ns: int = attrs.field(init=False, default=0)
    """When the store is to be spoken to, though it be of no account."""
    _seq: int = attrs.field(init=False, default=0)
    _lives: int = attrs.field(init=False, default=0)
    _retry_ns: int = attrs.field(init=False, default=0)
    closing: bool = attrs.field(init=False, default=False)
    has_budgets: bool = attrs.field(init=False, default=True)
    """True if the policy has any: else there is nothing to tell of."""

    @property
    def under_way(self) -> bool:
        """True if a question has no answer yet."""
        return self._asked is not None

    def join(self, account: BudgetAccount, now_ns: int) -> None:
        """Share an account from now on."""
        account.shared = credit = BudgetCredit(self._lives, account.claimed, now_ns)
        self._lives += 1
        if self._epoch:
            credit.closes = self._epoch, self._settled.pop(account.key, 0)
        self._untold[account] = None
        self.look(account)

    def left_open(self) -> tuple[AccountKey, ...]:
        """Return the accounts that the process before has used and this one has not."""
        return tuple(self._settled)

    def leave(self, account: BudgetAccount) -> None:
        """Speak of an account no more."""
        self.agenda.discard(account)
        self._due_ns.pop(account, None)
        self._untold.pop(account, None)
        account.shared = None

    def look(self, account: BudgetAccount) -> None:
        """Note when an account is to speak, after anything has happened to it."""
        if account.shared is None:
            return
        due_ns = account.shared.due_ns(closing=self.closing)
        if self._due_ns.get(account) != due_ns:
            self._due_ns[account] = due_ns
            self.agenda.put(account, (due_ns,))

    def called(self, accounts: Iterable[BudgetAccount], *, closing: bool) -> None:
        """Have accounts speak that have something to give, or wait for it."""
        if closing:
            self.closing, self._retry_ns = True, 0
        for account in accounts:
            if account.shared is not None:
                account.shared.called()
                self.look(account)

    def wakes_ns(self) -> int | None:
        """Return when time alone matters."""
        if self._asked is not None:
            return None
        first = self.agenda.first
        if first is None and not self.has_budgets:
            return None
        due_ns = self._greets_ns if first is None else min(self._greets_ns, self._due_ns[first])
        return max(self._retry_ns, due_ns)

    def ask(self, program: Program, now_ns: int) -> AskBudgets | None:
        """Return what to ask the store now; None: nothing."""
        due_ns = self.wakes_ns()
        if due_ns is None or due_ns > now_ns:
            return None
        asked: list[BudgetAccount] = []
        draws: list[BudgetDraw] = []
        while (account := self.agenda.first) is not None and self._due_ns[account] <= now_ns and len(asked) < BATCH:
            self.agenda.discard(account)
            del self._due_ns[account]
            asked.append(account)
            self._untold.pop(account, None)
            draws.append(self._draw(account, program, now_ns))
        self._asked, self._greets_ns = tuple(asked), now_ns + self.renew_ns
        self._seq += 1
        return AskBudgets(seq=self._seq, run=self._run, complete=not self._untold, accounts=tuple(draws))

    def _draw(self, account: BudgetAccount, program: Program, now_ns: int) -> BudgetDraw:
        credit, allowance = account.shared, account.allowance
        assert credit is not None
        stop = program.budgets[account.key.budget].stop
        limit = int(allowance.amount * stop.share) if stop is not None else NO_LIMIT
        left_ns = account.left_ns(now_ns)
        window_ms = max(1, allowance.window_ns // MS)
        return BudgetDraw(
            account.key, left_ns, credit.ask(limit, window_ms, account.report(now_ns), now_ns, closing=self.closing)
        )

    def answered(self, event: BudgetsAnswered, now_ns: int) -> list[tuple[BudgetAccount, bool]]:
        """Take the store's answer; return the accounts, and True if an operator has set what is spent of one."""
        answer, asked = event.answer, self._asked
        if asked is None or answer.seq != self._seq:
            return []
        self._asked = None
        if len(answer.accounts) != len(asked):
            self._unanswered(asked, now_ns)
            return []
        changed = []
        for account, one in zip(asked, answer.accounts, strict=True):
            if account.shared is None:
                continue
            replaced = account.shared.answered(one, now_ns)
            if one.anew:
                self._untold[account] = None
            changed.append((account, replaced))
        if answer.run != self._run:
            # What was asked without knowing of this life is told already, if it is the first.
            begins_anew, self._run = bool(self._run), answer.run
            self._greets_ns = 0  # to this life, what was said before it was heard of may have been late
            for account in list(self._due_ns) if begins_anew else ():
                self._tell(account)
            for account, _ in changed if begins_anew else ():
                self._tell(account)
        for account, _ in changed:
            self.look(account)
        return changed

    def _tell(self, account: BudgetAccount) -> None:
        assert account.shared is not None
        account.shared.told_nothing()
        self._untold[account] = None
        self.look(account)

    def unanswered(self, seq: int, now_ns: int) -> None:
        """Note that there was no answer in time."""
        if self._asked is not None and seq == self._seq:
            asked, self._asked = self._asked, None
            self._unanswered(asked, now_ns)

    def _unanswered(self, asked: tuple[BudgetAccount, ...], now_ns: int) -> None:
        self._retry_ns = now_ns + RETRY_NS
        self._greets_ns = 0
        for account in asked:
            if account.shared is not None:
                account.shared.unanswered()
                self._untold[account] = None
                self.look(account)
