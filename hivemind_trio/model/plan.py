"""Plans: the used share of windows of hours, days and weeks, as a provider reports it for one account."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

import attrs

WHOLE: Final = 1_000_000
"""Shares are counted in millionths."""

HOUR_NS: Final = 3_600 * 1_000_000_000
DAY_NS: Final = 24 * HOUR_NS


@final
class PlanSpan(StrEnum):
    """Names of windows by their length, in policies and in headers."""

    SESSION = "session"
    """Up to a day."""
    WEEK = "week"
    """Up to eight days."""
    MONTH = "month"

    @classmethod
    def of(cls, window_ns: int) -> PlanSpan:
        """Return the name of a window of this length."""
        if window_ns <= DAY_NS:
            return cls.SESSION
        return cls.WEEK if window_ns <= 8 * DAY_NS else cls.MONTH


@final
@attrs.frozen(kw_only=True)
class PlanWindow:
    """One window of a plan, as the head of an answer tells of it."""

    name: str
    """As the provider calls it."""
    used: int
    """Used share, in millionths: 0 to `WHOLE`."""
    window_ns: int
    resets_ns: int | None = None
    """Time from the answer until it begins anew; None: not reported."""
    models: str = ""
    """Word that the models have which it counts; empty: every model."""


@final
@attrs.frozen(kw_only=True)
class PlanReading:
    """Plan of one account, as the head of an answer tells of it."""

    windows: tuple[PlanWindow, ...]
    overage: bool = False
    """The account now pays beyond its plan."""


@final
@attrs.frozen(kw_only=True)
class PlanUse:
    """Fullest window of one span that counts a call."""

    span: PlanSpan
    used: int
    """In millionths."""
    resets_ns: int | None
    """Time until it begins anew; None: unknown."""


@final
@attrs.frozen(kw_only=True)
class PlanStanding:
    """Plan of an account as it counts for calls of one model."""

    uses: tuple[PlanUse, ...] = ()
    """The shortest first, one for each span that has been read."""
    overage: bool = False

    def used(self, span: PlanSpan) -> int:
        """Return the used share of a span, in millionths; 0: it was never read."""
        return next((one.used for one in self.uses if one.span is span), 0)


NO_PLAN: Final = PlanStanding()
"""Standing of an account that no answer has told of."""
