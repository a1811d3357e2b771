"""A call that goes for another attempt: what it holds meanwhile (nothing), and what can happen to it while it rests.

And the limiters, which follow when AIMD trusts a provider with less or with more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import settings as search
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.core import Adapted, AttemptEnded, Circuit, Command, Ended, Event, Grant
from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import Aimd, Breaker, Failure, Jitter, Program, Retry, WhileOpen
from hivemind_trio.runtime import Engine, Rejected
from hivemind_trio.runtime._ticket import Ticket
from tests.support.ends import SUCCEEDED
from tests.support.programs import NEVER_TRIPS, SECOND_NS, agent, lane, program, provider, wish

from .agents import assert_empty, held, running

LIMITERS: Final = 4
"""Of one permit: the provider's, the lane's, the limits group's and the agent's."""

OVERLOADED: Final = Ended(outcome=Outcome.OVERLOADED, status=529)
BROKEN: Final = Ended(outcome=Outcome.FAILED, status=500)
RESET: Final = Ended(outcome=Outcome.FAILED, failure=Failure.RESET)
IN_TEN_SECONDS: Final = attrs.evolve(OVERLOADED, retry_after_ns=10 * SECOND_NS)

PUNCTUAL: Final = Retry(attempts=4, first_ns=SECOND_NS, last_ns=4 * SECOND_NS, jitter=Jitter.NONE)
"""Rests one second, then two, then four."""

ONE_SLOT: Final = program(providers=[provider("p", limit=1)], retries=[PUNCTUAL])


def ends(ended: Ended, after_s: float = 0.0) -> Callable[[], Awaitable[Ended]]:
    """An attempt that takes so long and ends so."""

    async def attempt() -> Ended:
        await trio.sleep(after_s)
        return ended

    return attempt


async def rest(ticket: Ticket, ended: Ended = OVERLOADED) -> None:
    """Have an attempt that ends like this."""
    await ticket.granted()
    ticket.start(ends(ended))
    await wait_all_tasks_blocked()


# ---- what it holds ----


async def test_while_it_rests_it_holds_nothing_and_another_has_its_slot(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as resting, engine.ticket(wish(), "y") as other:
            await rest(resting)

            grant = await other.granted()
            assert (trio.current_time(), grant.attempt) == (0, 1)
            assert held(engine) == LIMITERS
            assert (engine.snapshot().inflight, engine.snapshot().waiting) == (1, 1)
        assert_empty(engine)


async def test_alone_it_holds_nothing_at_all(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)

            assert held(engine) == 0
            # Nothing runs and nothing is about to: a drain need not wait for it.
            await engine.idle()
            assert trio.current_time() == 0
            assert engine.snapshot().waiting == 1
        assert_empty(engine)


async def test_its_pauses_grow_and_its_attempts_are_numbered(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            seen = []
            grant: Grant | None = await ticket.granted()
            while grant is not None:
                assert held(engine) == LIMITERS
                seen.append((trio.current_time(), grant.attempt, grant.waited_ns, grant.reason))
                ticket.start(ends(BROKEN, after_s=10))
                grant = await ticket.again()

            second = SECOND_NS
            assert seen == [
                (0, 1, 0, Reason.NONE),
                (11, 2, 1 * second, Reason.RETRY),
                (23, 3, 3 * second, Reason.RETRY),
                (37, 4, 7 * second, Reason.RETRY),
            ]
            assert trio.current_time() == 47
            # The last attempt is over and so is the call, though its agent is still here.
            assert_empty(engine)


async def test_a_word_of_the_provider_s_is_waited_for_and_little_longer(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket, IN_TEN_SECONDS)

            grant = await ticket.again()

            assert grant is not None
            assert 10 <= trio.current_time() <= 11


async def test_one_that_rests_keeps_its_place_and_goes_before_those_who_came_later(autojump_clock: MockClock) -> None:
    order = []
    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:

        async def call(name: str, *attempts: Ended) -> None:
            with engine.ticket(wish(), name) as ticket:
                grant: Grant | None = await ticket.granted()
                for ended in attempts:
                    assert grant is not None
                    order.append(name)
                    ticket.start(ends(ended, after_s=5))
                    grant = await ticket.again() if not ended.committed else None

        for name, attempts in {"first": (OVERLOADED, BROKEN), "second": (BROKEN,), "third": (BROKEN,)}.items():
            agents.start_soon(call, name, *attempts)
            await wait_all_tasks_blocked()
        await trio.sleep(16)
        agents.cancel_scope.cancel()

    # The second goes while the first rests; the third arrived before the first was due again, and still comes later.
    assert order == ["first", "second", "first", "third"]


# ---- when there is no other attempt ----

LAST: Final = {
    "what a class does not name": Ended(outcome=Outcome.IGNORED, status=400),
    "what says it is final": attrs.evolve(OVERLOADED, final=True),
    "a wait that is too long": attrs.evolve(OVERLOADED, retry_after_ns=61 * SECOND_NS),
    "a failure that it does not name": Ended(outcome=Outcome.FAILED, failure=Failure.TIMEOUT),
}


@pytest.mark.parametrize("ended", LAST.values(), ids=LAST)
async def test_an_agent_is_told_at_once_that_there_is_no_other(ended: Ended, autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket, ended)

            assert await ticket.again() is None
            assert trio.current_time() == 0
            assert_empty(engine)


async def test_what_the_agent_has_had_something_of_is_over(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket, attrs.evolve(BROKEN, committed=True))

            assert_empty(engine)
            await trio.sleep(100)
            assert_empty(engine)


async def test_a_crash_is_not_tried_again(autojump_clock: MockClock) -> None:
    crashes: list[Exception] = []

    async def crash() -> Ended:
        raise ZeroDivisionError

    async with running(ONE_SLOT, on_crash=crashes.append) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            ticket.start(crash)

            assert await ticket.again() is None
            assert_empty(engine)
    assert [type(one) for one in crashes] == [ZeroDivisionError]


async def test_what_needs_no_slot_is_tried_once(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    async with running(ONE_SLOT, journal=lambda _now, event, _commands: events.append(event)) as engine:
        with engine.ticket(wish(), "x", needs_slot=False) as ticket:
            await rest(ticket)

            assert await ticket.again() is None
        await engine.idle()
    # The scheduler has never heard of its attempt: it learns nothing of it.
    assert not any(isinstance(event, AttemptEnded) for event in events)


# ---- who leaves ----


@pytest.mark.parametrize(
    ("leaves_s", "attempts"),
    [(0.0, {1}), (0.5, {1}), (1.0, {1, 2}), (1.5, {2})],
    ids=["at once", "in time", "in the tick in which it is due", "too late"],
)
async def test_who_leaves_while_it_rests_is_forgotten(
    leaves_s: float, attempts: set[int], autojump_clock: MockClock
) -> None:
    granted: list[Command] = []

    def journal(_now_ns: int, _event: Event, commands: Sequence[Command]) -> None:
        granted.extend(command for command in commands if isinstance(command, Grant))

    async with running(ONE_SLOT, journal=journal) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)
            # It is due at 1 s.
            with trio.move_on_at(leaves_s):
                await ticket.again()
                await trio.sleep_forever()
        assert_empty(engine)
        await trio.sleep(100)
        assert_empty(engine)
    assert len(granted) in attempts


async def test_who_was_interrupted_while_it_rested_can_wait_on(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)
            for _ in range(3):
                with trio.move_on_after(0.3):
                    await ticket.again()

            grant = await ticket.again()

            assert grant is not None
            assert trio.current_time() == 1
            assert held(engine) == LIMITERS
        assert_empty(engine)


async def test_who_leaves_during_its_second_attempt_cancels_it(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)
            await ticket.again()
            ticket.start(ends(SUCCEEDED, after_s=500))
            await trio.sleep(1)
            assert held(engine) == LIMITERS
        await engine.idle()
        assert trio.current_time() == 2
        assert_empty(engine)


async def test_an_attempt_that_fails_after_its_agent_left_is_not_tried_again(autojump_clock: MockClock) -> None:
    async def stubborn() -> Ended:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return OVERLOADED

    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            ticket.start(stubborn)
            await trio.sleep(1)
        assert held(engine) == LIMITERS
        await engine.idle()

        assert trio.current_time() == 5
        assert_empty(engine)


# ---- a policy is loaded, or the house is drained ----


async def test_a_reload_moves_what_rests_and_lets_it_rest_on(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)
            await trio.sleep(0.5)

            engine.load(program(providers=[provider("q", limit=1)], retries=[PUNCTUAL]))
            grant = await ticket.again()

            assert grant is not None
            assert grant.permit is not None
            assert (grant.treatment.provider, grant.permit.provider, grant.attempt) == ("q", "q", 2)
            assert trio.current_time() == 1
            assert set(engine.snapshot().pools) == {"q"}
            assert held(engine) == LIMITERS
        assert_empty(engine)


async def test_a_reload_of_the_same_makes_no_difference(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)
            for _ in range(9):
                await trio.sleep(0.1)
                engine.load(ONE_SLOT)

            grant = await ticket.again()

            assert grant is not None
            assert (trio.current_time(), grant.attempt, grant.waited_ns) == (1, 2, SECOND_NS)


NO_LONGER: Final = {
    "nobody serves it": (program(providers=[]), Reason.NO_PROVIDER, 0.5),
    "its agent is not declared": (program(agents=[agent("ci")], refuse_unknown=True), Reason.UNKNOWN_AGENT, 0.5),
    "its patience ends before its pause": (
        program(lanes=[lane(deadline_ns=SECOND_NS * 3 // 4)]),
        Reason.DEADLINE,
        0.75,
    ),
    "its patience has ended": (program(lanes=[lane(deadline_ns=SECOND_NS // 4)]), Reason.DEADLINE, 0.5),
}


@pytest.mark.parametrize(("policy", "reason", "at_s"), NO_LONGER.values(), ids=NO_LONGER)
async def test_a_reload_may_turn_away_what_rests(
    policy: Program, reason: Reason, at_s: float, autojump_clock: MockClock
) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)
            await trio.sleep(0.5)

            engine.load(policy)
            with pytest.raises(Rejected) as rejected:
                await ticket.again()

            assert (rejected.value.refuse.reason, trio.current_time()) == (reason, at_s)
            assert_empty(engine)


async def test_a_drain_turns_away_what_rests(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)

            engine.drain()
            with pytest.raises(Rejected) as rejected:
                await ticket.again()

            assert (rejected.value.refuse.reason, trio.current_time()) == (Reason.DRAINING, 0)
            assert_empty(engine)


async def test_what_fails_during_a_drain_is_not_tried_again(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            ticket.start(ends(OVERLOADED, after_s=1))
            engine.drain()

            assert await ticket.again() is None
            assert trio.current_time() == 1
            assert_empty(engine)


@pytest.mark.parametrize("while_open", WhileOpen)
async def test_a_provider_that_is_left_alone_lets_what_rests_wait_or_go(
    while_open: WhileOpen, autojump_clock: MockClock
) -> None:
    trips = provider("p", limit=2, breaker=Breaker(of=2, trip=1.0, open_ns=60 * SECOND_NS), while_open=while_open)
    async with running(program(providers=[trips], retries=[PUNCTUAL])) as engine:
        with engine.ticket(wish(), "x") as resting, engine.ticket(wish(), "y") as second:
            await rest(resting)
            await rest(second)
            assert engine.snapshot().pools["p"].circuit is Circuit.OPEN

            if while_open is WhileOpen.REFUSE:
                with pytest.raises(Rejected) as rejected:
                    await resting.again()
                assert rejected.value.refuse.reason is Reason.BREAKER_OPEN
                assert await second.again() is None
                assert trio.current_time() == 0
            else:
                await resting.again()
                assert 48 <= trio.current_time() <= 72
                # The one that tries; the other has to wait for what becomes of it.
                assert held(engine) == LIMITERS
        assert_empty(engine)


# ---- the limiters follow ----


def slots(engine: Engine) -> tuple[float, ...]:
    """What the limiters give in all: the provider's, then the lane's. White box: they have no door of their own."""
    caps = engine._caps._providers["p"]
    return caps.pool.total_tokens, *(limiter.total_tokens for limiter in caps.lanes.values())


def adaptive(limit: int = 8, start: int = 4, low: int = 1) -> Program:
    return program(
        providers=[provider("p", limit=limit, aimd=Aimd(low=low, start=start), breaker=NEVER_TRIPS)],
        lanes=[lane(max="50%")],
        retries=[Retry(attempts=1)],
    )


async def through(engine: Engine, *ended: Ended) -> None:
    """Attempts that run at the same time and end in this order."""
    async with trio.open_nursery() as agents:

        async def call(after_s: float, end: Ended) -> None:
            with engine.ticket(wish(), "x") as ticket:
                await ticket.granted()
                ticket.start(ends(end, after_s))
                await trio.sleep(after_s + 0.5)

        for number, end in enumerate(ended, 1):
            agents.start_soon(call, number, end)


async def test_limiters_begin_where_aimd_does(autojump_clock: MockClock) -> None:
    async with running(adaptive()) as engine, trio.open_nursery() as agents:
        agents.start_soon(through, engine, SUCCEEDED)
        await wait_all_tasks_blocked()

        assert slots(engine) == (4, 2)


async def test_limiters_follow_a_cut_and_what_is_beyond_it_drains(autojump_clock: MockClock) -> None:
    adapted: list[Adapted] = []
    plain = attrs.evolve(adaptive(), lanes={"default": lane()})
    async with running(plain, on_adapted=adapted.append) as engine, trio.open_nursery() as agents:
        agents.start_soon(through, engine, OVERLOADED, SUCCEEDED, SUCCEEDED, SUCCEEDED)
        await wait_all_tasks_blocked()
        with engine.ticket(wish(), "x") as waiting:
            assert held(engine) == 4 * LIMITERS

            await trio.sleep(1)
            await wait_all_tasks_blocked()
            assert slots(engine)[0] == 2
            assert held(engine) == 3 * LIMITERS

            # Three are held where two are allowed: the next slot that comes back is nobody's.
            await waiting.granted()
            assert trio.current_time() == 3
            assert held(engine) == 2 * LIMITERS
    assert [(one.limit, one.because) for one in adapted][:1] == [(2, Outcome.OVERLOADED)]


async def test_limiters_follow_a_rise_before_who_waits_for_it_goes(autojump_clock: MockClock) -> None:
    plain = attrs.evolve(adaptive(limit=9, start=1), lanes={"default": lane()})
    async with running(plain) as engine:
        # In slow start every success is worth a slot, so that each end lets two go; the audit compares after each.
        await through(engine, *[SUCCEEDED] * 12)

        assert engine.snapshot().pools["p"].limit > 4
        assert slots(engine)[0] == engine.snapshot().pools["p"].limit


async def test_a_lane_s_share_is_one_of_what_there_is_now(autojump_clock: MockClock) -> None:
    async with running(adaptive()) as engine, trio.open_nursery() as agents:
        agents.start_soon(through, engine, OVERLOADED, SUCCEEDED)
        await trio.sleep(1)
        await wait_all_tasks_blocked()

        assert slots(engine) == (2, 1)


RELOADS: Final = {
    "the same": (adaptive(), 2),
    "a lower ceiling": (adaptive(limit=1), 1),
    "a higher floor": (adaptive(low=3), 3),
    "no adaptation": (program(providers=[provider("p", limit=8)]), 8),
}


@pytest.mark.parametrize(("policy", "limit"), RELOADS.values(), ids=RELOADS)
async def test_what_was_learned_comes_through_a_reload(policy: Program, limit: int, autojump_clock: MockClock) -> None:
    async with running(adaptive()) as engine:
        await through(engine, OVERLOADED)
        assert slots(engine)[0] == 2

        engine.load(policy)

        assert (engine.snapshot().pools["p"].limit, slots(engine)[0]) == (limit, limit)


# ---- a property ----

OUTCOMES: Final = [SUCCEEDED, SUCCEEDED, OVERLOADED, BROKEN, RESET, IN_TEN_SECONDS]
OUTCOMES_OF_A_QUOTA: Final = [
    Ended(outcome=Outcome.QUOTA, status=429, retry_after_ns=2 * SECOND_NS),
    Ended(outcome=Outcome.CONCURRENCY, status=429),
    Ended(outcome=Outcome.IGNORED, status=400),
    attrs.evolve(BROKEN, committed=True),
]
manners = st.tuples(
    st.sampled_from([0.0, 0.0, 1.0, 2.0]),
    st.lists(st.sampled_from([*OUTCOMES, *OUTCOMES_OF_A_QUOTA]), min_size=4, max_size=4),
    st.sampled_from([None, None, 0.0, 1.0, 2.0, 3.0]),
)


async def _live(
    policies: Sequence[Program], reload_s: float, calls: Sequence[tuple[float, list[Ended], float | None]]
) -> None:
    fates = 0

    async def call(engine: Engine, arrives_s: float, endings: list[Ended], leaves_s: float | None) -> None:
        nonlocal fates
        await trio.sleep(arrives_s)
        over = trio.Event()

        async def attempt(ended: Ended) -> Ended:
            try:
                await trio.sleep(1)
                return ended
            finally:
                if ended.committed:
                    over.set()

        with trio.move_on_after(leaves_s if leaves_s is not None else 500), engine.ticket(wish(), "x") as ticket:
            grant: Grant | None = await ticket.granted()
            while grant is not None:
                assert grant.attempt <= PUNCTUAL.attempts
                ended = endings[grant.attempt - 1]
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


@search(max_examples=60)
@given(
    limits=st.lists(st.integers(1, 4), min_size=2, max_size=2),
    reload_s=st.sampled_from([0.0, 1.0, 1.5, 3.0]),
    calls=st.lists(manners, min_size=1, max_size=8),
)
def test_after_any_attempts_nothing_is_held_and_the_keepers_agree(
    limits: list[int], reload_s: float, calls: list[tuple[float, list[Ended], float | None]]
) -> None:
    policies = [
        program(
            providers=[provider("p", limit=limit, aimd=Aimd(low=1, start=limit, cooldown_ns=SECOND_NS))],
            lanes=[lane(max="75%")],
            retries=[PUNCTUAL],
        )
        for limit in limits
    ]

    trio.run(_live, policies, reload_s, calls, clock=MockClock(autojump_threshold=0))
