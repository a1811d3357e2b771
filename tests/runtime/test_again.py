"""A call that goes for another attempt: what it holds meanwhile (nothing), and what can happen to it while it rests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import CircuitBreakerSettings, Failure, Program, WhileOpen
from hivemind_trio.runtime import Rejected
from hivemind_trio.runtime.ticket import Ticket
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, Circuit, Command, Event, Grant
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS, agent, lane, program, provider, wish

from .agents import assert_empty, held, running
from .failing import BROKEN, IN_TEN_SECONDS, OVERLOADED, PUNCTUAL, ends

LIMITERS: Final = 4
"""Of one permit: the provider's, the lane's, the limits group's and the agent's."""

ONE_SLOT: Final = program(providers=[provider("p", limit=1)], retries=[PUNCTUAL])


async def rest(ticket: Ticket, ended: AttemptResult = OVERLOADED) -> None:
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


async def test_the_news_of_its_first_slot_does_not_end_its_wait_for_another(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine, trio.open_nursery() as nursery:
        with engine.ticket(wish(), "x") as resting:
            await rest(resting)
            nursery.start_soon(resting.again)
            await wait_all_tasks_blocked()

            resting.wake()
            await wait_all_tasks_blocked()

            assert not resting.answered
            nursery.cancel_scope.cancel()


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

        async def call(name: str, *attempts: AttemptResult) -> None:
            with engine.ticket(wish(), "x") as ticket:
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
    "what a class does not name": AttemptResult(outcome=Outcome.IGNORED, status=400),
    "what says it is final": attrs.evolve(OVERLOADED, final=True),
    "a wait that is too long": attrs.evolve(OVERLOADED, retry_after_ns=601 * SECOND_NS),
    "a failure that it does not name": AttemptResult(outcome=Outcome.FAILED, failure=Failure.TIMEOUT),
}


@pytest.mark.parametrize("ended", LAST.values(), ids=LAST)
async def test_an_agent_is_told_at_once_that_there_is_no_other(ended: AttemptResult, autojump_clock: MockClock) -> None:
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

    async def crash() -> AttemptResult:
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
    async def stubborn() -> AttemptResult:
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

            assert (rejected.value.reject.reason, trio.current_time()) == (reason, at_s)
            assert_empty(engine)


async def test_a_drain_turns_away_what_rests(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await rest(ticket)

            engine.drain()
            with pytest.raises(Rejected) as rejected:
                await ticket.again()

            assert (rejected.value.reject.reason, trio.current_time()) == (Reason.DRAINING, 0)
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
    trips = provider(
        "p", limit=2, breaker=CircuitBreakerSettings(of=2, trip=1.0, open_ns=60 * SECOND_NS), while_open=while_open
    )
    async with running(program(providers=[trips], retries=[PUNCTUAL])) as engine:
        with engine.ticket(wish(), "x") as resting, engine.ticket(wish(), "y") as second:
            await rest(resting)
            await rest(second)
            assert engine.snapshot().pools["p"].circuit is Circuit.OPEN

            if while_open is WhileOpen.REFUSE:
                with pytest.raises(Rejected) as rejected:
                    await resting.again()
                assert rejected.value.reject.reason is Reason.BREAKER_OPEN
                assert await second.again() is None
                assert trio.current_time() == 0
            else:
                await resting.again()
                # Its first pause is a second, give or take a fifth; its rest is one as well.
                assert 1 <= trio.current_time() <= 1.2
                # The one that tries; the other has to wait for what becomes of it.
                assert held(engine) == LIMITERS
        assert_empty(engine)
