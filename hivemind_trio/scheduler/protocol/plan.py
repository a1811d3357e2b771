"""Plan of an account: its windows as they stand, what is told of them, and what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from hivemind_trio.model import PlanSpan

from .call import CallId


@final
@attrs.frozen(kw_only=True)
class PlanWindowState:
    """One window as it was read last."""

    name: str
    """As the provider calls it."""
    span: PlanSpan
    used: int
    """In millionths, as of the reading."""
    window_ns: int
    resets_ns: int | None
    """When it begins anew; None: the provider does not say."""
    models: str
    """Word that the models have which it counts; empty: every model."""

    read_ns: int = 0
    """When it was read."""

    def used_at(self, now_ns: int) -> int:
        """Return the used share: none once the window has begun anew."""
        return 0 if self.resets_ns is not None and self.resets_ns <= now_ns else self.used


@final
@attrs.frozen
class PlanCrossing:
    """Share that a window is above now and was not before."""

    window: PlanWindowState
    share: int
    """In millionths."""


@final
@attrs.frozen(kw_only=True)
class PlanChanged:
    """For the operator and the journal: a reading of an account's plan differs from the one before it."""

    call_id: CallId
    """Call whose answer told."""
    provider: str
    account: str
    """Name of the caller's own credential; empty: the provider's key."""
    windows: tuple[PlanWindowState, ...]
    """All that hold, the shortest first."""
    overage: bool
    """The account now pays beyond its plan."""
    crossed: tuple[PlanCrossing, ...]


@final
@attrs.frozen(kw_only=True)
class PlanBelief:
    """Plan of one account in a form that can be kept. Resets are times from then."""

    account: str
    windows: tuple[PlanWindowState, ...]
    overage: bool = False
    consumption: Mapping[str, float] = attrs.field(factory=dict)
    """Window -> share that a call takes for each unit of its weight, in millionths."""
    watched_ns: int = 0
    """Since when its use has been watched."""
    hours: Mapping[str, tuple[tuple[int, int], ...]] = attrs.field(factory=dict)
    """Lane -> (hours ago, weight of its calls in that hour)."""
    sizes: Mapping[str, float] = attrs.field(factory=dict)
    """Lane -> mean weight of a call."""
