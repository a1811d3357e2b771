"""Numbers with their units, one spelling per magnitude; no dimension has a default unit.

Whatever is read becomes an int: nanoseconds, bytes, micro-dollars, or a plain count. All arithmetic is exact: in
fractions, since a `Decimal` rounds to 28 digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.diagnostics.suggest import one_of
from hivemind_trio.policy.schema import Type
from hivemind_trio.policy.source.span import Span

INT_MAX: Final = 2**63 - 1
LETTERS_MAX: Final = 64
"""Largest length of a quantity, in letters.

No amount needs more, and Python refuses to read numbers of some thousand digits.
"""

DURATIONS: Final = {
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3_600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}
COUNTS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
SIZES: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
WINDOWS: Final = {"s": DURATIONS["s"], "min": DURATIONS["m"], "hour": DURATIONS["h"], "day": DURATIONS["d"]}
ALLOWANCE_WINDOWS: Final = {**WINDOWS, "week": DURATIONS["w"], "month": 31 * DURATIONS["d"]}
"""Windows of budgets. A month has its own length; it is compared as the longest one."""
MONTH: Final = "month"
PRICE_PER: Final = {"Mtok": 10**6, "ktok": 10**3}

_DURATION_SLIPS: Final = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "S": "s",
    "min": "m", "mins": "m", "minute": "m", "minutes": "m", "M": "m",
    "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "H": "h",
    "day": "d", "days": "d", "D": "d", "week": "w", "weeks": "w", "msec": "ms", "MS": "ms",
}  # fmt: skip
_COUNT_SLIPS: Final = {"K": "k", "m": "M", "g": "G", "B": "G", "b": "G", "mil": "M", "million": "M", "thousand": "k"}
_SIZE_SLIPS: Final = {
    "b": "B", "k": "kB", "K": "kB", "kb": "kB", "KB": "kB", "m": "MB", "M": "MB", "mb": "MB", "Mb": "MB",
    "g": "GB", "G": "GB", "gb": "GB", "kib": "KiB", "kiB": "KiB", "mib": "MiB", "miB": "MiB", "gib": "GiB",
}  # fmt: skip
_WINDOW_SLIPS: Final = {
    "sec": "s", "second": "s", "seconds": "s", "m": "min", "minute": "min", "minutes": "min", "mins": "min",
    "h": "hour", "hr": "hour", "hours": "hour", "d": "day", "days": "day",
    "w": "week", "weeks": "week", "mo": "month", "months": "month", "mth": "month",
}  # fmt: skip

QUANTITY: Final = re.compile(r"(\$?)([0-9][0-9_]*(?:\.[0-9]+)?)(.*)", re.DOTALL)
"""Dollar sign, number, unit."""
_CLOCK: Final = re.compile(r"([0-9]{1,2})(?::([0-9]{1,2})(?::00)?)?", re.ASCII)
_HALF: Final = re.compile(r"(1[0-2]|[1-9])([ap])m", re.ASCII | re.IGNORECASE)
"""Hour of a half of the day: `9am`."""
_PART: Final = re.compile(r"([0-9]+)([A-Za-z%]+)")


class UnitError(ValueError):
    """A quantity that does not read as what is wanted there."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        help: str = "",  # noqa: A002 - the diagnostic's field
        replacement: str | None = None,
        is_safe: bool = True,
        choices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.help = help
        self.replacement = replacement
        self.is_safe = is_safe
        self.choices = choices

    def choices_at(self, span: Span) -> tuple[Fix, ...]:
        """Return the ways to write the quantity, where the author has to choose."""
        return Fix.choosing(span, self.choices)

    def fix(self, span: Span) -> Fix | None:
        """Return the fix that writes the quantity in another way; None if there are several."""
        return Fix.replacing(span, self.replacement, is_safe=self.is_safe)


def duration_ns(text: str) -> int:
    """`30s`, `1h30m`: nanoseconds."""
    dollar, number, unit = _split(text)
    if dollar or unit == "%":
        raise UnitError(
            "HM201",
            f"expected a duration, found `{text}`",
            help="write `30s`, `5m` or `1h30m`",
            choices=("30s", "5m", "1h30m"),
        )
    if not unit:
        raise UnitError(
            "HM203", "a duration needs a unit", help=f"write `{text}s` or `{text}ms`", choices=(f"{text}s", f"{text}ms")
        )
    if unit in DURATIONS:
        return _whole(Fraction(number) * DURATIONS[unit], text)
    parts = _PART.findall(text)
    if "".join(value + name for value, name in parts) == text and len(parts) > 1:
        sizes = [DURATIONS.get(name, 0) for _, name in parts]
        if all(sizes) and sizes == sorted(set(sizes), reverse=True):
            return _whole(Fraction(sum(int(value) * size for (value, _), size in zip(parts, sizes, strict=True))), text)
        raise UnitError("HM202", f"`{text}` is not a duration", help="the largest unit comes first, each once: `1h30m`")
    raise _unknown_unit(text, number, unit, DURATIONS, _DURATION_SLIPS, "a duration")


