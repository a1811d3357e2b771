"""The office week runs, and its reserve with a forecast keeps the plan for people."""

from __future__ import annotations

import pytest

from bench.office import CASES, measure, office_ns, table
from hivemind_trio.model.plan import DAY_NS, HOUR_NS


@pytest.mark.slow
def test_with_a_forecast_nobody_is_locked_out_and_little_is_wasted() -> None:
    case = next(iter(CASES))
    run = measure("reserve, `release forecast`", case, 1, 1)

    assert run["locked_out"] == 0
    assert run["unused"] <= 1
    assert "0.00" in table([run], [run["rule"]], [case]).markdown()


def test_office_time_is_that_of_working_days() -> None:
    assert office_ns(0, 7 * DAY_NS) == 40 * HOUR_NS
    assert office_ns(5 * DAY_NS, 7 * DAY_NS) == 0
    assert office_ns(10 * HOUR_NS, 12 * HOUR_NS) == 2 * HOUR_NS
