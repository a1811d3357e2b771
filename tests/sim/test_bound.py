"""The lower bound against fleets that are driven through the provider itself, quotas included."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import Accepted, Job, Provider, Quota, Refused, Traits, lower_bound

SECOND = 1_000_000_000

BURSTS = st.none() | st.integers(300, 2_000)


def jobs(agents: int, turns: int, seed: int = 7) -> list[Job]:
    return [Job.draw(str(n), seed=seed, turns=turns, start_max_ns=0, think_ns=(0, SECOND)) for n in range(agents)]


def makespan_ns(fleet: list[Job], traits: Traits, seed: int) -> int:
    """Every agent asks as soon as it can, and again when a quota lets it or a slot is free."""
    provider = Provider(traits=traits, seed=seed)
    end_ns = 0
    due = [(job.turns[0].think_ns, number, 0) for number, job in enumerate(fleet)]
    leaving: list[tuple[int, int, int, Accepted]] = []
    heapq.heapify(due)
    for _step in range(1_000):
        if not due and not leaving:
            return end_ns
        if leaving and (not due or leaving[0][0] <= due[0][0]):
            now_ns, number, index, accepted = heapq.heappop(leaving)
            provider.generate(accepted, accepted.service.tokens_out, now_ns)
            provider.leave(accepted, now_ns)
            end_ns = now_ns
            if index + 1 < len(fleet[number].turns):
                heapq.heappush(due, (now_ns + fleet[number].turns[index + 1].think_ns, number, index + 1))
            continue
        now_ns, number, index = heapq.heappop(due)
        answer = provider.arrive(fleet[number].turns[index].ask, now_ns)
        if isinstance(answer, Accepted):
            heapq.heappush(leaving, (now_ns + answer.service.latency_ns, number, index, answer))
        else:
            assert isinstance(answer, Refused)
            # A slot is free when the next one leaves; a quota is when it says.
            again_ns = leaving[0][0] if answer.retry_after_ns is None else now_ns + answer.retry_after_ns
            heapq.heappush(due, (again_ns, number, index))
    pytest.fail("who waited as long as told was never let in")


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
    assert seconds is None or bound.ns == seconds * SECOND


def test_a_fleet_that_a_quota_holds_up_comes_close_to_the_bound() -> None:
    traits = Traits(requests=Quota(limit=60, burst=10))
    fleet = jobs(8, 8)

    bound = lower_bound(fleet, traits, seed=0)

    assert bound.binds == "requests"
    assert bound.ns <= makespan_ns(fleet, traits, seed=0) <= 1.05 * bound.ns
