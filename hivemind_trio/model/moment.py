"""Local time where a policy lives, to the second."""

from __future__ import annotations

from typing import Final, final

import attrs

from .dates import MINUTES, date_on, later
from .request import Request

DAY_S: Final = MINUTES * 60


@final
@attrs.frozen
class Moment:
    """A date, and seconds since its midnight."""

    date: str
    second: int

    @classmethod
    def of(cls, request: Request) -> Moment:
        """Return the moment at which a call arrived, on the usual day of its weekday if it has no date."""
        return cls(request.date or date_on(request.weekday or 1), request.time * 60 + request.second)

    def after(self, seconds: int) -> Moment:
        """Return the moment so many seconds later, if no clock is changed meanwhile."""
        days, second = divmod(self.second + seconds, DAY_S)
        return Moment(later(self.date, days) if days else self.date, second)
