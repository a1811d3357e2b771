"""Conduct of providers and agents, as seen lately, and what chance makes of it.

Attempts are drawn as they were, with their result. Failures and refusals last for a time (`spells.py`): an attempt in a
spell of them is drawn from those that failed. How long ago what was seen still tells of what comes is unknown, so every
future looks back over another span. Durations are drawn by the product-limit
estimator (Kaplan and Meier, 1958): attempts in flight count as longer than their age, because the first to end are the
short ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Final, Self, final

import attrs

from hivemind_trio.model import Outcome, Usage
from hivemind_trio.scheduler import AttemptResult, Call

from .spells import SeenAttempt, Spells, was_refused

LEAST: Final = 8
"""Attempts beside those in flight that a future looks back over at least."""
OLD: Final = 0.3
"""Part of its age that an attempt still takes which is older than every one that has ended."""
USUAL_NS: Final = 15_000_000_000
"""Duration of an attempt before any has ended."""
USUAL_OUTPUT: Final = 1_000

SERVED: Final = AttemptResult(
    outcome=Outcome.SUCCEEDED, status=200, usage=Usage(input=0, output=USUAL_OUTPUT), committed=True
)


@final
@attrs.frozen
class Durations:
    """Distribution of attempts over their durations."""

    _lasted_ns: Sequence[int]
    """Durations of those that ended, ascending."""
    _results: Sequence[AttemptResult]
    """The same."""
    _mass: Sequence[float]
    """Probability of an end until then."""
    _longest_ns: int
    """Longest that was seen, ended or not."""

    @classmethod
    def of(cls, attempts: Iterable[SeenAttempt]) -> Self:
        """Return the distribution that attempts show."""
        seen = sorted(attempts, key=lambda one: (one.lasted_ns, one.result is None))
        lasted, results, masses, survive = [], [], [], 1.0
        for rank, one in enumerate(seen):
            if one.result is not None:
                masses.append(survive / (len(seen) - rank))
                survive -= masses[-1]
                lasted.append(one.lasted_ns)
                results.append(one.result)
        return cls(lasted, results, list(accumulate(masses)), seen[-1].lasted_ns if seen else 0)

    def draw(self, random: Random, age_ns: int = 0) -> tuple[int, AttemptResult]:
        """Return the duration of an attempt that has taken `age_ns`, and its result."""
        before = bisect_right(self._lasted_ns, age_ns)
        done = self._mass[before - 1] if before else 0.0
        rank = bisect_right(self._mass, done + random.random() * (1 - done), lo=before)
        if rank < len(self._mass):
            return self._lasted_ns[rank], self._results[rank]
        if not self._results:
            return USUAL_NS if age_ns < USUAL_NS else round(age_ns * (1 + OLD)), SERVED
        oldest_ns = max(age_ns, self._longest_ns)
        return round(oldest_ns * (1 + OLD)), random.choice(self._results[before:] or self._results)


@final
@attrs.frozen
class FirstCall:
    """First call of an agent."""

    age_ns: int
    """Time since then."""
    call: Call


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

    def drawn(self, random: Random) -> Mapping[str, Attempts]:
        """Return the attempts of one future by provider. The key "" has those of one that was not called."""
        spans = {name: _span(several, random) for name, several in self.attempts.items()}
        everything = [one for span in spans.values() for one in span]
        return {name: Attempts.of(span, random) for name, span in spans.items()} | {"": Attempts.of(everything, random)}

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
class Attempts:
    """Attempts at one provider in one future."""

    _all: Durations
    _accepted: Durations
    _refused: Durations
    _spells: Spells
    _closed_ns: int | None
    """End of the latest spell; None: there was none yet."""

    @classmethod
    def of(cls, attempts: Sequence[SeenAttempt], random: Random) -> Self:
        """Return what attempts show, in the order in which they began."""
        spells = Spells.of(attempts)
        refused = [one for one in attempts if was_refused(one.result)]
        accepted = [one for one in attempts if not was_refused(one.result)]
        closed_ns = None if spells.began_ns is None else spells.end_ns(random)
        return cls(Durations.of(attempts), Durations.of(accepted), Durations.of(refused), spells, closed_ns)

    def draw_rest(self, random: Random, age_ns: int) -> tuple[int, AttemptResult]:
        """Return the duration of an attempt that has taken `age_ns`, and its result."""
        return self._all.draw(random, age_ns)

    def draw(self, random: Random, now_ns: int) -> tuple[int, AttemptResult]:
        """Return the duration of an attempt that begins now, and its result."""
        if self._closed_ns is None or now_ns >= self._closed_ns:
            if random.random() >= self._spells.often:
                return self._accepted.draw(random)
            self._closed_ns = now_ns + self._spells.length_ns(random)
        took_ns, result = self._refused.draw(random)
        if self._spells.is_true and result.retry_after_ns is not None:
            result = attrs.evolve(result, retry_after_ns=max(0, self._closed_ns - now_ns - took_ns))
        return took_ns, result

    def ended(self, began_ns: int, result: AttemptResult, random: Random) -> None:
        """Note the end of an attempt that had begun before the future did."""
        spells = self._spells
        if not was_refused(result):
            if self._closed_ns is not None and began_ns >= (spells.began_ns or 0):
                self._closed_ns = min(self._closed_ns, began_ns)
        elif self._closed_ns is None or began_ns >= self._closed_ns:
            self._closed_ns = began_ns + spells.length_ns(random)


def _span(attempts: Sequence[SeenAttempt], random: Random) -> Sequence[SeenAttempt]:
    """Return the latest attempts over a span of chance; its logarithm is spread evenly.

    The spell that goes on is whole in it, and does not count.
    """
    since = len(attempts)
    while since and (attempts[since - 1].result is None or was_refused(attempts[since - 1].result)):
        since -= 1
    least = LEAST + sum(one.result is None for one in attempts[:since])
    if least >= since:
        return attempts
    return attempts[since - round(least * (since / least) ** random.random()) :]
