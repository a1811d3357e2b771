"""Minutes of a day at which conditions change their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import attrs

from hivemind_trio.model.dates import MINUTES

from .condition_typing import AllOf, Always, AnyOf, Condition, Flag, Like, Member, Negation, Relation

Test: TypeAlias = Flag | Relation | Member | Like
"""A condition without parts."""


def in_minutes(test: Test) -> Test:
    """Return the test of `time` that a test of `hour` is; another test as it is."""
    match test:
        case Relation(field="hour", op="==" | "!=" as op, value=int(hour)):
            whole = Member("time", (), ((hour * 60, hour * 60 + 59),))
            return whole if op == "==" else attrs.evolve(whole, ranges=_beside(hour))
        case Relation(field="hour", op=op, value=int(hour)):
            return Relation("time", op, hour * 60 + (59 if op in ("<=", ">") else 0))
        case Member(field="hour", values=values, ranges=ranges):
            spans = [*((value, value) for value in values if isinstance(value, int)), *ranges]
            return Member("time", (), tuple((low * 60, high * 60 + 59) for low, high in spans))
        case _:
            return test


def _beside(hour: int) -> tuple[tuple[int, int], ...]:
    """Return the minutes of a day before and after an hour."""
    spans = (0, hour * 60 - 1), (hour * 60 + 60, MINUTES - 1)
    return tuple(span for span in spans if span[0] <= span[1])


def tests_of(condition: Condition) -> Iterator[Test]:
    """Yield the tests of a condition, with repetitions."""
    match condition:
        case Always():
            return
        case Negation(item=item):
            yield from tests_of(item)
        case AllOf(items=items) | AnyOf(items=items):
            for item in items:
                yield from tests_of(item)
        case Flag() | Relation() | Member() | Like():
            yield condition


def clock_edges(conditions: Iterable[Condition]) -> tuple[int, ...]:
    """Return the minutes, in order; empty: no condition reads a clock or a calendar."""
    found: set[int] = set()
    for condition in conditions:
        for test in map(in_minutes, tests_of(condition)):
            match test:
                case Relation(field="time", value=int(value)):
                    found |= {value, value + 1}
                case Member(field="time", values=values, ranges=ranges):
                    found |= {edge for value in values if isinstance(value, int) for edge in (value, value + 1)}
                    found |= {edge for low, high in ranges for edge in (low, high + 1)}
                case Flag() | Relation() | Member() | Like() if test.field in ("date", "weekday"):
                    found.add(0)
    return tuple(sorted({edge % MINUTES for edge in found}))
