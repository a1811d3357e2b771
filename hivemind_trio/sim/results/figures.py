"""Figures of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import final

import attrs

from hivemind_trio.model import PlanSpan

from .time_series import Sample


@final
class Way(StrEnum):
    """Way of the agents' calls: to their providers, or through the proxy."""

    DIRECT = "direct"
    PROXY = "proxy"


@final
@attrs.frozen(kw_only=True)
class Spread:
    """Spread of many times, in ns; all 0 where there are none. Percentiles are of the nearest rank."""

    count: int = 0
    mean: int = 0
    p50: int = 0
    p95: int = 0
    p99: int = 0
    max: int = 0
    unserved: int = 0
    """Calls beside those `count`, of waits alone: rejected, or given up in the queue."""

    @classmethod
    def of(cls, times_ns: Iterable[int], *, unserved: int = 0) -> Spread:
        """O(n log n)."""
        ordered = sorted(times_ns)
        if not ordered:
            return cls(unserved=unserved)

        def rank(percent: int) -> int:
            return ordered[-(-len(ordered) * percent // 100) - 1]

        return cls(
            count=len(ordered),
            mean=sum(ordered) // len(ordered),
            p50=rank(50),
            p95=rank(95),
            p99=rank(99),
            max=ordered[-1],
            unserved=unserved,
        )

    @property
    def unserved_share(self) -> float:
        """The part of all calls that `count` leaves out."""
        calls = self.count + self.unserved
        return self.unserved / calls if calls else 0.0


@final
@attrs.frozen(kw_only=True)
class Load:
    """Figures of one fleet."""

    agents: int
    dead: int
    turns: int
    turns_done: int
    calls: int
    """Requests of its clients."""
    denied: int
    """Number of these that the policy or the scheduler rejected."""
    refused: Mapping[str, int]
    """Why it did: reason -> calls."""
    held: int = 0
    """Number of these that a rule held when they arrived."""
    died_of: Mapping[str, int]
    wait: Spread
    """Waits of its served calls, before the last attempt."""
    turn: Spread
    """Times of its completed turns, from the first request on."""

    @property
    def failed(self) -> float:
        """The share of turns that were begun and came to no good end."""
        begun = self.turns_done + self.dead
        return self.dead / begun if begun else 0.0


@final
@attrs.frozen(kw_only=True)
class PlanFigures:
    """Figures of one window of a provider's plan. Shares in millionths."""

    used_max: int
    """Largest used share."""
    unused: tuple[int, ...]
    """Unused share at each reset."""

    @property
    def unused_max(self) -> int | None:
        """Most that was left at a reset; None: there was none."""
        return max(self.unused, default=None)


@final
@attrs.frozen(kw_only=True)
class UpstreamFigures:
    """Figures of one provider."""

    attempts: int
    met: Mapping[str, int]
    """Number of failures by kind (`Trouble`)."""
    inflight_max: int
    """The most at once that asked."""
    limit_min: int
    """Lowest concurrency limit in the samples; 0 without a proxy, like the next two."""
    limit_max: int
    trips: int
    """Number of times its circuit opened."""
    utilisation: float | None
    """Utilisation of its concurrency limit, from the first request to the last answer; None: it has none."""
    plan: Mapping[PlanSpan, PlanFigures] = attrs.field(factory=dict)
    """Windows of all accounts that have called; empty: they have no plan."""


@final
@attrs.frozen(kw_only=True)
class NodeFigures:
    """One of several nodes."""

    name: str
    calls: int
    """Requests of clients."""
    attempts: int
    died_ns: int | None
    """When it was last killed; None: it was not."""
    returned_ns: int | None = None
    """When it was last started again; None: it was not, or is down."""


@final
@attrs.frozen(kw_only=True)
class FleetFigures:
    """Several nodes, and the store that they share."""

    nodes: tuple[NodeFigures, ...]
    operations: Mapping[str, int]
    """Operation of the store -> number."""
    limits: Mapping[str, int]
    """Provider -> concurrency limit that all nodes together had learned in the end; 0: it is not learned."""

    @property
    def operations_per_call(self) -> float:
        """Operations of the store for each request of a client."""
        return sum(self.operations.values()) / max(1, sum(node.calls for node in self.nodes))


@final
@attrs.frozen(kw_only=True)
class Figures:
    """Figures of one run."""

    way: Way
    seed: int
    agents: int
    dead: int
    undone: int
    """Agents unfinished at the time limit."""
    turns: int
    turns_done: int
    calls: int
    attempts: int
    met: Mapping[str, int]
    limited: int
    """429s, of all kinds, from providers."""
    tokens: int
    """As providers bill them, input and output."""
    tokens_wasted: int
    """Tokens of agents that died, and of answers that nobody received whole."""
    cost_microusd: int
    costs_microusd: Mapping[str, int]
    """Team -> its part."""
    budgets_microusd: Mapping[str, int]
    """Budget -> what counts against it, in all windows together."""
    makespan_ns: int
    """From the beginning to the end of the last agent, dead or done."""
    bound_ns: int
    bound_binds: str
    binding_used: float | None
    """Used share of the binding resource while calls waited.

    None: none waited, or no resource binds. More than all of it: answers under way are counted late.
    """
    died_of: Mapping[str, int]
    refused: Mapping[str, int]
    """Reason -> calls."""
    lanes: Mapping[str, Spread]
    """Lane -> how long its served calls waited."""
    teams: Mapping[str, Spread]
    loads: Mapping[str, Load]
    upstreams: Mapping[str, UpstreamFigures]
    turn: Spread
    """Times of all completed turns."""
    samples: tuple[Sample, ...]
    wait: Spread
    """Waits of all served calls in the proxy, before the last attempt."""
    digest: str
    """Digest of the scheduler's decisions, in order."""
    nodes: FleetFigures | None = None
    """Nodes that shared the providers; None: it was one proxy."""

    @property
    def over_bound(self) -> float | None:
        """Time over the lower bound; None if work was left undone, for then it compares with nothing."""
        return self.makespan_ns / self.bound_ns if self.turns_done == self.turns and self.bound_ns else None

    @property
    def attempts_wasted(self) -> int:
        """Attempts that did not give anybody a turn."""
        return self.attempts - self.turns_done
