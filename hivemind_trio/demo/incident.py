"""The incident that the demo replays, and the figures it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from hivemind_trio.sim import AgentJob, Bound, Quota, Traits, lower_bound

MS: Final = 1_000_000


TRAITS: Final = Traits(
    latency_mean_ns=700 * MS,
    latency_sigma_ns=200 * MS,
    latency_min_ns=200 * MS,
    concurrency=5,
    requests=Quota(limit=150, burst=15),
    bad_gateways=0.06,
    resets=0.04,
)
"""`policies/demo.hmp` says the same of concurrency and requests."""


@final
@attrs.frozen(kw_only=True)
class Incident:
    """A fleet and the provider it calls. The same seed is the same work, whoever schedules it."""

    seed: int
    agents: int = 11
    turns: int = 8
    start_max_ns: int = 3_000 * MS
    """Agents start within this time, not all in one instant: so some die with work behind them."""
    think_ns: tuple[int, int] = (100 * MS, 500 * MS)
    traits: Traits = TRAITS

    def jobs(self) -> list[AgentJob]:
        """Return the jobs of the agents; every turn is streamed, as coding agents do."""
        return [
            AgentJob.draw(
                f"agent-{number:02}",
                seed=self.seed,
                turns=self.turns,
                start_max_ns=self.start_max_ns,
                think_ns=self.think_ns,
                stream_every=1,
            )
            for number in range(1, self.agents + 1)
        ]

    @property
    def bound(self) -> Bound:
        """The least time it can take."""
        return lower_bound(self.jobs(), self.traits, self.seed)


@final
@attrs.frozen(kw_only=True)
class IncidentFigures:
    """Figures of one fleet."""

    agents: int
    dead: int
    turns: int
    turns_done: int
    tokens_spent: int
    """As the provider bills them, input and output."""
    tokens_wasted: int
    """Tokens of agents that died."""
    seconds: float
    """From the start until the last agent was done or dead."""
    bound_seconds: float
    bound_binds: str
    inflight_max: int
    """The most at once that the provider was asked for."""
    overloads: int
    """Calls that the provider refused with 529."""
    attempts: int
    met: Mapping[str, int]
    """Number of failures at the provider, by kind (`Trouble`). An agent without a proxy died of each."""

    @property
    def over_bound(self) -> float | None:
        """Time over the lower bound; None if work was left undone, for then it compares with nothing."""
        return self.seconds / self.bound_seconds if self.turns_done == self.turns else None
