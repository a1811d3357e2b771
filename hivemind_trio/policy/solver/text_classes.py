"""Texts that no glob tells apart: the finitely many classes into which some globs and words divide all texts.

Every pattern is a small automaton whose only loops are its stars, so that all of them together run as one, a bit for
each place in each pattern (shift-and, as in R. Baeza-Yates and G. H. Gonnet, "A new approach to text searching", 1992).
The states that can be reached are walked breadth first over the letters that occur and one that stands for all others;
each set of patterns that some text fits is a class, and the first text to reach it, a shortest one, is its example.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, digits
from typing import Final, final

import attrs

STATES_MAX: Final = 6_000
"""Largest number of states of the automaton.

Prefixes and words grow it by their letters; each `*word*` may double it.
"""


@final
@attrs.frozen
class TextClass:
    """Texts that fit the same patterns."""

    fits: int
    """A bit for each pattern."""
    example: str
    """One of them, as short as any."""


def text_classes(words: Sequence[str], globs: Sequence[str]) -> list[TextClass] | None:
    """Every class that is not empty; None: there would be too many states.

    Args:
        words: Compared letter for letter; they have the first bits of `TextClass.fits`.
        globs: With `*` and `?`; they have the bits behind.
    """
    machine = _Automaton.of([*((word, False) for word in words), *((glob, True) for glob in globs)])
    other = _unused(machine.letters)
    loops, any_letter, letters = machine.loops, machine.any_letter, list(machine.letters.items())
    found: dict[int, str] = {}  # the ends that a state has come to -> the first text that came there
    seen = {machine.start}
    todo = [(machine.start, "")]
    for state, text in todo:  # which grows; thousands of states, so nothing is called in here
        found.setdefault(state & machine.all_ends, text)
        # Where each letter leads that leads anywhere of its own; `other` stands for the rest.
        rest = (state & loops) | ((state & any_letter) << 1)
        if rest not in seen:
            seen.add(rest)
            todo.append((rest, text + other))
        for letter, places in letters:
            if here := state & places:
                after = rest | (here << 1)
                if after not in seen:
                    seen.add(after)
                    todo.append((after, text + letter))
        if len(seen) > STATES_MAX:
            return None
    return [TextClass(machine.fits(ended), example) for ended, example in found.items()]


@final
@attrs.frozen
class _Automaton:
    """All patterns side by side. A state is the set of places that the text so far may have led to."""

    start: int
    loops: int
    """Places before which a star stands: any letter leaves one there."""
    any_letter: int
    """Places at which `?` stands."""
    letters: dict[str, int]
    """Letter -> the places at which it stands."""
    ends: dict[int, int]
    """The place behind a pattern's last letter -> the pattern's number."""
    all_ends: int

    @classmethod
    def of(cls, patterns: Sequence[tuple[str, bool]]) -> _Automaton:
        start = loops = any_letter = 0
        letters: dict[str, int] = {}
        ends: dict[int, int] = {}
        place = 1
        for number, (pattern, is_glob) in enumerate(patterns):
            start |= place
            for letter in pattern:
                if is_glob and letter == "*":
                    loops |= place
                    continue
                if is_glob and letter == "?":
                    any_letter |= place
                else:
                    letters[letter] = letters.get(letter, 0) | place
                place <<= 1
            ends[place] = number
            place <<= 1
        return cls(start, loops, any_letter, letters, ends, sum(ends))

    def fits(self, ended: int) -> int:
        """Return the patterns that have come to these ends."""
        found = 0
        while ended:
            end = ended & -ended
            found |= 1 << self.ends[end]
            ended ^= end
        return found


def _unused(letters: dict[str, int]) -> str:
    """Return a letter that stands in no pattern, readable if there is one."""
    for letter in "x" + ascii_lowercase + digits:
        if letter not in letters:
            return letter
    return next(letter for letter in map(chr, range(0x4E00, 0x4E00 + len(letters) + 1)) if letter not in letters)
