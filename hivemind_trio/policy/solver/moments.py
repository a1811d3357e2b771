"""Times of day and days between which no condition distinguishes: what a call may have instead of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from hivemind_trio.model.dates import MINUTES
from hivemind_trio.policy.language.clock_edges import in_minutes
from hivemind_trio.policy.language.condition_typing import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Field,
    Flag,
    Kind,
    Like,
    Member,
    Negation,
    Relation,
)
from hivemind_trio.policy.program.call_facts import Facts

from .partition import Days, Numbers, Test

NO_TIME: Final[Facts] = {"time": 0}
NO_DAY: Final[Facts] = {"weekday": 1}
"""Facts that `request_of` assumes for a call that does not give them."""

WEEK: Final = tuple({"weekday": day} for day in range(1, 8))

Instead: TypeAlias = Mapping[str, Sequence[Facts]]
"""Fact -> its alternatives."""


def timed(facts: Facts) -> dict[str, str | int | bool]:
    """Return a call with the time at which it is asked about."""
    return {**NO_TIME, **({} if "date" in facts else NO_DAY), **facts}


def alternatives(conditions: Iterable[Condition]) -> Instead:
    """Return a time of day and a day for each of those that some conditions tell apart."""
    tests: dict[Test, None] = {}
    for condition in conditions:
        _collect(condition, tests)
    numbers = Numbers.of(Field("time", Kind.TIME, most=MINUTES - 1), [one for one in tests if one.field == "time"])
    if not any(test.field == "date" for test in tests):
        return {"time": [{"time": start} for start in numbers.starts], "weekday": WEEK}
    days = Days.of(test for test in tests if test.field in ("date", "weekday"))
    dates: Sequence[Facts] = [{"date": date} for date in days.groups] if days is not None else ()
    return {"time": [{"time": start} for start in numbers.starts], "weekday": [*WEEK, *dates], "date": dates}


def _collect(condition: Condition, tests: dict[Test, None]) -> None:
    match condition:
        case AllOf(items=items) | AnyOf(items=items):
            for item in items:
                _collect(item, tests)
        case Negation(item=item):
            _collect(item, tests)
        case Always():
            pass
        case Flag() | Relation() | Member() | Like():
            test = in_minutes(condition)
            if test.field in ("time", "date", "weekday"):
                tests[test] = None
