"""Measured values as text."""

from __future__ import annotations


def shown(field: str, value: str | float | None) -> str:
    """With its unit, to three digits.

    Args:
        value: Times in ns, money in micro-dollars; None: it could not be measured.
    """
    what = field.partition(".")[2]
    match value:
        case None:
            return "is of no reset: no window ended in the run" if what.endswith(".unused") else "is of no call"
        case int() | float() if what.startswith("wait."):
            return f"{value / 1e9:.3g}s" if value < 1e12 else f"{value / 1e9:.0f}s"
        case int() | float() if what == "spent":
            return f"${value / 1e6:,.2f}"
        case float():
            return f"{value * 100:.3g}%"
        case _:
            return str(value)
