"""Spells of failure: what is one, how long the one of now goes on, and whose word is believed."""

from __future__ import annotations

from random import Random
from statistics import median

import attrs
import pytest

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.sim import SeenAttempt
from hivemind_trio.sim.forecast.spells import USUAL_NS, SpellLength, Spells

from .habits import REFUSED, SECOND_NS, seen

BROKEN = AttemptResult(outcome=Outcome.FAILED, status=200, committed=True)


def ends_s(spells: Spells, number: int = 2_001) -> list[float]:
    return sorted(spells.end_ns(Random(seed)) / SECOND_NS for seed in range(number))


def refused(began_s: float, after_s: float | None = None) -> SeenAttempt:
    said_ns = None if after_s is None else round(after_s * SECOND_NS)
    return seen(0, attrs.evolve(REFUSED, retry_after_ns=said_ns), began_s=began_s)


def test_a_spell_is_from_the_first_refusal_to_the_next_attempt_that_is_accepted() -> None:
    spells = Spells.of(
        [
            seen(2, began_s=0),
            seen(0.1, REFUSED, began_s=1),
            seen(5, began_s=1),  # it was under way when the refusal came
            seen(0.1, REFUSED, began_s=4),
            seen(3, None, began_s=5),
            seen(1, BROKEN, began_s=8),  # it was accepted
            seen(1, began_s=9),
            seen(0.1, REFUSED, began_s=20),
            seen(0.5, REFUSED, began_s=22),
        ]
    )

    assert spells.lengths == [SpellLength(3 * SECOND_NS, 7 * SECOND_NS)]
    assert (spells.began_ns, spells.lasted_ns) == (20 * SECOND_NS, round(2.5 * SECOND_NS))
    assert spells.often == pytest.approx(2 / 7)


@pytest.mark.parametrize("lasted_s", [0, 5, 60, 600])
def test_a_first_spell_lasts_as_long_again_with_even_odds(lasted_s: int) -> None:
    found = ends_s(Spells.of([seen(1), refused(100), refused(100 + lasted_s)]))

    assert median(found) == pytest.approx(100 + 2 * lasted_s + USUAL_NS / SECOND_NS, rel=0.1)
    assert found[0] >= 100 + lasted_s


def test_spells_of_late_tell_of_the_one_of_now_unless_it_has_outlasted_them() -> None:
    past = []
    for cycle in range(9):
        past += [refused(100 * cycle), refused(100 * cycle + 39), seen(1, began_s=100 * cycle + 40)]
    young = ends_s(Spells.of([*past, refused(1_000), refused(1_030)]))
    old = ends_s(Spells.of([*past, refused(1_000), refused(1_050)]))

    assert 1_039 < median(young) < 1_040
    assert sum(1_039 <= end <= 1_040 for end in young) / len(young) > 0.88
    assert old[0] >= 1_050


@pytest.mark.parametrize(
    ("before", "is_true"),
    [
        ([], True),
        ([refused(0, 30), seen(1, began_s=30)], True),
        ([refused(0, 30), seen(1, began_s=3)], False),
        ([refused(0, 5), refused(20, 5), seen(1, began_s=30)], False),
    ],
)
def test_a_named_end_is_believed_until_one_was_wrong(before: list[SeenAttempt], is_true: bool) -> None:
    spells = Spells.of([*before, refused(100, 17)])
    found = ends_s(spells)

    assert spells.is_true is is_true
    assert (found.count(117) > 500) is is_true


def test_a_spell_ended_between_the_last_refusal_and_the_next_attempt() -> None:
    """The second one came 60 s later because it had to wait, and shows no spell of 60 s."""
    spells = Spells.of([refused(0), refused(2), seen(1, began_s=60)])
    drawn = sorted(spells.length_ns(Random(seed)) / SECOND_NS for seed in range(400))

    assert 2 <= drawn[0] < 4
    assert 58 < drawn[-1] <= 60
    assert median(drawn) == pytest.approx(31, abs=4)
    assert SpellLength(2, 60).draw_ns(Random(1), 59) in (59, 60), "of one that has lasted for so long"


def test_an_answer_that_has_begun_ends_a_spell() -> None:
    """Answers take their time: the spell is over when one has begun, and not only when one has ended."""
    before = [refused(0), refused(5)]

    assert Spells.of([*before, seen(3, None, began_s=9)]).began_ns == 0
    assert Spells.of([*before, seen(3, None, began_s=9, begun=True)]).began_ns is None
    assert Spells.of([*before, seen(3, None, began_s=9, begun=True)]).often == pytest.approx(1 / 3)


def test_another_spell_is_as_long_as_one_that_was_seen() -> None:
    spells = Spells.of([refused(0), refused(7), seen(1, began_s=7), refused(50), refused(59), seen(1, began_s=59)])

    assert {spells.length_ns(Random(seed)) for seed in range(50)} == {7 * SECOND_NS, 9 * SECOND_NS}


@pytest.mark.parametrize(("luck", "end_s"), [(0.0, 140), (0.4, 117), (0.9, 123.3)])
def test_luck_decides_whose_evidence_is_believed(luck: float, end_s: float) -> None:
    """A spell of 40 s, the provider's word of 17 s, and that of somebody who knows nothing."""
    spells = Spells.of([refused(0), refused(40), seen(1, began_s=40), refused(100, 17)])

    assert spells.end_ns(Random(1), luck) == pytest.approx(end_s * SECOND_NS, rel=0.01)
