"""When windows of the calendar end."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from hivemind_trio.policy import BudgetWindow
from hivemind_trio.runtime.window_calendar import DAY_NS, SECOND_NS, WEEK_NS, Calendar, left_ns

HOUR_NS = 3_600 * SECOND_NS
PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("now", "window_ns", "left_s"),
    [
        ("2026-11-21T10:20:30", 60 * SECOND_NS, 30),
        ("2026-11-21T10:20:30", HOUR_NS, 39 * 60 + 30),
        ("2026-11-21T10:20:30", 10 * 60 * SECOND_NS, 9 * 60 + 30),
        ("2026-11-21T23:00:00", DAY_NS, 3_600),
        ("2026-11-21T00:00:00", DAY_NS, 86_400),
        ("2026-11-21T12:00:00", WEEK_NS, 12 * 3_600 + 86_400),  # a Saturday
        ("2026-11-23T00:00:00", WEEK_NS, 7 * 86_400),
        ("2026-11-21T23:59:00", 7 * HOUR_NS, 60),  # what does not divide the day begins anew with it
        ("2026-03-28T12:00:00", DAY_NS, 12 * 3_600),
        ("2026-03-29T00:00:00", DAY_NS, 23 * 3_600),  # the clocks go forward
        ("2026-10-25T00:00:00", DAY_NS, 25 * 3_600),  # and back
    ],
)
def test_windows_end_where_people_expect_it(now: str, window_ns: int, left_s: int) -> None:
    assert left_ns(datetime.fromisoformat(now).replace(tzinfo=PARIS), BudgetWindow(window_ns)) == left_s * SECOND_NS


@pytest.mark.parametrize(
    ("now", "left_s"),
    [
        ("2026-11-21T00:00:00", 10 * 86_400),
        ("2026-12-31T23:59:00", 60),
        ("2028-02-28T00:00:00", 2 * 86_400),  # a leap year
        ("2026-02-01T00:00:00", 28 * 86_400),
        ("2026-03-01T00:00:00", 31 * 86_400 - 3_600),  # the clocks go forward
        ("2026-10-01T00:00:00", 31 * 86_400 + 3_600),  # and back
    ],
)
def test_months_end_with_the_month(now: str, left_s: int) -> None:
    month = BudgetWindow(31 * DAY_NS, is_month=True)

    assert left_ns(datetime.fromisoformat(now).replace(tzinfo=PARIS), month) == left_s * SECOND_NS


def test_a_window_may_have_a_zone_of_its_own() -> None:
    calendar = Calendar.of("UTC")
    apart_ns = calendar.turns(0, BudgetWindow(DAY_NS, timezone="Asia/Kathmandu")) - calendar.turns(
        0, BudgetWindow(DAY_NS)
    )

    # Kathmandu is 5 h 45 min ahead; the clock goes on between the two questions.
    assert (apart_ns / 1e9 + 5.75 * 3_600) % 86_400 < 60 or (apart_ns / 1e9 + 5.75 * 3_600) % 86_400 > 86_340


@pytest.mark.parametrize("zone", ["", "UTC", "Asia/Kathmandu"])
def test_the_end_is_on_the_engine_s_clock(zone: str) -> None:
    calendar = Calendar.of(zone)

    assert 1_000 < calendar.turns(1_000, BudgetWindow(DAY_NS)) <= 1_000 + 25 * HOUR_NS
    assert calendar.turns(0, BudgetWindow(HOUR_NS)) <= HOUR_NS