def count(text: str) -> int:
    """`2`, `40k`, `1.5M`, `40_000`."""
    dollar, number, unit = _split(text)
    if dollar or unit == "%":
        raise UnitError("HM201", f"expected a count, found `{text}`", help="write `40` or `40k`", choices=("40", "40k"))
    if unit not in COUNTS:
        raise _unknown_unit(text, number, unit, COUNTS, _COUNT_SLIPS, "a count")
    return _whole(Fraction(number) * COUNTS[unit], text)


def size_bytes(text: str) -> int:
    """`32MiB`."""
    dollar, number, unit = _split(text)
    if dollar or unit == "%":
        raise UnitError(
            "HM201", f"expected a size, found `{text}`", help="write `32MiB` or `64kB`", choices=("32MiB", "64kB")
        )
    if not unit:
        raise UnitError(
            "HM203", "a size needs a unit", help=f"write `{text}MiB` or `{text}kB`", choices=(f"{text}MiB", f"{text}kB")
        )
    if unit not in SIZES:
        raise _unknown_unit(text, number, unit, SIZES, _SIZE_SLIPS, "a size")
    return _whole(Fraction(number) * SIZES[unit], text)


def ratio(text: str) -> float:
    """`50%` or `0.5`."""
    return float(_ratio(text))


def share(text: str) -> int:
    """`50%` or `0.5`, in millionths."""
    value = _ratio(text) * 10**6
    if value.denominator != 1:
        raise UnitError("HM207", f"`{text}` is finer than 0.0001%")
    return int(value)


def _ratio(text: str) -> Fraction:
    dollar, number, unit = _split(text)
    if dollar or unit not in ("", "%"):
        raise UnitError(
            "HM201", f"expected a ratio, found `{text}`", help="write `50%` or `0.5`", choices=("50%", "0.5")
        )
    value = Fraction(number) / (100 if unit else 1)
    if value > 1:
        meant = f"{number}%" if not unit and Fraction(number) <= 100 else "100%"
        help_ = f"write `{meant}` or less"
        raise UnitError("HM205", f"`{text}` is more than 100%", help=help_, replacement=meant, is_safe=False)
    return value


def multiple(text: str) -> float:
    """`4x`."""
    dollar, number, unit = _split(text)
    if dollar or unit != "x":
        raise UnitError(
            "HM201", f"expected a multiple, found `{text}`", help=f"write `{number}x`", replacement=f"{number}x"
        )
    return float(number)


def money_microusd(text: str) -> int:
    """`$25`, `$4k`."""
    dollar, number, unit = _split(text)
    if not dollar:
        raise UnitError("HM203", "an amount of money needs `$`", help=f"write `${text}`", replacement=f"${text}")
    if unit not in COUNTS:
        raise _unknown_unit(text, f"${number}", unit, COUNTS, _COUNT_SLIPS, "an amount")
    return _whole(Fraction(number) * COUNTS[unit] * 10**6, text)


def clock_minutes(text: str) -> int:
    """`22:30`: minutes since midnight."""
    hour, minute = map(int, text.split(":"))
    if hour > 23 or minute > 59:
        help_ = "the last minute of a day is `23:59`" if (hour, minute) == (24, 0) else "a day is `00:00` to `23:59`"
        raise UnitError("HM205", f"`{text}` is not a time of day", help=help_)
    return hour * 60 + minute


def as_clock(text: str) -> str | None:
    """Return the time of day that another text means: `8` is `08:00`; None if it means none."""
    if (half := _HALF.fullmatch(text)) is not None:
        return f"{int(half[1]) % 12 + 12 * (half[2].lower() == 'p'):02}:00"
    found = _CLOCK.fullmatch(text)
    if found is None or int(found[1]) > 23 or int(found[2] or 0) > 59:
        return None
    return f"{int(found[1]):02}:{int(found[2] or 0):02}"


