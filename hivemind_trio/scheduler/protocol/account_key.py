"""Identity of a budget account, equal over reloads and restarts."""

from __future__ import annotations

from typing import NamedTuple, Self

from hivemind_trio.policy import BudgetAllowance, BudgetSettings, BudgetWindow, Measure, Per, Renames

from .agent_key import is_declared, name_of_word, renamed_word


def is_named_by_policy(per: Per, whose: str) -> bool:
    """Return True if the policy names such partitions, so that callers cannot add any."""
    match per:
        case Per.ALL | Per.TEAM | Per.PROVIDER:
            return True
        case Per.AGENT:
            return is_declared(whose)
        case _:
            return False


class AccountKey(NamedTuple):
    """Key of an account: another window or measure is another account."""

    budget: str
    per: Per
    whose: str
    """Partition: the agent, team or whatever the budget is `per`; empty: the budget is everybody's."""
    measure: Measure
    window_ns: int
    calendar: bool
    is_month: bool = False
    timezone: str = ""
    """Zone of a calendar window; empty: that of the server."""
    per_name: str = ""
    """Name of the header or of the metadata value that it is per."""

    @classmethod
    def of(cls, budget: BudgetSettings, allowance: BudgetAllowance, whose: str) -> Self:
        """Return the key of one partition's account of one allowance."""
        return cls(
            budget.name,
            budget.per,
            whose,
            allowance.measure,
            allowance.window_ns,
            allowance.calendar,
            allowance.is_month,
            allowance.timezone,
            budget.per_name,
        )

    @property
    def window(self) -> BudgetWindow:
        """Window of the calendar."""
        return BudgetWindow(self.window_ns, self.is_month, self.timezone)

    @property
    def subject(self) -> str:
        """Partition in the words of people: what an operator reads and types."""
        return name_of_word(self.whose) if self.per is Per.AGENT else self.whose

    def renamed(self, renames: Renames) -> Self:
        """Return the same account in the names of the new policy."""
        match self.per:
            case Per.AGENT:
                whose = renamed_word(self.whose, renames)
            case Per.TEAM | Per.PROVIDER:
                whose = renames.swapped(self.per.value, self.whose)
            case _:
                whose = self.whose
        return self._replace(budget=renames.swapped("budget", self.budget), whose=whose)
