"""Times at which the clock may end a hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from hivemind_trio.model import Moment, Request
from hivemind_trio.model.dates import weekday_of
from hivemind_trio.model.moment import DAY_S

EDGES_MAX: Final = 64
"""Edges that are looked at for the end of a hold; beyond it none is known."""


def seconds_to(edges: Sequence[int], second: int) -> Iterator[int]:
    """Yield the seconds from a time of day to each of these minutes of the day, in order, without end.

    Args:
        edges: In order; empty: nothing is yielded.
        second: Of the day.
    """
    day = 0
    while edges:
        yield from (left for edge in edges if (left := day + edge * 60 - second) > 0)
        day += DAY_S


def at_moment(request: Request, moment: Moment) -> Request:
    """Return a call as it would be at another moment."""
    minutes, second = divmod(moment.second, 60)
    return attrs.evolve(
        request,
        hour=minutes // 60,
        minute=minutes % 60,
        second=second,
        date=moment.date,
        weekday=weekday_of(moment.date),
    )
