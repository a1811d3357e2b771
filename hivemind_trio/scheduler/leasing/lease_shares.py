"""Fair shares of a resource: teams first, then the agents of a team, in time for which they hold leases.

Start-time fair queueing, as for calls (`scheduler/queueing/fair_share.py`): each contender has a virtual time, which
the leases of its own move on by time/weight, and the lowest is next. The time of a lease is not known before its end:
until then it counts as the mean of those that have ended, or as the time that it has taken if that is more.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.policy import NO_TEAM, UNKNOWN_AGENT, Program, Renames

from .lease import Holder, Lease

SCALE: Final = 1 << 20
"""One nanosecond of a lease to a contender of weight 1."""

GONE_MAX: Final = 256
"""Contenders that are remembered though they hold nothing and ask for nothing."""

Contender: TypeAlias = tuple[str, Hashable]
"""("team", its name), or ("agent", its holder)."""


@final
@attrs.frozen
class Pedigree:
    """The two contenders of a holder: its team, and itself within the team. Without a team they are one."""

    team: Contender
    agent: Contender
    team_weight: int
    agent_weight: int

    @classmethod
    def of(cls, program: Program, holder: Holder) -> Pedigree:
        """Return the contenders of a holder under a policy."""
        declared, name = holder
        settings = program.agent(name if declared else UNKNOWN_AGENT)
        agent: Contender = ("agent", holder)
        if settings.team == NO_TEAM:
            return cls(agent, agent, settings.weight, settings.weight)
        team = program.teams.get(settings.team)
        return cls(("team", settings.team), agent, team.weight if team is not None else 1, settings.weight)


@final
@attrs.define(eq=False)
class LeaseShares:
    """Virtual times of one resource."""

    mean_ns: int
    """Mean time of the leases that have ended; before the first, the time of one without renewal."""
    _settled: dict[Contender, int] = attrs.field(factory=dict, init=False)
    """Virtual time of the leases that have ended."""
    _virtual: int = attrs.field(default=0, init=False)
    """Lowest settled time of those that hold or ask; never less than before."""

    def enter(self, pedigree: Pedigree) -> None:
        """Note that a contender asks: idleness earned it nothing."""
        for contender in {pedigree.team: None, pedigree.agent: None}:
            # Taken out and put back: those that asked last are forgotten last.
            self._settled[contender] = max(self._settled.pop(contender, 0), self._virtual)

    def settle(self, pedigree: Pedigree, time_ns: int) -> None:
        """Count a lease that has ended."""
        self.mean_ns += (time_ns - self.mean_ns) // 8
        for contender, weight in {
            pedigree.agent: pedigree.agent_weight,
            pedigree.team: pedigree.team_weight,
        }.items():
            self._settled[contender] = self._settled.get(contender, self._virtual) + time_ns * SCALE // weight

    def advance(self, active: dict[Contender, None]) -> None:
        """Move the common virtual time on to the lowest of those that hold or ask, and forget who is behind it."""
        if active:
            lowest = min(self._settled.get(contender, self._virtual) for contender in active)
            self._virtual = max(self._virtual, lowest)
        gone = [contender for contender in self._settled if contender not in active]
        for place, contender in enumerate(gone):
            if self._settled[contender] <= self._virtual or place < len(gone) - GONE_MAX:
                del self._settled[contender]

    def tag(self, contender: Contender, claimed: dict[Contender, int]) -> int:
        """Return the virtual time of a contender: what has ended and what it holds."""
        return self._settled.get(contender, self._virtual) + claimed.get(contender, 0)

    def renamed(self, renames: Renames) -> None:
        """Take over the names of a new policy."""

        def name(contender: Contender) -> Contender:
            match contender:
                case ("team", str() as team):
                    return "team", renames.swapped("team", team)
                case ("agent", (True, str() as agent)):
                    return "agent", (True, renames.swapped("agent", agent))
                case _:
                    return contender

        self._settled = {name(contender): tag for contender, tag in self._settled.items()}


def claims(program: Program, leases: list[Lease], now_ns: int) -> dict[Contender, int]:
    """Return the virtual time of the leases that have not ended, by contender."""
    claimed: dict[Contender, int] = {}
    for lease in leases:
        add_claim(claimed, Pedigree.of(program, lease.holder), max(lease.estimate_ns, now_ns - lease.granted_ns))
    return claimed


def add_claim(claimed: dict[Contender, int], pedigree: Pedigree, time_ns: int) -> None:
    """Count a lease in progress."""
    for contender, weight in {pedigree.agent: pedigree.agent_weight, pedigree.team: pedigree.team_weight}.items():
        claimed[contender] = claimed.get(contender, 0) + time_ns * SCALE // weight
