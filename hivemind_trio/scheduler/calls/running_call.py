"""A call with an attempt in flight."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Decision
from hivemind_trio.policy import Renames
from hivemind_trio.scheduler.limits.budgets import Reservation
from hivemind_trio.scheduler.protocol.call import Call

from .placement import Placement


@final
@attrs.define(eq=False, kw_only=True)
class RunningCall:
    """What it holds, and what it needs to stand in line again where it stood."""

    call: Call
    seq: int
    arrived_ns: int
    treatment: Decision
    place: Placement
    granted_ns: int
    waited_ns: int
    """In all, before this attempt."""
    claim: Reservation
    share_ns: int
    """The dominant share that its agent was charged."""
    attempt: int
    """1 for the first."""
    uncounted: int
    """Earlier attempts that do not count against its retry class."""
    swap_ns: int
    """How much later than usual its answer begins, because its model is loaded first."""
    probe: bool = False
    """It was let through to find out whether the provider accepts calls again."""

    def renamed(self, renames: Renames) -> RunningCall:
        """In the names of now: its next attempt is by the policy of now."""
        return attrs.evolve(self, call=self.call.renamed(renames), treatment=renames.treatment(self.treatment))
