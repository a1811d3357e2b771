"""An agent's job, and the least time a fleet of them can take."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import Agent, AgentJob, Traits, Turn, lower_bound
from hivemind_trio.sim.provider.latency_and_faults import service


def job(
    agent: str = "a", *, seed: int = 7, turns: int = 3, stream_every: int = 2, start_max_ns: int = 1_000
) -> AgentJob:
    return AgentJob.draw(
        agent, seed=seed, turns=turns, start_max_ns=start_max_ns, think_ns=(10, 50), stream_every=stream_every
    )


def test_a_job_is_drawn_from_its_seed_and_its_agent() -> None:
    assert job() == job()
    assert job() != job(seed=8)
    assert job("a") != job("b")


def test_a_job_streams_every_so_manieth_turn() -> None:
    assert [turn.stream for turn in job(turns=6, stream_every=3).turns] == [False, False, True, False, False, True]
    assert not any(turn.stream for turn in job(turns=6, stream_every=0).turns)


def test_no_two_turns_ask_the_same() -> None:
    prompts = [turn.prompt for agent in "abc" for turn in job(agent, turns=8).turns]

    assert len(set(prompts)) == 24


def test_an_agent_dies_of_its_first_error_and_what_it_spent_is_wasted() -> None:
    agent = Agent(job(turns=3))
    taken = []
    for turn in agent.turns():
        taken.append(turn.number)
        if turn.number == 2:
            agent.failed("529", tokens=5)
        else:
            agent.succeeded(100)

    assert taken == [1, 2]
    assert agent.dead
    assert not agent.done
    assert agent.tokens_wasted == 105


def test_an_agent_that_finishes_wastes_nothing() -> None:
    agent = Agent(job(turns=2))
    for _turn in agent.turns():
        agent.succeeded(100)

    assert agent.done
    assert not agent.dead
    assert (agent.tokens, agent.tokens_wasted) == (200, 0)


@given(
    agents=st.integers(1, 6), turns=st.integers(1, 4), cap=st.integers(1, 8), seed=st.integers(0, 99), data=st.data()
)
@settings(max_examples=60)
def test_no_schedule_beats_the_lower_bound(agents: int, turns: int, cap: int, seed: int, data: st.DataObject) -> None:
    traits = Traits(concurrency=cap)
    start_max_ns = data.draw(st.sampled_from([0, 10**8, 10**9]))
    jobs = [job(str(n), seed=seed, turns=turns, start_max_ns=start_max_ns) for n in range(agents)]

    bound = lower_bound(jobs, traits, seed)

    assert first_come_first_served_ns(jobs, traits, seed) >= bound.ns
    assert bound.ns == max(bound.chain_ns, bound.concurrency_ns)
    if cap >= agents:  # nobody ever waits, so the longest job is all there is
        assert first_come_first_served_ns(jobs, traits, seed) == bound.chain_ns == bound.ns
        assert bound.binds == "chain"


def first_come_first_served_ns(jobs: list[AgentJob], traits: Traits, seed: int) -> int:
    """The makespan of the plainest schedule, computed event by event."""
    assert traits.concurrency is not None
    free_ns = [0] * traits.concurrency
    ready = [(one.turns[0].think_ns, number, 0) for number, one in enumerate(jobs)]
    end_ns = 0
    while ready:
        ready.sort()
        at_ns, number, index = ready.pop(0)
        slot = min(range(len(free_ns)), key=free_ns.__getitem__)
        turn = jobs[number].turns[index]
        free_ns[slot] = done_ns = max(at_ns, free_ns[slot]) + service(traits, seed, turn.ask).latency_ns
        end_ns = max(end_ns, done_ns)
        if index + 1 < len(jobs[number].turns):
            ready.append((done_ns + jobs[number].turns[index + 1].think_ns, number, index + 1))
    return end_ns


def test_a_slot_is_of_no_use_before_there_is_an_agent_for_it() -> None:
    def one(agent: str, turns: int, start_ns: int) -> AgentJob:
        return AgentJob(
            agent=agent,
            turns=tuple(
                Turn(number=n, think_ns=start_ns if n == 1 else 0, stream=False, prompt=f"{agent}{n}", tokens_max_out=9)
                for n in range(1, turns + 1)
            ),
        )

    jobs = [one("early", 3, 0), one("late", 1, 1_000)]
    traits = Traits(concurrency=2, latency_mean_ns=1_000, latency_sigma_ns=0, latency_min_ns=0)

    bound = lower_bound(jobs, traits, seed=0)

    # 3,000 of work that is not the last call of the early one: 1,000 while there is one agent, the other 2,000 two at a
    # time; and then that call.
    assert (bound.concurrency_ns, bound.chain_ns, bound.binds) == (3_000, 3_000, "chain")
