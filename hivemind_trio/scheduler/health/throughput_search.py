"""Hill climb on throughput: does a higher concurrency limit finish more work per second?

Throughput at a limit is the limit over the mean duration (Little's law). A limit is measured by a cohort: successes of
attempts granted at it, while it is the constraint. Durations are compared as logarithms, and a step up is taken back
only if they rule out that it helped: a few answers of very different lengths say little (after Netflix's
concurrency-limits and BBR's bandwidth probing, with a test of significance instead of a threshold).
"""

from __future__ import annotations

from math import ceil, exp, inf, log, sqrt
from typing import Final, final

import attrs

SECOND_NS: Final = 1_000_000_000

SHARE: Final = 0.75
LEAST: Final = 5
"""Successes of a cohort: a share of its limit, and at least so many."""
EARLY_SHARE: Final = 0.5
FEW: Final = 3
FEW_SHARE: Final = 0.25
SURE_EARLY: Final = 3.0
"""The same if they are plain: few successes, and the standard errors by which they differ from the threshold."""
APART: Final = 1.5
"""Factor between two limits below which they are not compared."""
GAIN: Final = 0.2
"""Growth of throughput that is asked for, as a share of the growth of the limit."""
KEPT: Final = 0.9
"""Share of the best throughput at which a smaller limit is as good."""
SURE: Final = 1.5
"""Standard errors by which a difference has to be exceeded to be believed."""
LINEAR: Final = 0.8
"""Share of the growth of a limit by which throughput has to grow to be in proportion."""
STEP_DOWN: Final = 0.7
STEP_FAR_DOWN: Final = 0.5
"""The same where more at once finished plainly less."""
STAY_NS: Final = 60 * SECOND_NS
"""Time after which a limit that did not help is tried again; doubled each time that it does not."""
STAY_MAX_NS: Final = 960 * SECOND_NS
STAY_SHARE: Final = 3
"""Least such time, as a multiple of what the trial took: trials must not cost much of the throughput."""
CHANGED: Final = 1.5
"""Factor by which the same limit finishes more or less work when the provider has changed."""
SLOWER: Final = 3
"""Multiple of the usual duration after which a cohort without enough successes is judged by those that it has."""


@final
@attrs.define(eq=False)
class Moments:
    """Mean and variance of logarithms, by Welford's method."""

    count: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """Count one, given as it is."""
        value = log(value)
        self.count += 1
        off = value - self.mean
        self.mean += off / self.count
        self._squares += off * (value - self.mean)

    @property
    def usual(self) -> float:
        """Geometric mean."""
        return float(exp(self.mean))

    @property
    def error(self) -> float:
        """Variance of the mean."""
        return self._squares / (self.count - 1) / self.count if self.count > 1 else inf


@final
@attrs.define(eq=False)
class _Cohort:
    """Durations of the successes at one limit, whole and per token of output."""

    began_ns: int
    limit: int
    whole: Moments = attrs.field(factory=Moments, init=False)
    per_token: Moments = attrs.field(factory=Moments, init=False)

    def add(self, tokens: int, lasted_ns: int) -> None:
        self.whole.add(max(1, lasted_ns))
        self.per_token.add(max(1, lasted_ns) / max(1, tokens))

    @property
    def usual_ns(self) -> float:
        return self.whole.usual

    def gain(self, best: _Cohort) -> tuple[float, float]:
        """Return the logarithm of this throughput over another, and the standard error of it."""
        # Of the two measures the one that scatters less: some answers take a time for each token, others do not.
        mine, its = self.whole, best.whole
        if self.per_token.error + best.per_token.error < mine.error + its.error:
            mine, its = self.per_token, best.per_token
        return log(self.limit / best.limit) + its.mean - mine.mean, sqrt(mine.error + its.error)


