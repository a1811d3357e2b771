"""Settings of `plan` of a provider: who may use the windows of its accounts' plans, and when."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

import attrs

from hivemind_trio.model import PlanSpan

PACE_BURST: Final = 4.0


@final
class PlanOverage(StrEnum):
    """Treatment of calls that would be paid beyond the plan."""

    ALLOW = "allow"
    WARN = "warn"
    DENY = "deny"
    """They wait until a window begins anew."""


@final
class PlanRelease(StrEnum):
    """Release of a reserve before its window ends."""

    FORECAST = "forecast"
    """Shrinks to what its lanes are expected to use until then."""
    NEVER = "never"


@final
@attrs.frozen
class PlanReserve:
    """`reserve 30% of session for interactive`: the last part of a window is for these lanes."""

    share: int
    """In millionths."""
    span: PlanSpan
    lanes: tuple[str, ...]
    release: PlanRelease = PlanRelease.NEVER

    def __str__(self) -> str:
        kept = f"reserve {self.share / 10_000:g}% of {self.span} for [{', '.join(self.lanes)}]"
        return kept if self.release is PlanRelease.NEVER else f"{kept} release {self.release}"


@final
@attrs.frozen
class PlanPace:
    """`pace week for batch`: these lanes use no more than the elapsed share of a window."""

    span: PlanSpan
    lanes: tuple[str, ...]
    burst: float = PACE_BURST
    """Multiple of the even rate at which they catch up what was left unused."""

    def __str__(self) -> str:
        return f"pace {self.span} for [{', '.join(self.lanes)}] burst {self.burst:g}x"


@final
@attrs.frozen(kw_only=True)
class PlanSettings:
    """`plan { ... }` of a provider."""

    reserves: tuple[PlanReserve, ...] = ()
    paces: tuple[PlanPace, ...] = ()
    overage: PlanOverage = PlanOverage.WARN

    def __str__(self) -> str:
        return "; ".join([*map(str, self.reserves), *map(str, self.paces), f"overage {self.overage}"])

    def kept_from(self, lane: str, span: PlanSpan) -> tuple[PlanReserve, ...]:
        """Return the reserves of a span that are for other lanes."""
        return tuple(one for one in self.reserves if one.span is span and one.share and lane not in one.lanes)

    def pace_of(self, lane: str, span: PlanSpan) -> PlanPace | None:
        """Return by what calls of a lane keep to the elapsed share of a window; None: they need not."""
        return next((one for one in self.paces if one.span is span and lane in one.lanes), None)
