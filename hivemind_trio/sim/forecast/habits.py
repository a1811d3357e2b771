"""Conduct of providers and agents, as seen lately, and what chance makes of it.

Attempts are drawn as they were, with their result. Refusals last for a time (`spells.py`), for each limits group by
itself: an attempt in a spell of them is drawn from those that were refused. How long ago what was seen still tells of
what comes is unknown, so every future looks back over another span. Durations are drawn by the product-limit estimator
(Kaplan and Meier, 1958): attempts in flight count as longer than their age, because the first to end are the short
ones. They grow with a power of the attempts at once, which is fitted to what was seen: an overloaded provider is slow,
and quicker with fewer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import mul
from random import Random
from statistics import fmean
from typing import Final, Self, final

import attrs

from hivemind_trio.model import Outcome, Usage
from hivemind_trio.scheduler import AttemptResult, Call

from .spells import SeenAttempt, Spells, was_accepted, was_refused

LEAST: Final = 8
"""Attempts beside those in flight that a future looks back over at least."""
OLD: Final = 0.3
"""Part of its age that an attempt still takes which is older than every one that has ended."""
USUAL_NS: Final = 15_000_000_000
"""Duration of an attempt before any has ended."""
USUAL_OUTPUT: Final = 1_000
FITTED: Final = 3
"""Attempts from which on durations are compared with the attempts at once."""
STEEPEST: Final = 2.0
"""Largest power of the attempts at once that durations grow with."""
RIDGE: Final = 1.0
"""Squared deviation of the attempts at once (in logarithms) that is needed to believe half of what durations show."""

SERVED: Final = AttemptResult(
    outcome=Outcome.SUCCEEDED, status=200, usage=Usage(input=0, output=USUAL_OUTPUT), committed=True
)


@final
@attrs.frozen
class Durations:
    """Distribution of attempts over their durations."""

    _lasted_ns: Sequence[int]
    """Durations of those that ended, as if each had been alone, ascending."""
    _results: Sequence[AttemptResult]
    """The same."""
    _mass: Sequence[float]
    """Probability of an end until then."""
    longest_ns: int
    """Longest that was seen, ended or not."""
    _steepness: float = 0.0

    @classmethod
    def of(cls, attempts: Iterable[SeenAttempt], steepness: float = 0.0) -> Self:
        """Return the distribution that attempts show.

        Args:
            steepness: Power of the attempts at once that durations grow with.
        """
        alone = ((round(one.lasted_ns / one.load**steepness), one.result) for one in attempts)
        seen = sorted(alone, key=lambda one: (one[0], one[1] is None))
        lasted, results, masses, survive = [], [], [], 1.0
        for rank, (lasted_ns, result) in enumerate(seen):
            if result is not None:
                masses.append(survive / (len(seen) - rank))
                survive -= masses[-1]
                lasted.append(lasted_ns)
                results.append(result)
        return cls(lasted, results, list(accumulate(masses)), seen[-1][0] if seen else 0, steepness)

    def draw(
        self, random: Random, age_ns: int = 0, load: float = 1.0, luck: float | None = None
    ) -> tuple[int, AttemptResult]:
        """Return the duration of an attempt that has taken `age_ns`, and its result.

        Args:
            load: Attempts at once.
            luck: From 0 for the shortest to 1 for the longest; None: by chance.
        """
        luck = random.random() if luck is None else luck
        if not self._steepness:
            return self._draw(random, age_ns, luck)
        scale = load**self._steepness
        took_ns, result = self._draw(random, round(age_ns / scale), luck)
        return max(age_ns, round(took_ns * scale)), result

    def _draw(self, random: Random, age_ns: int, luck: float) -> tuple[int, AttemptResult]:
        before = bisect_right(self._lasted_ns, age_ns)
        done = self._mass[before - 1] if before else 0.0
        rank = bisect_right(self._mass, done + luck * (1 - done), lo=before)
        if rank < len(self._mass):
            return self._lasted_ns[rank], self._results[rank]
        if not self._results:
            return USUAL_NS if age_ns < USUAL_NS else round(age_ns * (1 + OLD)), SERVED
        oldest_ns = max(age_ns, self.longest_ns)
        return round(oldest_ns * (1 + OLD)), random.choice(self._results[before:] or self._results)


@final
@attrs.frozen
class FirstCall:
    """First call of an agent."""

    age_ns: int
    """Time since then."""
    call: Call


@final
@attrs.frozen
class Luck:
    """Numbers from 0 to 1 that decide most in one future; those of an estimate's futures are spread evenly."""

    span: float
    """Decides how far it looks back."""
    end: float
    """Decides whose evidence of the end of a spell is believed."""

    @classmethod
    def of(cls, number: int, first: Random) -> Self:
        """Return that of one future: the R2 sequence, whose begin is chance (Roberts, 2018)."""
        return cls(*((first.random() + number * step) % 1.0 for step in _STEPS))


