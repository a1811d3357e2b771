"""Limit, queue, what is in flight and what went wrong over time, as a drawing.

Below each other, so that what happens at one time stands in one column: all on one axis of time, and a provider's
panels together, those through the proxy on one scale, so that two policies can be compared. What waits has a scale of
its own, for it may be a hundred times what is in flight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, final

import attrs

from hivemind_trio.sim.results.figures import Figures, Way
from hivemind_trio.sim.results.time_series import Level

from .svg import Area, Drawing, Ink, Point, Polyline, Shape, Text

WIDTH: Final = 960
LEFT: Final = 62
RIGHT: Final = 24
HEAD: Final = 54
"""Title and legend."""
TITLE: Final = 44
"""Above each panel."""
INFLIGHT_HIGH: Final = 110
WAITING_HIGH: Final = 60
STRIP_HIGH: Final = 10
"""Height of the strip of marks for failed attempts."""
GAP: Final = 20
"""Between that and what waits, if anything does."""
AXIS_HIGH: Final = 40
"""Below each panel: the marks of time."""

Of = Callable[[Level], int]

_LEGEND: Final = (
    (Ink.LIMIT, "limit"),
    (Ink.INFLIGHT, "in flight"),
    (Ink.WAITING, "waiting"),
    (Ink.TROUBLE, "attempts that failed"),
)

_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)


def plot(runs: Sequence[tuple[str, Figures]], *, title: str) -> Drawing:
    """Draw each run's providers that were asked anything, or of which anything was wanted.

    Args:
        runs: What to call a run, and the run.
    """
    providers = dict.fromkeys(provider for _, figures in runs for provider in figures.upstreams)
    panels = [
        panel
        for provider in providers
        for name, figures in runs
        if provider in figures.upstreams and (panel := _panel(name, figures, provider)) is not None
    ]
    end_s = max([figures.makespan_ns / 1e9 for _, figures in runs] + [panel.points[-1][0] for panel in panels])
    shapes: list[Shape] = [Text(LEFT, 26, title, size=16, bold=True), *_legend()]
    top = HEAD
    for panel in panels:
        like = [each for each in panels if each.proxied is panel.proxied and each.provider == panel.provider]
        line = max(each.line for each in like)
        shapes += panel.drawn(top, _Scale.of(end_s), max(each.most for each in like), line)
        top += _high(line)
    if not panels:
        shapes.append(Text(LEFT, top + 20, "no provider was asked anything", Ink.FAINT))
        top += TITLE
    return Drawing(title=title, width=WIDTH, height=top + 8, shapes=tuple(shapes))


def _legend() -> Iterator[Shape]:
    across = LEFT
    for ink, words in _LEGEND:
        yield Area(((across, 37), (across + 14, 37), (across + 14, 47), (across, 47)), ink, 0.9)
        yield Text(across + 20, 46, words, Ink.FAINT)
        across += 46 + 6 * len(words)


@final
@attrs.frozen
class _Scale:
    """Scale of time."""

    end_s: float
    step_s: float

    @classmethod
    def of(cls, end_s: float) -> _Scale:
        end_s = max(end_s, 1e-9)
        step_s = next((step for step in _STEPS_S if end_s <= step * 10), 0.0)
        if end_s < 2 or not step_s:
            step_s = _step(end_s)
        return cls(end_s, step_s)

    def x(self, at_s: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * at_s / self.end_s, 1)

    def marks(self) -> Iterator[tuple[float, str]]:
        """Yield positions and labels of marks."""
        unit, size_s = next(
            ((unit, size_s) for unit, size_s in (("h", 3_600), ("min", 60)) if self.step_s >= size_s), ("s", 1)
        )
        for number in range(math.floor(self.end_s / self.step_s + 1e-9) + 1):
            at_s = number * self.step_s
            yield self.x(at_s), f"{at_s / size_s:g} {unit}"


@final
@attrs.frozen
class _Panel:
    """One provider in one run."""

    title: str
    said: str
    """Summary of the run."""
    provider: str
    proxied: bool
    """Direct, nothing limits and nothing waits."""
    points: list[tuple[float, Level]]
    """At so many seconds; not empty."""

    @property
    def most(self) -> int:
        """Largest number in flight, actual and allowed."""
        return max(max(level.inflight, level.limit) for _, level in self.points) or 1

    @property
    def line(self) -> int:
        """The longest."""
        return max(level.waiting for _, level in self.points)

    def drawn(self, top: int, scale: _Scale, most: int, line: int) -> Iterator[Shape]:
        yield Text(LEFT, top + 24, self.title, size=13, bold=True)
        yield Text(WIDTH - RIGHT, top + 24, self.said, Ink.FAINT, anchor="end")
        bottom = top + TITLE + INFLIGHT_HIGH
        inflight = _Height(bottom, INFLIGHT_HIGH, most)
        yield from inflight.grid("at once")
        yield from _filled(self.points, lambda level: level.inflight, scale, inflight, Ink.INFLIGHT)
        if self.proxied:
            yield Polyline(_corners(self.points, lambda level: level.limit, scale, inflight), Ink.LIMIT, 1.8)
        yield from self._troubles(scale, bottom + 3)
        bottom += STRIP_HIGH
        if line:
            bottom += GAP + WAITING_HIGH
            waiting = _Height(bottom, WAITING_HIGH, line)
            yield from waiting.grid("waiting")
            yield from _filled(self.points, lambda level: level.waiting, scale, waiting, Ink.WAITING)
        for x, words in scale.marks():
            yield Polyline(((x, bottom), (x, bottom + 4)), Ink.FAINT)
            yield Text(x, bottom + 18, words, Ink.FAINT, anchor="middle")

    def _troubles(self, scale: _Scale, top: float) -> Iterator[Shape]:
        """Yield a mark from one sample to the next where attempts failed between them; where more did, a darker one."""
        spans = [
            (before_s, at_s, level.troubles - before.troubles)
            for (before_s, before), (at_s, level) in pairwise(self.points)
        ]
        worst = max((count for _, _, count in spans), default=0)
        for from_s, to_s, count in spans:
            if count > 0:
                left = scale.x(from_s)
                right = max(scale.x(to_s), left + 1.5)
                low = top + STRIP_HIGH - 4
                yield Area(
                    ((left, top), (right, top), (right, low), (left, low)),
                    Ink.TROUBLE,
                    round(0.35 + 0.6 * count / worst, 2),
                )


def _high(line: int) -> int:
    return TITLE + INFLIGHT_HIGH + STRIP_HIGH + (GAP + WAITING_HIGH if line else 0) + AXIS_HIGH


def _panel(name: str, figures: Figures, provider: str) -> _Panel | None:
    """None if nothing ever went there, nor waited for it."""
    points = [
        (sample.at_ns / 1e9, sample.providers[provider]) for sample in figures.samples if provider in sample.providers
    ]
    seen = figures.upstreams[provider]
    if not points or not (seen.attempts or any(level.inflight or level.waiting for _, level in points)):
        return None
    troubles = sum(seen.met.values())
    said = [
        f"{figures.dead:,} of {figures.agents:,} agents dead",
        f"{seen.attempts:,} attempts, {troubles:,} failed",
        f"over after {_lasted(figures.makespan_ns / 1e9)}" if not figures.undone else f"{figures.undone:,} unfinished",
    ]
    return _Panel(f"{name}: {provider}", "  ·  ".join(said), provider, figures.way is Way.PROXY, points)


def _lasted(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6_000 else f"{seconds / 3_600:.1f} h"


@final
@attrs.frozen
class _Height:
    """A scale of counts, upwards from `bottom`."""

    bottom: float
    high: int
    most: int

    @property
    def _step(self) -> int:
        return max(1, math.ceil(_step(self.most, least=2 if self.high < 80 else 3)))

    @property
    def _top(self) -> int:
        return math.ceil(self.most / self._step) * self._step

    def y(self, value: float) -> float:
        return round(self.bottom - self.high * value / self._top, 1)

    def grid(self, words: str) -> Iterator[Shape]:
        for value in range(0, self._top + 1, self._step):
            at = self.y(value)
            yield Polyline(((LEFT, at), (WIDTH - RIGHT, at)), Ink.GRID)
            yield Text(LEFT - 8, at + 4, f"{value:,}", Ink.FAINT, anchor="end")
        yield Text(LEFT, self.bottom - self.high - 6, words, Ink.FAINT, size=10)


def _filled(
    points: Sequence[tuple[float, Level]], of: Of, scale: _Scale, height: _Height, ink: Ink
) -> Iterator[Area | Polyline]:
    corners = _corners(points, of, scale, height)
    if all(of(level) == 0 for _, level in points):
        return
    yield Area(((corners[0][0], height.bottom), *corners, (corners[-1][0], height.bottom)), ink)
    yield Polyline(corners, ink, 1.2)


def _corners(points: Sequence[tuple[float, Level]], of: Of, scale: _Scale, height: _Height) -> tuple[Point, ...]:
    """Return the corners of a line that is constant between samples; unchanged points are omitted."""
    corners: list[Point] = []
    for at_s, level in points:
        here = height.y(of(level))
        if corners:
            before = corners[-1][1]
            if here == before and at_s != points[-1][0]:
                continue
            corners.append((scale.x(at_s), before))
        corners.append((scale.x(at_s), here))
    return tuple(corners)


def _step(most: float, *, least: int = 4) -> float:
    """Return a round number that goes into `most` a few times: twice as often as `least` at most, or a little more."""
    rough = 10.0 ** math.floor(math.log10(most))
    return next(rough * part for part in (0.1, 0.2, 0.5, 1, 2, 5) if most <= rough * part * 2.5 * least)
