"""From what happens to a file, and from the file to agents that do it again: nothing is lost on the way.

A world of the simulator is overheard as the engine of a proxy would be, written down, read, and run again. Under the
same policy the same calls wait for as long as they did, to the nanosecond, for the scheduler is the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, RecordedCall
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import Command, Event
from hivemind_trio.sim import (
    CLIENTS,
    Amount,
    Counting,
    Figures,
    Fleet,
    Quota,
    Scenario,
    Traits,
    UpstreamSpec,
    World,
    recorded_fleets,
)
from hivemind_trio.store import open_journal, read_journal
from tests.sim.worlds import MS, SECOND, compiled

from .drawn import calls

POLICIES = (
    "provider anthropic { key env(K); concurrency 2 }",
    "provider anthropic { key env(K); concurrency 5; limits { requests 30/min } }",
    "provider anthropic { key env(K); concurrency 4; limits { input 20k/min; output 3k/min } }",
    """
    provider anthropic { key env(K); concurrency 3 }
    lane people { weight 4; reserve 1 }
    lane batch { weight 1; max 2; aging 1 every 3s }
    agent ci { lane batch }
    agent me { lane people }
    """,
)


def recorded(program: Program, scenario: Scenario, path: str) -> tuple[Figures, tuple[RecordedCall, ...]]:
    """What comes of it, and what a journal has of it."""
    noted: list[tuple[int, Event, Sequence[Command]]] = []

    def note(now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        noted.append((now_ns, event, tuple(commands)))

    figures = World(program, scenario, 7, observe=note).run()

    async def write() -> None:
        async with open_journal(path, on_trouble=print) as journal:
            journal.began("0", program.hash, 0)
            for now_ns, event, commands in noted:
                journal.record(now_ns, event, commands)

    trio.run(write)
    return figures, read_journal(path)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Fleet, ...]:
    found = []
    for place, name in enumerate(draw(st.sampled_from([("ci",), ("ci", "me")]))):
        found.append(
            Fleet(
                name=name,
                count=draw(st.integers(1, 5)),
                turns=Amount(draw(st.integers(1, 4))),
                # A record begins with its first call; were that later, whole seconds in headers would be others.
                start_ns=Amount(place * SECOND, place * SECOND),
                think_ns=Amount(draw(st.integers(0, 3)) * SECOND, draw(st.sampled_from([0, 100 * MS]))),
                identities=(name,) if draw(st.booleans()) else (),
                tokens_in=Amount(draw(st.sampled_from([50, 2_000]))),
                stream=draw(st.sampled_from([0.0, 0.5, 1.0])),
                client=CLIENTS[draw(st.sampled_from(["claude-code", "openai-sdk"]))],
                models=("claude-sonnet-4-5",),
            )
        )
    return tuple(found)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(policy=st.sampled_from(POLICIES), of=fleets(), latency_s=st.sampled_from([0.2, 2, 8]))
def test_what_was_overheard_and_is_done_again_is_the_same(
    policy: str, of: tuple[Fleet, ...], latency_s: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = compiled(policy)
    traits = Traits(latency_mean_ns=round(latency_s * SECOND), latency_sigma_ns=round(latency_s / 3 * SECOND))
    scenario = Scenario(fleets=of, upstreams=(UpstreamSpec(traits=traits, as_declared=True),))

    before, found = recorded(program, scenario, str(tmp_path_factory.mktemp("j") / "j"))
    after = World(program, Scenario(fleets=recorded_fleets(found, client=CLIENTS["claude-code"])), 1, audit=True).run()

    assert (after.calls, after.dead, after.tokens) == (before.calls, before.dead, before.tokens)
    assert after.lanes == before.lanes
    assert after.makespan_ns == before.makespan_ns


FAILING = Traits(
    latency_mean_ns=SECOND,
    latency_sigma_ns=SECOND // 3,
    bad_gateways=0.2,
    resets=0.1,
    breaks=0.1,
    requests=Quota(limit=60, counting=Counting.FIXED),
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(policy=st.sampled_from(POLICIES), of=fleets())
def test_of_a_bad_day_each_turn_is_made_again_once(
    policy: str, of: tuple[Fleet, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = compiled(policy)
    scenario = Scenario(fleets=of, upstreams=(UpstreamSpec(traits=FAILING),))

    before, found = recorded(program, scenario, str(tmp_path_factory.mktemp("j") / "j"))
    again = recorded_fleets(found)
    turns = [turn for fleet in again for job in fleet.recorded for turn in job.turns]

    assert len(found) == before.calls
    # Of a turn that its client asked for again, one; whether a stream broke or its whole answer failed.
    assert before.turns_done <= len(turns) <= before.calls
    assert {turn.recorded.again for turn in turns if turn.recorded} == {call.again for call in found}
    good = sum(any(each.outcome is Outcome.SUCCEEDED for each in call.attempts) for call in found)
    assert good == before.turns_done
    after = World(program, Scenario(fleets=again), 1, audit=True).run()
    assert (after.turns_done, after.dead, after.attempts) == (len(turns), 0, len(turns))


@pytest.mark.slow
@settings(max_examples=40)
@given(told=calls())
def test_every_call_is_in_one_turn_and_no_chain_overlaps_itself(told: list[RecordedCall]) -> None:
    jobs = [job for fleet in recorded_fleets(told) for job in fleet.recorded]

    firsts = Counter(id(turn.recorded) for job in jobs for turn in job.turns)
    wanted = [call for call in told if call.needs_slot]
    assert set(firsts.values()) <= {1}
    assert firsts.keys() <= {id(call) for call in wanted}
    resent = [call for call in wanted if id(call) not in firsts]
    assert all(call.again and any(one.again == call.again for one in wanted if id(one) in firsts) for call in resent)
    for job in jobs:
        assert all(turn.think_ns >= 0 for turn in job.turns)
        first = job.turns[0].recorded
        assert first is not None
        assert job.turns[0].think_ns == first.arrived_ns
        assert len({(turn.recorded.caller, turn.recorded.job) for turn in job.turns if turn.recorded}) == 1
