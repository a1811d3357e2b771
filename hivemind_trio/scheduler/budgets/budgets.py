"""Budgets: what we allow, kept so that calls on their way together cannot go beyond it.

A call claims the most that it may take before it stands in line, spends what it has taken when that is known, and gives
back the rest. What has been spent decides how calls are treated as it grows: with a warning, in another lane, with
another priority or model, held until there is room, or refused.

Where a ledger keeps the accounts beyond the end of the process, a claim needs credit that the ledger has made durable.
Credit is drawn in chunks, ahead of use; a call waits for it only where the chunk is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, final

import attrs

from hivemind_trio.model import Decider, Decision, Request, Usage
from hivemind_trio.policy import BudgetAllowance, BudgetSettings, Measure, ModelPrice, Per, Program, Renames, Threshold
from hivemind_trio.scheduler.protocol.account_key import AccountKey, is_named_by_policy
from hivemind_trio.scheduler.protocol.budget_draw import AskBudgets, BudgetsAnswered, BudgetsShared, BudgetsUnanswered
from hivemind_trio.scheduler.protocol.ledger import Correction, Draw, Parts, RestoredAccount
from hivemind_trio.scheduler.structures.indexed_heap import Rank

from .budget_account import BudgetAccount, Turns
from .shared_budgets import SharedBudgets

ACCOUNTS_MAX: Final = 10_000
"""Accounts in all. Those that hold nothing are forgotten then; if none does, callers that come next share one account.

Partitions that the policy names are always accounts of their own: strangers cannot take their place.
"""

SWEEP_EVERY: Final = ACCOUNTS_MAX // 8
"""Look-ups of new partitions between two searches for accounts that hold nothing, so that each pays for a few."""

OTHERS: Final = "(others)"
"""The partition of whoever has none of its own."""

Amounts = Mapping[Measure, int]


def amounts_of(usage: Usage, price: ModelPrice | None, *, requests: int = 1) -> Amounts:
    """Return the amounts of a call's tokens, by measure."""
    tokens_in = (usage.input or 0) + usage.cache_read + usage.cache_write
    return {
        Measure.COST: price.cost_of(usage) if price is not None else 0,
        Measure.TOKENS: tokens_in + usage.output,
        Measure.INPUT: tokens_in,
        Measure.OUTPUT: usage.output,
        Measure.REQUESTS: requests,
    }


class Partition(NamedTuple):
    """Partition of budgets that a call belongs to, by the call's own facts."""

    agent: str
    team: str
    model: str
    provider: str
    key: str
    session: str
    unproven: str
    """Credential or address of a caller that proves nothing; empty: the caller is a declared agent with a token."""
    request: Request

    def of(self, budget: BudgetSettings) -> str:
        """Return the name under which a budget `per` something is kept."""
        match budget.per:
            case Per.ALL:
                return ""
            case Per.HEADER:
                return self._claimed(self.request.headers.get(budget.per_name, ""))
            case Per.META:
                return self._claimed(self.request.meta.get(budget.per_name, ""))
            case Per.SESSION:
                return self._claimed(self.session)
        return str(getattr(self, budget.per))

    def _claimed(self, value: str) -> str:
        """Return the partition of what a caller says of itself: saying something else gives no new money."""
        return f"{self.unproven} {value}" if value and self.unproven else value


@final
@attrs.define(eq=False)
class Reservation:
    """Reservation of a call in budgets. It ends once: spent, or given back."""

    _parts: tuple[tuple[BudgetAccount, int], ...]
    booked: bool = attrs.field(default=False, init=False)
    """The ledger knows of it, and is to be told of its end."""
    _over: bool = attrs.field(default=False, init=False)

    def book(self) -> Parts:
        """Return the amounts that the ledger is to note, now that the call begins."""
        parts = tuple((account.key, amount) for account, amount in self._parts if account.credit is not None)
        self.booked |= bool(parts)
        return parts

    def end(self, spent: Amounts | None, now_ns: int) -> list[BudgetAccount]:
        """Spend so much, or nothing; return the accounts that have calls waiting for room."""
        assert not self._over
        self._over = bool(self._parts)
        for account, amount in self._parts:
            account.put_back(amount, None if spent is None else spent[account.allowance.measure], now_ns)
        return [account for account, _ in self._parts if account.held.first is not None]

    @property
    def accounts(self) -> tuple[BudgetAccount, ...]:
        """Accounts that it counts in."""
        return tuple(account for account, _ in self._parts)

    def spent(self, spent: Amounts | None) -> Parts:
        """Return what is spent of accounts that a ledger keeps."""
        return tuple(
            (account.key, 0 if spent is None else spent[account.allowance.measure])
            for account, _ in self._parts
            if account.credit is not None
        )


