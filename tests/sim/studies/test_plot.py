"""Samples over time, and the drawing that is made of them."""

from __future__ import annotations

from xml.etree import ElementTree

import attrs
import pytest

from hivemind_trio.sim import (
    Area,
    Ask,
    Drawing,
    Figures,
    Ink,
    Level,
    Polyline,
    Provider,
    Sample,
    Text,
    Traits,
    Way,
    plot,
    svg,
)
from hivemind_trio.sim.results.time_series import SAMPLES_MAX, Series
from tests.sim.worlds import SECOND, fleet, one_provider, run, scenario

PROGRAM = one_provider("concurrency 3")
WORLD = scenario(fleet(6, 4), traits=Traits(concurrency=3))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def figures() -> Figures:
    return run(PROGRAM, WORLD)


def sampled(figures: Figures, *levels: Level, every_s: float = 1) -> Figures:
    """With these levels instead of its own."""
    samples = tuple(Sample(round(place * every_s * SECOND), {"anthropic": level}) for place, level in enumerate(levels))
    return attrs.evolve(figures, samples=samples, makespan_ns=samples[-1].at_ns)


def lines(drawing: Drawing, ink: Ink) -> list[Polyline]:
    return [shape for shape in drawing.shapes if isinstance(shape, Polyline) and shape.ink is ink]


def words(drawing: Drawing) -> list[str]:
    return [shape.words for shape in drawing.shapes if isinstance(shape, Text)]


def marks(drawing: Drawing) -> list[Area]:
    """Of attempts that failed, without the one in the legend."""
    return [shape for shape in drawing.shapes if isinstance(shape, Area) and shape.ink is Ink.TROUBLE][1:]


def test_samples_are_bounded_in_number_and_go_to_the_end() -> None:
    series = Series()
    at_ns = 0
    while at_ns < 3_600 * SECOND:
        if at_ns >= series.next_ns:
            series.add_direct(at_ns, {})
        at_ns += SECOND // 20

    assert SAMPLES_MAX // 2 - 1 <= len(series.samples) <= SAMPLES_MAX
    assert series.samples[-1].at_ns > 0.99 * 3_600 * SECOND
    gaps = [after.at_ns - before.at_ns for before, after in zip(series.samples, series.samples[1:], strict=False)]
    assert max(gaps) <= 2 * min(gaps)


def test_what_failed_so_far_is_in_the_samples_of_both_ways() -> None:
    trouble = scenario(fleet(12, 8), traits=Traits(concurrency=2))
    for way in Way:
        figures = run(one_provider("concurrency 8"), trouble, way=way)
        failed = [sample.providers["anthropic"].troubles for sample in figures.samples]
        assert failed == sorted(failed)
        assert 0 < failed[-1] <= sum(figures.upstreams["anthropic"].met.values())


def test_in_flight_counts_all_of_a_provider_s_groups_of_models() -> None:
    shared, own = (Provider(traits=Traits(concurrency=9)) for _ in range(2))
    for provider in (shared, shared, own):
        provider.arrive(Ask(key="k", tokens_in=1, tokens_max_out=1), 0)
    series = Series()
    series.add_direct(0, {("p", None): shared, ("p", "opus*"): own, ("p", "haiku*"): shared})

    assert series.samples[0].providers["p"].inflight == 3


def test_each_run_and_provider_has_a_panel_and_the_svg_is_well_formed(figures: Figures) -> None:
    direct = run(PROGRAM, WORLD, way=Way.DIRECT)
    drawing = plot([("direct", direct), ("<ours> & theirs", figures), ("other", figures)], title="a < b")
    text = svg(drawing)

    assert len(lines(drawing, Ink.LIMIT)) == 2, "without us there is no limit"
    assert {"direct: anthropic", "<ours> & theirs: anthropic", "other: anthropic"} <= set(words(drawing))
    assert "&lt;ours&gt; &amp; theirs: anthropic" in text
    root = ElementTree.fromstring(text)
    assert [mark.text for mark in root.iter(f"{SVG}text")] == words(drawing)
    assert "prefers-color-scheme: dark" in text


def test_a_provider_that_nobody_asks_has_no_panel(figures: Figures) -> None:
    unasked = attrs.evolve(figures.upstreams["anthropic"], attempts=0, met={})
    idle = attrs.evolve(sampled(figures, Level(4, 0, 0), Level(4, 0, 0)), upstreams={"anthropic": unasked})

    assert not lines(plot([("p", idle)], title="t"), Ink.LIMIT)
    assert "no provider was asked anything" in words(plot([("p", idle)], title="t"))


