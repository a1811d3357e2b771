"""Conduct of providers and agents, as seen lately, and what chance makes of it.

Attempts are drawn as they were, with their result. Failures and refusals come in rows, so an attempt after a failed one
is drawn from those that came after a failed one (a Markov chain of two states). How long ago what was seen still tells
of what comes is unknown, so every future looks back over another span. Durations are drawn by the product-limit
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
from hivemind_trio.scheduler import HEALTHY, AttemptResult, Call

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
class SeenAttempt:
    """One attempt at a provider."""

    began_ns: int
    lasted_ns: int
    """Until its end, or until now."""
    result: AttemptResult | None
    """None: it has not ended, or was broken off."""
    after_failure: bool = False
    """The latest attempt whose result was known when it began had failed."""


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
        return {name: Attempts.of(span) for name, span in spans.items()} | {"": Attempts.of(everything)}

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
    _after: Mapping[bool, tuple[Durations, float]]
    """After a failure or not -> attempts, and how probable it is that they tell of another."""
    _latest: tuple[int, bool]
    """Begin of the latest attempt that has ended, and whether it had failed."""

    @classmethod
    def of(cls, attempts: Sequence[SeenAttempt]) -> Self:
        """Return what attempts show, in the order in which they began."""
        after = {}
        for failed in (False, True):
            few = [one for one in attempts if one.after_failure is failed]
            ended = sum(one.result is not None for one in few)
            after[failed] = Durations.of(few), ended / (ended + 1)
        last = next((one for one in reversed(attempts) if one.result is not None), None)
        latest = (last.began_ns, has_failed(last.result)) if last is not None else (0, False)
        return cls(Durations.of(attempts), after, latest)

    def draw(self, random: Random, age_ns: int | None = None) -> tuple[int, AttemptResult]:
        """Return the duration of an attempt, and its result.

        Args:
            age_ns: Time that it has taken already; None: it begins now.
        """
        if age_ns is not None:
            return self._all.draw(random, age_ns)
        alike, part = self._after[self._latest[1]]
        return (alike if random.random() < part else self._all).draw(random)

    def ended(self, began_ns: int, result: AttemptResult) -> None:
        """Note an end: those that begin from now on come after it."""
        if began_ns >= self._latest[0]:
            self._latest = began_ns, has_failed(result)


def has_failed(result: AttemptResult | None) -> bool:
    """Return True if the provider refused the attempt or failed."""
    return result is not None and result.outcome not in HEALTHY and result.outcome is not Outcome.IGNORED


def _span(attempts: Sequence[SeenAttempt], random: Random) -> Sequence[SeenAttempt]:
    """Return the latest attempts over a span of chance; its logarithm is spread evenly."""
    least = LEAST + sum(one.result is None for one in attempts)
    if least >= len(attempts):
        return attempts
    return attempts[-round(least * (len(attempts) / least) ** random.random()) :]
