"""The lower bound against fleets that are driven through the provider itself, quotas included."""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import (
    Acceleration,
    Accepted,
    AgentJob,
    Amount,
    Counting,
    Fleet,
    Neighbour,
    Provider,
    Quota,
    Refused,
    Traits,
    Trouble,
    Turn,
    lower_bound,
)

SECOND = 1_000_000_000

BURSTS = st.none() | st.integers(300, 2_000)


def jobs(agents: int, turns: int, seed: int = 7) -> list[AgentJob]:
    return [AgentJob.draw(str(n), seed=seed, turns=turns, start_max_ns=0, think_ns=(0, SECOND)) for n in range(agents)]


def makespan_ns(fleet: list[AgentJob], traits: Traits, seed: int, chance: Random | None = None) -> int:
    """Every agent asks as soon as it can, and again when a quota lets it or a slot is free.

    Args:
        chance: Some ask later than they could, and who goes first of several is anybody's guess.
    """
    provider = Provider(traits=traits, seed=seed)
    end_ns = 0

    def at(now_ns: int, number: int, index: int) -> tuple[int, float, int, int]:
        if chance is not None and chance.random() < 0.2:
            now_ns += chance.randrange(20 * SECOND)
        return now_ns, 0 if chance is None else chance.random(), number, index

    due = [at(job.turns[0].think_ns, number, 0) for number, job in enumerate(fleet)]
    leaving: list[tuple[int, int, int, Accepted]] = []
    heapq.heapify(due)
    for _step in range(20_000):
        if not due and not leaving:
            return end_ns
        if leaving and (not due or leaving[0][0] <= due[0][0]):
            now_ns, number, index, accepted = heapq.heappop(leaving)
            provider.generate(accepted, accepted.service.tokens_out, now_ns)
            provider.leave(accepted, now_ns)
            end_ns = now_ns
            if index + 1 < len(fleet[number].turns):
                heapq.heappush(due, at(now_ns + fleet[number].turns[index + 1].think_ns, number, index + 1))
            continue
        now_ns, _, number, index = heapq.heappop(due)
        answer = provider.arrive(fleet[number].turns[index].ask, now_ns)
        if isinstance(answer, Accepted):
            heapq.heappush(leaving, (now_ns + answer.service.latency_ns, number, index, answer))
        else:
            assert isinstance(answer, Refused)
            again_ns = again(answer, traits, now_ns, leaving[0][0] if leaving else now_ns + 1)
            heapq.heappush(due, (again_ns, 0 if chance is None else chance.random(), number, index))
    pytest.fail("who waited as long as told was never let in")


def again(refused: Refused, traits: Traits, now_ns: int, left_ns: int) -> int:
    """When to ask again: not too late, by any means."""
    if refused.trouble is Trouble.ACCELERATION:
        return now_ns + SECOND // 50
    if refused.trouble is Trouble.OUTAGE:
        return min(to_ns for _, to_ns in traits.outages if to_ns > now_ns)
    # A slot is free when the next one leaves; a quota is when it says.
    return left_ns if refused.retry_after_ns is None else now_ns + refused.retry_after_ns


@pytest.mark.slow
@given(
    agents=st.integers(1, 5),
    turns=st.integers(1, 4),
    cap=st.none() | st.integers(1, 4),
    requests=st.none() | st.builds(Quota, limit=st.integers(10, 200), burst=st.none() | st.integers(1, 10)),
    tokens_in=st.none() | st.builds(Quota, limit=st.integers(300, 4_000), burst=BURSTS),
    tokens_out=st.none() | st.builds(Quota, limit=st.integers(300, 4_000), burst=BURSTS),
    seed=st.integers(0, 20),
)
@settings(max_examples=80)
def test_no_fleet_beats_the_bound_whatever_is_limited(
    agents: int,
    turns: int,
    cap: int | None,
    requests: Quota | None,
    tokens_in: Quota | None,
    tokens_out: Quota | None,
    seed: int,
) -> None:
    traits = Traits(concurrency=cap, requests=requests, input=tokens_in, output=tokens_out)
    fleet = jobs(agents, turns, seed)

    bound = lower_bound(fleet, traits, seed)

    assert makespan_ns(fleet, traits, seed) >= bound.ns >= max(bound.chain_ns, bound.concurrency_ns)


