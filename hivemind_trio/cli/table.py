"""Rows in columns, aligned as a terminal shows them."""

from __future__ import annotations

from collections.abc import Container, Sequence


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
