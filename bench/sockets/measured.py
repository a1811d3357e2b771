"""What came of one run of a scenario, in the virtual world or over sockets: the same figures of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from hivemind_trio.sim import Figures, Spread, Trouble, Way


@final
@attrs.frozen(kw_only=True)
class Measured:
    """What came of one run, in either world."""

    agents: int
    dead: int
    undone: int
    """Agents unfinished at the time limit."""
    turns: int
    turns_done: int
    calls: int
    """Requests of clients."""
    attempts: int
    """That a provider saw."""
    limited: int
    """429s, of all kinds, from providers."""
    refused: Mapping[str, int]
    """Reason -> calls that the proxy turned away."""
    tokens: int
    """As providers bill them."""
    tokens_wasted: int
    cost_microusd: int
    seconds: float
    wait: Spread
    """Of calls, in the proxy; nothing without one."""
    turn: Spread
    lanes: Mapping[str, Spread]
    met: Mapping[str, int]
    died_of: Mapping[str, int]
    proxy_cpu_ns: int = 0
    """Over sockets only."""

    @classmethod
    def of(cls, run: Figures) -> Measured:
        """Of a run in the virtual world."""
        direct = run.way is Way.DIRECT
        return cls(
            agents=run.agents,
            dead=run.dead,
            undone=run.undone,
            turns=run.turns,
            turns_done=run.turns_done,
            calls=run.calls,
            attempts=run.attempts - run.met.get(Trouble.UNREACHABLE.value, 0),
            limited=run.limited,
            refused=dict(run.refused),
            tokens=run.tokens,
            tokens_wasted=run.tokens_wasted,
            cost_microusd=run.cost_microusd,
            seconds=run.makespan_ns / 1e9,
            wait=Spread() if direct else run.wait,
            turn=run.turn,
            lanes={} if direct else dict(run.lanes),
            met={name: count for name, count in run.met.items() if name != Trouble.UNREACHABLE.value},
            died_of=dict(run.died_of),
        )

    @property
    def wasted(self) -> float:
        """Attempts that gave nobody a turn, per turn."""
        return (self.attempts - self.turns_done) / max(1, self.turns_done)
