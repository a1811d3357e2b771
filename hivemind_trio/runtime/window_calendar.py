"""When an hour, a day, a week or a month ends where the policy lives, on the engine's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, final
from zoneinfo import ZoneInfo

import attrs

from hivemind_trio.model import Moment
from hivemind_trio.policy import BudgetWindow

SECOND_NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * SECOND_NS
WEEK_NS: Final = 7 * DAY_NS
MONDAY: Final = datetime(2024, 1, 1)
"""One of them, anywhere."""


@final
@attrs.define(eq=False)
class Calendar:
    """The wall clock and a time zone, read anew each time: a laptop sleeps, and clocks are set."""

    zone: ZoneInfo | None = None
    """None: the machine's own."""

    @classmethod
    def of(cls, timezone: str) -> Calendar:
        """By its IANA name; empty: the machine's own."""
        return cls(ZoneInfo(timezone) if timezone else None)

    def turns(self, now_ns: int, window: BudgetWindow) -> int:
        """When the window ends in which we are now; `now_ns` is now by the engine's clock."""
        zone = ZoneInfo(window.timezone) if window.timezone else self.zone
        now = datetime.now(zone).astimezone(zone)
        return now_ns + max(1, left_ns(now, window))

    def moment(self) -> Moment:
        """Return the local time of now."""
        now = datetime.now(self.zone)
        return Moment(now.date().isoformat(), now.hour * 3_600 + now.minute * 60 + now.second)


def left_ns(now: datetime, window: BudgetWindow) -> int:
    """Return the time until the end of the window that holds `now`.

    Windows of whole days begin at midnight, weeks on Mondays, months on the first, and shorter ones are counted from
    midnight; the day on which the clocks change is an hour longer or shorter, like the day itself.
    """
    local = now.replace(tzinfo=None)
    window_ns = window.length_ns
    days = window_ns // DAY_NS
    if window.is_month:
        # The 28th and four days are in the next month, whatever month it is.
        after = local.date().replace(day=28) + timedelta(days=4)
        end = datetime.combine(after.replace(day=1), datetime.min.time())
    elif window_ns % DAY_NS == 0:
        passed = (local.date() - MONDAY.date()).days % days
        end = datetime.combine(local.date() + timedelta(days=days - passed), datetime.min.time())
    else:
        midnight = datetime.combine(local.date(), datetime.min.time())
        since_ns = _ns(local - midnight)
        end = midnight + timedelta(microseconds=(since_ns // window_ns + 1) * window_ns // 1_000)
        if days == 0:
            end = min(end, midnight + timedelta(days=1))
    if window_ns < 3_600 * SECOND_NS or now.tzinfo is None:
        return _ns(end - local)
    return _ns(end.replace(tzinfo=now.tzinfo).astimezone(UTC) - now.astimezone(UTC))


def _ns(time: timedelta) -> int:
    return (time.days * 86_400_000_000 + time.seconds * 1_000_000 + time.microseconds) * 1_000
