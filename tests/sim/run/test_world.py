"""Whole runs: what a policy makes of a fleet, both ways, and that one seed is one story."""

from __future__ import annotations

import statistics

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import Program
from hivemind_trio.scheduler import REMAINING
from hivemind_trio.sim import (
    CLIENTS,
    Acceleration,
    Amount,
    Arrivals,
    Counting,
    Effort,
    Efforts,
    Fleet,
    Neighbour,
    Quota,
    Shape,
    Storm,
    Traits,
    UpstreamSpec,
    Wave,
    Way,
    Weather,
)
from hivemind_trio.sim.scenario.population import populate
from tests.sim.worlds import MS, SECOND, fleet, one_provider, per_minute, run, scenario

FAULTY = Traits(concurrency=3, requests=per_minute(60, counting=Counting.FIXED), bad_gateways=0.08, resets=0.05)
MATCHING = one_provider("concurrency 3", "limits { requests 60/min }")


def test_what_a_fleet_dies_of_alone_it_survives_behind_a_policy_that_knows_the_provider() -> None:
    world = scenario(fleet(11, 6), traits=FAULTY)

    direct, proxied = run(MATCHING, world, way=Way.DIRECT), run(MATCHING, world)

    assert direct.dead > 5
    assert direct.tokens_wasted > 0
    assert (proxied.dead, proxied.turns_done, proxied.tokens_wasted, proxied.limited) == (0, 66, 0, 0)
    assert proxied.attempts_wasted == sum(proxied.met.values()) > 0
    assert proxied.over_bound is not None
    assert 1 <= proxied.over_bound < 1.3


@pytest.mark.parametrize("way", Way)
def test_the_same_seed_is_the_same_story_and_another_one_is_not(way: Way) -> None:
    world = scenario(fleet(6, 5, stream=0.5, client=CLIENTS["claude-code"]), traits=FAULTY)

    assert run(MATCHING, world, way=way) == run(MATCHING, world, way=way, audit=False)
    assert run(MATCHING, world, way=way, seed=8).makespan_ns != run(MATCHING, world, way=way).makespan_ns


def test_both_ways_have_the_same_work_before_them() -> None:
    world = scenario(fleet(4, 3), traits=Traits())

    direct, proxied = run(MATCHING, world, way=Way.DIRECT), run(MATCHING, world)

    assert direct.tokens == proxied.tokens
    assert direct.bound_ns == proxied.bound_ns
    assert direct.dead == proxied.dead == 0


def test_a_fleet_that_nothing_holds_up_takes_as_long_as_its_longest_chain() -> None:
    program = one_provider("concurrency 100")
    world = scenario(fleet(4, 5), traits=Traits())

    figures = run(program, world)

    assert figures.bound_binds == "chain"
    assert figures.makespan_ns == figures.bound_ns
    assert figures.lanes["default"].max == 0


SHARES = st.sampled_from([0.0, 0.0, 0.1, 0.3])
SPANS = st.tuples(st.integers(0, 20), st.integers(1, 20)).map(lambda span: (span[0] * SECOND, sum(span) * SECOND))
QUOTAS = st.none() | st.builds(
    Quota,
    limit=st.integers(4, 200),
    window_ns=st.sampled_from([SECOND, 10 * SECOND, 60 * SECOND]),
    counting=st.sampled_from(Counting),
    lazy=st.booleans(),
)
TOKENS = st.none() | st.builds(Quota, limit=st.integers(1_500, 20_000), counting=st.sampled_from(Counting))
STORMS = st.builds(
    lambda span, share, weather: Storm(from_ns=span[0], to_ns=span[1], share=share, weather=weather),
    SPANS,
    st.sampled_from([0.5, 1.0]),
    st.sampled_from(Weather),
)
TRAITS = st.builds(
    Traits,
    latency_mean_ns=st.sampled_from([50 * MS, 2 * SECOND]),
    latency_shape=st.sampled_from(Shape),
    slowdown=st.sampled_from([0.0, 0.2]),
    spikes=SHARES,
    concurrency=st.none() | st.integers(1, 4),
    requests=QUOTAS,
    input=TOKENS,
    output=TOKENS,
    tokens=TOKENS,
    refusals_count=st.booleans(),
    cache_ns=st.sampled_from([0, 60 * SECOND]),
    neighbours=st.lists(
        st.builds(lambda span: Neighbour(from_ns=span[0], to_ns=span[1], share=0.3), SPANS), max_size=1
    ).map(tuple),
    acceleration=st.none() | st.just(Acceleration()),
    says_retry_after_ns=st.none() | st.just(SECOND),
    bad_gateways=SHARES,
    resets=SHARES,
    breaks=SHARES,
    stalls=st.sampled_from([0.0, 0.1]),
    hangs=st.sampled_from([0.0, 0.1]),
    hang_wave=st.none() | st.just(Wave(amplitude=0.1, period_ns=30 * SECOND)),
    storms=st.lists(STORMS, max_size=2).map(tuple),
)
FLEETS = st.builds(
    fleet,
    count=st.integers(1, 6),
    turns=st.integers(1, 4),
    start_ns=st.just(Amount(SECOND, SECOND)),
    arrive=st.none() | st.just(Arrivals(per_second=0.5, for_ns=10 * SECOND)),
    tokens_in=st.sampled_from([Amount(50), Amount(400, 300)]),
    grows=st.sampled_from([0, 100]),
    tokens_max_out=st.sampled_from([100, 1_024]),
    stream=st.sampled_from([0.0, 0.5, 1.0]),
    client=st.sampled_from(list(CLIENTS.values())),
)
POLICIES = st.sampled_from(
    [
        MATCHING,
        one_provider("concurrency 1..6 start 4", "timeout connect 1s first-byte 3s idle 2s total 20s"),
        one_provider("concurrency 4", "breaker trip 50% of 3 over 10s open 2s", "open refuse"),
        one_provider("limits { requests 20/min; tokens 9k/min }", rest="server { wait silent 2s hold 10s }"),
        one_provider(
            "concurrency 4",
            'limits "claude-*" { concurrency 3 }',
            rest="lane slow { max 2 }\nagent ci { concurrency 1; lane slow }\nagent me { token env(ME) }",
        ),
    ]
)


