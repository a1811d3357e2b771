"""The sentences that a simulation begins with."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from hivemind_trio.cli.simulate.timeline import sparks
from hivemind_trio.cli.simulate.verdict import difference_said, fate, verdict
from hivemind_trio.cli.simulate.words import number
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.sim import Figures, Pair, Scenario, parse_scenario, study

POLICY = b"provider anthropic { key env(K); concurrency 3 }"


@pytest.fixture(scope="module")
def whole() -> Pair:
    """Four agents of two turns each, of which nothing went wrong."""
    program = check("p.hmp", MemoryFiles({"p.hmp": POLICY})).program
    assert program is not None
    scenario = parse_scenario("[[agents]]\ncount = 4\nturns = 2\n[[upstream]]\nconcurrency = 4\n", name="s")
    return next(study(program, scenario, [1]))


def spending(pair: Pair, dollars: Sequence[float]) -> list[Pair]:
    return [
        attrs.evolve(pair, proxy=attrs.evolve(pair.proxy, cost_microusd=round(each * 1e6), tokens_wasted=wasted))
        for each, wasted in zip(dollars, (0, 1, 0), strict=True)
    ]


def test_only_what_differs_for_certain_is_said_to_differ(whole: Pair) -> None:
    old, dearer = spending(whole, (1, 2, 3)), spending(whole, (2.1, 3.0, 4.0))
    dearer = [
        attrs.evolve(each, proxy=attrs.evolve(each.proxy, tokens_wasted=wasted))
        for each, wasted in zip(dearer, (9_000, 0, 0), strict=True)
    ]

    *_, said = difference_said("old", old, "new", dearer)
    assert said == "With new instead of old $1.03 more is spent. What else differs may be chance."
    *_, back = difference_said("new", dearer, "old", old)
    assert "$1.03 less is spent" in back
    *_, luck = difference_said("old", old, "new", spending(whole, (3, 2, 1)))
    assert luck.startswith("What differs may be chance")
    *_, one = difference_said("old", old[:1], "new", dearer[:1])
    assert one.startswith("One seed cannot separate")


def died(figures: Figures, **of: int) -> Figures:
    causes = {"held-too-long": of.get("held", 0), "529 overloaded_error": of.get("overload", 0)}
    return attrs.evolve(figures, agents=400, dead=sum(of.values()), died_of={k: n for k, n in causes.items() if n})


@pytest.mark.parametrize(
    ("deaths", "said"),
    [
        ([{}, {}], "Yes: all 400 agents get through on each of 2 seeds, in 1."),
        ([{}], "Yes: all 400 agents get through, in 1."),
        ([{"held": 2}, {"held": 1}], "Almost: 1.50 of 400 agents die, all of waits longer than their clients'; 2 on"),
        ([{"overload": 9, "held": 1}], "No: 10 of 400 agents die, most of 529 overloaded_error."),
    ],
    ids=["nobody", "nobody on one seed", "hardly anybody", "many"],
)
def test_who_dies_is_said_and_of_what(whole: Pair, deaths: list[dict[str, int]], said: str) -> None:
    assert fate([died(whole.proxy, **each) for each in deaths]).startswith(said)


def test_of_nobody_nothing_is_said(whole: Pair) -> None:
    assert (
        fate([attrs.evolve(whole.proxy, agents=0, turns=0, turns_done=0)]) == "No agents in this scenario; no results."
    )


def test_429s_are_set_against_those_that_would_have_been_met(whole: Pair) -> None:
    pair = attrs.evolve(whole, direct=attrs.evolve(whole.direct, limited=40), proxy=whole.proxy)

    assert verdict([pair], Scenario())[-1] == "429s met: 0 instead of 40."
    assert verdict([whole], Scenario())[-1] == "Directly at the providers none would die."


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0, "s", "0 s"),
        (1e-5, "s", "<1 ms"),
        (0.012, "s", "12 ms"),
        (99.94, "s", "99.9 s"),
        (1_234, "s", "1,234 s"),
        (0.004, "$", "$0.00"),
        (1_234.5, "$", "$1,234.50"),
        (2, "", "2"),
        (2.5, "", "2.50"),
        (25.25, "", "25.2"),
        (-2_500.4, "", "-2,500"),
    ],
    ids=str,
)
def test_a_number_has_about_three_digits(value: float, unit: str, said: str) -> None:
    assert number(value, unit) == said


def test_blocks_are_as_high_as_their_part_of_the_most_and_little_can_still_be_seen() -> None:
    assert sparks([0, 1, 50, 100], 100) == " ▁▄█"
    assert sparks([0, 0], 0) == "  "