@final
@attrs.define(eq=False)
class ThroughputSearch:
    """Told of successes while the limit binds; says where the limit should go."""

    is_down: bool = attrs.field(default=False, init=False)
    """Searching below the best limit."""
    stays_until_ns: int = attrs.field(default=0, init=False)
    """Until then the limit does not grow: more did not help."""
    _stay_ns: int = attrs.field(default=STAY_NS, init=False)
    """Time until the next trial of more."""
    _is_linear: bool = attrs.field(default=False, init=False)
    """Throughput grew with the limit up to the best one: fewer would be less."""
    _explores_ns: int = attrs.field(default=0, init=False)
    """When a limit that cannot be raised is compared with a lower one."""
    _explored_ns: int = attrs.field(default=STAY_NS, init=False)
    """Time until the next comparison; doubled each time that fewer are not as good."""
    _best: _Cohort | None = attrs.field(default=None, init=False)
    _cohort: _Cohort | None = attrs.field(default=None, init=False)
    _moved_ns: int | None = attrs.field(default=-1, init=False)
    """When the limit began to bind, or was changed; None: it does not bind."""
    _grants: int = attrs.field(default=0, init=False)
    """Attempts granted since then."""
    _filled_ns: int | None = attrs.field(default=None, init=False)
    """When they were half of the limit; None: they are not yet. Those from before have to end first."""

    def moved(self, now_ns: int) -> None:
        """Note that the limit has changed."""
        self._cohort, self._moved_ns = None, now_ns
        self._grants, self._filled_ns = 0, None

    def on_granted(self, limit: int, now_ns: int) -> None:
        """Count an attempt that begins."""
        self._grants += 1
        if self._filled_ns is None and 2 * self._grants >= limit:
            self._filled_ns = now_ns

    def grew(self, now_ns: int, *, helped: bool, is_linear: bool) -> None:
        """Note that the limit was raised without being measured here, and whether that helped."""
        self._is_linear = is_linear
        if not helped:
            self.stays_until_ns = now_ns + STAY_NS

    def reset(self, now_ns: int) -> None:
        """End a comparison that something else has interrupted."""
        self.is_down = False
        self.moved(now_ns)

    def rests(self) -> None:
        """Note that the limit is not the constraint."""
        self._cohort = self._moved_ns = None

    def on_success(
        self, limit: int, tokens: int, *, granted_ns: int, now_ns: int, is_capped: bool = False
    ) -> int | None:
        """Learn from a success. Return the limit to go to; None: stay.

        Args:
            tokens: Output; 0: not known.
            is_capped: True if the limit cannot be raised for other reasons.
        """
        if self._moved_ns is None:
            self.moved(now_ns)
        moved_ns = now_ns if self._moved_ns is None else self._moved_ns
        if granted_ns < moved_ns:
            return self._give_up(limit, now_ns)
        cohort = self._cohort
        if cohort is None or cohort.limit != limit:
            cohort = self._cohort = _Cohort(moved_ns, limit)
        cohort.add(tokens, now_ns - granted_ns)
        given_up = self._give_up(limit, now_ns)
        if given_up is not None:
            return given_up
        best = self._best
        is_late = best is not None and now_ns - cohort.began_ns > SLOWER * best.usual_ns
        enough = max(LEAST, ceil(SHARE * limit))
        if cohort.whole.count < enough and not (cohort.whole.count >= LEAST and is_late) and not self._is_plain(cohort):
            return None
        self.moved(now_ns)
        return self._judge(cohort, best, now_ns, is_capped=is_capped)

    def _give_up(self, limit: int, now_ns: int) -> int | None:
        """Step back if hardly any attempt at a higher limit has ended in a multiple of the usual time."""
        best, filled_ns = self._best, self._filled_ns
        if best is None or filled_ns is None or self._moved_ns is None or limit < APART * best.limit or self.is_down:
            return None
        ended = self._cohort.whole.count if self._cohort is not None else 0
        if now_ns - filled_ns <= limit / best.limit * best.usual_ns or ended >= limit / 2:
            return None
        return self._take_back(best, self._moved_ns, 0.0, now_ns)

    def _is_plain(self, cohort: _Cohort) -> bool:
        """Return True if a few successes leave no doubt."""
        best, count = self._best, cohort.whole.count
        if count < max(FEW, ceil(FEW_SHARE * cohort.limit)):
            return False
        if best is None:
            return True
        gain, error = cohort.gain(best)
        if cohort.limit > best.limit:
            # The first to end are the short ones, and those that began when fewer were in flight.
            enough = SURE_EARLY * error if count >= EARLY_SHARE * cohort.limit else inf
            return gain - _asked(cohort, best) > enough or _asked(cohort, best) - gain > SURE_EARLY * error
        return cohort.limit < best.limit and abs(gain - log(KEPT)) > SURE_EARLY * error

    def _judge(self, cohort: _Cohort, best: _Cohort | None, now_ns: int, *, is_capped: bool) -> int | None:
        if best is None:
            self._best = cohort
            return 2 * cohort.limit if now_ns >= self.stays_until_ns else self._lower(cohort)
        if cohort.limit == best.limit:
            self._best, self.is_down = cohort, False
            gain, error = cohort.gain(best)
            if abs(gain) > SURE_EARLY * error + log(CHANGED):
                self._stay_ns = self._explored_ns = STAY_NS
                self.stays_until_ns = min(self.stays_until_ns, now_ns + STAY_NS)
                self._explores_ns = min(self._explores_ns, now_ns + STAY_NS)
            if is_capped and not self._is_linear and now_ns >= self._explores_ns:
                self._explores_ns, self._explored_ns = now_ns + self._explored_ns, 2 * self._explored_ns
                return self._lower(cohort)
            return 2 * cohort.limit if now_ns >= self.stays_until_ns else None
        gain, error = cohort.gain(best)
        if cohort.limit > best.limit:
            if cohort.limit < APART * best.limit:
                return 2 * best.limit if now_ns >= self.stays_until_ns else None  # too near to tell them apart
            if gain + SURE * error >= _asked(cohort, best):
                self._is_linear = gain >= LINEAR * log(cohort.limit / best.limit)
                self._best, self._stay_ns = cohort, STAY_NS
                return 2 * cohort.limit
            return self._take_back(best, cohort.began_ns, gain + SURE * error, now_ns)
        if not self.is_down:
            return 2 * cohort.limit if now_ns >= self.stays_until_ns else None
        if gain - error >= log(KEPT):
            self._best, self._explored_ns = cohort, STAY_NS
            return self._lower(cohort)
        self.is_down = False
        self._is_linear = -gain >= LINEAR * log(best.limit / cohort.limit)
        return 2 * best.limit if now_ns >= self.stays_until_ns and not is_capped else best.limit

    @property
    def best(self) -> int | None:
        """Limit of the highest throughput measured; None: there is none yet."""
        return self._best.limit if self._best is not None else None

    def _take_back(self, best: _Cohort, began_ns: int, gain: float, now_ns: int) -> int:
        """Return the limit to go on with after more than the best did not help.

        Args:
            began_ns: When there were more.
            gain: Logarithm of the throughput of then over the best.
        """
        self.stays_until_ns = now_ns + max(self._stay_ns, STAY_SHARE * (now_ns - began_ns))
        self._stay_ns = min(2 * self._stay_ns, STAY_MAX_NS)
        return self._lower(best, STEP_FAR_DOWN if gain < log(KEPT) else STEP_DOWN)

    def _lower(self, best: _Cohort, step: float = STEP_DOWN) -> int:
        """Find out whether fewer do as well."""
        self.is_down = int(best.limit * step) < best.limit
        return max(1, int(best.limit * step))


def _asked(cohort: _Cohort, best: _Cohort) -> float:
    """Return the logarithm of the gain from which on a higher limit has helped."""
    return log(1 + GAIN * (cohort.limit / best.limit - 1))