EFFORTS = st.none() | st.just(
    Efforts(proxy=Effort(call_ns=3 * MS, first_ns=MS, event_ns=MS), others=Effort(call_ns=40 * MS), wire_ns=MS)
)


@pytest.mark.slow
@given(
    policy=POLICIES,
    one=FLEETS,
    other=FLEETS,
    traits=TRAITS,
    efforts=EFFORTS,
    seed=st.integers(0, 99),
    way=st.sampled_from(Way),
)
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_the_invariants_hold_and_no_run_beats_its_bound_whatever_the_world(
    policy: Program, one: Fleet, other: Fleet, traits: Traits, efforts: Efforts | None, seed: int, way: Way
) -> None:
    world = scenario(one, attrs.evolve(other, name="other"), traits=traits)

    figures = run(policy, world, way=way, seed=seed, efforts=efforts)

    assert figures.undone == 0, "every agent comes to an end"
    assert sum(figures.died_of.values()) == figures.dead
    assert figures.attempts >= figures.turns_done
    assert 0 <= figures.tokens_wasted <= figures.tokens
    assert figures.turns_done < figures.turns or figures.dead == 0
    if figures.turns_done == figures.turns:
        assert figures.makespan_ns >= figures.bound_ns


@pytest.mark.parametrize(("client", "calls"), [("none", 1), ("anthropic-sdk", 3), ("codex", 5), ("claude-code", 11)])
def test_a_client_asks_as_often_as_its_kind_does_and_its_agent_dies(client: str, calls: int) -> None:
    outage = Storm(from_ns=0, to_ns=3_600 * SECOND, share=1.0, weather=Weather.OUTAGE)
    world = scenario(fleet(1, 2, client=CLIENTS[client]), traits=Traits(storms=(outage,)))

    figures = run(MATCHING, world, way=Way.DIRECT)

    assert (figures.calls, figures.attempts, figures.dead) == (calls, calls, 1)


@pytest.mark.parametrize("stream", [0.0, 1.0], ids=["plain", "streamed"])
def test_a_quota_that_no_policy_declares_is_learned_from_what_answers_tell(stream: float) -> None:
    silent = one_provider("concurrency 8")
    busy = scenario(fleet(12, 10, stream=stream), traits=Traits(requests=per_minute(60), refusals_count=True))

    heard = run(silent, busy)
    deaf = run(
        silent,
        attrs.evolve(busy, upstreams=(UpstreamSpec(traits=attrs.evolve(busy.upstreams[0].traits, tells=False)),)),
    )

    assert heard.dead == 0
    assert heard.limited == 0 < deaf.limited


def test_an_outage_shorter_than_calls_are_held_is_survived() -> None:
    dark = Storm(from_ns=30 * SECOND, to_ns=210 * SECOND, share=1.0, weather=Weather.UNREACHABLE)
    sdk = fleet(16, 6, stream=1.0, client=CLIENTS["anthropic-sdk"], think_ns=Amount(8 * SECOND))
    world = scenario(sdk, traits=Traits(latency_mean_ns=2 * SECOND, latency_sigma_ns=SECOND // 2, storms=(dark,)))

    figures = run(one_provider("concurrency 8"), world)

    assert figures.dead == 0
    assert figures.turns_done == figures.turns


@pytest.mark.parametrize(("says", "spread"), [(None, None), (Amount(1.0), 0.0), (Amount(1, 0.6, Shape.LOGNORMAL), 0.6)])
def test_agents_say_how_many_calls_remain_as_well_as_they_know(says: Amount | None, spread: float | None) -> None:
    program = one_provider()
    of = scenario(fleet(400, 9, says_remaining=says))

    said = [
        [living.request(program, of, turn, 0).headers.get(REMAINING) for turn in living.agent.job.turns]
        for living in populate(program, of, 3)
    ]

    if spread is None:
        assert all(one == [None] * 9 for one in said)
        return
    wrong = [int(one[0] or 0) / 9 for one in said]
    assert statistics.stdev(wrong) == pytest.approx(spread, abs=0.2)
    assert all(one == [str(max(1, round(left * living.misjudges))) for left in range(9, 0, -1)]
               for one, living in zip(said, populate(program, of, 3), strict=True)
               if living.misjudges is not None)  # fmt: skip
    assert all(one[-1] == "1" for one in said) is (spread == 0)


def test_a_long_retry_after_is_a_standstill_of_seconds() -> None:
    """The audit fails a run in which calls wait in line and nobody goes for more than 20 s."""
    lies = Traits(requests=per_minute(5), says_retry_after_ns=60 * SECOND)

    figures = run(one_provider("concurrency 4"), scenario(fleet(count=8, turns=1), traits=lies))

    assert figures.dead == figures.undone == 0