_STEPS: Final = 0.7548776662466927, 0.5698402909980532


@final
@attrs.frozen(kw_only=True)
class Habits:
    """Conduct of everybody."""

    attempts: Mapping[str, Sequence[SeenAttempt]]
    """Provider -> its attempts, in the order in which they began."""
    gaps_ns: Sequence[int]
    """Times between an agent's answer and its next call; empty: nobody calls again."""
    leaving: float = 0.0
    """Part of answers after which the agent calls no more."""
    first_calls: Sequence[FirstCall] = ()
    """Those of late, oldest first."""

    def drawn(self, random: Random, luck: Luck | None = None) -> Mapping[str, Attempts]:
        """Return the attempts of one future by provider. The key "" has those of one that was not called."""
        luck = luck or Luck(random.random(), random.random())
        found = {name: Attempts.of(several, random, luck) for name, several in self.attempts.items()}
        everything = [attrs.evolve(one, group="") for several in self.attempts.values() for one in several]
        return found | {"": Attempts.of(everything, random, luck)}

    def gap_ns(self, random: Random, *, stays: bool) -> int | None:
        """Return the time until an agent's next call; None: there is none.

        Args:
            stays: The agent has calls left to make.
        """
        if not self.gaps_ns or (not stays and random.random() < self.leaving):
            return 0 if stays else None
        return random.choice(self.gaps_ns)


@final
@attrs.define
class RefusalCourse:
    """Refusals of one group in one future."""

    refused: Durations
    spells: Spells
    closed_ns: int | None
    """End of the latest spell; None: there was none yet."""

    @classmethod
    def of(cls, attempts: Sequence[SeenAttempt], random: Random, luck: Luck) -> Self:
        """Return what attempts of the group show, in the order in which they began."""
        spells = Spells.of(attempts)
        closed_ns = None if spells.began_ns is None else spells.end_ns(random, luck.end)
        return cls(Durations.of([one for one in attempts if was_refused(one.result)]), spells, closed_ns)

    def draw(self, random: Random, now_ns: int) -> tuple[int, AttemptResult] | None:
        """Return the duration of an attempt that begins now and is refused, and its result; None: it is accepted."""
        if self.closed_ns is None or now_ns >= self.closed_ns:
            if random.random() >= self.spells.often:
                return None
            self.closed_ns = now_ns + self.spells.length_ns(random)
        return self._refuse(random, now_ns, self.closed_ns)

    def draw_rest(self, random: Random, began_ns: int, age_ns: int) -> tuple[int, AttemptResult] | None:
        """Return the same of an attempt that began in the spell that goes on and has taken `age_ns`.

        None: it is accepted. One that takes longer than every refusal did is.
        """
        if self.closed_ns is None or began_ns >= self.closed_ns or age_ns > self.refused.longest_ns:
            return None
        return self._refuse(random, began_ns, self.closed_ns, age_ns)

    def _refuse(self, random: Random, began_ns: int, closed_ns: int, age_ns: int = 0) -> tuple[int, AttemptResult]:
        took_ns, result = self.refused.draw(random, age_ns)
        if self.spells.is_true and result.retry_after_ns is not None:
            result = attrs.evolve(result, retry_after_ns=max(0, closed_ns - began_ns - took_ns))
        return took_ns, result

    def ended(self, began_ns: int, result: AttemptResult, random: Random) -> None:
        """Note the end of an attempt that had begun before the future did."""
        if not was_refused(result):
            if self.closed_ns is not None and began_ns >= (self.spells.began_ns or 0):
                self.closed_ns = min(self.closed_ns, began_ns)
        elif self.closed_ns is None or began_ns >= self.closed_ns:
            self.closed_ns = began_ns + self.spells.length_ns(random)


