"""Partition of calls: no condition distinguishes two calls of one cell.

Each condition compares one field, so the values of a field fall into finitely many classes, each with an example that
stands for it. A *variable* is a field, or some fields that depend on each other, and its *cells* are the combinations
of their classes that a call can have:

- who calls gives the agent and its team;
- the model and the dialect give the provider, as `Router` chooses it;
- `hour` is a part of `time`, and the weekday follows from the date;
- `tokens.in` and `tokens.max-out` add up to `tokens.total`, and with the model's price they give the `cost`.

Several policies can be looked at at once: then the facts of a call are the same for all of them, and its agent, team,
provider and cost are each policy's own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, final

import attrs

from hivemind_trio.model.dates import days, weekday_of
from hivemind_trio.policy.language.condition_eval import holds
from hivemind_trio.policy.language.condition_typing import Field, Flag, Like, Member, Relation
from hivemind_trio.policy.language.globs import Matcher, any_matcher

from .box_cover import bits
from .text_classes import text_classes

Key: TypeAlias = tuple[str, int]
"""A field, and the number of the policy whose it is; 0 for what is the same for all."""

Test: TypeAlias = Flag | Relation | Member | Like
"""A condition without parts."""

Value: TypeAlias = str | int | bool

DERIVED: Final = ("agent", "team", "provider", "cost")
"""Fields that each policy has its own value of."""

INFINITE: Final = 10**30
"""More than any number that a policy can write."""

CELLS_MAX: Final = 4_096
"""Largest number of cells of a variable. Beyond this, fields that depend on each other are taken as if they did not."""


class Classes(Protocol):
    """The classes of one field's values."""

    def __len__(self) -> int:
        """Return the number of cells."""
        ...

    def mask(self, test: Test) -> int:
        """Return the classes in which it holds; one of the tests they were made for."""
        ...


@final
class Flags:
    """Unset, and set."""

    def __len__(self) -> int:
        return 2

    def mask(self, test: Test) -> int:
        """Return the cells that meet a test, as a bit mask."""
        assert isinstance(test, Flag)
        return 0b10


