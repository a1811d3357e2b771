"""Use of a plan by lane and hour: the coming hours are expected to be as those of the weeks before."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model.plan import DAY_NS, HOUR_NS
from hivemind_trio.scheduler.plans.plan_history import (
    CALLS_LEAST,
    DEVIATIONS,
    HOURS,
    MARGIN,
    WEEK_NS,
    PlanHistory,
)

ME = ("me",)


def watched(uses: dict[int, float], *, since_ns: int = 0, lane: str = "me") -> PlanHistory:
    """So much weight in each of these hours, one call each."""
    history = PlanHistory(since_ns)
    for hour, weight in sorted(uses.items()):
        history.add(lane, weight, hour * HOUR_NS + HOUR_NS // 2)
    return history


def wanted(weight: float, size: float) -> float:
    return MARGIN * weight + DEVIATIONS * math.sqrt(MARGIN * weight * size) + CALLS_LEAST * size


def test_the_hours_until_a_reset_are_as_a_week_ago() -> None:
    history = watched({9: 4.0, 10: 4.0, 11: 4.0})
    now_ns = WEEK_NS + 10 * HOUR_NS

    assert history.expected(ME, now_ns, now_ns, now_ns + 5 * HOUR_NS) == pytest.approx(wanted(8.0, 4.0))
    later_ns = now_ns + HOUR_NS + HOUR_NS // 2
    assert history.expected(ME, now_ns, later_ns, now_ns + 5 * HOUR_NS) == pytest.approx(wanted(2.0, 4.0))
    night_ns = now_ns + 2 * HOUR_NS
    assert history.expected(ME, now_ns, night_ns, now_ns + 5 * HOUR_NS) == 0.0
    assert history.expected(("you",), now_ns, now_ns, now_ns + 5 * HOUR_NS) == 0.0


def test_of_four_weeks_the_one_with_most_use_counts() -> None:
    uses = {week * 168 + 9: 1.0 + (week == 1) * 7 for week in range(5)}
    history = watched(uses)
    at_ns = 5 * WEEK_NS + 9 * HOUR_NS

    size = history.sizes["me"]
    assert history.expected(ME, at_ns, at_ns, at_ns + HOUR_NS) == pytest.approx(wanted(8.0, size))
    at_ns += WEEK_NS
    assert history.expected(ME, at_ns, at_ns, at_ns + HOUR_NS) == pytest.approx(wanted(1.0, size))


def test_a_month_is_weeks_and_a_rest() -> None:
    history = watched({9: 4.0})
    now_ns = WEEK_NS + 9 * HOUR_NS

    assert history.expected(ME, now_ns, now_ns, now_ns + 3 * WEEK_NS + DAY_NS) == pytest.approx(wanted(16.0, 4.0))


def test_what_goes_on_now_is_expected_to_go_on_for_an_hour() -> None:
    history = watched({0: 1.0})
    now_ns = WEEK_NS + 50 * HOUR_NS
    history.add("me", 6.0, now_ns)

    size = history.sizes["me"]
    assert history.expected(ME, now_ns, now_ns, now_ns + 3 * HOUR_NS) == pytest.approx(wanted(6.0, size))
    assert history.expected(ME, now_ns, now_ns, now_ns + HOUR_NS // 2) == pytest.approx(wanted(3.0, size))


def test_before_a_week_is_watched_every_hour_to_come_may_be_as_the_busiest() -> None:
    history = watched({0: 6.0, 1: 2.0})
    now_ns = 40 * HOUR_NS

    size = history.sizes["me"]
    assert not history.watched(now_ns)
    assert history.expected(ME, now_ns, now_ns, now_ns + 3 * HOUR_NS) == pytest.approx(wanted(18.0, size))
    assert history.watched(WEEK_NS)


def test_lanes_that_were_not_seen_are_known_after_a_week() -> None:
    history = watched({0: 6.0})

    assert history.knows(ME, HOUR_NS)
    assert not history.knows(("you",), 6 * DAY_NS)
    assert history.knows(("you",), WEEK_NS)


def kept_for(history: PlanHistory, at_hour: int, hours: int) -> float:
    now_ns = at_hour * HOUR_NS
    return history.expected(ME, now_ns, now_ns, now_ns + hours * HOUR_NS)


def test_who_comes_at_the_same_hours_each_week_keeps_nothing_for_others() -> None:
    monday = watched({week * 168 + hour: 4.0 for week in range(3) for hour in range(9, 12)})

    assert kept_for(monday, 3 * 168 + 9, 3) == pytest.approx(wanted(12.0, 4.0))
    assert kept_for(monday, 3 * 168 + 40, 5) == 0.0


def test_who_came_unexpectedly_may_do_so_again() -> None:
    """A week ago nobody was there: of as many hours as much is kept, whenever, for three weeks."""
    changing = watched({9: 4.0, 10: 4.0} | {168 + 60 + hour: 4.0 for hour in range(8)})

    for hours, weight in ((1, 4.0), (5, 20.0), (8, 32.0), (30, 32.0)):
        assert kept_for(changing, 2 * 168 + 100, hours) == pytest.approx(weight)
    assert kept_for(changing, 4 * 168 + 50, 5) == pytest.approx(20.0)
    assert kept_for(changing, 4 * 168 + 70, 5) == 0.0


@given(
    uses=st.dictionaries(st.integers(0, 5 * 168), st.floats(0.1, 100.0), max_size=40),
    now_h=st.integers(0, 6 * 168),
    length_h=st.integers(1, 40 * 24),
    parts=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6),
)
def test_what_is_expected_only_shrinks_until_the_reset(
    uses: dict[int, float], now_h: int, length_h: int, parts: list[float]
) -> None:
    history = watched({hour: weight for hour, weight in uses.items() if hour < now_h})
    now_ns, until_ns = now_h * HOUR_NS, (now_h + length_h) * HOUR_NS
    ahead_ns = min(until_ns - now_ns, WEEK_NS)
    times = sorted(now_ns + int(part * ahead_ns) for part in parts)
    found = [history.expected(ME, now_ns, at_ns, until_ns) for at_ns in times]

    assert all(later <= sooner * 1.000001 + 1e-9 for sooner, later in pairwise(found))
    assert min(found) >= 0


@given(
    uses=st.dictionaries(st.integers(0, 300), st.floats(1.0, 100.0), min_size=1, max_size=40),
    age_h=st.integers(0, 200),
    at_h=st.integers(0, 167),
)
def test_a_restart_forgets_nothing(uses: dict[int, float], age_h: int, at_h: int) -> None:
    before = watched({hour: float(round(weight)) for hour, weight in uses.items()})
    ended_ns = 301 * HOUR_NS
    after = PlanHistory(-ended_ns - age_h * HOUR_NS)
    after.restore(before.ages(ended_ns), before.sizes, age_h * HOUR_NS, 0)
    now_ns = at_h * HOUR_NS
    same_ns = ended_ns + (age_h + at_h) * HOUR_NS

    expected = before.expected(ME, same_ns, same_ns, same_ns + 5 * HOUR_NS)
    assert after.expected(ME, now_ns, now_ns, now_ns + 5 * HOUR_NS) == pytest.approx(expected)


def test_hours_beyond_four_weeks_are_forgotten() -> None:
    history = PlanHistory(0)
    for hour in range(HOURS + 100):
        history.add("me", 1.0, hour * HOUR_NS)

    assert len(history.hours["me"]) <= HOURS + 1
