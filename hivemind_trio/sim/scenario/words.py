"""Words as scenario files have them: names, choices, yes and no. Each reader raises `ScenarioValueError`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .quantities import ScenarioValueError


def words(value: Any) -> str:
    """Any text."""
    if isinstance(value, str):
        return value
    raise ScenarioValueError(f"`{value}` is no text", f'write `"{value}"`')


def several(value: Any) -> tuple[str, ...]:
    """One text, or a list of them."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise ScenarioValueError(f"`{value}` is neither a name nor a list of names", 'write `"ci"` or `["ci", "reviewer"]`')


def flag(value: Any) -> bool:
    """Return True or false."""
    if isinstance(value, bool):
        return value
    raise ScenarioValueError(f"`{value}` is neither true nor false", "write `true`, or leave it out")


def either(*choices: str) -> Callable[[Any], str]:
    """One of these words."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ScenarioValueError(
            f"`{value}` is not one of them", f"there is {', '.join(f'`{word}`' for word in choices)}"
        )

    return read


def one_of_ints(least: int, most: int) -> Callable[[Any], int]:
    """Return a whole number, both bounds included."""

    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise ScenarioValueError(f"`{value}` is not between {least} and {most}", f"write {least} to {most}")

    return read
