"""The office week runs, and its reserve with a forecast keeps the plan for people."""

from __future__ import annotations

import itertools

import pytest

from bench.office import CASES, changing_hours, measure, office_hours, present_ns, table
from hivemind_trio.model.plan import DAY_NS, HOUR_NS


@pytest.mark.slow
def test_with_a_forecast_nobody_is_locked_out_and_little_is_wasted() -> None:
    case = next(iter(CASES))
    run = measure("reserve, `release forecast`", case, 1, 1)

    assert run["locked_out"] == 0
    assert run["unused"] <= 1
    assert "0.00" in table([run], [run["rule"]], [case]).markdown()


def test_office_time_is_that_of_working_days() -> None:
    hours = office_hours(2)
    assert present_ns(hours, 0, 7 * DAY_NS) == 40 * HOUR_NS
    assert present_ns(hours, 5 * DAY_NS, 7 * DAY_NS) == 0
    assert present_ns(hours, 10 * HOUR_NS, 12 * HOUR_NS) == 2 * HOUR_NS


def test_people_without_habits_come_at_other_hours_each_week() -> None:
    hours = changing_hours(4, 1)
    weeks = [{begins_ns % (7 * DAY_NS) for begins_ns, _ in hours[at : at + 3]} for at in range(0, 12, 3)]

    assert present_ns(hours, 0, 29 * DAY_NS) == 4 * 3 * 8 * HOUR_NS
    assert all(not one & other for one, other in itertools.combinations(weeks, 2))
