"""The least time that any scheduler could need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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
    """All service time through the slots, of which an agent that has not started can use none and any other one; 0
    where the provider has no cap."""

    @property
    def ns(self) -> int:
        return max(self.chain_ns, self.concurrency_ns)

    @property
    def binds(self) -> Literal["chain", "concurrency"]:
        """Which of the two is the bound."""
        return "concurrency" if self.concurrency_ns > self.chain_ns else "chain"


def lower_bound(jobs: Sequence[Job], traits: Traits, seed: int) -> Bound:
    """Bound the makespan of `jobs` on a provider with these traits and this seed."""
    chain_ns = work_ns = 0
    for job in jobs:
        served_ns = sum(service(traits, seed, turn.ask).latency_ns for turn in job.turns)
        work_ns += served_ns
        chain_ns = max(chain_ns, served_ns + sum(turn.think_ns for turn in job.turns))
    starts_ns = sorted(job.turns[0].think_ns for job in jobs)
    return Bound(chain_ns=chain_ns, concurrency_ns=_through(work_ns, starts_ns, traits.concurrency))


def _through(work_ns: int, starts_ns: Sequence[int], slots: int | None) -> int:
    """When `work_ns` of slot time can be done at the earliest, if the n-th agent starts at `starts_ns[n]`."""
    if slots is None:
        return 0
    # Slots fill up as agents start; from the last of these starts on, all of them are in use.
    ramp_ns = list(starts_ns[:slots])
    for busy, (from_ns, to_ns) in enumerate(pairwise(ramp_ns), start=1):
        if work_ns <= busy * (to_ns - from_ns):
            return from_ns + work_ns // busy
        work_ns -= busy * (to_ns - from_ns)
    return ramp_ns[-1] + work_ns // len(ramp_ns)
