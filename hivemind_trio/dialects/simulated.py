"""Answers of a simulated provider that differ by dialect: its refusals, and what its heads say of quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, final

import attrs

from hivemind_trio.model import Dimension, QuotaReading

from .events import ErrorBody

SECOND_NS = 1_000_000_000


class QuotaLevel(Protocol):
    """Level of a simulated quota."""

    @property
    def limit(self) -> int:
        """Return the units per window."""

    @property
    def remaining(self) -> int:
        """Return the whole units left."""

    @property
    def full_ns(self) -> int:
        """Return the time until the quota is whole again."""


Levels = Mapping[Dimension, QuotaLevel]


@final
@attrs.frozen(kw_only=True)
class SimulatedRefusal:
    """Refusal of a simulated provider, in no dialect yet."""

    status: int
    kind: str
    """The error's `type` in Anthropic's words."""
    message: str
    dimension: Dimension | None
    """Dimension of a 429; None: not one of a quota."""
    retry_after_ns: int | None


@final
@attrs.frozen(kw_only=True, eq=False)
class SimulatedAnswers:
    """Format of a simulated provider's answers."""

    error: Callable[[SimulatedRefusal], ErrorBody]
    used_up: Callable[[Dimension], Mapping[str, str]]
    """Headers, beside a 429, that say which quota is used up."""
    plan_used_up: Callable[[int], tuple[str, Mapping[str, str]]] | None = None
    """Error type, and headers beside a 429, of a plan that is used up for so many seconds; None: no plan is reported
    in this dialect."""
    says_retry_after: bool = True
    """True if `retry-after` is a header, and not in the body."""
    readings: Callable[[Levels, int], tuple[QuotaReading, ...]] | None = None
    """Readings of a head that is sent at a time, as the reader of the dialect's headers has them; None: none."""


def no_headers(dimension: Dimension) -> Mapping[str, str]:
    """Return no header: the dialect has none for what is used up."""
    return {}