@final
@attrs.define
class AttemptPace:
    """Lucks of attempts one after the other, as alike as durations of late were: a Gaussian copula of order one.

    A provider that is slow is slow for several attempts. Were each drawn by itself, the time that many take would be
    foreseen as much too certain.
    """

    likeness: float
    _last: float | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, attempts: Sequence[SeenAttempt]) -> Self:
        """Return the pace that attempts show, in the order in which they began."""
        lasted = [one.lasted_ns for one in attempts if one.result is not None]
        if len(lasted) < FITTED:
            return cls(0.0)
        middle = (len(lasted) - 1) / 2
        ranks = [0.0] * len(lasted)
        for rank, number in enumerate(sorted(range(len(lasted)), key=lasted.__getitem__)):
            ranks[number] = rank - middle
        alike = sum(map(mul, ranks, ranks[1:])) / sum(rank * rank for rank in ranks)
        return cls(max(0.0, alike - 1 / math.sqrt(len(lasted))))

    def luck(self, random: Random) -> float:
        """Return the luck of the next attempt, from 0 to 1."""
        found = random.gauss(0.0, 1.0)
        if self._last is not None:
            found = self.likeness * self._last + math.sqrt(1 - self.likeness**2) * found
        self._last = found
        return 0.5 * math.erfc(-found / math.sqrt(2))


@final
@attrs.define
class Attempts:
    """Attempts at one provider in one future."""

    _all: Durations
    _accepted: Durations
    _pace: AttemptPace
    _groups: Mapping[str, RefusalCourse]
    _other: RefusalCourse
    """Refusals of a group that was not called."""

    @classmethod
    def of(cls, attempts: Sequence[SeenAttempt], random: Random, luck: Luck) -> Self:
        """Return what attempts show, in the order in which they began."""
        groups: defaultdict[str, list[SeenAttempt]] = defaultdict(list)
        for one in attempts:
            groups[one.group].append(one)
        spans = {group: _span(several, luck.span) for group, several in groups.items()}
        seen = sorted((one for span in spans.values() for one in span), key=lambda one: one.began_ns)
        accepted = [one for one in seen if not was_refused(one.result)]
        steepness = _steepness(accepted)
        return cls(
            Durations.of(seen, steepness),
            Durations.of(accepted, steepness),
            AttemptPace.of(accepted),
            {group: RefusalCourse.of(span, random, luck) for group, span in spans.items()},
            RefusalCourse.of(seen, random, luck),
        )

    def draw_rest(
        self, random: Random, began_ns: int, age_ns: int, group: str, load: float
    ) -> tuple[int, AttemptResult]:
        """Return the duration of an attempt that has taken `age_ns`, and its result."""
        course = self._groups.get(group, self._other)
        if course.spells.began_ns is None or began_ns < course.spells.began_ns:
            return self._all.draw(random, age_ns, load)
        return course.draw_rest(random, began_ns, age_ns) or self._accepted.draw(random, age_ns, load)

    def draw(self, random: Random, now_ns: int, group: str, load: float) -> tuple[int, AttemptResult]:
        """Return the duration of an attempt that begins now, and its result."""
        refused = self._groups.get(group, self._other).draw(random, now_ns)
        return refused or self._accepted.draw(random, 0, load, self._pace.luck(random))

    def ended(self, began_ns: int, result: AttemptResult, random: Random, group: str) -> None:
        """Note the end of an attempt that had begun before the future did."""
        self._groups.get(group, self._other).ended(began_ns, result, random)


def _steepness(attempts: Sequence[SeenAttempt]) -> float:
    """Return the power of the attempts at once that durations grow with: least squares, and less where little shows it.

    Those in flight, and those that were broken off, do not count.
    """
    seen = [(math.log(one.load), math.log(max(1, one.lasted_ns))) for one in attempts if one.result is not None]
    if len(seen) < FITTED:
        return 0.0
    load, time = fmean(x for x, _ in seen), fmean(y for _, y in seen)
    both = sum((x - load) * (y - time) for x, y in seen)
    return min(STEEPEST, max(0.0, both / (sum((x - load) ** 2 for x, _ in seen) + RIDGE)))


def _span(attempts: Sequence[SeenAttempt], luck: float) -> Sequence[SeenAttempt]:
    """Return the latest attempts over a span of chance; its logarithm is spread evenly.

    The spell that goes on is whole in it, and does not count.
    """
    since = len(attempts)
    while since and not was_accepted(attempts[since - 1]):
        since -= 1
    least = LEAST + sum(one.result is None for one in attempts[:since])
    if least >= since:
        return attempts
    return attempts[since - round(least * (since / least) ** luck) :]
