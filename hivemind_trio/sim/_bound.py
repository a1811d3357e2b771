"""The least time that any scheduler could need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import attrs

from ._agent import Job
from ._provider import Traits, service


@final
@attrs.frozen(kw_only=True)
class Bound:
    """A fluid lower bound on the makespan, the larger of two."""

    chain_ns: int
    """The longest job by itself: its turns and what the agent does between them."""
    concurrency_ns: int
    """All service time over the slots; 0 where the provider has no cap."""

    @property
    def ns(self) -> int:
        return max(self.chain_ns, self.concurrency_ns)

    @property
    def binds(self) -> Literal["chain", "concurrency"]:
        """Which of the two is the bound."""
        return "concurrency" if self.concurrency_ns > self.chain_ns else "chain"


def lower_bound(jobs: Sequence[Job], traits: Traits, seed: int) -> Bound:
    """Bound the makespan of `jobs` on a provider with these traits and this seed."""
    chain_ns = total_ns = 0
    for job in jobs:
        served_ns = sum(service(traits, seed, turn.ask).latency_ns for turn in job.turns)
        total_ns += served_ns
        chain_ns = max(chain_ns, served_ns + sum(turn.think_ns for turn in job.turns))
    return Bound(chain_ns=chain_ns, concurrency_ns=total_ns // traits.concurrency if traits.concurrency else 0)
