"""Time line of a run: limit, queue and calls in flight as rows of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hivemind_trio.cli.table import aligned
from hivemind_trio.sim import Figures, Level

from .words import number

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
"""From nothing to the most."""

SPARKS: Final = 60
"""Columns, at most."""

_LEVELS: Final[Mapping[str, Callable[[Level], int]]] = {
    "limit": lambda level: level.limit,
    "in flight": lambda level: level.inflight,
    "waiting": lambda level: level.waiting,
}


def over_time(run: Figures, columns: int) -> str:
    """Each provider's, below a line that says of when; nothing of a run that was over at once.

    Args:
        columns: Width of the terminal.
    """
    if len(run.samples) < 2:
        return ""
    names = max((len(name) for name, seen in run.upstreams.items() if seen.attempts), default=0)
    wide = max(10, min(SPARKS, columns - names - len("  in flight    at most 99,999")))
    rows = []
    for name, seen in run.upstreams.items():
        levels = [(sample.at_ns, sample.providers[name]) for sample in run.samples if name in sample.providers]
        if not seen.attempts or not levels:
            continue
        who = name
        for what, of in _LEVELS.items():
            series = _spread_out([(at_ns, of(level)) for at_ns, level in levels], wide, run.makespan_ns)
            most = max(of(level) for _, level in levels)
            rows.append([who, what, sparks(series, most), f"at most {most:,}"])
            who = ""
    if not rows:
        return ""
    head = f"over time, seed {run.seed}, from 0 s to {number(run.makespan_ns / 1e9, 's')}"
    return "\n".join([head, *("  ".join(cells).rstrip() for cells in aligned(rows))])


def _spread_out(points: Sequence[tuple[int, int]], wide: int, end_ns: int) -> list[float]:
    """So many values in equal steps of time, each the most in its step; where none was taken, the last one stays."""
    most: list[int | None] = [None] * wide
    for at_ns, value in points:
        place = min(wide - 1, at_ns * wide // max(end_ns, 1))
        before = most[place]
        most[place] = value if before is None else max(before, value)
    last, spread = 0, []
    for each in most:
        last = last if each is None else each
        spread.append(float(last))
    return spread


def sparks(values: Sequence[float], most: float) -> str:
    """One block each, as high as its part of `most`; what is more than nothing can be seen."""
    if most <= 0:
        return " " * len(values)
    steps = len(BLOCKS) - 1
    return "".join(
        BLOCKS[max(1, min(steps, round(value / most * steps)))] if value > 0 else BLOCKS[0] for value in values
    )
