"""Spells of failure: times in which a provider accepts nothing, as its attempts show them.

A used-up window, an outage and a storm last for a time, not for a number of attempts. A spell is from the first attempt
that was refused until the next one that was accepted. Lengths of spells of late tell of the next, one piece of evidence
each. One more is that of somebody who knows nothing but how long a spell has lasted: it lasts as long again with even
odds (Gott, 1993), and a length of its own before it has lasted at all (a Lomax distribution). Where the provider names
the end, and none of its words of late was wrong, that is another.
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


def has_failed(result: AttemptResult | None) -> bool:
    """Return True if the provider refused the attempt or failed."""
    return result is not None and result.outcome not in HEALTHY and result.outcome is not Outcome.IGNORED


def was_refused(result: AttemptResult | None) -> bool:
    """Return True if the provider did not take the attempt: it refused it, or could not be reached."""
    return has_failed(result) and result is not None and not 200 <= result.status < 300


@final
@attrs.frozen
class Spells:
    """Spells of one provider."""

    lengths_ns: Sequence[int]
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
        lengths = list[int]()
        began_ns: int | None = None
        named_ns: int | None = None
        known_ns, last_ns, accepted, is_true = 0, 0, 0, True
        for one in attempts:
            if one.result is None:
                continue
            if not was_refused(one.result):
                accepted += 1
                if began_ns is not None and one.began_ns >= known_ns:
                    lengths.append(one.began_ns - began_ns)
                    is_true = is_true and (named_ns is None or one.began_ns >= named_ns - WORD_OFF_NS)
                    began_ns = named_ns = None
                continue
            if began_ns is None:
                began_ns, known_ns = one.began_ns, one.began_ns + one.lasted_ns
            is_true = is_true and (named_ns is None or one.began_ns <= named_ns + WORD_OFF_NS)
            last_ns = one.began_ns + one.lasted_ns
            if one.result.retry_after_ns is not None:
                named_ns = last_ns + one.result.retry_after_ns
        spells = len(lengths) + (began_ns is not None)
        lasted_ns = 0 if began_ns is None else last_ns - began_ns
        often = spells / (spells + accepted + 1)
        return cls(lengths, began_ns, lasted_ns, named_ns if is_true else None, is_true, often)

    def end_ns(self, random: Random) -> int:
        """Draw the end of the spell that goes on."""
        assert self.began_ns is not None
        began_ns, lasted_ns = self.began_ns, self.lasted_ns
        ends = [began_ns + length_ns for length_ns in self.lengths_ns if length_ns > lasted_ns]
        if self.named_ns is not None:
            ends.append(self.named_ns)
        rank = random.randrange(len(ends) + 1)
        if rank < len(ends):
            return ends[rank]
        return began_ns + lasted_ns + _lomax_ns(lasted_ns, random)

    def length_ns(self, random: Random) -> int:
        """Draw the length of another spell."""
        lengths = list(self.lengths_ns)
        if self.began_ns is not None:
            lengths.append(self.end_ns(random) - self.began_ns)
        return random.choice(lengths) if lengths else _lomax_ns(0, random)


def _lomax_ns(lasted_ns: int, random: Random) -> int:
    return round((USUAL_NS + lasted_ns) * (1 / (1 - random.random()) - 1))
