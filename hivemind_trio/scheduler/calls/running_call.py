"""A call with an attempt in flight."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Decision
from hivemind_trio.policy import Renames
from hivemind_trio.scheduler.budgets.budgets import Reservation
from hivemind_trio.scheduler.limits.cost import Cost
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.protocol.events import Unretried

from .placement import Placement


@final
@attrs.define(eq=False, kw_only=True)
class RunningCall:
    """Call in flight: its permits, and its former position in case of a retry."""

    call: Call
    seq: int
    arrived_ns: int
    treatment: Decision
    place: Placement
    granted_ns: int
    waited_ns: int
    """In all, before this attempt."""
    claim: Reservation
    started: tuple[int, Cost] | None
    """First start, and its estimated cost in the limits of its agent; None: it has none."""
    share_ns: int
    """The dominant share that its agent was charged."""
    attempt: int
    """1 for the first."""
    uncounted: int
    """Earlier attempts that do not count against its retry class."""
    given_up: int
    """Earlier attempts that made no progress for too long."""
    swap_ns: int
    """Delay of its answer because its model is loaded first."""
    plan_weight: float = 0.0
    """Expected weight in its account's plan."""
    is_probe: bool = False
    """True if it tests whether the provider accepts calls again."""
    excused: bool | None = None
    """True if a failure of this probe of the circuit is its provider's, and does not count; None: it is no such
    probe, or has not ended."""
    beyond: bool = False
    """True if the provider refused it for being overloaded while it served others: there were too many at once."""

    unretried: Unretried | None = None
    """Why it has no further attempt, once it has failed and is over."""
    begun: bool = False
    """Its answer has begun, and the time that this took has been learned."""

    def renamed(self, renames: Renames) -> RunningCall:
        """In the names of now: its next attempt is by the policy of now."""
        return attrs.evolve(self, call=self.call.renamed(renames), treatment=renames.treatment(self.treatment))
