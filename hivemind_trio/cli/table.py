"""Rows in columns, aligned as a terminal shows them, and made to fit its width."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Container, Sequence
from itertools import zip_longest
from typing import Final, final

import attrs

GAP: Final = 2
"""Blanks between two columns."""
NARROWEST: Final = 10
"""Least width to which a column is folded."""


def aligned(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[list[str]]:
    """Return the rows with each cell as wide as its column's widest, and unable to act on the terminal.

    Args:
        rows: As long as each other.
        right: The columns that are padded on the left: numbers.
    """
    from hivemind_trio.policy import visible, width

    columns = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return [
        [
            " " * (wide - width(cell)) + visible(cell) if place in right else visible(cell) + " " * (wide - width(cell))
            for place, (cell, wide) in enumerate(zip(row, columns, strict=True))
        ]
        for row in rows
    ]


def columns_wanted() -> int:
    """Return the width that output should have: COLUMNS, else that of the terminal; a pipe or a file has no end."""
    text = os.environ.get("COLUMNS", "")
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or sys.maxsize
    except (OSError, ValueError):
        return sys.maxsize


@final
@attrs.frozen
class Fitted:
    """Rows that fit a terminal."""

    rows: list[list[str]]
    """The head among them; a row whose cells go on below is several."""
    right: frozenset[int]
    """Columns of numbers."""
    gone: tuple[str, ...]
    """Heads of the columns with values that were left out."""

    @property
    def note(self) -> str:
        """The line about columns that were left out; empty if none was."""
        return f"(too narrow for {', '.join(self.gone)}: see --json)" if self.gone else ""


def fit(
    rows: Sequence[Sequence[str]],
    columns: int,
    *,
    right: Container[int] = (),
    least: Sequence[str] = (),
    names: Container[int] = (0,),
) -> Fitted:
    """Return rows that are no wider than a terminal, if they can be.

    Columns without a value are left out first, then those that matter least. Then the widest columns are folded into
    several lines, so nothing that is shown is cut.

    Args:
        rows: The first one is the head.
        columns: Width of the terminal.
        right: The columns of numbers, which are not folded.
        least: Heads of columns that may be left out, the first one first.
        names: The columns of names by which something is asked for: they are folded last.
    """
    head, *body = rows
    kept = list(range(len(head)))
    empty = [head[at] for at in kept if not any(row[at] for row in body)]
    gone: list[str] = []
    for name in [*(one for one in least if one in empty), *(one for one in least if one not in empty)]:
        if _wide(rows, kept) <= columns:
            break
        kept = [at for at in kept if head[at] != name]
        gone += [name] if name not in empty else []
    numbers = frozenset(place for place, at in enumerate(kept) if at in right)
    named = frozenset(place for place, at in enumerate(kept) if at in names)
    shown = _folded([[row[at] for at in kept] for row in rows], numbers, named, columns)
    return Fitted(shown, numbers, tuple(gone))


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Container[int] = (),
    least: Sequence[str] = (),
    names: Container[int] = (0,),
) -> str:
    """Return rows under their heads, in columns that fit the terminal (`fit`)."""
    found = fit([head, *rows], columns_wanted(), right=right, least=least, names=names)
    lines = ["  ".join(cells).rstrip() for cells in aligned(found.rows, right=found.right)]
    return "".join(f"{line}\n" for line in [*lines, found.note] if line)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    from hivemind_trio.policy import width

    return [max(map(width, column)) for column in zip(*rows, strict=True)]


def _wide(rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    widths = _widths(rows)
    return sum(widths[at] for at in kept) + GAP * (len(kept) - 1)


def _folded(rows: list[list[str]], numbers: Container[int], names: Container[int], columns: int) -> list[list[str]]:
    """Return the rows with the cells of the widest columns on several lines, as far as that is needed."""
    widths = _widths(rows)
    most = list(widths)
    while sum(most) + GAP * (len(most) - 1) > columns:
        foldable = [at for at in range(len(most)) if at not in numbers and most[at] > NARROWEST]
        if not foldable:
            return rows
        at = max([one for one in foldable if one not in names] or foldable, key=lambda at: most[at])
        most[at] -= 1
    if most == widths:
        return rows
    lines: list[list[str]] = []
    for row in rows:
        cells = [_parts(cell, wide) for cell, wide in zip(row, most, strict=True)]
        lines += [list(line) for line in zip_longest(*cells, fillvalue="")]
    return lines


def _parts(cell: str, wide: int) -> list[str]:
    """Return the lines of a cell; words are divided at hyphens, and where they are wider than the column."""
    from hivemind_trio.policy import width

    return [cell] if width(cell) <= wide else textwrap.wrap(cell, wide) or [""]


def joined(parts: Sequence[str]) -> str:
    """Return parts of a sentence with two blanks between them, on as many lines as they need."""
    from hivemind_trio.policy import width

    lines: list[str] = []
    for part in parts:
        if lines and width(lines[-1]) + GAP + width(part) <= columns_wanted():
            lines[-1] += f"  {part}"
        else:
            lines.append(f"  {part}" if lines else part)
    return "\n".join(lines)
