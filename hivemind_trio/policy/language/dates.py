"""Dates and globs of dates, as policies write them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hivemind_trio.model.dates import days, is_date

from .globs import is_glob, matcher

_ORDERS: Final = (
    re.compile(r"(?P<y>[0-9]{4})[-./]?(?P<m>[0-9]{1,2})[-./]?(?P<d>[0-9]{1,2})(?:T.*)?", re.ASCII),
    re.compile(r"(?P<d>[0-9]{1,2})\.(?P<m>[0-9]{1,2})\.(?P<y>[0-9]{4})", re.ASCII),
)
"""Other spellings of which the order is certain; `12/25/2026` could be either."""


@lru_cache(maxsize=256)
def is_some_day(text: str) -> bool:
    """Return True if a date or glob matches a day; a date may be in any century."""
    return any(map(matcher(text), days())) if is_glob(text) else is_date(text)


def as_date(text: str) -> str | None:
    """Return the date that another spelling means: `25.12.2026` is `2026-12-25`; None if that is not certain."""
    for order in _ORDERS:
        found = order.fullmatch(text.strip())
        if found is not None:
            date = f"{found['y']}-{int(found['m']):02}-{int(found['d']):02}"
            return date if is_date(date) and date != text else None
    return None
