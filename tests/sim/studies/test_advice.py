"""What to change: which single limit made calls wait."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from hivemind_trio.sim import AdviceStudy, Fleet, OutOfTime, Traits, advise, lifts
from tests.sim.worlds import SECOND, compiled, fleet, one_provider, scenario

SLOW = Traits(latency_mean_ns=4 * SECOND, latency_sigma_ns=0, concurrency=12)


def busy(**more: object) -> Fleet:
    return fleet(8, 3, **more)


def studied(policy: str, *fleets: Fleet, told: Callable[[int, int, int], None] | None = None) -> AdviceStudy:
    program = one_provider("concurrency 12", rest=policy)
    return advise(program, scenario(*(fleets or (busy(),)), traits=SLOW), [1, 2], told)


def test_the_limit_that_made_calls_wait_is_named_and_no_other() -> None:
    policy = "lane default { max 2 }\nlane other { max 1 }\nagent ci { token env(T); concurrency 1 }"
    found = studied(policy, busy(identities=()))

    assert [one.lift.change for one in found.advice] == ["max 3 instead of 2 in lane default"]
    gain = found.advice[0].gains[0]
    assert (gain.lane, found.advice[0].losses) == ("default", ())
    assert gain.after.p95_ns < gain.before.p95_ns == found.lanes["default"].p95_ns
    assert (found.tried, found.together) == (found.lifts, False)


def test_a_rate_limit_is_named_though_the_slowest_calls_still_wait_for_a_whole_window() -> None:
    program = one_provider("concurrency 12; limits { requests 20/min }")
    found = advise(program, scenario(fleet(12, 3), traits=attrs.evolve(SLOW, latency_mean_ns=SECOND)), [1, 2])

    changes = [one.lift.change for one in found.advice]
    assert changes == ["limits of 30 requests per minute instead of 20 requests per minute at provider anthropic"]
    gain = found.advice[0].gains[0]
    assert gain.is_of_mean
    assert gain.after.mean_ns < 0.8 * gain.before.mean_ns


def test_where_the_provider_takes_no_more_nothing_of_the_policy_helps() -> None:
    program = one_provider("concurrency 12", rest="lane default { max 100 }")
    found = advise(program, scenario(busy(), traits=attrs.evolve(SLOW, concurrency=1)), [1])

    assert found.calls_wait
    assert (found.advice, found.together) == ((), False)


def test_two_limits_that_hold_the_same_calls_help_only_together() -> None:
    found = studied("lane default { max 2 }\nagent ci { token env(T); concurrency 2 }", busy(identities=("ci",)))

    assert (found.advice, found.together) == ((), True)


def test_where_nobody_waits_nothing_is_tried() -> None:
    found = studied("lane default { max 100 }", fleet(2, 1))

    assert (found.calls_wait, found.tried) == (False, 0)
    assert found.lifts > 0


def test_who_has_enough_keeps_what_was_found_until_then() -> None:
    calls = 0

    def told(*_: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise OutOfTime

    found = studied("lane default { max 2 }\nlane other { max 3 }", told=told)

    assert 0 < found.tried < found.lifts


EVERY = """
provider anthropic { key env(K); concurrency 2..8; limits { requests 100/min; input 40k/min } }
provider openai { account a { key env(A); concurrency 4 }; account b { key env(B); concurrency 6 } }
lane default { max 25% }
lane people { reserve 2 }
agent ci { token env(T); lane people; concurrency 3; limits { requests 10/min } }
"""
CHANGES = (
    ("max 25%", "max 38%"),
    ("reserve 2", "reserve 0"),
    ("concurrency 3", "concurrency 5"),
    ("requests 10/min", "requests 15/min"),
    ("2..8", "2..12"),
    ("requests 100/min", "requests 150/min"),
    ("input 40k/min", "input 60k/min"),
    ("concurrency 4 }", "concurrency 6 }"),
    ("concurrency 6", "concurrency 9"),
)
"""Each lift as an operator would write it."""


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_lift_is_the_policy_with_that_change(number: int) -> None:
    lifted, changed = list(lifts(compiled(EVERY)))[number].program, compiled(EVERY.replace(*CHANGES[number], 1))

    for table in ("lanes", "agents", "unknown", "providers", "pools"):
        assert getattr(lifted, table) == getattr(changed, table), table


@pytest.mark.parametrize(
    ("was", "becomes"), [("limits { requests 6/min }", "limits { requests 9/min }"), ("concurrency 1", "concurrency 2")]
)
def test_what_is_promised_of_an_agents_limit_is_what_the_changed_policy_does(was: str, becomes: str) -> None:
    policy = f"agent ci {{ token env(T); {was} }}"
    work = busy(identities=("ci",))
    found = studied(policy, work)
    really = studied(policy.replace(was, becomes), work)

    (advice,) = found.advice
    (gain,) = advice.gains
    assert gain.before == found.lanes["default"]
    assert gain.after == really.lanes["default"]
    assert gain.after.p95_ns < gain.before.p95_ns


def test_every_limit_of_a_policy_is_lifted_alone() -> None:
    program = compiled(EVERY)
    changes = [one.change for one in lifts(program)]

    assert changes == [
        "max 38% instead of 25% in lane default",
        "no reserve instead of 2 in lane people",
        "concurrency 5 instead of 3 of agent ci",
        "limits of 15 requests per minute instead of 10 requests per minute of agent ci",
        "concurrency 12 instead of 8 at provider anthropic",
        "limits of 150 requests per minute instead of 100 requests per minute at provider anthropic",
        "limits of 60,000 input tokens per minute instead of 40,000 input tokens per minute at provider anthropic",
        "concurrency 6 instead of 4 of account a at provider openai",
        "concurrency 9 instead of 6 of account b at provider openai",
    ]
    for one in lifts(program):
        assert one.program.decide is program.decide
        tables = ("lanes", "agents", "unknown", "providers")
        assert sum(getattr(one.program, name) != getattr(program, name) for name in tables) == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_work_has_the_same_advice(seed: int) -> None:
    program = one_provider("concurrency 2")
    of = scenario(busy(), traits=SLOW)

    assert advise(program, of, [seed]).lanes == advise(program, of, [seed]).lanes
