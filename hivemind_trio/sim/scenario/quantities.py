"""Quantities as scenario files spell them: the policy's units, and spreads. Each reader raises `ScenarioValueError`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from hivemind_trio.sim.agents.fleet import Amount
from hivemind_trio.sim.provider.profile import Shape

_NS: Final = {
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
_TIMES: Final = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
_COUNT: Final = re.compile(r"(\d[\d_]*(?:\.\d+)?)([kMG]?)")
_PER: Final = {"s": _NS["s"], "min": _NS["m"], "hour": _NS["h"], "day": _NS["d"]}
_MOST: Final = 1 << 62

CV: Final = 0.8
"""Spread of `~8k`: standard deviation over mean of measured answers of language models."""


class ScenarioValueError(Exception):
    """Error in a scenario: the value, and what to write instead."""

    def __init__(self, what: str, help: str) -> None:  # noqa: A002 - the word of every other diagnostic
        super().__init__(what)
        self.what = what
        self.help = help


def duration(value: Any) -> int:
    """Nanoseconds: `"250ms"`, `"1h30m"`."""
    if isinstance(value, str):
        parts = _PART.findall(value)
        if parts and "".join(number + unit for number, unit in parts) == value:
            total = sum(float(number) * _NS[unit] for number, unit in parts)
            if total < _MOST:
                return round(total)
            raise ScenarioValueError(f"`{value}` is too long", 'write at most `"50000d"`')
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ScenarioValueError("a duration needs a unit", f'write `"{value}s"` or `"{value}ms"`')
    raise ScenarioValueError(f"`{value}` is no duration", 'write one like `"250ms"` or `"1h30m"`')


def count(value: Any) -> int:
    """Return a whole number: `50`, `"40k"`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST:
        return value
    if isinstance(value, str) and (matched := _COUNT.fullmatch(value)):
        number = float(matched[1].replace("_", "")) * _TIMES[matched[2]]
        if number == int(number) and number < _MOST:
            return int(number)
    raise ScenarioValueError(f"`{value}` is no count", 'write a whole number, `500` or `"40k"`')


def positive(value: Any) -> int:
    """Return a count of at least one."""
    number = count(value)
    if number < 1:
        raise ScenarioValueError("it must be at least 1", "leave it out if there is none")
    return number


def share(value: Any) -> float:
    """Return a part of one: `"8%"`, `0.08`; true and false are all and nothing."""
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?%", value):
        value = float(value[:-1]) / 100
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise ScenarioValueError(f"`{value}` is no share", 'write `"8%"` or `0.08`, not more than all')


def number(value: Any) -> float:
    """Any number that is not below nothing."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise ScenarioValueError(f"`{value}` is no number", "write one like `5` or `2.5`")


def rate(value: Any) -> tuple[int, int]:
    """Return amount and nanoseconds of a rate: `"50/min"`, `"450k/10s"`."""
    if isinstance(value, str):
        much, slash, per = value.partition("/")
        if slash:
            window_ns = _PER.get(per) or duration(per)
            return positive(much), max(1, window_ns)
    raise ScenarioValueError(f"`{value}` is no rate", 'write one like `"50/min"` or `"450k/10s"`')


def spread(read: Callable[[Any], int]) -> Callable[[Any], Amount]:
    """Return a reader of spreads: `"2s"`, `"2s..6s"` evenly, `"2s +- 1s"` normally, `"~2s"` with a long tail."""

    def amount(value: Any) -> Amount:
        if not isinstance(value, str):
            return Amount(read(value))
        low, dots, high = (part.strip() for part in value.partition(".."))
        if dots:
            least, most = read(_number(low)), read(_number(high))
            if least > most:
                raise ScenarioValueError(f"`{value}` is empty", f'write `"{high}..{low}"`')
            return Amount((least + most) / 2, (most - least) / 2, Shape.UNIFORM)
        mean, sign, width = (part.strip() for part in value.replace("±", "+-").partition("+-"))
        if sign:
            return Amount(read(_number(mean)), read(_number(width)), Shape.NORMAL)
        if value.startswith("~"):
            mean, _, cv = (part.strip() for part in value[1:].partition("cv"))
            middle = read(_number(mean))
            if not middle:
                raise ScenarioValueError("a mean of nothing has no tail", "write how much it is on average, `~8k`")
            return Amount(middle, middle * (number(float(cv)) if _is_number(cv) else CV), Shape.LOGNORMAL)
        return Amount(read(_number(value)))

    return amount


def _number(text: str) -> Any:
    """Return a number that TOML needs no quotes for."""
    return int(text) if text.isdigit() else text


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None
