"""Dates as text, `2026-12-25`, and their weekdays. The calendar is the Gregorian one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

WEEKDAYS: Final = {"mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6, "sun": 7}
"""First letters of a day's English name -> its number, as `weekday` has it."""

MINUTES: Final = 24 * 60
"""Minutes of a day."""

_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONDAY: Final = "2001-01-08"
_ERA: Final = 146_097
"""Days of 400 years."""


def is_date(text: str) -> bool:
    """Return True if it is a day of the calendar, `YYYY-MM-DD`."""
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    if not year or not 1 <= month <= 12:
        return False
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= _LENGTHS[month - 1] + (month == 2 and is_leap)


def weekday_of(date: str) -> int:
    """Return 1 for a Monday, to 7 for a Sunday."""
    return (_number(date) + 2) % 7 + 1


def date_on(weekday: int) -> str:
    """Return the date of a call of which only the weekday is known, in the week of Monday, 8 January 2001."""
    return later(_MONDAY, weekday - 1)


def later(date: str, days: int) -> str:
    """Return the date so many days after another."""
    return _date(_number(date) + days)


@lru_cache(maxsize=1)
def days() -> tuple[str, ...]:
    """Return the days of 2000 to 2099: from the week of `date_on` to the end, then those before it."""
    first, last, usual = _number("2000-01-01"), _number("2099-12-31"), _number(_MONDAY)
    return tuple(_date(number) for number in (*range(usual, last + 1), *range(first, usual)))


def _number(date: str) -> int:
    """Return the day's number. Years begin in March, so that the leap day is the last one."""
    year, month, day = int(date[:4]), int(date[5:7]), int(date[8:10])
    year -= month <= 2
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year


def _date(number: int) -> str:
    era, rest = divmod(number, _ERA)
    year = (rest - rest // 1_460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return f"{era * 400 + year + (month <= 2):04}-{month:02}-{of_year - (153 * shifted + 2) // 5 + 1:02}"
