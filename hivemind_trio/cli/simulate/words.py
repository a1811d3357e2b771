"""Numbers of a simulation in words."""

from __future__ import annotations


def number(value: float, unit: str, *, signed: bool = False) -> str:
    """To about three digits.

    Args:
        unit: `s`, `$`, or nothing.
        signed: A `+` where it is more than nothing.
    """
    sign = "+" if signed and value > 0 else "-" if value < 0 else ""
    size = abs(value)
    if unit == "s":
        text = f"{size:,.1f} s" if size < 100 else f"{size:,.0f} s"
        text = text if size == 0 or size >= 0.05 else f"{size * 1e3:.0f} ms" if size >= 0.0005 else "<1 ms"
        return sign + ("0 s" if size == 0 else text)
    if unit == "$":
        return f"{sign}${size:,.2f}"
    return sign + (
        f"{size:,.0f}" if size == int(size) or size >= 100 else f"{size:,.2f}" if size < 10 else f"{size:,.1f}"
    )
