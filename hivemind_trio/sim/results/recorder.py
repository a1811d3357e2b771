"""Recorder of a run."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import final

import attrs

from hivemind_trio.model import Decision, Reason, Usage
from hivemind_trio.policy import Program

from .time_series import Series

Whose = tuple[str, str | None, str | None]
"""A load, a lane and a team; of a call that was given up before anybody said which, only the load."""


@final
@attrs.define(eq=False)
class RunRecorder:
    """One run's. Times in ns, money in micro-dollars."""

    program: Program
    waits_ns: defaultdict[Whose, list[int]] = attrs.field(init=False, factory=lambda: defaultdict(list))
    """Owner of calls -> waits of those that were served."""
    unserved: Counter[Whose] = attrs.field(init=False, factory=Counter)
    """Owner of calls -> number rejected, or given up in the queue."""
    turns_ns: defaultdict[str, list[int]] = attrs.field(init=False, factory=lambda: defaultdict(list))
    """Load -> how long each turn took that came to a good end, from the first request, retries of clients included."""
    calls: int = attrs.field(init=False, default=0)
    """Requests of clients."""
    asked: Counter[str] = attrs.field(init=False, factory=Counter)
    """Load -> requests of clients."""
    refused: Counter[tuple[str, Reason]] = attrs.field(init=False, factory=Counter)
    """(Load, why) -> calls that the policy or the scheduler turned away."""
    held: Counter[str] = attrs.field(init=False, factory=Counter)
    """Load -> calls that a rule held when they arrived."""
    spent: Counter[tuple[str, str]] = attrs.field(init=False, factory=Counter)
    """(`team`, `budget` or ``, its name) -> micro-dollars."""
    trips: Counter[str] = attrs.field(init=False, factory=Counter)
    """Provider -> how often its circuit opened."""
    series: Series = attrs.field(init=False, factory=Series)
    _digest: hashlib.blake2b = attrs.field(init=False, factory=lambda: hashlib.blake2b(digest_size=8))

    @property
    def digest(self) -> str:
        """Digest of all grants and rejections, in order: equal digests mean equal decisions."""
        return self._digest.hexdigest()

    def decided(self, now_ns: int, call_id: int, what: str) -> None:
        """Record a grant or a rejection."""
        self._digest.update(b"%d %d %s;" % (now_ns, call_id, what.encode()))

    def call_over(self, load: str, treatment: Decision | None, waited_ns: int | None) -> None:
        """Record the end of a call.

        Args:
            waited_ns: Its time in the queue; None: it was rejected, or given up in the queue.
        """
        whose = (load, None, None) if treatment is None else (load, treatment.lane, treatment.team)
        if waited_ns is None:
            self.unserved[whose] += 1
        else:
            self.waits_ns[whose].append(waited_ns)

    def spend(self, treatment: Decision, model: str, usage: Usage) -> None:
        """Record the cost of an attempt."""
        price = self.program.price(model, treatment.provider)
        if price is None:
            return
        cost = price.cost_of(usage)
        self.spent["", ""] += cost
        self.spent["team", treatment.team] += cost
        for budget in treatment.budgets:
            self.spent["budget", budget] += cost
