"""Meanings of `let` names: none through itself, and none larger than can be read.

A `let` is read anew wherever its name stands. Thirty lines of `let b = a and a` would be a condition of a billion
words, and a few hundred of `let b = not a` one that no walk over a tree comes to the bottom of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from hivemind_trio.policy.source.span import Span

from .ast import And, CallValue, Compare, Contains, Expr, ListValue, Name, Not, Or
from .parser import NESTING_MAX

WORDS_MAX: Final = 10_000
"""Largest number of words of a `let` with all that it names. A list of every model there is has some hundred."""


def names_in(expr: Any) -> Iterator[str]:
    """Every name in an expression."""
    if isinstance(expr, Name):
        yield expr.text
    elif attrs.has(type(expr)) and not isinstance(expr, Span):
        for field in attrs.fields(type(expr)):
            yield from names_in(getattr(expr, field.name))
    elif isinstance(expr, tuple):
        for item in expr:
            yield from names_in(item)


def circles(lets: Mapping[str, Expr]) -> list[list[str]]:
    """Return the shortest way back to itself, of each `let` that is in a circle and in none of the ways before."""
    uses = _uses(lets)
    for name in _in_order(uses):
        del uses[name]
    found: list[list[str]] = []
    seen: set[str] = set()
    for name in uses:
        if name not in seen and (way := _way_back(name, uses)):
            found.append(way)
            seen.update(way)
    return found


def too_large(lets: Mapping[str, Expr]) -> dict[str, str]:
    """Name -> what it is too much of; empty where it only uses one that is. None of `lets` may be in a circle."""
    uses = _uses(lets)
    sizes: dict[str, tuple[int, int]] = {}
    found: dict[str, str] = {}
    for name in _in_order(uses):
        words, depth = _measure(lets[name], sizes)
        depth += isinstance(lets[name], Name)  # a mere name is a step as well
        sizes[name] = words, depth
        if any(used in found for used in uses[name]):
            found[name] = ""
        elif depth > NESTING_MAX:
            found[name] = f"nested more than {NESTING_MAX} deep"
        elif words > WORDS_MAX:
            found[name] = f"more than {WORDS_MAX} words"
    return found


def _uses(lets: Mapping[str, Expr]) -> dict[str, list[str]]:
    return {name: [used for used in dict.fromkeys(names_in(value)) if used in lets] for name, value in lets.items()}


def _in_order(uses: Mapping[str, list[str]]) -> list[str]:
    """Each after those that it uses; those that are in a circle, or use one that is, are left out."""
    missing = {name: len(used) for name, used in uses.items()}
    users: dict[str, list[str]] = {name: [] for name in uses}
    for name, used in uses.items():
        for one in used:
            users[one].append(name)
    order = [name for name, count in missing.items() if not count]
    for name in order:  # which grows
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    return order


def _way_back(start: str, uses: Mapping[str, list[str]]) -> list[str]:
    """From a name to itself, both ends included; empty: there is none."""
    came_from: dict[str, str] = {}
    reached = [start]
    for name in reached:  # which grows
        for used in uses[name]:
            if used == start:
                way, at = [start], name
                while at != start:
                    way.append(at)
                    at = came_from[at]
                return [start, *reversed(way)]
            if used in uses and used not in came_from:
                came_from[used] = name
                reached.append(used)
    return []


def _measure(expr: Expr, sizes: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Words, and levels, of an expression in which each name is what it stands for."""
    match expr:
        case Name(text=text):
            return sizes.get(text, (1, 0))
        case And(items=parts) | Or(items=parts) | ListValue(items=parts) | CallValue(args=parts):
            return _together(parts, sizes)
        case Not(item=item):
            return _together((item,), sizes)
        case Compare(left=left, right=right) | Contains(left=left, right=right):
            return _together((left, right), sizes)
        case _:
            return 1, 0


def _together(parts: Iterable[Expr], sizes: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    measured = [_measure(part, sizes) for part in parts]
    return sum(words for words, _ in measured), 1 + max((depth for _, depth in measured), default=0)
