"""Tables of a TOML file whose every mistake is reported, with its line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, final

import attrs

from .quantities import ScenarioValueError

T = TypeVar("T")

_HEADER: Final = re.compile(r"\s*\[(\[)?\s*([\w.\-\"]+)\s*\]")
_KEY: Final = re.compile(r"\s*\"?([\w\-]+)\"?\s*=")


@final
@attrs.frozen
class Problem:
    """One thing that is wrong with a scenario."""

    line: int
    """From 1; 0 where it is of the whole file."""
    where: str
    """`agents[2].think`."""
    what: str
    help: str


class ScenarioError(Exception):
    """A scenario that cannot be run; `problems` has everything that is wrong with it, in the order of the file."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        super().__init__(f"{name}: {problems[0].what}")
        self.name = name
        self.problems = sorted(problems, key=lambda problem: problem.line)

    def text(self) -> str:
        """For people: where, what, and what to write instead."""
        lines = []
        for each in self.problems:
            at = f"{self.name}:{each.line}" if each.line else self.name
            where = f"{each.where}: " if each.where else ""
            lines += [f"{at}: {where}{each.what}", f"  = help: {each.help}"]
        return "\n".join(lines)


@final
@attrs.define
class Table:
    """A table of the file, whose keys are taken one by one; what is left at the end is unknown."""

    path: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    problems: list[Problem]
    _known: list[str] = attrs.field(factory=list, init=False)

    def take(self, key: str, read: Callable[[Any], T], default: T) -> T:
        """Return the value of a key as `read` reads it; `default` where it is missing, or wrong, which is reported."""
        self._known.append(key)
        if key not in self.values:
            return default
        try:
            return read(self.values[key])
        except ScenarioValueError as wrong:
            self.wrong(key, wrong.what, wrong.help)
            return default

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def table(self, key: str) -> Table:
        """Return a table within; an empty one where it is missing."""
        self._known.append(key)
        inner = self.values.get(key, {})
        if not isinstance(inner, dict):
            self.wrong(key, "expected a table", f'write `{key} = {{ name = "value" }}`')
            inner = {}
        return Table(self._path(key), inner, self.lines, self.problems)

    def tables(self, key: str) -> list[Table]:
        """Each of several."""
        self._known.append(key)
        inner = self.values.get(key, [])
        if not isinstance(inner, list) or not all(isinstance(each, dict) for each in inner):
            self.wrong(key, "expected an array of tables", f"write `[[{key}]]`, or a list of `{{ ... }}`")
            return []
        return [
            Table(f"{self._path(key)}[{place}]", each, self.lines, self.problems)
            for place, each in enumerate(inner, start=1)
        ]

    def wrong(self, key: str, what: str, help: str) -> None:  # noqa: A002 - the word of every other diagnostic
        """Report a problem of a key."""
        path = self._path(key) if key else self.path
        # What stands in one line with what it is in has no line of its own.
        within = path
        while within and within not in self.lines:
            within = within[: max(within.rfind("."), within.rfind("["), 0)]
        line = self.lines.get(within, 0)
        self.problems.append(Problem(line, path, what, help))

    def end(self) -> None:
        """Report what nobody asked for."""
        for key in self.values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                known = ", ".join(f"`{each}`" for each in self._known)
                self.wrong(
                    key, f"unknown key `{key}`", f"did you mean `{near[0]}`?" if near else f"expected one of {known}"
                )

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def lines_of(text: str) -> dict[str, int]:
    """Path of a key or a table -> its line."""
    lines: dict[str, int] = {}
    places: dict[str, int] = {}
    path = ""
    for at, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            top, _, rest = header[2].partition(".")
            if header[1] and not rest:
                places[top] = places.get(top, 0) + 1
            path = f"{top}[{places[top]}]" if top in places else top
            path += f".{rest}" if rest else ""
            lines.setdefault(path, at)
        elif key := _KEY.match(line):
            lines.setdefault(f"{path}.{key[1]}" if path else key[1], at)
    return lines
