"""Conduct of providers: durations are not deceived by what has not ended, and failures come in rows."""

from __future__ import annotations

from random import Random

import pytest

from hivemind_trio.sim import Habits
from hivemind_trio.sim.forecast.habits import SERVED as SERVED_AS_USUAL
from hivemind_trio.sim.forecast.habits import Attempts, Durations, Luck

from .habits import REFUSED, SECOND_NS, SERVED, seen


def test_attempts_in_flight_count_as_longer_than_their_age() -> None:
    """Half of the attempts take 1 s and half 20 s; after 2 s only the short ones have ended."""
    short, under_way = [seen(1) for _ in range(10)], [seen(2, None) for _ in range(10)]
    random = Random(1)
    durations = Durations.of([*short, *under_way])
    drawn = [durations.draw(random)[0] for _ in range(2_000)]

    assert sum(one == SECOND_NS for one in drawn) / len(drawn) == pytest.approx(0.5, abs=0.05)
    assert all(one == SECOND_NS or one > 2 * SECOND_NS for one in drawn)


@pytest.mark.parametrize(("age_s", "lasts_s"), [(0, 15), (14, 15), (20, 26)])
def test_before_any_has_ended_attempts_last_as_long_as_usual(age_s: int, lasts_s: int) -> None:
    """Those in flight for a moment say nothing about how long one takes."""
    durations = Durations.of([seen(0.1, None), seen(2, None)])

    assert durations.draw(Random(1), age_s * SECOND_NS) == (lasts_s * SECOND_NS, SERVED_AS_USUAL)


@pytest.mark.parametrize("age_s", [0, 3, 9, 50])
def test_what_has_taken_some_time_takes_longer(age_s: int) -> None:
    durations = Durations.of([seen(time) for time in range(1, 11)])

    assert all(durations.draw(Random(seed), age_s * SECOND_NS)[0] > age_s * SECOND_NS for seed in range(50))


def test_attempts_are_refused_until_a_spell_is_over_and_not_after_it() -> None:
    """Spells of 30 s, after which twenty are served; the one of now has lasted for 10 s."""
    attempts = []
    for cycle in range(3):
        attempts += [seen(0.1, REFUSED, began_s=100 * cycle + age) for age in range(0, 30, 5)]
        attempts += [seen(2, began_s=100 * cycle + 30 + number) for number in range(20)]
    attempts += [seen(0.1, REFUSED, began_s=300 + age) for age in (0, 5, 9.9)]
    refused: dict[int, int] = dict.fromkeys((311, 325, 331, 335), 0)
    for seed in range(300):
        random = Random(seed)
        found = Attempts.of(attempts, random, Luck(1.0, random.random()))
        for at_s in refused:
            refused[at_s] += found.draw(random, at_s * SECOND_NS, "", 1)[1] is REFUSED

    assert refused[311] > 290
    assert refused[325] > 200
    assert refused[331] < 100
    assert refused[335] < 100


def test_an_answer_that_began_before_a_refusal_does_not_end_the_spell() -> None:
    attempts = [seen(1, began_s=0), *(seen(0.1, REFUSED, began_s=age) for age in range(10, 20))]
    refused = {10: 0, 19: 0}
    for began_s in refused:
        for seed in range(200):
            random = Random(seed)
            found = Attempts.of(attempts, random, Luck(1.0, random.random()))
            found.ended(began_s * SECOND_NS - 1, SERVED, random, "")
            refused[began_s] += found.draw(random, 20 * SECOND_NS, "", 1)[1] is REFUSED

    assert refused[10] > 190
    assert refused[19] < 100


@pytest.mark.parametrize(
    ("began_s", "age_s", "least", "most"),
    [(130.5, 0.05, 190, 200), (130.5, 1, 0, 0), (98, 30, 0, 0), (170, 0.05, 60, 140)],
)
def test_an_attempt_in_flight_is_refused_as_long_as_its_spell_goes_on(
    began_s: float, age_s: float, least: int, most: int
) -> None:
    """Most attempts of late were accepted, which tells nothing of a probe in an outage.

    One that takes longer than any refusal is accepted, and so is one from before the outage.
    """
    attempts = [seen(40, began_s=second) for second in range(50)]
    attempts += [seen(0.1, REFUSED, began_s=second) for second in range(100, 131, 5)]
    refused = 0
    for seed in range(200):
        random = Random(seed)
        found = Attempts.of(attempts, random, Luck(1.0, random.random()))
        began_ns, age_ns = round(began_s * SECOND_NS), round(age_s * SECOND_NS)
        refused += found.draw_rest(random, began_ns, age_ns, "", 1)[1] is REFUSED

    assert least <= refused <= most


