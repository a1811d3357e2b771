"""A policy is loaded, or the engine is drained, while calls are waiting and running."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from hivemind_trio.model import Reason
from hivemind_trio.policy import Program
from hivemind_trio.runtime import Engine, Rejected
from hivemind_trio.runtime.engine import WOKEN_AT_ONCE
from hivemind_trio.scheduler import AttemptResult, Event, TimePassed
from hivemind_trio.scheduler.scheduler import SLICE
from tests.support.programs import SECOND_NS, agent, lane, program, provider, wish

from .agents import Work, assert_empty, held, running

ONE_SLOT = program(providers=[provider("p", limit=1)])


def one_provider(name: str, limit: int = 1) -> Program:
    return program(providers=[provider(name, limit=limit)])


HIGH_AND_LOW = [
    pytest.param(one_provider("p", 3), one_provider("p", 1), id="provider"),
    pytest.param(
        program(providers=[provider("p", groups={"opus-*": 3})]),
        program(providers=[provider("p", groups={"opus-*": 1})]),
        id="group",
    ),
    pytest.param(program(lanes=[lane(max=3)]), program(lanes=[lane(max=1)]), id="lane"),
    pytest.param(
        program(agents=[agent("ci", concurrency=3)]), program(agents=[agent("ci", concurrency=1)]), id="agent"
    ),
    pytest.param(
        program(unknown=agent("unknown", concurrency=3)),
        program(unknown=agent("unknown", concurrency=1)),
        id="caller",
    ),
    pytest.param(program(), program(lanes=[lane(max=1)]), id="a cap where none was"),
]
"""Policies with a cap of three, or none, and the same with a cap of one."""


# ---- load ----


async def test_what_waits_is_classified_anew(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x"), engine.ticket(wish(), "y") as waiting, engine.ticket(wish(), "z") as denied:
            engine.load(program(providers=[provider("q", limit=1)]))

            assert engine.program.providers.keys() == {"q"}
            grant = await waiting.granted()
            assert grant.treatment.provider == "q"
            assert engine.snapshot().waiting == 1

            engine.load(program(providers=[]))
            with pytest.raises(Rejected) as rejected:
                await denied.granted()
            assert rejected.value.reject.reason is Reason.NO_PROVIDER
        assert_empty(engine)


async def test_many_calls_are_classified_anew_in_several_turns_of_the_loop(autojump_clock: MockClock) -> None:
    work = Work()
    sizes = []
    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:
        agents.start_soon(work.call, engine, wish())
        for _ in range(3 * SLICE):
            agents.start_soon(work.call, engine, wish())
        await trio.testing.wait_all_tasks_blocked()

        engine.load(one_provider("p", 4))
        engine.on_event = lambda: sizes.append(len(engine.scheduler.state.unsettled))
        await trio.testing.wait_all_tasks_blocked()

        assert sizes == [SLICE, 0, 0], "the first slice was decided with the reload; the last turn grants"
        assert work.now["p"] == 4
        agents.cancel_scope.cancel()
    assert_empty(engine)


CROWD = 20


async def test_many_calls_that_may_begin_begin_in_several_turns_of_the_loop(autojump_clock: MockClock) -> None:
    work = Work()
    begun: list[int] = []
    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:

        async def call(number: int) -> None:
            with engine.ticket(wish(), "x") as ticket:
                await ticket.granted()
                begun.append(number)
                ticket.start(partial(work.attempt, "p"))
                await trio.sleep_forever()

        for number in range(CROWD):
            agents.start_soon(call, number)
            await trio.testing.wait_all_tasks_blocked()
        engine.load(one_provider("p", CROWD))
        counts = [1]
        while counts[-1] < CROWD:
            await trio.lowlevel.checkpoint()
            counts.append(len(begun))
        agents.cancel_scope.cancel()

    # Trio draws the order within a turn, so two turns may look like one.
    assert max(after - before for before, after in pairwise(counts)) <= 2 * 2
    assert CROWD - 1 in begun[: 1 + 2 * WOKEN_AT_ONCE], "who has just come is not behind all who waited"
    assert 1 in begun[: 1 + 2 * WOKEN_AT_ONCE]
    assert_empty(engine)


async def test_calls_that_give_up_before_they_were_told_of_their_slots_give_them_back(
    autojump_clock: MockClock,
) -> None:
    work = Work()
    async with running(ONE_SLOT) as engine:
        async with trio.open_nursery() as agents:
            for _ in range(CROWD):
                agents.start_soon(work.call, engine, wish())
            await trio.testing.wait_all_tasks_blocked()
            engine.load(one_provider("p", CROWD))
            assert engine.snapshot().inflight == CROWD
            agents.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

        assert_empty(engine)


async def test_calls_are_told_though_the_engine_ends(autojump_clock: MockClock) -> None:
    told: list[Rejected] = []

    async def call(engine: Engine) -> None:
        with engine.ticket(wish(), "x") as ticket:
            try:
                await ticket.granted()
                await trio.sleep_forever()
            except Rejected as rejected:
                told.append(rejected)

    async with trio.open_nursery() as agents:
        async with running(ONE_SLOT) as engine:
            for _ in range(CROWD):
                agents.start_soon(call, engine)
            await trio.testing.wait_all_tasks_blocked()
            engine.drain()
        await trio.testing.wait_all_tasks_blocked()
        agents.cancel_scope.cancel()

    assert len(told) == CROWD - 1


@pytest.mark.parametrize(("high", "low"), HIGH_AND_LOW)
async def test_a_cap_that_is_raised_lets_those_who_wait_go_at_once(
    high: Program, low: Program, autojump_clock: MockClock
) -> None:
    work = Work()
    async with running(low) as engine, trio.open_nursery() as agents:
        for _ in range(3):
            agents.start_soon(work.call, engine, wish(agent="ci", model="opus-1"))
        await trio.testing.wait_all_tasks_blocked()
        assert work.now["p"] == 1

        engine.load(high)
        await trio.testing.wait_all_tasks_blocked()

        assert work.now["p"] == 3


@pytest.mark.parametrize(("high", "low"), HIGH_AND_LOW)
async def test_a_cap_that_is_lowered_drains_and_then_holds(
    high: Program, low: Program, autojump_clock: MockClock
) -> None:
    before, after = Work(hold_s=10), Work()
    request = wish(agent="ci", model="opus-1")
    async with running(high) as engine:
        async with trio.open_nursery() as agents:
            for _ in range(3):
                await agents.start(before.call, engine, request)

            engine.load(low)
            for _ in range(5):
                agents.start_soon(after.call, engine, request)
            await trio.sleep(9)

            assert before.now["p"] == 3, "what runs keeps what it has"
            assert after.peak["p"] == 0

        assert after.peak["p"] == 1
        assert after.finished["p"] == 5
        assert_empty(engine)


async def test_a_removed_provider_closes_after_its_last_attempt(autojump_clock: MockClock) -> None:
    closed: list[tuple[str, float]] = []
    work = Work(hold_s=5)
    began = trio.current_time()

    def on_closed(name: str) -> None:
        closed.append((name, trio.current_time() - began))

    async with running(program(providers=[provider("p"), provider("q")]), on_closed=on_closed) as engine:
        async with trio.open_nursery() as agents:
            await agents.start(work.call, engine, wish(provider="p"))
            engine.load(one_provider("r"))
            await trio.testing.wait_all_tasks_blocked()
            assert closed == [("q", 0)]

            # In flight where it was, and counted there; the next one goes to the new provider.
            assert engine.snapshot().pools["p"].inflight == 1
            grant = await agents.start(work.call, engine, wish())
            assert grant.treatment.provider == "r"

        assert work.finished == {"p": 1, "r": 1}
        assert closed == [("q", 0), ("p", 5)]
        assert "p" not in engine.snapshot().pools
        assert_empty(engine)
        assert engine.caps.providers.keys() <= {"r"}


async def test_a_provider_that_is_back_before_its_last_attempt_ended_is_not_reported_closed(
    autojump_clock: MockClock,
) -> None:
    closed: list[str] = []
    work = Work(hold_s=5)
    async with running(one_provider("p", 2), on_closed=closed.append) as engine:
        async with trio.open_nursery() as agents:
            await agents.start(work.call, engine, wish())
            engine.load(one_provider("q"))
            await trio.testing.wait_all_tasks_blocked()
            engine.load(one_provider("p", 2))
            # What runs in the nursery of before holds its slot all the same.
            for _ in range(3):
                agents.start_soon(work.call, engine, wish())
            await trio.testing.wait_all_tasks_blocked()
            assert work.now["p"] == 2

        assert work.finished["p"] == 4
        assert work.peak["p"] == 2
        assert closed == ["q"]
        assert_empty(engine)


async def test_a_provider_that_is_back_at_once_is_not_reported_closed(autojump_clock: MockClock) -> None:
    closed: list[str] = []
    async with running(program(providers=[provider("p"), provider("q")]), on_closed=closed.append) as engine:
        for _ in range(10):  # which of the two nurseries of `p` has its turn first is Trio's choice
            engine.load(one_provider("q"))
            engine.load(program(providers=[provider("p"), provider("q")]))
            await trio.testing.wait_all_tasks_blocked()

        assert not closed
        await Work().call(engine, wish(provider="p"))


async def test_the_limiters_of_a_removed_provider_are_forgotten(autojump_clock: MockClock) -> None:
    async with running(one_provider("p")) as engine:
        await Work().call(engine, wish())
        assert engine.caps.providers.keys() == {"p"}

        engine.load(one_provider("q"))

        assert not engine.caps.providers


async def test_a_call_whose_provider_is_removed_between_grant_and_start_runs_there_all_the_same(
    autojump_clock: MockClock,
) -> None:
    closed: list[str] = []
    over = trio.Event()
    work = Work()

    async def attempt() -> AttemptResult:
        try:
            return await work.attempt("p")
        finally:
            over.set()

    async with running(one_provider("p"), on_closed=closed.append) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            engine.load(one_provider("q"))
            await trio.testing.wait_all_tasks_blocked()

            ticket.start(attempt)
            await over.wait()

        await trio.testing.wait_all_tasks_blocked()
        assert work.finished["p"] == 1
        assert closed[-1] == "p"
        assert_empty(engine)


async def test_an_added_provider_works_at_once(autojump_clock: MockClock) -> None:
    work = Work()
    async with running(one_provider("p")) as engine:
        engine.load(one_provider("q"))
        # Not one checkpoint between the load and the attempt: its nursery is not open yet.
        with engine.ticket(wish(), "x") as ticket:
            ticket.start(partial(work.attempt, "q"))
            await trio.sleep(2)
            assert work.finished["q"] == 1

        await work.call(engine, wish())
        assert work.finished["q"] == 2


async def test_a_policy_loaded_before_the_engine_runs_is_the_one_that_runs(autojump_clock: MockClock) -> None:
    work = Work()
    engine = Engine(one_provider("p", 2), audit=True)
    engine.load(one_provider("q", 3))
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        async with trio.open_nursery() as agents:
            for _ in range(6):
                agents.start_soon(work.call, engine, wish())
        nursery.cancel_scope.cancel()

    assert work.peak == {"q": 3}


async def test_a_deadline_that_a_policy_brings_counts_from_the_arrival(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x"), engine.ticket(wish(), "y") as ticket:
            await trio.sleep(2)
            engine.load(
                program(providers=[provider("p", limit=1)], lanes=[lane(deadline_ns=5 * SECOND_NS)]),
            )

            with pytest.raises(Rejected) as rejected:
                await ticket.granted()

            assert rejected.value.reject.waited_ns == 5 * SECOND_NS


async def test_a_deadline_that_a_policy_takes_away_wakes_nobody(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    policy = program(providers=[provider("p", limit=1)], lanes=[lane(deadline_ns=2 * SECOND_NS)])
    async with running(policy, journal=lambda _now_ns, event, _commands: events.append(event)) as engine:
        with engine.ticket(wish(), "x"), engine.ticket(wish(), "y"):
            engine.load(ONE_SLOT)
            await trio.sleep(10)

            assert engine.snapshot().waiting == 1
            assert TimePassed() not in events


# ---- drain ----


async def test_a_drain_refuses_what_waits_and_lets_what_runs_end(autojump_clock: MockClock) -> None:
    work = Work(hold_s=3)
    async with running(ONE_SLOT) as engine:
        async with trio.open_nursery() as agents:
            await agents.start(work.call, engine, wish())
            with engine.ticket(wish(), "y") as waiting:
                began = trio.current_time()
                engine.drain()

                with pytest.raises(Rejected) as rejected:
                    await waiting.granted()
                assert rejected.value.reject.reason is Reason.DRAINING
            await engine.idle()

            assert trio.current_time() - began == 3
            assert work.finished["p"] == 1
        assert_empty(engine)


async def test_idle_returns_when_nothing_runs(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with trio.testing.assert_checkpoints():
            await engine.idle()


async def test_after_a_drain_idle_waits_for_what_was_granted_and_has_not_begun(autojump_clock: MockClock) -> None:
    work = Work(hold_s=3)
    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:
        with engine.ticket(wish(), "first"):
            agents.start_soon(work.call, engine, wish())
            await trio.testing.wait_all_tasks_blocked()
        # Granted in this tick: its agent's task has not come round to starting the attempt.
        engine.drain()
        await engine.idle()

        assert work.finished["p"] == 1
        assert_empty(engine)


async def test_idle_waits_for_what_needs_no_slot_too(autojump_clock: MockClock) -> None:
    work = Work(hold_s=3)
    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:
        await agents.start(partial(work.call, engine, wish(), needs_slot=False))
        engine.drain()
        await engine.idle()

        assert work.finished["p"] == 1


async def test_idle_is_no_matter_of_a_moment_between_two_attempts(autojump_clock: MockClock) -> None:
    work = Work()
    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:
        for _ in range(4):
            agents.start_soon(work.call, engine, wish())
        await trio.testing.wait_all_tasks_blocked()
        await engine.idle()

        assert work.finished["p"] == 4
        assert held(engine) == 0