def test_a_line_stays_where_it_is_until_it_is_known_to_be_elsewhere(figures: Figures) -> None:
    drawing = plot([("p", sampled(figures, *(Level(4, level, 0) for level in (0, 4, 4, 4, 2))))], title="t")

    (limit,), (inflight,) = (lines(drawing, ink) for ink in (Ink.LIMIT, Ink.INFLIGHT))
    assert len({y for _, y in limit.points}) == 1
    assert limit.points[0][1] < inflight.points[0][1]  # up is less in a picture
    heights = [y for _, y in inflight.points]
    assert heights[0] == heights[1] > heights[-1] > heights[2] == heights[3]
    assert heights[2] == limit.points[0][1]
    assert [x for x, _ in inflight.points] == sorted(x for x, _ in inflight.points)


def test_two_policies_stand_on_the_same_scales(figures: Figures) -> None:
    low = sampled(figures, Level(4, 2, 10), Level(4, 2, 10), every_s=10)
    high = sampled(figures, Level(40, 30, 100), Level(40, 30, 100), every_s=100)
    drawing = plot([("low", low), ("high", high)], title="t")

    # Panels are as high as each other: a tenth of the limit is drawn a tenth as high, a tenth of the time as long.
    feet = [line.points[0][1] for line in lines(drawing, Ink.GRID)]
    grounds = [max(feet[: len(feet) // 2]), max(feet)]
    waits = lines(drawing, Ink.WAITING)
    assert grounds[0] - waits[0].points[0][1] == pytest.approx((grounds[1] - waits[1].points[0][1]) / 10, abs=0.2)
    areas = [shape for shape in drawing.shapes if isinstance(shape, Area) and shape.ink is Ink.INFLIGHT][1:]
    limits = lines(drawing, Ink.LIMIT)
    heights = [area.points[0][1] - limit.points[0][1] for area, limit in zip(areas, limits, strict=True)]
    assert heights[0] == pytest.approx(heights[1] / 10, abs=0.2)
    lengths = [line.points[-1][0] - line.points[0][0] for line in lines(drawing, Ink.LIMIT)]
    assert lengths[0] == pytest.approx(lengths[1] / 10, abs=0.2)


def test_where_nothing_waits_there_is_no_queue_and_a_provider_s_panels_stand_together(figures: Figures) -> None:
    levels = {"a": Level(4, 2, 0), "b": Level(4, 2, 5)}
    samples = tuple(Sample(place * SECOND, levels) for place in range(3))
    seen = dict.fromkeys(levels, figures.upstreams["anthropic"])
    both = attrs.evolve(figures, samples=samples, upstreams=seen)
    drawing = plot([("old", both), ("new", both)], title="t")

    assert [word for word in words(drawing) if ": " in word] == ["old: a", "new: a", "old: b", "new: b"]
    assert len(lines(drawing, Ink.WAITING)) == 2
    assert words(drawing).count("waiting") == 2 + 1  # in the legend too


def test_failed_attempts_are_marked_where_they_failed_and_more_of_them_darker(figures: Figures) -> None:
    levels = [Level(4, 1, 0, troubles) for troubles in (0, 0, 1, 1, 11)]
    few, many = marks(plot([("p", sampled(figures, *levels))], title="t"))

    assert few.opacity < many.opacity <= 1
    assert few.points[1][0] < many.points[0][0]


@pytest.mark.parametrize("seconds", [1e-6, 0.3, 7, 98.4, 181, 1_000, 86_400, 5_000_000])
def test_a_picture_of_any_length_has_a_few_marks_on_each_axis(figures: Figures, seconds: float) -> None:
    drawing = plot([("p", sampled(figures, Level(7, 3, 12), Level(7, 3, 12), every_s=seconds))], title="t")

    assert 3 <= sum(word.endswith((" s", " min", " h")) and "·" not in word for word in words(drawing)) <= 11


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 11, 24, 99, 100, 101, 4_999, 200_000])
def test_a_scale_of_counts_has_whole_numbers_a_few_of_them_and_room_for_the_most(figures: Figures, most: int) -> None:
    drawing = plot([("p", sampled(figures, Level(most, 0, 1), Level(most, 0, 1)))], title="t")

    numbers = [word for word in words(drawing) if word.replace(",", "").isdigit()]
    counts = numbers[: numbers.index("0", 1)]  # the queue's scale begins again
    assert 2 <= len(counts) <= 11
    assert int(counts[-1].replace(",", "")) >= most
