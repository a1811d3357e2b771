"""The least time that any scheduler could need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import attrs

from ._agent import Job
from ._bucket import Dimension, Quota
from ._service import Service, service
from ._traits import Traits


@final
@attrs.frozen(kw_only=True)
class Bound:
    """A fluid lower bound on the makespan, the largest of several. What fails at random is not in it."""

    chain_ns: int
    """The longest job by itself: its turns and what the agent does between them."""
    concurrency_ns: int
    """All service time through the slots, of which an agent that has not started can use none and any other one; 0
    where the provider has no cap."""
    quotas_ns: dict[Dimension, int] = attrs.field(factory=dict)
    """Limited dimension -> what is not in the full bucket, at the rate at which it is refilled."""

    @property
    def ns(self) -> int:
        return max(self._all.values())

    @property
    def binds(self) -> str:
        """Which of them is the bound: `chain`, `concurrency` or what a dimension is called."""
        bounds = self._all
        return max(bounds, key=bounds.__getitem__)

    @property
    def _all(self) -> dict[str, int]:
        quotas = {dimension.value: ns for dimension, ns in self.quotas_ns.items()}
        return {"chain": self.chain_ns, "concurrency": self.concurrency_ns, **quotas}


def lower_bound(jobs: Sequence[Job], traits: Traits, seed: int) -> Bound:
    """Bound the makespan of `jobs` on a provider with these traits and this seed."""
    chain_ns = work_ns = 0
    served: list[Service] = []
    for job in jobs:
        own = [service(traits, seed, turn.ask) for turn in job.turns]
        own_ns = sum(each.latency_ns for each in own)
        work_ns += own_ns
        chain_ns = max(chain_ns, own_ns + sum(turn.think_ns for turn in job.turns))
        served += own
    starts_ns = sorted(job.turns[0].think_ns for job in jobs)
    # The last answers may take more than there was: as many of the longest as there can be at once.
    at_once = len(jobs) if traits.concurrency is None else min(len(jobs), traits.concurrency)
    tokens_out = sorted(each.tokens_out for each in served)
    needed = {
        Dimension.REQUESTS: len(served),
        Dimension.INPUT: sum(turn.ask.tokens_in for job in jobs for turn in job.turns),
        Dimension.OUTPUT: sum(tokens_out[:-at_once]),
    }
    return Bound(
        chain_ns=chain_ns,
        concurrency_ns=_through(work_ns, starts_ns, traits.concurrency),
        quotas_ns={dimension: _refilled(needed[dimension], quota) for dimension, quota in traits.quotas.items()},
    )


def _refilled(needed: int, quota: Quota) -> int:
    """How long a bucket that was full takes to yield so much."""
    return max(0, needed - quota.capacity) * quota.window_ns // quota.limit


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
