"""Learned state of providers, and clients' sessions, in a form that can be kept: hints for the next process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.model import Dimension
from hivemind_trio.policy import Window

from .plan import PlanBelief


@final
@attrs.frozen(kw_only=True)
class WindowBelief:
    """Use of one declared rate limit."""

    group: str | None
    """Glob of the `limits` block; None: it holds for every model."""
    dimension: Dimension
    window_ns: int
    kind: Window
    """Kind that answers have shown; `LEARN`: none."""
    depth: float
    """Depth of a bucket, as a share of the limit."""
    taken: tuple[tuple[int, int], ...]
    """(Age in ns, amount) of what was taken, oldest first."""
    owed_ns: int
    """Time until all that was taken has been earned."""


@final
@attrs.frozen(kw_only=True)
class ModelBelief:
    """Tokens of one model at one provider, in the calls of one client."""

    model: str
    scale: float
    """Input tokens for each that is estimated from bytes."""
    output: float
    """Mean output tokens of a call."""
    client: str = ""
    """Program of the agents that made these calls; empty: it is not known."""


@final
@attrs.frozen(kw_only=True)
class ProviderBeliefs:
    """Learned state of one provider."""

    limit: int | None = None
    """Concurrency limit; None: the policy fixes it."""
    doubling: bool = True
    """No cut has shown the limit yet."""
    models: tuple[ModelBelief, ...] = ()
    windows: tuple[WindowBelief, ...] = ()
    plans: tuple[PlanBelief, ...] = ()


@final
@attrs.frozen(kw_only=True)
class KeptThread:
    """One conversation of a session."""

    caller: str
    job: str
    context: int
    turns: int
    first_context: int
    uses_tools: bool
    agent: str
    model: str
    provider: str
    seen_ns: int


@final
@attrs.frozen(kw_only=True)
class KeptTotal:
    """A whole session."""

    caller: str
    session: str
    first_ns: int
    cost: int


@final
@attrs.frozen
class KeptSessions:
    """Sessions that were seen lately, the last at the end. Times are since an engine began, and may be before that."""

    threads: tuple[KeptThread, ...] = ()
    totals: tuple[KeptTotal, ...] = ()

    def shifted(self, by_ns: int) -> KeptSessions:
        """Return the same by an engine that began so much earlier."""
        return KeptSessions(
            tuple(attrs.evolve(one, seen_ns=one.seen_ns + by_ns) for one in self.threads),
            tuple(attrs.evolve(one, first_ns=one.first_ns + by_ns) for one in self.totals),
        )


NO_SESSIONS: Final = KeptSessions()


Beliefs: TypeAlias = Mapping[str, ProviderBeliefs]
"""By provider."""


@final
@attrs.frozen
class BeliefsRestored:
    """An earlier process learned this. Sent before the first call."""

    beliefs: Beliefs
    ages_ns: Mapping[str, int]
    """By provider: the time since then."""
    sessions: KeptSessions = NO_SESSIONS
    """By the time of this engine."""
