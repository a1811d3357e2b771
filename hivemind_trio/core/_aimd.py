"""Adaptive concurrency: a little more while all is well, a good deal less at the first sign that it is not.

After TCP (Chiu and Jain, 1989), with four things that a provider of tokens needs: one cut for each epoch, because ten
calls that were in flight together tell one piece of news; growth only while the limit is what binds; a cut whose size
depends on what was said; and a memory of where it came to one. Up to near there it climbs faster (as CUBIC does: Ha,
Rhee and Xu, 2008), and what was too much twice is not tried again at once.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.policy import Aimd as Settings

SEVERITY: Final = {
    Outcome.OVERLOADED: 1.0,
    Outcome.CONCURRENCY: 0.6,
    Outcome.BURST: 0.2,
    Outcome.TOO_FAST: 0.2,
    Outcome.SLOW: 0.2,
}
"""The part of `decrease` that each signal takes: with 50 %, an overload leaves half, a word about concurrent requests
seven tenths, a 429 without a quota to blame nine tenths. What is not here says nothing about concurrency."""

HOLD_NS: Final = 15 * 60 * 1_000_000_000
"""OpenAI's word on `slow_down`: go back to what was usual, stay there for a quarter of an hour, then grow gradually."""
HOLD_GROWTH: Final = 1.5
"""By so much at most for each further quarter of an hour: their advice for large traffic."""

BINDING: Final = 0.75
"""Of the limit in flight. With less, and nobody who seeks more, the limit is not what binds."""

REFUSING: Final = frozenset({Outcome.OVERLOADED, Outcome.CONCURRENCY})
"""What says that there were too many at the same time."""

RECOVERY: Final = 4.0
"""What a round is worth, in `increase`, up to `NEAR` of where there were too many."""
NEAR: Final = 7 / 8

TOO_MANY_NS: Final = 60 * 1_000_000_000
"""What was too many twice is not tried again for so long."""
CLIMBED: Final = 2
"""Slots that it has to have climbed in between."""


@final
@attrs.define(eq=False)
class Aimd:
    """The limit of one provider, between `settings.low` and `high`."""

    settings: Settings
    high: int
    _limit: float = attrs.field(init=False)
    _slow_start: bool = attrs.field(default=True, init=False)
    """Until the first cut a round doubles the limit."""
    _cut_ns: int | None = attrs.field(default=None, init=False)
    _too_many: int = attrs.field(default=0, init=False)
    """In flight when the provider refused one of them, as of the last cut for that."""
    _left: int = attrs.field(default=0, init=False)
    """What the last cut has left."""
    _again_ns: int | None = attrs.field(default=None, init=False)
    """Until then no more than one less is tried: it was as many the time before. None: it was not."""
    _usual: float = attrs.field(default=0.0, init=False)
    """Attempts in flight, a mean over about the last quarter of an hour."""
    _usual_ns: int = attrs.field(default=0, init=False)
    _idle: bool = attrs.field(default=True, init=False)
    """As far as the last attempt that ended knew."""
    _held: tuple[float, int] | None = attrs.field(default=None, init=False)
    """What the limit was brought back to because the load had grown too fast, and when."""

    def __attrs_post_init__(self) -> None:
        self._limit = float(self.settings.start)

    @property
    def limit(self) -> int:
        """Slots, now."""
        return int(self._limit)

    def load(self, settings: Settings, high: int) -> None:
        """Go on under new bounds. Raising the upper one moves nothing by itself: the limit may now climb."""
        self.settings, self.high = settings, high
        self._limit = min(float(high), max(float(settings.low), self._limit))

    def on_ended(self, outcome: Outcome, *, granted_ns: int, now_ns: int, inflight: int, sought: bool = False) -> bool:
        """Learn from one attempt.

        Args:
            granted_ns: When it began. What began before the last cut says nothing new.
            inflight: Attempts in flight when it ended, itself included.
            sought: Somebody waits for a higher limit, however few are in flight: see `Pool.sought`.

        Returns:
            Whether the limit, in whole slots, has changed.
        """
        before = self.limit
        self._weigh(granted_ns, now_ns, inflight)
        if outcome is Outcome.SUCCEEDED:
            if sought or inflight >= BINDING * self.limit:
                self._grow(now_ns)
        elif outcome in SEVERITY and self._news(granted_ns, now_ns):
            self._cut_ns = now_ns
            self._slow_start = False
            if outcome in REFUSING:
                many = min(self.limit, inflight)
                # A storm refuses at any number, and again before it has climbed.
                cap = abs(many - self._too_many) <= 1 and many >= self._left + CLIMBED
                self._again_ns = now_ns + TOO_MANY_NS if cap else None
                self._too_many = many
            self._limit *= 1 - self.settings.decrease * SEVERITY[outcome]
            if outcome is Outcome.TOO_FAST:
                # What it began with was no growth, however quiet it had been before.
                self._limit = min(self._limit, max(self._usual, float(self.settings.start)))
                self._held = self._limit, now_ns
            self._limit = max(float(self.settings.low), self._limit)
            self._left = self.limit
        return self.limit != before

    def _weigh(self, granted_ns: int, now_ns: int, inflight: int) -> None:
        if self._idle and granted_ns > self._usual_ns:
            self._usual -= self._usual * min(1.0, (granted_ns - self._usual_ns) / HOLD_NS)
            self._usual_ns = granted_ns
        self._usual += (inflight - self._usual) * min(1.0, (now_ns - self._usual_ns) / HOLD_NS)
        self._usual_ns = now_ns
        self._idle = inflight <= 1

    def restart(self, share: float) -> None:
        """Go on with a share of the limit: the provider was away, and comes back with cold caches."""
        self._slow_start = False
        self._limit = max(float(self.settings.low), self._limit * share)

    def _grow(self, now_ns: int) -> None:
        # As many successes as the limit are one round; in slow start each of them is worth a slot.
        step = 1.0 if self._slow_start else self.settings.increase / self._limit
        if self._limit < self._too_many * NEAR and not self._slow_start:
            step = min(step * RECOVERY, float(self.settings.increase))
        self._limit = max(self._limit, min(float(self.high), self._limit + step, self._ceiling(now_ns)))

    def _ceiling(self, now_ns: int) -> float:
        """What it may grow to by now."""
        ceiling = float(self.high)
        if self._again_ns is not None and now_ns < self._again_ns:
            ceiling = min(ceiling, self._too_many - 1.0)
        if self._held is not None:
            limit, since_ns = self._held
            held = limit * HOLD_GROWTH ** min(64, (now_ns - since_ns) // HOLD_NS)
            if held >= self.high:
                self._held = None
            ceiling = min(ceiling, held)
        return ceiling

    def _news(self, granted_ns: int, now_ns: int) -> bool:
        if self._cut_ns is None:
            return True
        return granted_ns > self._cut_ns and now_ns - self._cut_ns >= self.settings.cooldown_ns
