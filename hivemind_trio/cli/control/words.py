"""Numbers and times of the control API, as terminals show them."""

from __future__ import annotations

import sys
import textwrap
from datetime import datetime, timedelta

from hivemind_trio.cli.table import columns_wanted


def span(seconds: float | None) -> str:
    """`41 s`, `3 min 10 s`, `3 h 12 min`, `2 d 4 h`; empty: unknown."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    parts = [(whole // 86_400, "d"), (whole // 3_600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    while parts[0][0] == 0 and len(parts) > 1:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number or unit == parts[0][1])


def moment(text: str | None, now: datetime) -> str:
    """Return a time of the API: `in 12 s`, and the local time of day beyond an hour; empty: unknown."""
    if text is None:
        return ""
    at = datetime.fromisoformat(text)
    ahead = (at - now).total_seconds()
    if ahead <= 0:
        return "now"
    if ahead < 3_600:
        return f"in {span(ahead)}"
    # To the second: a clock is a little before or after the full hour at which a window ends.
    local = (at + timedelta(milliseconds=500)).astimezone()
    return local.strftime("%H:%M" if ahead < 80_000 else "%a %d %b %H:%M")


def per(window_s: float) -> str:
    """`min`, `day`, `10 s`: the window of a limit."""
    return {60.0: "min", 1.0: "s", 3_600.0: "h", 86_400.0: "day"}.get(window_s, span(window_s))


def start(estimate: dict[str, str | None], now: datetime) -> str:
    """`in 12 s (90 %: 40 s)`; empty: no start is foreseen."""
    if estimate["p50_at"] is None:
        return ""
    early, late = moment(estimate["p50_at"], now), moment(estimate["p90_at"], now)
    return early if early == late else f"{early} (90 %: {late.removeprefix('in ') or 'not foreseen'})"


def cropped(line: str, columns: int) -> str:
    """Return a line that is no wider than the terminal, and cannot act on it."""
    from hivemind_trio.policy import visible, width

    line = visible(line)
    if width(line) <= columns:
        return line
    while line and width(line) > columns - 1:
        line = line[: -max(1, (width(line) - columns + 1) // 2)]
    return f"{line}…" if columns > 0 else ""


def fitted(text: str) -> str:
    """Return a text whose lines are no wider than the terminal: sentences go on below, rows of tables are cropped."""
    columns = columns_wanted()
    if columns == sys.maxsize:
        return text
    return "".join(f"{cropped(part, columns)}\n" for line in text.splitlines() for part in _lines_of(line, columns))


def _lines_of(line: str, columns: int) -> list[str]:
    """Return the lines of a sentence that fit; a row of a table is left as it is."""
    from hivemind_trio.policy import width

    if columns < 1 or width(line) <= columns or "  " in line.strip():
        return [line]
    indent = "  " if columns > 2 else ""
    wrapped = textwrap.wrap(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return wrapped or [""]


def counted(number: int, one: str, many: str = "") -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
