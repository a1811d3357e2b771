"""A drawing as shapes, for whoever paints it; and as SVG, light or dark as its reader's surroundings are."""

from __future__ import annotations

from enum import Enum
from html import escape
from typing import Final, Literal, TypeAlias, final

import attrs

Point: TypeAlias = tuple[float, float]
Anchor: TypeAlias = Literal["start", "middle", "end"]


@final
class Ink(Enum):
    """Colour of a drawing, on light ground and on dark."""

    GROUND = ("#ffffff", "#15181e")
    TEXT = ("#1a202c", "#e2e8f0")
    FAINT = ("#5b6676", "#9aa5b4")
    GRID = ("#e2e8f0", "#2c333d")
    INFLIGHT = ("#2b6cb0", "#63a4e8")
    LIMIT = ("#c05621", "#f0955a")
    WAITING = ("#6b46c1", "#b39ae8")
    TROUBLE = ("#c53030", "#fc7d7d")

    @property
    def light(self) -> str:
        """Colour on light ground."""
        return self.value[0]

    @property
    def dark(self) -> str:
        """Colour on dark ground."""
        return self.value[1]


@final
@attrs.frozen
class Polyline:
    """Through its points, one after another; `x` grows to the right, `y` downwards, in pixels."""

    points: tuple[Point, ...]
    ink: Ink
    width: float = 1.0


@final
@attrs.frozen
class Area:
    """Area enclosed by its points, translucent."""

    points: tuple[Point, ...]
    ink: Ink
    opacity: float = 0.2


@final
@attrs.frozen
class Text:
    """One line of text; its anchor stands at (x, y), on the baseline."""

    x: float
    y: float
    words: str
    ink: Ink = Ink.TEXT
    size: int = 12
    anchor: Anchor = "start"
    bold: bool = False


Shape: TypeAlias = Polyline | Area | Text


@final
@attrs.frozen(kw_only=True)
class Drawing:
    """Shapes on a ground, the first ones lowest."""

    title: str
    width: int
    height: int
    shapes: tuple[Shape, ...]


FONT: Final = "system-ui, sans-serif"


def svg(drawing: Drawing) -> str:
    """As a document of its own."""
    wide, high = drawing.width, drawing.height
    said = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'font-family="{FONT}" font-size="12" role="img">',
        f"<title>{escape(drawing.title)}</title>",
        f"<style>\n{_inks(dark=False)}\n@media (prefers-color-scheme: dark) {{\n{_inks(dark=True)}\n}}\n</style>",
        f'<rect width="{wide}" height="{high}" class="ground"/>',
    ]
    return "\n".join([*said, *map(_shape, drawing.shapes), "</svg>", ""])


def _inks(*, dark: bool) -> str:
    def color(ink: Ink) -> str:
        return ink.dark if dark else ink.light

    # What is drawn as a line has its colour as `color`, and what is filled as well: one class for both.
    rules = [f".{ink.name.lower()} {{ color: {color(ink)} }}" for ink in Ink if ink is not Ink.GROUND]
    return "\n".join([f".ground {{ fill: {color(Ink.GROUND)} }}", *rules])


def _shape(shape: Shape) -> str:
    ink = shape.ink.name.lower()
    match shape:
        case Polyline():
            return (
                f'<polyline class="{ink}" fill="none" stroke="currentColor" stroke-width="{shape.width:g}" '
                f'points="{_points(shape.points)}"/>'
            )
        case Area():
            return (
                f'<polygon class="{ink}" fill="currentColor" fill-opacity="{shape.opacity:g}" '
                f'points="{_points(shape.points)}"/>'
            )
        case Text():
            at = f'x="{shape.x:g}" y="{shape.y:g}"'
            anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            size = "" if shape.size == 12 else f' font-size="{shape.size}"'
            bold = ' font-weight="bold"' if shape.bold else ""
            return f'<text class="{ink}" fill="currentColor" {at}{anchor}{size}{bold}>{escape(shape.words)}</text>'


def _points(points: tuple[Point, ...]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