def test_a_group_is_refused_by_itself() -> None:
    """Providers count by model: one model's window is used up, and another's calls go on."""
    attempts = []
    for second in range(40):
        attempts.append(seen(0.1, REFUSED if second >= 20 else SERVED, began_s=second, group="used up"))
        attempts.append(seen(0.1, began_s=second + 0.5, group="free"))
    refused = {"used up": 0, "free": 0}
    for seed in range(200):
        random = Random(seed)
        found = Attempts.of(attempts, random, Luck(1.0, random.random()))
        for group in refused:
            refused[group] += found.draw(random, 40 * SECOND_NS, group, 1)[1] is REFUSED

    assert refused["used up"] > 190
    assert refused["free"] == 0


@pytest.mark.parametrize(("power", "least_s", "most_s"), [(0.0, 10, 10), (1.0, 10, 12.5), (2.0, 10, 16)])
def test_answers_are_quicker_with_fewer_at_once(power: float, least_s: float, most_s: float) -> None:
    """Seen with 8, 16 and 32 at once; asked for 8. The fit keeps something back."""
    loads = [8, 16, 32] * 10
    attempts = [seen(10 * (load / 8) ** power, began_s=number, load=load) for number, load in enumerate(loads)]
    random = Random(3)
    found = Attempts.of(attempts, random, Luck(0.99, 0.5))
    drawn = [found.draw(random, 10**15, "", 8)[0] / SECOND_NS for _ in range(50)]

    assert least_s - 0.1 <= min(drawn)
    assert max(drawn) <= most_s + 0.1
    assert all(found.draw_rest(random, 0, 60 * SECOND_NS, "", 8)[0] >= 60 * SECOND_NS for _ in range(50))


@pytest.mark.parametrize(("alike", "least", "most"), [(False, 6, 12), (True, 18, 60)])
def test_the_time_that_many_attempts_take_is_as_uncertain_as_a_slow_stretch_makes_it(
    alike: bool, least: float, most: float
) -> None:
    """Half of the attempts take 1 s and half 3 s, by turns or ten in a row: fifty take 100 s, more or less."""
    order = [1 + 2 * (number // 10 % 2 if alike else number % 2) for number in range(200)]
    attempts = [seen(lasts_s, began_s=number) for number, lasts_s in enumerate(order)]
    sums = []
    for seed in range(200):
        random = Random(seed)
        found = Attempts.of(attempts, random, Luck(1.0, 0.5))
        sums.append(sum(found.draw(random, 10**15, "", 1)[0] for _ in range(50)) / SECOND_NS)
    sums.sort()

    assert sums[100] == pytest.approx(100, abs=6)
    assert least <= sums[179] - sums[100] <= most


def test_luck_is_spread_evenly_over_the_futures_of_an_estimate() -> None:
    lucks = [Luck.of(number, Random("now")) for number in range(24)]
    for part in (0.25, 0.5, 0.75):
        for several in ([one.span for one in lucks], [one.end for one in lucks]):
            assert sum(one < part for one in several) / 24 == pytest.approx(part, abs=0.09)


def test_futures_look_back_over_different_spans() -> None:
    """A provider that was slow for long and is quick now may stay quick, or not."""
    habits = Habits(attempts={"p": [seen(60) for _ in range(200)] + [seen(1) for _ in range(30)]}, gaps_ns=[])
    medians = set()
    for seed in range(30):
        random = Random(seed)
        attempts = habits.drawn(random)["p"]
        drawn = sorted(attempts.draw(random, 0, "", 1)[0] for _ in range(99))
        medians.add(drawn[49] // SECOND_NS)

    assert medians == {1, 60}


def test_nobody_calls_again_who_has_left() -> None:
    gone = Habits(attempts={}, gaps_ns=[5], leaving=1.0)

    assert gone.gap_ns(Random(1), stays=False) is None
    assert gone.gap_ns(Random(1), stays=True) == 5
    assert Habits(attempts={}, gaps_ns=[]).gap_ns(Random(1), stays=True) == 0