def window_ns(text: str, *, quantity: bool, windows: Mapping[str, int] = WINDOWS) -> int:
    """Return the window behind the `/` of a rate: `min`, or a duration such as `10m`."""
    if quantity:
        window = duration_ns(text)
        if window == 0:
            raise UnitError(
                "HM205", f"a window of `{text}` is empty", help="write a window such as `10m`", choices=("10m",)
            )
        return window
    if text in windows:
        return windows[text]
    meant: str | None = _WINDOW_SLIPS.get(text, text)
    known = f"a rate is per {one_of(windows)}, or per a duration such as `10m`"
    if meant in windows:
        help_ = f"write `/{meant}`"
    elif meant in ALLOWANCE_WINDOWS:
        meant = "7d" if meant == "week" else "30d"
        help_ = f"write `/{meant}`: only budgets are per week or month of the calendar"
    else:
        meant, help_ = None, known
    raise UnitError("HM204", f"`{text}` is not a window of a rate", help=help_, replacement=meant)


def price_per(text: str) -> int:
    """Return the number of tokens behind the `/` of a price."""
    if text in PRICE_PER:
        return PRICE_PER[text]
    raise UnitError(
        "HM204", f"`{text}` is not a unit of a price", help="write `/Mtok` or `/ktok`", choices=("Mtok", "ktok")
    )


def window_of(word: str, *, of_budget: bool = False) -> str | None:
    """Return the window of a rate that a word means: `minute` is `min`.

    Args:
        of_budget: Weeks and months are windows, too.
    """
    windows = ALLOWANCE_WINDOWS if of_budget else WINDOWS
    meant = word if word in windows else _WINDOW_SLIPS.get(word)
    return meant if meant in windows else None


def nearest_count(text: str) -> str | None:
    """Return the whole number next to a count that is none, and at least 1; None if it is whole, or no count."""
    found = QUANTITY.fullmatch(text)
    if found is None or found[1] or found[3] not in COUNTS or len(text) > LETTERS_MAX:
        return None
    value = Fraction(found[2].replace("_", "")) * COUNTS[found[3]]
    return None if value.denominator == 1 else str(max(1, int(value + Fraction(1, 2))))


def clock_duration(text: str) -> str:
    """Return the duration of minutes and seconds: `1:30` is `1m30s`."""
    minutes, _, seconds = text.partition(":")
    parts = f"{int(minutes)}m" if int(minutes) else "", f"{int(seconds)}s" if int(seconds) else ""
    return "".join(parts) or "0s"


def with_unit(number: str, unit: str, type_: Type) -> str | None:
    """Return a number and the word behind it as one amount: `30` and `sec` are `30s`; None if it is no unit."""
    known, slips = _UNITS.get(type_, ({}, {}))
    meant = unit if unit in known else slips.get(unit)
    return f"{number}{meant}" if meant is not None and number[-1].isdigit() else None


_UNITS: Final[Mapping[Type, tuple[Mapping[str, int], Mapping[str, str]]]] = {
    Type.DURATION: (DURATIONS, _DURATION_SLIPS),
    Type.SIZE: (SIZES, _SIZE_SLIPS),
    Type.COUNT: (COUNTS, _COUNT_SLIPS),
}


def _split(text: str) -> tuple[str, str, str]:
    if len(text) > LETTERS_MAX:
        raise UnitError("HM207", f"`{text[:8]}...` is too long for an amount")
    match = QUANTITY.fullmatch(text)
    assert match is not None, text  # the lexer's QTY
    return match[1], match[2].replace("_", ""), match[3]


def _unknown_unit(
    text: str, number: str, unit: str, known: Mapping[str, int], slips: Mapping[str, str], what: str
) -> UnitError:
    meant = slips.get(unit)
    if meant is not None:
        fixed = f"{number}{meant}"
        return UnitError("HM202", f"`{unit}` is not a unit of {what}", help=f"write `{fixed}`", replacement=fixed)
    units = one_of([name for name in known if name])
    return UnitError("HM202", f"`{unit}` in `{text}` is not a unit of {what}", help=f"the units are {units}")


def _whole(value: Fraction, text: str) -> int:
    if value > INT_MAX:
        raise UnitError("HM207", f"`{text}` is too large")
    if 0 < value < 1:
        raise UnitError("HM207", f"`{text}` rounds to zero")
    if value.denominator != 1:
        raise UnitError("HM207", f"`{text}` is not a whole number")
    return int(value)
