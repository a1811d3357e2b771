"""Spells of failure: times in which a provider accepts nothing, as its attempts show them.

A used-up window, an outage and a storm last for a time, not for a number of attempts. A spell is from the first attempt
that was refused until the next one that was accepted: nobody knows when between the last refusal and that one it ended,
so its length is drawn from between the two. Lengths of spells of late tell of the next, one piece of evidence each. One
more is that of somebody who knows nothing but how long a spell has lasted: it lasts as long again with even odds (Gott,
1993), and a length of its own before it has lasted at all (a Lomax distribution). Where the provider names the end, and
none of its words of late was wrong, that is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Self, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import HEALTHY, AttemptResult

SECOND_NS: Final = 1_000_000_000
USUAL_NS: Final = 10 * SECOND_NS
"""A spell lasts longer with even odds as long as nothing is known of any."""
WORD_OFF_NS: Final = 2 * SECOND_NS
"""A word that is off by less is kept."""


@final
@attrs.frozen
class SeenAttempt:
    """One attempt at a provider."""

    began_ns: int
    lasted_ns: int
    """Until its end, or until now."""
    result: AttemptResult | None
    """None: it has not ended, or was broken off."""
    group: str = ""
    """Name that the provider counts it by (`group_of`)."""
    load: float = 1.0
    """Attempts at once at its provider, the mean of its begin and its end."""
    begun: bool = False
    """A good answer to it has begun."""


def has_failed(result: AttemptResult | None) -> bool:
    """Return True if the provider refused the attempt or failed."""
    return result is not None and result.outcome not in HEALTHY and result.outcome is not Outcome.IGNORED


def was_refused(result: AttemptResult | None) -> bool:
    """Return True if the provider did not take the attempt: it refused it, or could not be reached."""
    return has_failed(result) and result is not None and not 200 <= result.status < 300


def was_accepted(one: SeenAttempt) -> bool:
    """Return True if the provider has taken the attempt."""
    return one.begun if one.result is None else not was_refused(one.result)


def group_of(group: str | None, model: str) -> str:
    """Return what a provider counts an attempt by: the limits group of the policy, or else the model."""
    return group or model


@final
@attrs.frozen
class SpellLength:
    """Length of a spell that is over, as far as attempts show it."""

    least_ns: int
    """Until the last attempt that was refused."""
    most_ns: int
    """Until the next one, which was accepted."""

    def draw_ns(self, random: Random, lasted_ns: int = 0) -> int:
        """Draw the length, of a spell that has lasted for so long."""
        return round(random.uniform(max(self.least_ns, lasted_ns), self.most_ns))


@final
@attrs.frozen
class Spells:
    """Spells of one group of one provider."""

    lengths: Sequence[SpellLength]
    """Those that are over."""
    began_ns: int | None
    """Begin of the one that goes on; None: the latest attempt was served."""
    lasted_ns: int
    """Length of it that is known: until its last failure."""
    named_ns: int | None
    """End of it as the provider names it; None: it names none, or one of its words was wrong."""
    is_true: bool
    """No end that the provider named was wrong."""
    often: float
    """Probability that a spell begins with an attempt outside of one."""

    @classmethod
    def of(cls, attempts: Sequence[SeenAttempt]) -> Self:
        """Return the spells that attempts show, in the order in which these began."""
        lengths = list[SpellLength]()
        began_ns: int | None = None
        named_ns: int | None = None
        known_ns, asked_ns, last_ns, accepted, is_true = 0, 0, 0, 0, True
        for one in attempts:
            if was_accepted(one):
                accepted += 1
                if began_ns is not None and one.began_ns >= known_ns:
                    lengths.append(SpellLength(asked_ns - began_ns, one.began_ns - began_ns))
                    is_true = is_true and (named_ns is None or one.began_ns >= named_ns - WORD_OFF_NS)
                    began_ns = named_ns = None
                continue
            if one.result is None:
                continue
            if began_ns is None:
                began_ns, known_ns = one.began_ns, one.began_ns + one.lasted_ns
            is_true = is_true and (named_ns is None or one.began_ns <= named_ns + WORD_OFF_NS)
            asked_ns, last_ns = one.began_ns, one.began_ns + one.lasted_ns
            if one.result.retry_after_ns is not None:
                named_ns = last_ns + one.result.retry_after_ns
        spells = len(lengths) + (began_ns is not None)
        lasted_ns = 0 if began_ns is None else last_ns - began_ns
        often = spells / (spells + accepted + 1)
        return cls(lengths, began_ns, lasted_ns, named_ns if is_true else None, is_true, often)

    def end_ns(self, random: Random, luck: float | None = None) -> int:
        """Draw the end of the spell that goes on.

        Args:
            luck: From 0 to 1, whose evidence is believed; None: by chance.
        """
        assert self.began_ns is not None
        began_ns, lasted_ns = self.began_ns, self.lasted_ns
        longer = [one for one in self.lengths if one.most_ns > lasted_ns]
        ends = sorted(began_ns + one.draw_ns(random, lasted_ns) for one in longer)
        if self.named_ns is not None:
            ends.append(self.named_ns)
        rank, rest = divmod((random.random() if luck is None else luck) * (len(ends) + 1), 1)
        if rank < len(ends):
            return ends[int(rank)]
        return began_ns + lasted_ns + _lomax_ns(lasted_ns, rest)

    def length_ns(self, random: Random) -> int:
        """Draw the length of another spell."""
        choices = [*self.lengths, *([None] if self.began_ns is not None else [])]
        one = random.choice(choices) if choices else None
        if one is not None:
            return one.draw_ns(random)
        return _lomax_ns(0, random.random()) if self.began_ns is None else self.end_ns(random) - self.began_ns


def _lomax_ns(lasted_ns: int, luck: float) -> int:
    return round((USUAL_NS + lasted_ns) * (1 / (1 - luck) - 1))
