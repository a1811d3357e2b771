"""Bars by subject, as SVG: one panel for each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 860
LEFT: Final = 170
RIGHT: Final = 90
BAR: Final = 16
GAP: Final = 5
HEAD: Final = 40
TITLE: Final = 30

OURS: Final = "#c05621"
OTHERS: Final = "#718096"


def bars(panels: Sequence[tuple[str, str, Mapping[str, float]]], *, title: str, ours: str) -> str:
    """Draw.

    Args:
        panels: What it is and how its figures are printed, and subject -> figure.
        ours: The subject that stands out.
    """
    drawn = []
    top = TITLE
    for name, form, figures in panels:
        most = max([*figures.values(), 1e-9])
        drawn.append(f'<text x="12" y="{top + 24}" font-weight="bold">{escape(name)}</text>')
        for place, (subject, figure) in enumerate(figures.items()):
            y = top + HEAD + place * (BAR + GAP)
            length = round(max(1.0, (WIDTH - LEFT - RIGHT) * max(figure, 0.0) / most), 1)
            colour = OURS if subject == ours else OTHERS
            drawn += [
                f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(subject)}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{length}" height="{BAR}" fill="{colour}"/>',
                f'<text x="{LEFT + length + 6}" y="{y + 12}">{format(figure, form)}</text>',
            ]
        top += HEAD + len(figures) * (BAR + GAP)
    height = top + 12
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="14">{escape(title)}</text>',
    ]
    return "\n".join([*head, *drawn, "</svg>", ""])
