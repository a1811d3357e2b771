"""Budgets: allowances per window, and steps as they are used up."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, final

import attrs

from hivemind_trio.policy.language.unit_text import window_name


class Per(StrEnum):
    """Partition of a budget: one for each of these."""

    ALL = "all"
    """Nobody: it is one for all calls."""
    AGENT = "agent"
    TEAM = "team"
    MODEL = "model"
    PROVIDER = "provider"
    KEY = "key"
    """The credential that the provider is called with."""
    SESSION = "session"
    """The unit of work that an agent gives."""
    HEADER = "header"
    """The value of a header."""
    META = "meta"
    """A value of the body's `metadata`."""


NAMED_PARTS: Final = frozenset({Per.HEADER, Per.META})
"""Partitions by a value with a name of its own, as in `per header.x-user`."""


class Measure(StrEnum):
    """Unit that a budget counts."""

    COST = "cost"
    """Micro-dollars."""
    TOKENS = "tokens"
    """Tokens of every kind."""
    INPUT = "input"
    """Cached ones included."""
    OUTPUT = "output"
    REQUESTS = "requests"


class BudgetWindow(NamedTuple):
    """Window of a calendar."""

    length_ns: int
    """Length; a month has 31 days here."""
    is_month: bool = False
    """Ends with the month, however long that is."""
    timezone: str = ""
    """IANA name; empty: that of the server."""


@final
@attrs.frozen
class BudgetAllowance:
    """So much of one measure per window."""

    measure: Measure
    amount: int
    window_ns: int
    """Length of the window; a month has 31 days here."""
    calendar: bool
    """The window begins with the hour, the day, the week or the month; else it is the time just past."""
    is_month: bool = False
    timezone: str = ""
    """Zone of a calendar window, as an IANA name; empty: that of the server."""

    @property
    def window(self) -> BudgetWindow:
        """Window of the calendar."""
        return BudgetWindow(self.window_ns, self.is_month, self.timezone)

    def shown(self, amount: int | None = None) -> str:
        """`$5 per day`; or another amount in its unit, without the window."""
        value = self.amount if amount is None else amount
        text = f"${value / 10**6:,.6g}" if self.measure is Measure.COST else f"{value:,} {self.measure}"
        if amount is not None:
            return text
        return f"{text} per {window_name(self.window_ns, is_month=self.is_month)}"


@final
@attrs.frozen(kw_only=True)
class Threshold:
    """Step of a budget, from a share of the amount on."""

    share: float
    warn: bool = False
    lane: str | None = None
    priority: int | None = None
    model: str | None = None
    hold: bool = False
    """Calls wait until there is room again."""
    deny: str | None = None
    """Calls are refused, with these words."""

    @property
    def stops(self) -> bool:
        """Nothing goes beyond it."""
        return self.hold or self.deny is not None


@final
@attrs.frozen(kw_only=True)
class BudgetSettings:
    """A declared budget."""

    name: str
    per: Per
    allowances: tuple[BudgetAllowance, ...]
    thresholds: tuple[Threshold, ...]
    """By their share; at least one. Without one at the whole, the whole denies."""
    at: str
    per_name: str = ""
    """Name of the header or of the metadata value; empty for other partitions."""
    stop: Threshold | None = attrs.field(init=False, eq=False, repr=False)
    """The first that nothing goes beyond; None: it only watches."""

    @property
    def partition(self) -> str:
        """The partition as a policy writes it: `agent`, `header.x-user`."""
        return f"{self.per}.{self.per_name}" if self.per_name else f"{self.per}"

    @stop.default
    def _stop(self) -> Threshold | None:
        return next((step for step in self.thresholds if step.stops), None)
