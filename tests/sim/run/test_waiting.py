"""A call that waits: for how long, what its client hears, and who leaves."""

from __future__ import annotations

import attrs

from hivemind_trio.sim import CLIENTS, Amount, Spread, Traits, shifts
from tests.sim.worlds import SECOND, fleet, one_provider, run, scenario

ONE_AT_A_TIME = one_provider("concurrency 1", rest="server { wait silent 2s hold 10s }")


def taking(seconds: int) -> Traits:
    return Traits(latency_mean_ns=seconds * SECOND, latency_sigma_ns=0, concurrency=1)


def test_who_waits_too_long_is_sent_away() -> None:
    figures = run(ONE_AT_A_TIME, scenario(fleet(2, 1), traits=taking(60)))

    assert figures.refused == {"held-too-long": 1}
    assert (figures.lanes["default"].count, figures.lanes["default"].unserved) == (1, 1)
    assert figures.makespan_ns == 60 * SECOND
    assert figures.turns_done == 1


def test_who_is_sent_away_in_time_comes_back_and_after_a_200_of_ours_is_lost() -> None:
    sdk = CLIENTS["anthropic-sdk"]
    plain = run(ONE_AT_A_TIME, scenario(fleet(2, 1, client=sdk), traits=taking(30)))
    streamed = run(ONE_AT_A_TIME, scenario(fleet(2, 1, client=sdk, stream=1.0), traits=taking(30)))

    assert plain.refused == {"held-too-long": 1}
    assert plain.turns_done == 2
    assert plain.makespan_ns == (12 + 30 + 30) * SECOND  # held, told to come back after 30 s, served
    assert streamed.dead == 1
    assert streamed.turns_done == 1


def test_who_has_few_calls_left_is_served_before_its_stream_is_ended() -> None:
    program = one_provider("concurrency 1; objective makespan", rest="server { wait silent 2s hold 28s }")
    sdk = CLIENTS["anthropic-sdk"]
    long = fleet(3, 40, name="long", client=sdk, stream=1.0, says_remaining=Amount(1.0))
    short = fleet(1, 1, name="short", client=sdk, stream=1.0, says_remaining=Amount(1.0), start_ns=Amount(SECOND))

    figures = run(program, scenario(long, short, traits=taking(1)))

    assert figures.dead == 0
    assert figures.loads["short"].wait.max <= 18 * SECOND


def test_a_client_goes_when_it_has_heard_nothing_for_too_long() -> None:
    hasty = attrs.evolve(CLIENTS["none"], silence_ns=5 * SECOND)
    program = one_provider("concurrency 1")
    second = fleet(1, 1, name="second", client=hasty, start_ns=Amount(SECOND))

    figures = run(program, scenario(fleet(1, 2), second, fleet(1, 1, name="third"), traits=taking(10)))

    assert figures.died_of == {"no byte for too long": 1}
    assert figures.attempts == 3, "whoever has left takes nobody's turn"
    assert figures.loads["second"].wait == Spread(unserved=1)
    assert (figures.loads["second"].denied, figures.loads["third"].wait.count) == (0, 1)


def test_a_client_that_goes_while_it_is_served_frees_the_slot() -> None:
    hasty = attrs.evolve(CLIENTS["none"], silence_ns=5 * SECOND)
    figures = run(
        one_provider("concurrency 1"), scenario(fleet(1, 1, client=hasty), fleet(1, 1, name="other"), traits=taking(8))
    )

    assert figures.dead == 1
    assert figures.makespan_ns == (5 + 8) * SECOND
    assert figures.tokens_wasted == 50


def test_the_shortest_of_several_alarms_is_the_one_that_rings() -> None:
    # One waits for a minute's quota, then others for shorter things: nobody is late (the audit holds it).
    program = one_provider("concurrency 2", "limits { requests 30/min }", rest="lane quick { deadline 1s }")
    figures = run(program, scenario(fleet(8, 3), traits=Traits(resets=0.3)))

    assert figures.dead == 0


def test_waits_are_of_served_calls_and_rejected_ones_stand_beside_them() -> None:
    program = one_provider("concurrency 1", rest="lane default { queue 1 }")

    figures = run(program, scenario(fleet(8, 1), traits=taking(10)))

    assert figures.refused == {"queue-full": 6}
    for waits in (figures.wait, figures.lanes["default"], figures.loads["worker"].wait):
        assert (waits.count, waits.p50, waits.max) == (2, 0, 10 * SECOND)
        assert (waits.unserved, waits.unserved_share) == (6, 0.75)


def test_a_lane_that_served_no_call_has_no_wait() -> None:
    program = one_provider("concurrency 1", rest='rule no { deny "no" }')

    figures = run(program, scenario(fleet(3, 1), traits=taking(10)))

    assert figures.lanes["default"] == Spread(unserved=3)
    (waits,) = [shift for shift in shifts([figures], [figures]) if shift.metric.name == "lane default, wait p95"]
    assert waits.before is None
