"""Agents that have not called yet, as the arrivals of late foretell them.

First calls are taken for a Poisson process that began with the first of them and ends some day, of unknown rate and
life. The prior of both is scale-free, so that the posterior is in closed form: the rate is gamma-distributed, a process
of age t goes on for another t with even odds (Gott, 1993), and a silence that is long beside the arrivals before it
tells that nobody comes any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import attrs

from .future import ExpectedAgent
from .habits import FirstCall

NEWCOMERS_MAX: Final = 300
"""Agents of one future."""
LEAST: Final = 2
"""First calls that tell of a rate."""


def newcomers(seen: Sequence[FirstCall], horizon_ns: int, random: Random) -> Iterator[ExpectedAgent]:
    """Yield agents that come in one future.

    Args:
        seen: First calls of late, oldest first.
        horizon_ns: Time from now, after which nobody is expected.
        random: Where chance comes from.
    """
    since_ns = seen[0].age_ns if seen else 0
    after = len(seen) - 1
    if len(seen) < LEAST or since_ns <= 0 or random.random() >= _goes_on(1 - seen[-1].age_ns / since_ns, after):
        return
    between_ns = since_ns / random.gammavariate(after, 1.0)
    until_ns = min(horizon_ns, since_ns * (1 / (1 - random.random()) - 1))
    at_ns = 0.0
    for number in range(NEWCOMERS_MAX):
        at_ns += random.expovariate(1.0) * between_ns
        if at_ns > until_ns:
            return
        call = random.choice(seen).call
        # To be fair to it, a new agent is none of those that have been served.
        yield ExpectedAgent(call=attrs.evolve(call, caller=f"{number}@{call.caller}", job=""), first_ns=round(at_ns))


def _goes_on(busy: float, after: int) -> float:
    """Return the probability that more arrivals come.

    Args:
        busy: Part of the time since the first arrival that had passed at the last one.
        after: Number of arrivals after the first.
    """
    silent = (after + 1) * busy ** (after + 1)
    return silent / (silent + 1 - busy ** (after + 1))