NO_CLAIM: Final = Reservation(())
"""Reservation of calls without budgets."""


@final
@attrs.frozen
class InsufficientBudget:
    """Why a call cannot have its claim now."""

    budget: BudgetSettings
    account: BudgetAccount
    step: Threshold

    def denies(self, now_ns: int) -> bool:
        """Return True if the budget rejects rather than holds, and only time makes room."""
        return self.step.deny is not None and self.account.used_up(self.step.share, now_ns)

    def opens_ns(self, now_ns: int) -> int | None:
        """When time makes room; None: other calls will, as they end."""
        return self.account.opens_ns(self.step.share, now_ns) if self.account.used_up(self.step.share, now_ns) else None


@final
@attrs.frozen
class MissingCredit:
    """An account whose ledger has not made enough durable for a claim."""

    account: BudgetAccount

    def denies(self, now_ns: int) -> bool:
        """Return False: the call waits, and the caller bounds how long."""
        return False

    def opens_ns(self, now_ns: int) -> int | None:
        """Nothing but the ledger makes room."""
        return None


@final
@attrs.define(eq=False)
class Budgets:
    """All accounts."""

    _turns: Turns
    _program: Program = attrs.field(init=False)
    accounts: dict[AccountKey, BudgetAccount] = attrs.field(factory=dict, init=False)
    _found: dict[tuple[str, str], tuple[BudgetAccount, ...]] = attrs.field(factory=dict, init=False)
    """Accounts by budget and partition: one for each allowance, in order."""
    _new: int = attrs.field(default=0, init=False)
    """Partitions that were looked for and not found, since accounts were last forgotten."""
    kept: bool = attrs.field(default=False, init=False)
    """A ledger keeps the accounts."""
    writable: bool = attrs.field(default=True, init=False)
    """The ledger takes entries."""
    shared: SharedBudgets | None = attrs.field(default=None, init=False)
    """Questions to the store that several nodes share; None: this node is alone."""
    draws: list[Draw] = attrs.field(factory=list, init=False)
    """Chunks to ask the ledger for, since the scheduler last did."""

    def rename(self, renames: Renames, now_ns: int) -> None:
        """Budgets, and those who have one of their own, are called otherwise from now on."""
        self.accounts = {key.renamed(renames): account for key, account in self.accounts.items()}
        for key, account in self.accounts.items():
            if account.key != key:
                # The chunk that is on its way would come under the old name.
                account.key, account.drawing = key, False
                if self.shared is not None:
                    # To the store it is another account.
                    self.shared.leave(account)
                    self.shared.join(account, now_ns)
        self._found.clear()

    def load(self, program: Program, now_ns: int) -> None:
        """Take the budgets of a new policy. What was spent of one that stays, in a window that stays, is spent."""
        self._program = program
        if self.shared is not None:
            self.shared.renew_ns, self.shared.has_budgets = program.store.renew_ns, bool(program.budgets)
        accounts, self.accounts = self.accounts, {}
        self._found.clear()
        for key, account in accounts.items():
            budget = program.budgets.get(key.budget)
            for allowance in budget.allowances if budget is not None else ():
                if budget is not None and key == AccountKey.of(budget, allowance, key.whose):
                    account.allowance = allowance
                    self.accounts[key] = account
            if self.shared is not None and key not in self.accounts:
                self.shared.leave(account)
        self._join_everybodys(now_ns)

    def open(self, restored: Iterable[RestoredAccount], now_ns: int) -> None:
        """Have a ledger keep the accounts from now on, and take over what it knows of those of this policy."""
        self.kept = True
        for one in restored:
            budget = self._program.budgets.get(one.key.budget)
            for allowance in budget.allowances if budget is not None else ():
                if budget is not None and one.key == AccountKey.of(budget, allowance, one.key.whose):
                    self._account(budget, allowance, one.key.whose, now_ns).restore(one.spent, now_ns)
        for account in self.accounts.values():
            account.credit = 0

    def share(self, event: BudgetsShared, now_ns: int) -> None:
        """Draw every account from the store of several nodes from now on."""
        self.shared = SharedBudgets(event.epoch, self._program.store.renew_ns, dict(event.settled))
        self.shared.has_budgets = bool(self._program.budgets)
        for account in self.accounts.values():
            self.shared.join(account, now_ns)
        for key in self.shared.left_open():
            budget = self._program.budgets.get(key.budget)
            for allowance in budget.allowances if budget is not None else ():
                if budget is not None and key == AccountKey.of(budget, allowance, key.whose):
                    self._account(budget, allowance, key.whose, now_ns)
        self._join_everybodys(now_ns)

    def spent_here(self) -> tuple[tuple[AccountKey, int], ...]:
        """Return what this node has spent of each shared account, with the claims of calls in flight."""
        return tuple(
            (key, account.shared.settled + account.claimed)
            for key, account in self.accounts.items()
            if account.shared is not None
        )

    def _join_everybodys(self, now_ns: int) -> None:
        """Have the accounts of all callers before the first call: an operator sees what other nodes have spent."""
        for budget in self._program.budgets.values() if self.shared is not None else ():
            for allowance in budget.allowances if budget.per is Per.ALL else ():
                self._account(budget, allowance, "", now_ns)

    def ask(self, now_ns: int) -> AskBudgets | None:
        """Return what to ask the store that several nodes share now; None: nothing."""
        return self.shared.ask(self._program, now_ns) if self.shared is not None else None

    def on_answer(
        self, event: BudgetsAnswered | BudgetsUnanswered, now_ns: int
    ) -> tuple[list[BudgetAccount], list[Correction]]:
        """Take the store's answer; return accounts whose calls are to be asked again, and news for the ledger."""
        if self.shared is None:
            return [], []
        if isinstance(event, BudgetsUnanswered):
            self.shared.unanswered(event.seq, now_ns)
            return [], []
        changed = self.shared.answered(event, now_ns)
        replaced = [account for account, is_replaced in changed if is_replaced]
        # At another node, the amount that the operator has set includes the spend of this node.
        corrections = [Correction(account.key, account.correct(0, now_ns)) for account in replaced]
        return [account for account, _ in changed if account.held.first is not None], corrections

    def drawn(self, key: AccountKey, amount: int) -> BudgetAccount | None:
        """Credit a chunk; return the account, None: it is gone."""
        account = self.accounts.get(key)
        if account is not None and account.credit is not None:
            account.credit += amount
            account.drawing = False
        return account

    def apply(self, treatment: Decision, whose: Partition, now_ns: int) -> Decision:
        """Return the decision as spent budgets change it; of each setting the first budget decides."""
        said: dict[str, Any] = {}
        deciders: dict[str, Decider] = {}
        warnings = []
        for name in treatment.budgets:
            budget = self._program.budgets[name]
            share, account = -1.0, None
            for one in self.accounts_of(budget, whose, now_ns):
                of_one = one.share(now_ns)
                if of_one > share:
                    share, account = of_one, one
            assert account is not None, "a budget has an allowance"
            if share < budget.thresholds[0].share:
                continue
            passed = [step for step in budget.thresholds if share >= step.share]
            if any(step.warn for step in passed):
                allowance = account.allowance
                used = allowance.shown(account.spent(now_ns))
                warnings.append(f"budget {name}: {share:.0%}, {used} of {allowance.shown()}")
            decider = Decider("budget", name, budget.at)
            for step in reversed(passed):
                for setting in ("lane", "priority", "model"):
                    value = getattr(step, setting)
                    if value is not None and setting not in said:
                        said[setting], deciders[setting] = value, decider
        if not said and not warnings:
            return treatment
        return attrs.evolve(
            treatment,
            **said,
            decided={**treatment.decided, **deciders},
            budget_warnings=tuple(warnings),
        )

    def claim(
        self, treatment: Decision, whose: Partition, most: Amounts, rank: Rank, now_ns: int
    ) -> Reservation | InsufficientBudget | MissingCredit:
        """Put aside the most that a call may take, of every budget that stops at some share; or say which cannot.

        Args:
            rank: Calls that are held go before those that come after them.
        """
        parts = []
        missing = None
        for name in treatment.budgets:
            budget = self._program.budgets[name]
            stop = budget.stop
            for account in self.accounts_of(budget, whose, now_ns):
                amount = most[account.allowance.measure]
                if stop is not None:
                    first = account.held.first
                    behind = first is not None and first.rank < rank
                    uncredited = account.lacks(amount, now_ns) or bool(amount and self.kept and not self.writable)
                    if self.shared is not None:
                        self.shared.look(account)
                    if (behind and not uncredited) or not account.fits(amount, stop.share, now_ns):
                        return InsufficientBudget(budget, account, stop)
                    if uncredited:
                        missing = missing or account
                        self._draw(account, amount)
                parts.append((account, amount, stop is not None))
        if missing is not None:
            return MissingCredit(missing)
        for account, amount, stops in parts:
            account.put_aside(amount, now_ns, stops=stops)
            if self.shared is not None:
                self.shared.look(account)
            elif amount and account.credit is not None and account.credit < account.chunk(amount) // 2:
                self._draw(account, amount)
        return Reservation(tuple((account, amount) for account, amount, _ in parts))

    def _draw(self, account: BudgetAccount, amount: int) -> None:
        """Ask the ledger for a chunk, ahead of use where that is possible."""
        if self.shared is None and not account.drawing:
            account.drawing = True
            self.draws.append(Draw(account.key, account.chunk(amount)))

    def accounts_of(self, budget: BudgetSettings, partition: Partition, now_ns: int) -> tuple[BudgetAccount, ...]:
        """At least one: those of the budget's allowances."""
        whose = partition.of(budget)
        found = self._found.get((budget.name, whose))
        if found is None:
            known = AccountKey.of(budget, budget.allowances[0], whose) in self.accounts
            if not known and not is_named_by_policy(budget.per, whose) and not self._room(now_ns):
                whose = OTHERS
            found = tuple(self._account(budget, allowance, whose, now_ns) for allowance in budget.allowances)
            self._found[budget.name, whose] = found
        return found

    def _room(self, now_ns: int) -> bool:
        """Return whether there may be another account; forget those that hold nothing. O(1), amortised."""
        self._new += 1
        if len(self.accounts) >= ACCOUNTS_MAX and self._new >= SWEEP_EVERY:
            self._new = 0
            idle = [one for one in self.accounts.values() if one.idle(now_ns)]
            for one in idle:
                del self.accounts[one.key]
                if self.shared is not None:
                    self.shared.leave(one)
            self._found.clear()
        return len(self.accounts) < ACCOUNTS_MAX

    def _account(self, budget: BudgetSettings, allowance: BudgetAllowance, whose: str, now_ns: int) -> BudgetAccount:
        key = AccountKey.of(budget, allowance, whose)
        account = self.accounts.get(key)
        if account is None:
            account = self.accounts[key] = BudgetAccount(key, allowance, self._turns, 0 if self.kept else None)
            if self.shared is not None:
                self.shared.join(account, now_ns)
        return account


def sent(request: Request, treatment: Decision) -> Request:
    """Return the request with the model and the limit of the output that it is sent with."""
    if treatment.model is not None:
        request = attrs.evolve(request, model=treatment.model)
    most = treatment.output_limit(request.tokens_thinking)
    asked = request.tokens_max_out
    if most is not None and not 0 < asked <= most:
        request = attrs.evolve(request, tokens_max_out=most)
    return request