@final
@attrs.define(eq=False)
class Names:
    """Words that are all known."""

    names: Sequence[str]
    _bits: dict[str | int | float, int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._bits = {name: 1 << number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def mask(self, test: Test) -> int:
        """Return the cells that meet a test, as a bit mask."""
        found = 0
        for value in _values(test):
            found |= self._bits.get(value, 0)
        return found ^ ((1 << len(self.names)) - 1) if _is_not(test) else found


@final
@attrs.define(eq=False)
class Numbers:
    """Whole numbers, cut wherever a test changes its answer."""

    starts: list[int]
    most: int

    @classmethod
    def of(cls, field: Field, tests: Iterable[Test], *, extra: Iterable[int] = ()) -> Numbers:
        """Return the cells of a number that some tests compare."""
        most = INFINITE if field.most is None else field.most
        starts = {field.least, *extra}
        for test in tests:
            for low, high in _spans(test):
                starts.update((low, high + 1))
        return cls(sorted(start for start in starts if field.least <= start <= most), most)

    def __len__(self) -> int:
        return len(self.starts)

    def span(self, number: int) -> tuple[int, int]:
        """Return the least and the greatest value of a class."""
        return self.starts[number], self.starts[number + 1] - 1 if number + 1 < len(self.starts) else self.most

    def mask(self, test: Test) -> int:
        """Return the cells that meet a test, as a bit mask."""
        match test:
            case Relation(op="<" | ">=" as op, value=int(value)):
                below = self._below(value)
                return below if op == "<" else self._all ^ below
            case Relation(op="<=" | ">" as op, value=int(value)):
                below = self._below(value + 1)
                return below if op == "<=" else self._all ^ below
            case _:
                found = 0
                for low, high in _spans(test):
                    found |= self._below(high + 1) & ~self._below(low)
                return self._all ^ found if _is_not(test) else found

    @property
    def _all(self) -> int:
        return (1 << len(self.starts)) - 1

    def _below(self, value: int) -> int:
        """Return the classes of the values below a cut."""
        return (1 << bisect_right(self.starts, value - 1)) - 1


@final
@attrs.define(eq=False)
class Texts:
    """Texts, divided by words and globs."""

    examples: list[str]
    _of_word: dict[str, int]
    """Word -> the class that holds nothing else."""
    _of_glob: dict[str, int]

    @classmethod
    def of(cls, tests: Iterable[Test], *, globs: Iterable[str] = ()) -> Texts | None:
        """None: there would be too many."""
        # What is missing is the empty text, which has a class of its own, for the sake of routing by model.
        words: dict[str, None] = {"": None}
        patterns: dict[str, None] = dict.fromkeys(globs)
        for test in tests:
            match test:
                case Like(globs=asked):
                    patterns.update(dict.fromkeys(asked))
                case _:
                    words.update(dict.fromkeys(str(value) for value in _values(test)))
        classes = text_classes(list(words), list(patterns))
        if classes is None:
            return None
        masks = [0] * (len(words) + len(patterns))
        for number, one in enumerate(classes):
            for fitting in bits(one.fits):
                masks[fitting] |= 1 << number
        return cls(
            [one.example for one in classes],
            dict(zip(words, masks, strict=False)),
            dict(zip(patterns, masks[len(words) :], strict=True)),
        )

    def __len__(self) -> int:
        return len(self.examples)

    def mask(self, test: Test) -> int:
        """Return the cells that meet a test, as a bit mask."""
        found = 0
        match test:
            case Like(globs=globs):
                for glob in globs:
                    found |= self._of_glob[glob]
                return found
            case _:
                for value in _values(test):
                    found |= self._of_word[str(value)]
                return found ^ ((1 << len(self)) - 1) if _is_not(test) else found


@final
@attrs.define(eq=False)
class Days:
    """Days of 2000 to 2099, grouped by some tests of their dates and weekdays."""

    groups: list[str]
    """Date of each group."""
    _masks: dict[Test, int]

    @classmethod
    def of(cls, tests: Iterable[Test]) -> Days | None:
        """None: there would be too many groups."""
        return _grouped(tuple(dict.fromkeys(tests)))

    def __len__(self) -> int:
        return len(self.groups)

    def mask(self, test: Test) -> int:
        """Return the groups that meet a test, as a bit mask."""
        return self._masks[test]


@lru_cache(maxsize=8)
def _grouped(tests: tuple[Test, ...]) -> Days | None:
    of_weekday = [test for test in tests if test.field == "weekday"]
    of_date = [test for test in tests if test.field != "weekday"]
    by_weekday = [tuple(holds(test, {"weekday": day}) for test in of_weekday) for day in range(1, 8)]
    matchers = [any_matcher(test.globs) if isinstance(test, Like) else _equals(test) for test in of_date]
    found: dict[tuple[bool, ...], str] = {}
    for date in days():
        answers = tuple([match(date) for match in matchers])
        found.setdefault((*by_weekday[weekday_of(date) - 1], *answers), date)
        if len(found) > CELLS_MAX:
            return None
    masks = {
        test: sum(1 << group for group, answers in enumerate(found) if answers[number])
        for number, test in enumerate((*of_weekday, *of_date))
    }
    return Days(list(found.values()), masks)


def _equals(test: Test) -> Matcher:
    values, is_not = frozenset(_values(test)), _is_not(test)
    return lambda text: (text in values) is not is_not


def _values(test: Test) -> tuple[str | int | float, ...]:
    match test:
        case Relation(value=value):
            return (value,)
        case Member(values=values):
            return values
        case _:
            raise AssertionError(test)


def _is_not(test: Test) -> bool:
    return isinstance(test, Relation) and test.op == "!="


def _spans(test: Test) -> list[tuple[int, int]]:
    """Values at which the answer may change, with their neighbours."""
    match test:
        case Relation(value=int(value)):
            return [(value, value)]
        case Member(values=values, ranges=ranges):
            return [*((value, value) for value in values if isinstance(value, int)), *ranges]
        case _:
            raise AssertionError(test)


@final
@attrs.define(eq=False)
class Variable:
    """Some fields that depend on each other, or one."""

    size: int
    facts: Sequence[Mapping[str, Any] | None]
    """Example of each cell, by the names of `Request`'s fields; None: it is not certain that such a call exists."""
    classes: Mapping[Key, Classes]
    cells: Mapping[Key, Sequence[int]] | None
    """Key -> class -> the cells that have it; None: each class is a cell."""

    def mask(self, key: Key, test: Test) -> int:
        """Return the cells in which a test of a field holds."""
        classes = self.classes[key].mask(test)
        if self.cells is None:
            return classes
        cells, found = self.cells[key], 0
        for number in bits(classes):
            found |= cells[number]
        return found


def single(key: Key, classes: Classes, facts: Sequence[Mapping[str, Any] | None]) -> Variable:
    """Return a field that depends on no other."""
    return Variable(len(classes), facts, {key: classes}, None)


def combined(
    classes: Mapping[Key, Classes], cells: Sequence[tuple[Mapping[Key, int], Mapping[str, Any] | None]]
) -> Variable:
    """Fields that depend on each other.

    Args:
        cells: Which class each field has there, and what makes a call of it.
    """
    masks = {key: [0] * len(one) for key, one in classes.items()}
    for number, (where, _) in enumerate(cells):
        for key, chosen in where.items():
            masks[key][chosen] |= 1 << number
    return Variable(len(cells), [facts for _, facts in cells], classes, masks)