def windows(limits: st.SearchStrategy[int]) -> st.SearchStrategy[Quota | None]:
    """None at all, or counted anyhow."""
    return st.none() | st.builds(
        Quota,
        limit=limits,
        window_ns=st.sampled_from([10 * SECOND, 60 * SECOND]),
        counting=st.sampled_from(Counting),
        phase_ns=st.integers(0, 10 * SECOND - 1),
        lazy=st.booleans(),
    )


@pytest.mark.slow
@given(
    agents=st.integers(1, 6),
    turns=st.sampled_from([Amount(3), Amount(6, 6)]),
    latency=st.sampled_from([Amount(SECOND // 10), Amount(4 * SECOND, 3 * SECOND)]),
    traits=st.builds(
        Traits,
        concurrency=st.none() | st.integers(1, 4),
        requests=windows(st.integers(2, 20)),
        input=windows(st.integers(700, 4_000)),
        output=windows(st.integers(300, 4_000)),
        tokens=windows(st.integers(1_800, 9_000)),
        charges_most=st.booleans(),
        cache_ns=st.sampled_from([0, 1_000 * SECOND]),
        outages=st.sampled_from([(), ((5 * SECOND, 40 * SECOND),), ((0, SECOND), (70 * SECOND, 130 * SECOND))]),
        acceleration=st.none() | st.builds(Acceleration, floor=st.integers(1, 3), over_ns=st.just(20 * SECOND)),
    ),
    prefix=st.sampled_from([0, 500]),
    seed=st.integers(0, 20),
    orders=st.integers(0, 1_000),
)
@settings(max_examples=150)
def test_nor_does_one_that_waits_and_goes_in_any_order(
    agents: int, turns: Amount, latency: Amount, traits: Traits, prefix: int, seed: int, orders: int
) -> None:
    traits = attrs.evolve(traits, latency_mean_ns=int(latency.mean), latency_sigma_ns=int(latency.spread))
    fleet = Fleet(
        name="a", count=agents, turns=turns, start_ns=Amount(5 * SECOND, 5 * SECOND), think_ns=Amount(SECOND, SECOND),
        tokens_in=Amount(100, 100), prefix=prefix, tokens_max_out=300,
    ).jobs(seed)  # fmt: skip

    bound = lower_bound(fleet, traits, seed)

    assert makespan_ns(fleet, traits, seed) >= bound.ns
    for order in range(3):
        assert makespan_ns(fleet, traits, seed, Random(orders + order)) >= bound.ns


def once(agent: str, at_s: int, **more: Any) -> AgentJob:
    """One call at that time."""
    turn = Turn(number=1, think_ns=at_s * SECOND, stream=False, prompt=agent, tokens_max_out=300, **more)
    return AgentJob(agent=agent, turns=(turn,))


CACHE = Traits(latency_sigma_ns=0, input=Quota(limit=60, burst=600), cache_ns=10_000 * SECOND)
LAZY = Quota(limit=2, window_ns=10 * SECOND, counting=Counting.FIXED, lazy=True)


@pytest.mark.parametrize(
    ("fleet", "traits"),
    [
        # The second window begins at 19 s and the third at 29 s, each with a request.
        (
            [once(f"{number}", at_s) for number, at_s in enumerate((9, 19, 20, 20, 20))],
            Traits(latency_sigma_ns=0, requests=LAZY),
        ),
        # What the short job has in common with others is read after the long one has begun, which does not need it.
        (
            [
                *Fleet(name="long", turns=Amount(2), think_ns=Amount(600 * SECOND), prefix=500).jobs(0),
                *Fleet(name="short", prefix=500).jobs(0),
            ],
            CACHE,
        ),
        ([once(f"{number}", 10 * number, tokens_in=500, conversation="c") for number in range(4)], CACHE),
    ],
    ids=["windows that begin with a request", "two prompts that are shared", "a conversation of several jobs"],
)
def test_nor_does_one_that_needs_less_than_it_seems(fleet: list[AgentJob], traits: Traits) -> None:
    assert makespan_ns(fleet, traits, 0) >= lower_bound(fleet, traits, 0).ns


@pytest.mark.parametrize(
    ("traits", "binds", "seconds"),
    [
        (Traits(requests=Quota(limit=60, burst=10)), "requests", 22),
        (Traits(input=Quota(limit=600, burst=100)), "input tokens", 150),
        (Traits(output=Quota(limit=600, burst=100), tokens_out_sigma=0), "output tokens", 410),
        # Four of the answers, the most there can be at once, may be owed at the end; with two slots it is two.
        (Traits(output=Quota(limit=600, burst=100), tokens_out_sigma=0, concurrency=2), "output tokens", 440),
        (Traits(requests=Quota(limit=6000, burst=1)), "chain", None),
    ],
    ids=["requests", "input", "output", "output, two at once", "nothing"],
)
def test_what_is_not_in_the_full_bucket_has_to_be_waited_for(traits: Traits, binds: str, seconds: int | None) -> None:
    bound = lower_bound(jobs(4, 8), traits, seed=0)  # 32 calls of 50 tokens in and 150 out

    assert bound.binds == binds
    # And the last of them is answered.
    assert seconds is None or seconds * SECOND < bound.ns < (seconds + 1) * SECOND


def test_a_fleet_that_a_quota_holds_up_comes_close_to_the_bound() -> None:
    traits = Traits(requests=Quota(limit=60, burst=10))
    fleet = jobs(8, 8)

    bound = lower_bound(fleet, traits, seed=0)

    assert bound.binds == "requests"
    assert bound.ns <= makespan_ns(fleet, traits, seed=0) <= 1.05 * bound.ns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("traits", "binds", "least"),
    [
        (Traits(requests=Quota(limit=60, burst=10)), "requests", 0.98),
        (Traits(requests=Quota(limit=100, counting=Counting.FIXED, phase_ns=59 * SECOND)), "requests", 0.9),
        (Traits(requests=Quota(limit=100, counting=Counting.SLIDING)), "requests", 0.98),
        (Traits(input=Quota(limit=3_000, burst=500)), "input tokens", 0.97),
        (Traits(output=Quota(limit=9_000, burst=1_500)), "output tokens", 0.9),
        # All at once begin while anything is left, and then take more than there is.
        (Traits(output=Quota(limit=600, counting=Counting.FIXED)), "output tokens", 0.3),
        (Traits(output=Quota(limit=600, counting=Counting.SLIDING)), "output tokens", 0.3),
        (Traits(concurrency=3, latency_mean_ns=4 * SECOND, latency_sigma_ns=2 * SECOND), "concurrency", 0.95),
        (Traits(outages=((SECOND, 200 * SECOND),)), "chain", 0.99),
        (Traits(acceleration=Acceleration(floor=1)), "growth", 0.9),
        (
            Traits(
                requests=Quota(limit=60, burst=10), neighbours=(Neighbour(from_ns=0, to_ns=99 * SECOND, share=0.5),)
            ),
            "requests",
            0.98,
        ),
    ],
    ids=[
        "bucket",
        "fixed",
        "sliding",
        "input",
        "output",
        "output fixed",
        "output sliding",
        "slots",
        "outage",
        "growth",
        "neighbour",
    ],
)
def test_whoever_goes_first_that_has_most_to_do_comes_close_to_the_bound(
    traits: Traits, binds: str, least: float
) -> None:
    fleet = [job for count in (2, 9, 16) for job in jobs(8, count)]
    fleet = [attrs.evolve(job, agent=f"{number}") for number, job in enumerate(fleet)]

    bound = lower_bound(fleet, traits, seed=0)

    assert bound.binds == binds
    assert least <= bound.ns / longest_first_ns(fleet, traits) <= 1


def longest_first_ns(fleet: list[AgentJob], traits: Traits) -> int:
    """Who has most to do asks first, every hundredth of a second."""
    provider = Provider(traits=traits)
    ready_ns = {number: job.turns[0].think_ns for number, job in enumerate(fleet)}
    index = dict.fromkeys(ready_ns, 0)
    leaving: list[tuple[int, int, Accepted]] = []
    now_ns = end_ns = 0
    while ready_ns or leaving:
        while leaving and leaving[0][0] <= now_ns:
            end_ns, number, accepted = heapq.heappop(leaving)
            provider.generate(accepted, accepted.service.tokens_out, now_ns)
            provider.leave(accepted, now_ns)
            index[number] += 1
            if index[number] < len(fleet[number].turns):
                ready_ns[number] = end_ns + fleet[number].turns[index[number]].think_ns
        for number in sorted(ready_ns, key=lambda one: index[one] - len(fleet[one].turns)):
            if ready_ns[number] <= now_ns:
                answer = provider.arrive(fleet[number].turns[index[number]].ask, now_ns)
                if not isinstance(answer, Accepted):
                    break
                del ready_ns[number]
                heapq.heappush(leaving, (now_ns + answer.service.latency_ns, number, answer))
        now_ns += SECOND // 100
    return end_ns
