"""Box cover: whether boxes together cover another one, and which of them; exact, or not at all.

A *variable* has finitely many *cells*, numbered from 0; a *cube* allows each variable some of them, as a bit mask, and
is the box of all their combinations. Every question that the analysis asks is of one form: is there a combination
within a start that none of some cubes holds?

The search keeps, for each cell, the set of cubes that allow it (one integer, a bit for each cube), so that to choose a
cell is one `&` over all cubes at once. It goes by the cube that is hardest to escape, as DPLL does: a cube that one
variable alone can still leave narrows that variable; otherwise the variable that leaves the fewest cubes is divided
into cells that the remaining cubes tell apart, and of two such parts the one inside of fewer cubes is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import xor
from typing import Final, TypeAlias, final

import attrs

Cube: TypeAlias = Mapping[int, int]
"""Variable -> the cells that it may have; one that is not named may have any. No mask is 0."""

QUESTION_STEPS_MAX: Final = 60_000
"""Cells looked at for one question, some tens of milliseconds."""
STEPS_MAX: Final = 2_000_000
"""For all questions to one `Cover`, about a second."""
DEPTH_MAX: Final = 200
"""Divisions within divisions; there is at most one for each variable."""


_LONG: Final = 256
"""Bits of a mask that is read as a text."""


class Entangled(Exception):  # noqa: N818 - an answer, not a mistake
    """There is no answer within the steps that are allowed."""


@final
@attrs.frozen
class Open:
    """A combination that no cube holds."""

    cells: Mapping[int, int]
    """Variable -> a cell, of those that matter; the others may have any that the start allows."""


@final
@attrs.frozen
class Covered:
    """Every combination is held by a cube."""

    by: int
    """A set of cubes that suffices, a bit for each; as few as the search happened to use."""


@final
@attrs.define(eq=False)
class Cover:
    """Cubes, and questions to them.

    Args:
        sizes: How many cells each variable has.
        cubes: Their numbers are the bits of all sets of cubes.
    """

    sizes: Sequence[int]
    cubes: Sequence[Cube]
    _cells: list[list[int]] = attrs.field(init=False)
    """Variable -> cell -> the cubes that allow it."""
    _whole: list[tuple[int, int]] = attrs.field(init=False)
    """Variable -> the cubes that allow all of its cells, and those that allow any."""
    _narrow: dict[tuple[int, int], tuple[int, int]] = attrs.field(init=False, factory=dict)
    """Results for the sides of starts."""
    _steps: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        everything = (1 << len(self.cubes)) - 1
        restricted = [0] * len(self.sizes)
        # The cubes that allow a cell and not the one before it, or the reverse: a range changes twice, however long.
        changed = [[0] * (size + 1) for size in self.sizes]
        for number, cube in enumerate(self.cubes):
            bit = 1 << number
            for variable, mask in cube.items():
                restricted[variable] |= bit
                cells = changed[variable]
                for cell in bits(mask ^ (mask << 1)):
                    cells[cell] ^= bit
        self._cells = []
        for variable, changes in enumerate(changed):
            free = everything ^ restricted[variable]
            self._cells.append([free | allowed for allowed in accumulate(changes[:-1], xor)])
        self._whole = [_both(cells, everything) for cells in self._cells]

    def search(self, start: Cube, among: int) -> Open | Covered:
        """Return whether the cubes in the set `among` cover the start.

        Raises:
            Entangled: It takes more than `QUESTION_STEPS_MAX`, or all questions together more than `STEPS_MAX`.
        """
        question = _CoverSearch(
            self._cells, self._whole, self._narrow, min(QUESTION_STEPS_MAX, STEPS_MAX - self._steps)
        )
        try:
            return question.ask(start, among)
        finally:
            self._steps += question.steps

    def fewest(self, starts: Sequence[Cube], by: int, groups: Sequence[int]) -> list[int]:
        """Return the numbers of some groups of cubes, such that none can be spared, that cover the starts together.

        Args:
            by: Cubes that cover them.
            groups: Sets of cubes that belong together, each cube to one; what is in none of them counts as given.

        Raises:
            Entangled: As `search` does.
        """
        kept = [number for number, group in enumerate(groups) if group & by]
        everything = by
        for number in kept:
            everything |= groups[number]
        for number in reversed(kept):
            without = everything & ~groups[number]
            if all(isinstance(self.search(start, without), Covered) for start in starts):
                everything = without
                kept.remove(number)
        return kept


@final
@attrs.define(eq=False)
class _CoverSearch:
    """One search and its bound."""

    _cells: Sequence[Sequence[int]]
    _whole: Sequence[tuple[int, int]]
    _narrow: dict[tuple[int, int], tuple[int, int]]
    _steps_max: int
    steps: int = 0

    def ask(self, start: Cube, among: int) -> Open | Covered:
        masks: dict[int, int] = {}
        wholes: dict[int, int] = {}
        for variable, mask in start.items():
            found = self._narrow.get((variable, mask))
            if found is None:
                found = self._narrow[variable, mask] = self._narrowed(variable, mask)
            every, some = found
            among &= some
            masks[variable], wholes[variable] = mask, every
        return self._search(masks, wholes, among)

    def _narrowed(self, variable: int, mask: int) -> tuple[int, int]:
        """Return the cubes that allow all cells in the mask, and those that allow any."""
        cells = self._cells[variable]
        if mask == (1 << len(cells)) - 1:
            return self._whole[variable]
        self._count(mask.bit_count())
        return _both([cells[cell] for cell in bits(mask)], -1)

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self._steps_max:
            raise Entangled

    def _search(self, masks: dict[int, int], wholes: dict[int, int], among: int) -> Open | Covered:
        """Both dictionaries are this call's own."""
        used = 0
        while among:
            inescapable, forced, leaving = self._pressed(wholes, among)
            if inescapable:
                return Covered(used | (inescapable & -inescapable))
            if not forced:
                self._count(0 if len(wholes) < DEPTH_MAX else self._steps_max + 1)
                return self._divided(masks, wholes, among, leaving, used)
            variable, cubes = forced
            cells = self._cells[variable]
            old = masks.get(variable, (1 << len(cells)) - 1)
            self._count(old.bit_count())
            new = 0
            for cell in bits(old):
                if not cells[cell] & cubes:
                    new |= 1 << cell
                else:
                    used |= cells[cell] & cubes & -(cells[cell] & cubes)
            if not new:
                return Covered(used)
            masks[variable] = new
            wholes[variable], some = self._narrowed(variable, new)
            among &= some
        return Open({variable: (mask & -mask).bit_length() - 1 for variable, mask in masks.items()})

    def _pressed(self, wholes: dict[int, int], among: int) -> tuple[int, tuple[int, int] | None, list[int]]:
        """Return cubes that cannot be left, a variable with the cubes that it alone can leave, and all others."""
        once = twice = 0
        leaving = []
        for variable, (every, _) in enumerate(self._whole):
            left = among & ~wholes.get(variable, every)
            if left:
                leaving.append(variable)
                twice |= once & left
                once |= left
        self._count(1)
        alone = once & ~twice
        if among & ~once or not alone:
            return among & ~once, None, leaving
        first = alone & -alone
        for variable in leaving:
            left = among & ~wholes.get(variable, self._whole[variable][0])
            if left & first:
                return 0, (variable, alone & left), leaving
        raise AssertionError

    def _divided(
        self, masks: dict[int, int], wholes: dict[int, int], among: int, leaving: Sequence[int], used: int
    ) -> Open | Covered:
        best: tuple[int, int, dict[int, int]] | None = None
        for variable in leaving:
            cells = self._cells[variable]
            mask = masks.get(variable, (1 << len(cells)) - 1)
            self._count(mask.bit_count())
            parts: dict[int, int] = {}
            for cell in bits(mask):
                inside = among & cells[cell]
                parts[inside] = parts.get(inside, 0) | (1 << cell)
            fewest = min(inside.bit_count() for inside in parts)
            if best is None or fewest < best[0]:
                best = fewest, variable, parts
        assert best is not None
        _, variable, parts = best
        tried: list[int] = []
        for inside in sorted(parts, key=lambda inside: (inside.bit_count(), inside)):
            # A part inside of the same cubes as another, and of more, cannot do what the other could not.
            if any(other & inside == other for other in tried):
                continue
            self._count(len(tried) + 1)
            tried.append(inside)
            found = self._search(
                {**masks, variable: parts[inside]},
                {**wholes, variable: inside | ~among},
                inside,
            )
            if isinstance(found, Open):
                return found
            used |= found.by
        return Covered(used)


def bits(mask: int) -> list[int]:
    """Return the numbers of the bits that are set, from the lowest."""
    found = []
    if mask.bit_length() > _LONG:  # where each step of the loop below would copy the rest of the mask
        digits = bin(mask)[:1:-1]
        at = digits.find("1")
        while at >= 0:
            found.append(at)
            at = digits.find("1", at + 1)
        return found
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _both(sets: Sequence[int], everything: int) -> tuple[int, int]:
    every, some = everything, 0
    for one in sets:
        every &= one
        some |= one
    return every, some
