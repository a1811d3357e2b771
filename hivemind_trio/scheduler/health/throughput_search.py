"""Hill climb on throughput: does a higher concurrency limit finish more work per second?

Throughput at a limit is the limit over the mean duration (Little's law). A limit is measured by a cohort: successes of
attempts granted at it, while it is the constraint. Durations are divided by what the lengths of the answers explain
(`answer_duration.py`) and compared as logarithms, and a step up is taken back only if they rule out that it helped
(after Netflix's concurrency-limits and BBR's bandwidth probing, with a test of significance instead of a threshold).
What is measured of the best limit is added up while the provider stays the same: the luckiest of several small cohorts
would be no measure to hold others to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import ceil, exp, inf, log, sqrt
from typing import Final, final

import attrs

from .answer_duration import AnswerDuration

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
"""Factor between two limits from which on the higher one has to pay for itself; below it, it must only do no harm."""
GAIN: Final = 0.2
"""Growth of throughput that is asked for, as a share of the growth of the limit."""
KEPT: Final = 0.9
"""Share of the best throughput at which a smaller limit is as good."""
SURE: Final = 1.5
"""Standard errors by which a difference has to be exceeded to be believed."""
LINEAR: Final = 0.8
"""Share of the growth of a limit by which throughput has to grow to be in proportion."""
ANSWERS_MAX: Final = 64
"""Answers that are kept of a limit."""
STEP_DOWN: Final = 0.7
STEP_FAR_DOWN: Final = 0.5
"""The same where more at once finished plainly less."""
LEAST_MORE: Final = 0.25
"""Share of a limit by which it is raised after trials of more have failed."""
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
class Cohort:
    """Successes at one limit: their tokens of output and durations, the latest of them."""

    began_ns: int
    limit: int
    count: int = attrs.field(default=0, init=False)
    _answers: deque[tuple[int, int]] = attrs.field(factory=lambda: deque(maxlen=ANSWERS_MAX), init=False)
    _fit: tuple[float, float] | None = attrs.field(default=None, init=False)
    """Time of every answer and that of a token by which `_slowness` was taken; None: it is to be taken anew."""
    _slowness: Moments = attrs.field(factory=Moments, init=False)
    """Durations over those that are usual; kept, for every success asks."""
    _usual_ns: float | None = attrs.field(default=None, init=False)
    """Kept likewise; None: it is to be taken anew."""

    def add(self, tokens: int, lasted_ns: int) -> None:
        """Take in a success."""
        lasted_ns = max(1, lasted_ns)
        if len(self._answers) == ANSWERS_MAX:
            self._fit = None  # the oldest falls out
        elif self._fit is not None:
            self._slowness.add(lasted_ns / _expected(tokens, self._fit))
        self._answers.append((tokens, lasted_ns))
        self._usual_ns = None
        self.count += 1

    def teach(self, usual: AnswerDuration) -> None:
        """Add these answers to what is usual, as if they had been served at the usual speed."""
        slowness = self._slowness_by(usual.fit()).usual if usual.is_known else 1.0
        for tokens, lasted_ns in self._answers:
            usual.add(tokens, lasted_ns / slowness)

    def join(self, older: Cohort) -> None:
        """Take in what was measured at the same limit before."""
        self._answers = deque([*older._answers, *self._answers], maxlen=ANSWERS_MAX)
        self._fit = self._usual_ns = None

    @property
    def usual_ns(self) -> float:
        """Geometric mean of the durations."""
        if self._usual_ns is None:
            moments = Moments()
            for _, lasted_ns in self._answers:
                moments.add(lasted_ns)
            self._usual_ns = moments.usual
        return self._usual_ns

    @property
    def mean_ns(self) -> float:
        """Arithmetic mean of the durations."""
        return sum(lasted_ns for _, lasted_ns in self._answers) / len(self._answers)

    def gain(self, best: Cohort, usual: AnswerDuration) -> tuple[float, float]:
        """Return the logarithm of this throughput over another, and the standard error of it."""
        fit = usual.fit()
        mine, its = self._slowness_by(fit), best._slowness_by(fit)
        known = mine.count + its.count - 2
        # The lengths have been fitted by two numbers, which takes up two of what is known.
        error = (mine.error + its.error) * known / (known - 2) if known > 2 else inf
        return log(self.limit / best.limit) + its.mean - mine.mean, sqrt(error)

    def _slowness_by(self, fit: tuple[float, float]) -> Moments:
        if self._fit != fit:
            self._fit, self._slowness = fit, Moments()
            for tokens, lasted_ns in self._answers:
                self._slowness.add(lasted_ns / _expected(tokens, fit))
        return self._slowness


def _expected(tokens: int, fit: tuple[float, float]) -> float:
    """Return the usual duration of an answer of this length."""
    fixed, per_token = fit
    return max(1.0, fixed + per_token * tokens)


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
    _more: float = attrs.field(default=1.0, init=False)
    """Share of the best limit by which it is raised next; halved each time that more did not help."""
    _is_guess: bool = attrs.field(default=False, init=False)
    """That more did not help was told by first content alone (`early_growth.py`)."""
    _is_told: bool = attrs.field(default=False, init=False)
    """Streams have told which of fewer at once is best."""
    is_linear: bool = attrs.field(default=False, init=False)
    """Throughput grew with the limit up to the best one: fewer would be less."""
    is_measured_linear: bool = attrs.field(default=False, init=False)
    """The same, by whole answers: time to first content says nothing of what comes after it."""
    fewer_ns: int = attrs.field(default=0, init=False)
    """When fewer at once may next be tried by `compare_fewer`."""
    _explores_ns: int = attrs.field(default=0, init=False)
    """When a limit that cannot be raised is compared with a lower one."""
    _explored_ns: int = attrs.field(default=STAY_NS, init=False)
    """Time until the next comparison; doubled each time that fewer are not as good."""
    _usual: AnswerDuration = attrs.field(factory=AnswerDuration, init=False)
    best_cohort: Cohort | None = attrs.field(default=None, init=False)
    _cohort: Cohort | None = attrs.field(default=None, init=False)
    _moved_ns: int | None = attrs.field(default=-1, init=False)
    """When the limit began to bind, or was changed; None: it does not bind."""
    _grants: int = attrs.field(default=0, init=False)
    """Attempts granted since then."""
    _filled_ns: int | None = attrs.field(default=None, init=False)
    """When they were half of the limit; None: they are not yet. Those from before have to end first."""
    _ended: int = attrs.field(default=0, init=False)
    """Successes since then."""

    def moved(self, now_ns: int) -> None:
        """Note that the limit has changed."""
        self._cohort, self._moved_ns = None, now_ns
        self._grants = self._ended = 0
        self._filled_ns = None

    def on_granted(self, limit: int, now_ns: int) -> None:
        """Count an attempt that begins."""
        self._grants += 1
        if self._filled_ns is None and 2 * self._grants >= limit:
            self._filled_ns = now_ns

    def grew(self, began_ns: int, now_ns: int, *, helped: bool, is_linear: bool) -> None:
        """Note that the limit was raised at `began_ns` without being measured here, and whether that helped."""
        self.is_linear, self.is_measured_linear, self._is_guess = is_linear, False, not helped
        if not helped:
            self._more = LEAST_MORE
            self.stays_until_ns = now_ns + max(STAY_NS, STAY_SHARE * (now_ns - began_ns))

    def fewer_are_more(self, now_ns: int, stay_ns: int) -> None:
        """Note that streams are served more where there are fewer: they go to that limit, and stay for so long."""
        self.is_down, self.is_linear, self._is_guess, self._is_told = False, False, False, True
        self.is_measured_linear = False
        self._more = LEAST_MORE
        self.stays_until_ns = max(self.stays_until_ns, now_ns + stay_ns)
        self.moved(now_ns)

    def compare_fewer(self, level: int, answers: Iterable[tuple[int, int]], now_ns: int) -> None:
        """Compare fewer at once, from now on, with as many as there were, whether or not the limit was the constraint.

        Args:
            level: As many as there were.
            answers: Their tokens of output, and their durations in ns.
        """
        cohort = self.best_cohort = Cohort(now_ns, level)
        for tokens, lasted_ns in answers:
            cohort.add(tokens, lasted_ns)
        cohort.teach(self._usual)
        self.is_down = True
        self.fewer_ns, self._explored_ns = now_ns + self._explored_ns, 2 * self._explored_ns
        self.moved(now_ns)

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
        self._ended += self._filled_ns is not None
        moved_ns = now_ns if self._moved_ns is None else self._moved_ns
        if granted_ns < moved_ns:
            return self._give_up(limit, now_ns)
        cohort = self._cohort
        if cohort is None or cohort.limit != limit:
            cohort = self._cohort = Cohort(moved_ns, limit)
        cohort.add(tokens, now_ns - granted_ns)
        given_up = self._give_up(limit, now_ns)
        if given_up is not None:
            return given_up
        best = self.best_cohort
        is_late = best is not None and now_ns - cohort.began_ns > SLOWER * best.usual_ns
        enough = max(LEAST, ceil(SHARE * limit))
        if cohort.count < enough and not (cohort.count >= LEAST and is_late) and not self._is_plain(cohort):
            return None
        self.moved(now_ns)
        return self._judge(cohort, best, now_ns, is_capped=is_capped)

    def _give_up(self, limit: int, now_ns: int) -> int | None:
        """Step back if hardly any attempt at a higher limit has ended in a multiple of the usual time."""
        best, filled_ns = self.best_cohort, self._filled_ns
        if best is None or filled_ns is None or self._moved_ns is None or limit < APART * best.limit or self.is_down:
            return None
        waited_ns = now_ns - filled_ns
        if waited_ns <= limit / best.limit * best.usual_ns:
            return None
        expected = waited_ns * best.limit / best.mean_ns * (1 + GAIN * (limit / best.limit - 1))
        if self._ended >= expected - SURE_EARLY * sqrt(expected):  # as of a Poisson process
            return None
        return self._take_back(best, self._moved_ns, 0.0, now_ns)

    def _is_plain(self, cohort: Cohort) -> bool:
        """Return True if a few successes leave no doubt."""
        best, count = self.best_cohort, cohort.count
        if count < max(FEW, ceil(FEW_SHARE * cohort.limit)):
            return False
        if best is None:
            return True
        gain, error = cohort.gain(best, self._usual)
        if cohort.limit > best.limit:
            # The first to end are the short ones, and those that began when fewer were in flight.
            enough = SURE_EARLY * error if count >= EARLY_SHARE * cohort.limit else inf
            return gain - _asked(cohort, best) > enough or _asked(cohort, best) - gain > SURE_EARLY * error
        return cohort.limit < best.limit and abs(gain - log(KEPT)) > SURE_EARLY * error

    def _judge(self, cohort: Cohort, best: Cohort | None, now_ns: int, *, is_capped: bool) -> int | None:
        gain, error = cohort.gain(best, self._usual) if best is not None else (0.0, inf)
        cohort.teach(self._usual)
        if best is None:
            self.best_cohort = cohort
            if now_ns < self.stays_until_ns:
                return None if self._is_told else self._lower(cohort)
            return self._higher(cohort)
        if cohort.limit == best.limit:
            self.best_cohort, self.is_down = cohort, False
            if abs(gain) <= SURE_EARLY * error + log(CHANGED):
                cohort.join(best)
            else:
                self._stay_ns = self._explored_ns = STAY_NS
                self.stays_until_ns = min(self.stays_until_ns, now_ns + STAY_NS)
                self._explores_ns = min(self._explores_ns, now_ns + STAY_NS)
            if is_capped and not self.is_linear and now_ns >= self._explores_ns:
                self._explores_ns, self._explored_ns = now_ns + self._explored_ns, 2 * self._explored_ns
                return self._lower(cohort)
            return self._higher(cohort) if now_ns >= self.stays_until_ns else None
        if cohort.limit > best.limit:
            asked, is_near = _asked(cohort, best), cohort.limit < APART * best.limit
            if is_near and gain - SURE * error < asked:
                if gain + SURE * error < 0:
                    return self._take_back(best, cohort.began_ns, gain + SURE * error, now_ns)
                return self._higher(best) if now_ns >= self.stays_until_ns else None
            if gain + SURE * error >= asked:
                self.is_linear = self.is_measured_linear = gain >= LINEAR * log(cohort.limit / best.limit)
                self.best_cohort, self._stay_ns, self._more = cohort, STAY_NS, 1.0
                return 2 * cohort.limit
            return self._take_back(best, cohort.began_ns, gain + SURE * error, now_ns)
        if not self.is_down:
            return self._higher(cohort) if now_ns >= self.stays_until_ns else None
        if gain - error >= log(KEPT):
            self.best_cohort, self._explored_ns = cohort, STAY_NS
            self.stays_until_ns = max(self.stays_until_ns, now_ns + STAY_NS)
            return self._lower(cohort, STEP_FAR_DOWN if gain > SURE * error else STEP_DOWN)
        self.is_down = False
        self.is_linear = self.is_measured_linear = -gain >= LINEAR * log(best.limit / cohort.limit)
        if self.is_linear and self._is_guess:
            self.stays_until_ns, self._is_guess = now_ns, False  # each call at once has paid so far
        return self._higher(best) if now_ns >= self.stays_until_ns and not is_capped else best.limit

    @property
    def best(self) -> int | None:
        """Limit of the highest throughput measured; None: there is none yet."""
        return self.best_cohort.limit if self.best_cohort is not None else None

    def _take_back(self, best: Cohort, began_ns: int, gain: float, now_ns: int) -> int:
        """Return the limit to go on with after more than the best did not help.

        Args:
            began_ns: When there were more.
            gain: Logarithm of the throughput of then over the best.
        """
        self.stays_until_ns = now_ns + max(self._stay_ns, STAY_SHARE * (now_ns - began_ns))
        self._stay_ns, self._is_guess = min(2 * self._stay_ns, STAY_MAX_NS), False
        self._more = max(self._more / 2, LEAST_MORE)
        return self._lower(best, STEP_FAR_DOWN if gain < log(KEPT) else STEP_DOWN)

    def _lower(self, best: Cohort, step: float = STEP_DOWN) -> int:
        """Find out whether fewer do as well."""
        limit = max(1, round(best.limit * step))
        self.is_down = limit < best.limit
        return limit

    def _higher(self, best: Cohort) -> int:
        """Find out whether more do better: twice as many, or not so many where more have not."""
        return ceil(best.limit * (1 + self._more))


def _asked(cohort: Cohort, best: Cohort) -> float:
    """Return the logarithm of the gain from which on a higher limit has helped."""
    return log(1 + GAIN * (cohort.limit / best.limit - 1))
