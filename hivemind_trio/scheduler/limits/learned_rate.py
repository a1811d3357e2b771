"""Dispatch rate learned from refusals: multiplicative decrease to the rate that was accepted, growth after it.

There is no rate until the provider refuses a call for going too often. Then the rate is what the provider accepted
since the refusal before, and it grows until the next one, slowly near the rate that was refused last. A fixed window,
a token bucket, a shared key and an acceleration guard all look the same from outside, and this holds for each of them.

A refusal may also have been chance: other users of the key, or an overload. So a rate below the one that was measured
last doubles with each round of accepted calls until it is there again (TCP's slow start up to its threshold, RFC 5681).

Refusals alone measure nothing: where hardly any call has been accepted yet, and where probes have shown that the rate
is wrong, there is no threshold. Once the rate has doubled, a refusal sets one: what the provider accepts is then known
to a factor of two. A burst is a bound, too, and no measurement: it may have been stored for long.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

import attrs

SECOND_NS: Final = 1_000_000_000

GROWTH: Final = 1.07
"""Per second: 4 % recovers too slowly after other users of a key have gone, 10 % costs a third more refusals."""
GROWTH_NEAR: Final = 1.02
"""Per second, near the rate that was refused last: there the provider accepts most, and what is tried beyond it is
likely to be refused (CUBIC's plateau: Ha, Rhee and Xu, 2008)."""
NEAR: Final = (0.9, 1.1)
"""Least and greatest share of that rate that is near it."""
GROWTH_OVER: Final = 4.0
"""At most so many times the distance that the rate asks for count as growth between two grants: a provider that is
idle, or holds everything back, proves nothing (congestion window validation, RFC 7661)."""
BELOW: Final = 0.85
"""Share of the accepted rate that dispatch goes on with."""
LEAST: Final = 0.2
"""Calls per second; a lower rate is a standstill."""
MEASURED: Final = 3
"""Accepted calls of a batch from which on they measure a rate: fewer say little about what the provider accepts."""
REMEMBERED: Final = 2
"""Measured rates of which the highest is the threshold: chance makes single ones too low."""
GUESS: Final = 0.5
"""Least calls per second to begin with where no rate has been measured."""
MOST: Final = 100.0
"""Calls per second; above it nothing is paced."""
PERIOD_NS: Final = 2 * SECOND_NS
"""Shortest time over which a rate is measured: a burst is no rate."""


TRIES_MAX: Final = 64
"""Attempts that are remembered."""
TRIES_MIN: Final = 6
"""Attempts at lower rates from which on their refusals are compared."""
LOWER: Final = 1.5
"""Factor by which a rate is lower."""
HELPS: Final = 0.4
"""Least share of the refusals that a lower rate has to spare."""

JITTER: Final = 0.4
"""Largest share by which a time between two attempts is shortened."""
MISSES: Final = 2
"""Attempts refused in a row after which it is: before, the delay is as good a guess as any."""
MISS_NS: Final = SECOND_NS
MISS_MAX_NS: Final = 5 * SECOND_NS
"""Least delay that each further refusal adds, and the longest, while a lower rate would not help: refused calls may
count, too, and use up all that the provider gives."""
_GOLDEN: Final = 0.6180339887498949


def jittered(delay_ns: int, misses: int) -> int:
    """Shorten the delay before another attempt, each time by another share, once several have been refused in a row.

    Attempts at equal distances may all meet the same moment of a window, or of another client's beat. Squares times the
    golden ratio spread evenly (Weyl), and so do the sums of the delays; without the square those stay next to multiples
    of the mean delay.
    """
    return delay_ns - int(delay_ns * JITTER * (max(0, misses - MISSES) ** 2 * _GOLDEN % 1.0))


@final
@attrs.define(eq=False)
class _PacedAttempt:
    """One attempt."""

    granted_ns: int
    per_s: float
    refused: bool = False


@final
@attrs.define(eq=False)
class LearnedRate:
    """Calls per second that one limits group of a provider accepts, as far as refusals have shown."""

    per_s: float | None = attrs.field(default=None, init=False)
    """None: no limit is known."""
    opens_ns: int = attrs.field(default=0, init=False)
    """Earliest time of the next grant."""
    _complained_ns: int = attrs.field(default=-1, init=False)
    _granted: int = attrs.field(default=0, init=False)
    """Since then."""
    _first_ns: int = attrs.field(default=0, init=False)
    """The first of them."""
    _last_ns: int = attrs.field(default=0, init=False)
    _batch_ns: int = attrs.field(default=-1, init=False)
    """The complaint before the last one: what was granted since then was judged together by the last."""
    _accepted: int = attrs.field(default=0, init=False)
    """Calls of that batch that were not refused, so far."""
    _took_ns: int = attrs.field(default=PERIOD_NS, init=False)
    """Time over which that batch was granted."""
    _pooled: int = attrs.field(default=0, init=False)
    """Calls accepted in the batches right before it that were too small to measure a rate: it measures with them."""
    _pooled_ns: int = attrs.field(default=0, init=False)
    """Start of the first of these batches, or of that one."""
    _before: float | None = attrs.field(default=None, init=False)
    """Rate before that batch was judged."""
    _refused_per_s: float = attrs.field(default=MOST, init=False)
    """Rate at which the last batch was refused of which a call was accepted; of a batch that was refused whole the rate
    says little."""
    _measured: tuple[float, ...] = attrs.field(default=(), init=False)
    """The last rates that were measured before that batch."""
    _known: tuple[float, ...] = attrs.field(default=(), init=False)
    """The same with that batch: their highest is the threshold."""
    _bound: float = attrs.field(default=MOST, init=False)
    """Threshold while nothing has been measured: the rate of a burst, or half of a rate that was refused. `MOST`: there
    is none."""
    _has_doubled: bool = attrs.field(default=False, init=False)
    """The rate has doubled since the last refusal, or may: what the provider accepts is between the one before and
    this."""
    _is_bracketed: bool = attrs.field(default=False, init=False)
    """The rate had doubled when that batch was refused, or had a bound, and nothing had been measured."""
    _is_guess: bool = attrs.field(default=True, init=False)
    """The rate before that batch, if there was one, was a guess: nothing had been measured, and there was no bound."""
    _round_ns: int = attrs.field(default=0, init=False)
    """Start of the round whose first success doubles the rate."""
    _tries: deque[_PacedAttempt] = attrs.field(factory=lambda: deque(maxlen=TRIES_MAX), init=False)
    """The latest attempts that went at a rate."""
    _misses: int = attrs.field(default=0, init=False)
    """Batches in a row of which a call was refused, and none accepted since."""

    def clear(self) -> None:
        """Forget the rate."""
        self.per_s, self.opens_ns = None, 0
        self._measured, self._known, self._bound = (), (), MOST
        self._has_doubled = False

    def double(self, now_ns: int) -> None:
        """Distrust the rate: it doubles with each round of accepted calls until the next refusal."""
        self._measured, self._known, self._bound = (), (), MOST
        self._has_doubled, self._round_ns = True, now_ns

    def on_good(self, granted_ns: int, now_ns: int) -> None:
        """Double up to the threshold if this is the first success of a round.

        A round is what was granted since the last doubling, or since the last refusal.
        """
        self._misses = 0
        threshold = max(self._known, default=self._bound)
        if self.per_s is None or self.per_s >= threshold or granted_ns < self._round_ns:
            return
        self._round_ns, self._has_doubled = now_ns, True
        self.per_s = min(2 * self.per_s, threshold)
        if self.per_s >= MOST:
            self.clear()
        else:
            self.opens_ns = min(self.opens_ns, max(now_ns, self._last_ns + int(SECOND_NS / self.per_s)))

    def on_granted(self, now_ns: int) -> None:
        """Grow by the time since the last grant, and space the next."""
        if not self._granted:
            self._first_ns = now_ns
        self._granted += 1
        if self.per_s is not None:
            self._tries.append(_PacedAttempt(now_ns, self.per_s))
            growth = GROWTH_NEAR if NEAR[0] <= self.per_s / self._refused_per_s <= NEAR[1] else GROWTH
            self.per_s *= growth ** min(GROWTH_OVER / self.per_s, (now_ns - self._last_ns) / SECOND_NS)
            if self.per_s > MOST:
                self.clear()
            else:
                self.opens_ns = max(self.opens_ns, now_ns) + int(SECOND_NS / self.per_s)
        self._last_ns = now_ns

    def on_refused(self, granted_ns: int, now_ns: int) -> None:
        """Lower the rate to what was accepted. Calls that were in flight together are one piece of evidence."""
        if granted_ns > self._complained_ns:
            self._batch_ns, self._complained_ns = self._complained_ns, now_ns
            self._pooled += max(0, self._accepted)
            is_measured = self._pooled >= MEASURED and self._batch_ns >= self._pooled_ns + PERIOD_NS
            if is_measured or self._before is None or self.per_s is None:
                self._pooled, self._pooled_ns = 0, self._first_ns
            self._accepted = self._granted - 1
            self._took_ns = max(PERIOD_NS, now_ns - self._first_ns)
            self._measured = self._known
            has_bound = (self._has_doubled or self._bound < MOST) and self.per_s is not None
            self._is_bracketed = has_bound and not self._measured
            self._is_guess = not has_bound and not self._measured
            self._has_doubled = False
            self._before = self.per_s
            if self._before is not None and self._accepted > 0:
                self._refused_per_s = self._before
            self._granted = 0
            self._misses += 1
        elif granted_ns > self._batch_ns:
            self._accepted -= 1
        else:
            return
        self._measure()
        if self._before is not None and not self._is_guess and not self._would_help(granted_ns):
            self.per_s = self._before
            delay_ns = max(int(SECOND_NS / self.per_s), min(MISS_NS * (self._misses - MISSES), MISS_MAX_NS))
            self.opens_ns = max(now_ns, self._last_ns + jittered(delay_ns, self._misses))
            return
        rate = BELOW * max(0, self._accepted) * SECOND_NS / self._took_ns
        if self._is_guess and self._accepted < MEASURED:
            rate = max(rate, GUESS)
        if self._before is not None:
            rate = max(self._before / 2, min(rate, BELOW * self._before))
        self.per_s = max(LEAST, rate)
        self._round_ns = now_ns
        self.opens_ns = max(now_ns, self._last_ns + jittered(int(SECOND_NS / self.per_s), self._misses))

    def _measure(self) -> None:
        """Set the threshold by that batch and those that are pooled with it."""
        accepted, took_ns = self._pooled + max(0, self._accepted), self._complained_ns - self._pooled_ns
        rate = BELOW * accepted * SECOND_NS / max(PERIOD_NS, took_ns)
        self._known = self._measured
        if accepted >= MEASURED and took_ns >= PERIOD_NS:
            self._known = (*self._measured, rate)[-REMEMBERED:]
        elif self._before is None:
            self._bound = rate if accepted >= MEASURED else MOST  # a burst is no rate
        elif self._is_bracketed:
            self._bound = self._before / 2

    def _would_help(self, granted_ns: int) -> bool:
        """Return True unless attempts at lower rates were refused about as often: other clients are the cause then."""
        mine = next((one for one in reversed(self._tries) if one.granted_ns == granted_ns and not one.refused), None)
        if mine is None:
            return True
        mine.refused = True
        far = [one.refused for one in self._tries if one.per_s * LOWER < mine.per_s]
        near = [one.refused for one in self._tries if one.per_s * LOWER >= mine.per_s]
        if len(far) < TRIES_MIN:
            return True
        share = sum(near) / len(near)
        return share - sum(far) / len(far) >= HELPS * share
