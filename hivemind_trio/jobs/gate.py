"""Start gate: when the next job may start. Pure; times are seconds of one clock."""

from __future__ import annotations

from random import Random
from typing import Final, final

import attrs

SPACING_S: Final = 1.0
"""No two jobs start within this time: they would load, and call, together."""
JITTER_S: Final = 0.5


@final
@attrs.frozen(kw_only=True)
class Signals:
    """Prospects of the calls that a new job would make, from the scheduler."""

    longest_wait_s: float = 0.0
    """Longest wait of the calls in line."""
    wait_reason: str = ""
    """Reason of that wait."""
    opens_s: float | None = None
    """Time at which the provider's limit ends that no call passes now; None: there is no such limit."""
    room: int | None = None
    """Jobs that budgets have room for, by what earlier ones took; None: not known, or unbounded."""


@final
@attrs.frozen
class Hold:
    """No job starts now."""

    reason: str
    until_s: float | None
    """Time at which to ask again; None: when something happens."""


@final
@attrs.define
class StartGate:
    """Decides when a job starts."""

    agents: int
    """Jobs alive at most."""
    patience_s: float
    """Wait of a call beyond which no job is added."""
    random: Random
    _next_s: float = attrs.field(default=0.0, init=False)

    def ask(self, now_s: float, alive: int, signals: Signals) -> Hold | None:
        """Return why no job starts now; None: one may."""
        if alive >= self.agents:
            return Hold(f"{alive} of {self.agents} jobs are running", None)
        if signals.opens_s is not None and signals.opens_s > now_s:
            return Hold("the provider's limit has not opened", signals.opens_s)
        if signals.room is not None and alive >= signals.room:
            return Hold(f"the budget has room for {signals.room} such jobs at once", None)
        # With no job alive there is nobody to wait for: one has to try.
        if alive and signals.longest_wait_s > self.patience_s:
            return Hold(f"calls wait longer than {self.patience_s:.0f} s ({signals.wait_reason})", now_s + SPACING_S)
        if now_s < self._next_s:
            return Hold("the job before it started less than a second ago", self._next_s)
        return None

    def started(self, now_s: float) -> None:
        """Note that a job starts."""
        self._next_s = now_s + SPACING_S + self.random.uniform(0, JITTER_S)
