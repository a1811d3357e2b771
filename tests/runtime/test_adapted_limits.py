"""The limiters follow when AIMD trusts a provider with less or with more, and whatever attempts come to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.model import Outcome
from hivemind_trio.policy import AimdSettings, CircuitBreakerSettings, Program, ProviderSettings, RetrySettings
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import AttemptResult, BeliefsRestored, Grant, LimitChanged
from hivemind_trio.scheduler.protocol.beliefs import ProviderBeliefs
from tests.support.ends import IGNORED, SUCCEEDED
from tests.support.programs import NEVER_TRIPS, SECOND_NS, lane, program, provider, wish

from .agents import assert_empty, held, running
from .failing import BROKEN, IN_TEN_SECONDS, OVERLOADED, PUNCTUAL, RESET, ends

SLOW: Final = AttemptResult(outcome=Outcome.SLOW, status=200, committed=True)
"""A mild signal: of 8 slots it takes away 2."""
LIMITERS: Final = 4
"""Of one permit: the provider's, the lane's, the limits group's and the agent's."""


def slots(engine: Engine) -> tuple[float, ...]:
    """What the limiters give in all: the provider's, then the lane's. White box: they have no door of their own."""
    caps = engine.caps.providers["p"]
    return caps.pool.total_tokens, *(limiter.total_tokens for limiter in caps.lanes.values())


def adaptive(limit: int = 8, start: int = 8, low: int = 1) -> Program:
    aimd = AimdSettings(low=low, start=start, decrease=0.99)
    return program(
        providers=[provider("p", limit=limit, aimd=aimd, breaker=NEVER_TRIPS)],
        lanes=[lane(max="50%")],
        retries=[RetrySettings(attempts=1)],
    )


async def through(engine: Engine, *ended: AttemptResult) -> None:
    """Attempts that run at the same time and end in this order."""
    async with trio.open_nursery() as agents:

        async def call(after_s: float, end: AttemptResult) -> None:
            with engine.ticket(wish(), "x") as ticket:
                await ticket.granted()
                ticket.start(ends(end, after_s))
                await trio.sleep(after_s + 0.5)

        for number, end in enumerate(ended, 1):
            agents.start_soon(call, number, end)


async def test_limiters_begin_where_aimd_does(autojump_clock: MockClock) -> None:
    async with running(adaptive(start=4)) as engine, trio.open_nursery() as agents:
        agents.start_soon(through, engine, SUCCEEDED)
        await wait_all_tasks_blocked()

        assert slots(engine) == (4, 2)


async def test_limiters_follow_a_cut_and_what_is_beyond_it_drains(autojump_clock: MockClock) -> None:
    adapted: list[LimitChanged] = []
    plain = attrs.evolve(adaptive(), lanes={"default": lane()})
    async with running(plain, on_adapted=adapted.append) as engine, trio.open_nursery() as agents:
        agents.start_soon(through, engine, SLOW, *[IGNORED] * 7)
        await wait_all_tasks_blocked()
        with engine.ticket(wish(), "x") as waiting:
            assert held(engine) == 8 * LIMITERS

            await trio.sleep(1)
            await wait_all_tasks_blocked()
            assert slots(engine)[0] == 6
            assert held(engine) == 7 * LIMITERS

            # Seven are held where six are allowed: the next slot that comes back is nobody's.
            await waiting.granted()
            assert trio.current_time() == 3
            assert held(engine) == 6 * LIMITERS
    assert [(one.limit, one.because) for one in adapted][:1] == [(6, Outcome.SLOW)]


async def test_limiters_follow_a_rise_before_who_waits_for_it_goes(autojump_clock: MockClock) -> None:
    plain = attrs.evolve(adaptive(limit=9, start=1), lanes={"default": lane()})
    async with running(plain) as engine:
        # Answers take as long however many there are at once: each doubling raises throughput, and the audit compares
        # after each end.
        async with trio.open_nursery() as agents:
            for _ in range(60):
                agents.start_soon(through, engine, SUCCEEDED)

        assert engine.snapshot().pools["p"].limit > 4
        assert slots(engine)[0] == engine.snapshot().pools["p"].limit


async def test_a_lane_s_share_is_one_of_what_there_is_now(autojump_clock: MockClock) -> None:
    async with running(adaptive()) as engine, trio.open_nursery() as agents:
        agents.start_soon(through, engine, SLOW, SUCCEEDED)
        await trio.sleep(1)
        await wait_all_tasks_blocked()

        assert slots(engine) == (6, 3)


RELOADS: Final = {
    "the same": (adaptive(), 6),
    "a lower ceiling": (adaptive(limit=1, start=1), 1),
    "a higher floor": (adaptive(low=7), 7),
    "no adaptation": (program(providers=[provider("p", limit=8)]), 8),
}


@pytest.mark.parametrize(("policy", "limit"), RELOADS.values(), ids=RELOADS)
async def test_what_was_learned_comes_through_a_reload(policy: Program, limit: int, autojump_clock: MockClock) -> None:
    async with running(adaptive()) as engine:
        await through(engine, SLOW)
        assert slots(engine)[0] == 6

        engine.load(policy)

        assert (engine.snapshot().pools["p"].limit, slots(engine)[0]) == (limit, limit)


@pytest.mark.parametrize(
    ("first", "ended"),
    [
        (provider("p", limit=2), OVERLOADED),
        (provider("p", limit=2), AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=SECOND_NS // 2)),
        (provider("p", limit=2, breaker=CircuitBreakerSettings(of=1, open_ns=SECOND_NS // 2)), OVERLOADED),
    ],
    ids=["a retry", "a quota", "a circuit"],
)
@pytest.mark.parametrize("limit", [1, 2], ids="now {} slots".format)
async def test_what_is_due_when_a_policy_is_loaded_goes_by_the_new_one(
    first: ProviderSettings, ended: AttemptResult, limit: int, autojump_clock: MockClock
) -> None:
    async with running(program(providers=[first], retries=[PUNCTUAL])) as engine:
        with engine.ticket(wish(), "x") as runs, engine.ticket(wish(), "y") as resting:
            await runs.granted()
            runs.start(ends(SUCCEEDED, after_s=10))
            await resting.granted()
            resting.start(ends(ended))
            await wait_all_tasks_blocked()

            # The loop was busy: the time has come, and the engine has not been woken for it yet.
            autojump_clock.jump(3)
            engine.load(program(providers=[provider("p", limit=limit)], retries=[PUNCTUAL]))

            assert engine.snapshot().inflight == limit
            grant = await resting.again()
            assert grant is not None
            assert trio.current_time() == (10 if limit == 1 else 3)
        await engine.idle()
        assert_empty(engine)


# ---- a property ----

OUTCOMES: Final = [SUCCEEDED, SUCCEEDED, OVERLOADED, BROKEN, RESET, IN_TEN_SECONDS]
OUTCOMES_OF_A_QUOTA: Final = [
    AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=2 * SECOND_NS),
    AttemptResult(outcome=Outcome.CONCURRENCY, status=429),
    AttemptResult(outcome=Outcome.IGNORED, status=400),
    attrs.evolve(BROKEN, committed=True),
]
MOST: Final = 6
"""Attempts that may fail, of which `PUNCTUAL` counts those that are no refusal of a quota; the next one succeeds."""
manners = st.tuples(
    st.sampled_from([0.0, 0.0, 1.0, 2.0]),
    st.lists(st.sampled_from([*OUTCOMES, *OUTCOMES_OF_A_QUOTA]), min_size=MOST, max_size=MOST),
    st.sampled_from([None, None, 0.0, 1.0, 2.0, 3.0]),
)


async def _live(
    policies: Sequence[Program], reload_s: float, calls: Sequence[tuple[float, list[AttemptResult], float | None]]
) -> None:
    fates = 0

    async def call(engine: Engine, arrives_s: float, endings: list[AttemptResult], leaves_s: float | None) -> None:
        nonlocal fates
        await trio.sleep(arrives_s)
        over = trio.Event()

        async def attempt(ended: AttemptResult) -> AttemptResult:
            try:
                await trio.sleep(1)
                return ended
            finally:
                if ended.committed:
                    over.set()

        with trio.move_on_after(leaves_s if leaves_s is not None else 500), engine.ticket(wish(), "x") as ticket:
            grant: Grant | None = await ticket.granted()
            counted = 0
            while grant is not None:
                ended = endings[grant.attempt - 1] if grant.attempt <= len(endings) else SUCCEEDED
                # A refusal for going too often, or for too many at once, is no attempt.
                counted += ended.outcome not in (Outcome.QUOTA, Outcome.CONCURRENCY)
                assert counted <= PUNCTUAL.attempts
                ticket.start(partial(attempt, ended))
                if ended.committed:
                    await over.wait()
                    break
                grant = await ticket.again()
        fates += 1

    async with running(policies[0]) as engine, trio.open_nursery() as agents:
        for manner in calls:
            agents.start_soon(call, engine, *manner)
        await trio.sleep(reload_s)
        engine.load(policies[1])
    assert fates == len(calls)
    assert_empty(engine)
    assert slots(engine)[0] == engine.snapshot().pools["p"].limit


@pytest.mark.slow
@settings(max_examples=60)
@given(
    limits=st.lists(st.integers(1, 4), min_size=2, max_size=2),
    reload_s=st.sampled_from([0.0, 1.0, 1.5, 3.0]),
    calls=st.lists(manners, min_size=1, max_size=8),
)
def test_after_any_attempts_nothing_is_held_and_the_keepers_agree(
    limits: list[int], reload_s: float, calls: list[tuple[float, list[AttemptResult], float | None]]
) -> None:
    policies = [
        program(
            providers=[provider("p", limit=limit, aimd=AimdSettings(low=1, start=limit, cooldown_ns=SECOND_NS))],
            lanes=[lane(max="75%")],
            retries=[PUNCTUAL],
        )
        for limit in limits
    ]

    trio.run(_live, policies, reload_s, calls, clock=MockClock(autojump_threshold=0))


async def test_a_limit_that_an_earlier_process_learned_is_that_of_the_limiters_too(autojump_clock: MockClock) -> None:
    async with running(adaptive(limit=8, start=2)) as engine:
        engine.post(BeliefsRestored({"p": ProviderBeliefs(limit=6, doubling=False)}, {"p": 0}))
        limit = engine.snapshot().pools["p"].limit
        assert limit > 2
        async with trio.open_nursery() as agents:
            for _ in range(limit):
                agents.start_soon(through, engine, SUCCEEDED)
            await wait_all_tasks_blocked()
            assert slots(engine)[0] == limit
