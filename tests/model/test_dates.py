"""Dates and weekdays, held against the standard library's calendar."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model.dates import date_on, days, is_date, later, weekday_of

DATES = st.dates(date(1600, 1, 1), date(2400, 12, 31))


@given(day=DATES, by=st.integers(-40_000, 40_000))
def test_dates_are_those_of_the_calendar(day: date, by: int) -> None:
    text = day.isoformat()

    assert is_date(text)
    assert weekday_of(text) == day.isoweekday()
    assert later(text, by) == (day + timedelta(by)).isoformat()


def test_every_day_of_the_century_is_there_once_and_the_usual_week_is_first() -> None:
    first = date(2000, 1, 1)

    assert set(days()) == {(first + timedelta(number)).isoformat() for number in range(36_525)}
    assert len(days()) == 36_525
    assert [date_on(weekday) for weekday in range(1, 8)] == list(days()[:7])


@given(text=st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", fullmatch=True) | st.text(max_size=12))
def test_what_is_no_day_is_no_date(text: str) -> None:
    try:
        known = len(text) == 10 and text.isascii() and date.fromisoformat(text).isoformat() == text
    except ValueError:
        known = False

    assert is_date(text) == known
