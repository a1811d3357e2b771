"""Did you mean: only where it is likely (rustc's rule), otherwise what there is."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """Return the likeliest name: at most a third of its letters differ, or its words are in another order."""
    best: tuple[int, str] | None = None
    for name in known:
        if sorted(name.split("-")) == sorted(word.split("-")):
            return name
        distance = _distance(word.lower(), name.lower())
        if distance <= max(1, max(len(word), len(name)) // 3) and distance < max(len(word), len(name)):
            best = min(best, (distance, name)) if best is not None else (distance, name)
    return best[1] if best is not None else None


def one_of(names: Iterable[str], *, most: int = 12) -> str:
    """For a help text: "`a`, `b` or `c`", cut where it would be a wall."""
    quoted = [f"`{name}`" for name in names]
    if len(quoted) > most:
        return ", ".join(quoted[:most]) + ", ..."
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _distance(one: str, other: str) -> int:
    """Edits between two words, a swap of neighbours being one (Damerau, optimal string alignment)."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
