"""Values as a policy would write them: the inverse of `units.py`, for people and exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .units import COUNTS, DURATIONS, SIZES, WINDOWS

WINDOW_NAMES: Final = {
    DURATIONS["s"]: "second",
    DURATIONS["m"]: "minute",
    DURATIONS["h"]: "hour",
    DURATIONS["d"]: "day",
    DURATIONS["w"]: "week",
}


def duration(value_ns: int) -> str:
    """`1h30m`; what is finer than a millisecond as a fraction of one."""
    parts = []
    rest = value_ns
    for unit, size in sorted(DURATIONS.items(), key=lambda pair: -pair[1]):
        if unit == "w" and value_ns % size:
            continue  # `9d` is easier to read than `1w2d`
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    if rest:
        whole, fraction = divmod(value_ns, DURATIONS["ms"])
        return f"{whole}.{f'{fraction:06}'.rstrip('0')}ms"
    return "".join(parts) or "0s"


def clock(minutes: int) -> str:
    """`22:30`, of minutes since midnight."""
    return f"{minutes // 60:02}:{minutes % 60:02}"


def count(value: int) -> str:
    """`40k`, where that is shorter and exact."""
    return _scaled(value, COUNTS)


def size(value: int) -> str:
    """`32MiB`."""
    return _scaled(value, {unit: size for unit, size in SIZES.items() if unit in ("B", "KiB", "MiB", "GiB")})


def money(microusd: int) -> str:
    """`$25`, `$0.80`."""
    dollars, cents = divmod(microusd, 10**6)
    if not cents:
        return f"${_scaled(dollars, COUNTS)}"
    return f"${dollars}.{f'{cents:06}'.rstrip('0'):0<2}"


def ratio(value: float) -> str:
    """`50%`."""
    return f"{value * 100:.6g}%"


def rate(amount: str, window_ns: int, *, windows: Mapping[str, int] = WINDOWS) -> str:
    """`50/min`, `$25/day`, `10/10m`."""
    name = next((name for name, known_ns in windows.items() if known_ns == window_ns), None)
    return f"{amount}/{name or duration(window_ns)}"


def window_name(window_ns: int, *, is_month: bool = False) -> str:
    """`minute`, `day`, `10m`: behind `per`."""
    if is_month:
        return "month"
    return WINDOW_NAMES.get(window_ns) or duration(window_ns)


def _scaled(value: int, units: Mapping[str, int]) -> str:
    unit, scale = max(
        ((unit, scale) for unit, scale in units.items() if value % scale == 0 and value >= scale),
        key=lambda pair: pair[1],
        default=(min(units, key=lambda unit: units[unit]), 1),
    )
    return f"{value // scale}{unit}"
