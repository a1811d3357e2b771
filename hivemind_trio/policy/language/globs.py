"""Globs: `*` and `?`, the whole text, case-sensitive. Never slower than linear in the text for each `*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

Matcher = Callable[[str], bool]


def is_glob(text: str) -> bool:
    """Return True if it has a wildcard."""
    return "*" in text or "?" in text


def matcher(glob: str) -> Matcher:
    """Return a function for one glob; the plain shapes need no regular expression."""
    star = glob.count("*")
    if "?" not in glob:
        if star == 0:
            return glob.__eq__
        if star == 1 and glob.endswith("*"):
            head = glob[:-1]
            return lambda text: text.startswith(head)
        if star == 1 and glob.startswith("*"):
            tail = glob[1:]
            return lambda text: text.endswith(tail)
    full = re.compile(pattern(glob)).fullmatch
    return lambda text: full(text) is not None


def pattern(glob: str) -> str:
    """Return an equivalent regular expression, with atomic groups against backtracking as in `fnmatch.translate`."""
    first, *rest = ("".join("." if char == "?" else re.escape(char) for char in part) for part in glob.split("*"))
    if not rest:
        return f"(?s:{first})"
    *middle, last = rest
    return "(?s:" + first + "".join(f"(?>.*?{part})" for part in middle if part) + ".*" + last + ")"


def any_matcher(globs: Sequence[str]) -> Matcher:
    """Return a function for a list of globs."""
    matchers = [matcher(glob) for glob in globs]
    if len(matchers) == 1:
        return matchers[0]
    return lambda text: any(match(text) for match in matchers)


def specificity(glob: str) -> tuple[bool, int]:
    """Return the specificity: an exact name is highest, then the most letters spelt out."""
    return not is_glob(glob), sum(char not in "*?" for char in glob)


def most_specific(globs: Iterable[str], text: str) -> str | None:
    """Return the most specific of those that match; of equals the first."""
    matching = [glob for glob in globs if matcher(glob)(text)]
    return max(matching, key=specificity, default=None)


def overlap(one: str, other: str) -> bool:
    """Return True if some text matches both."""
    reached = {(0, 0)}
    todo = [(0, 0)]
    while todo:
        i, j = todo.pop()
        if i == len(one) and j == len(other):
            return True
        steps = []
        a = one[i] if i < len(one) else ""
        b = other[j] if j < len(other) else ""
        if a == "*":
            steps.append((i + 1, j))
            if b:
                steps.append((i, j + 1))
        if b == "*":
            steps.append((i, j + 1))
            if a:
                steps.append((i + 1, j))
        if a and b and a != "*" and b != "*" and (a == b or "?" in (a, b)):
            steps.append((i + 1, j + 1))
        for step in steps:
            if step not in reached:
                reached.add(step)
                todo.append(step)
    return False
