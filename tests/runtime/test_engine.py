"""The engine carries out what the scheduler decides: permits are taken, given back, and never more than the caps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from hivemind_trio.model import Decision, Outcome, Reason, Request
from hivemind_trio.policy import Program
from hivemind_trio.runtime import Engine, Rejected
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, Event, TimePassed
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS, agent, lane, program, provider, treatment, wish

from .agents import Work, assert_empty, held, running

LIMITERS = 4
"""Of one permit: the provider's, the lane's, the limits group's and the agent's."""


ONE_SLOT = program(providers=[provider("p", limit=1)])


# ---- a grant ----


async def test_a_grant_takes_one_token_of_each_limiter_without_waiting(autojump_clock: MockClock) -> None:
    async with running(program(providers=[provider("p", limit=2, groups={"opus-*": 1})])) as engine:
        with engine.ticket(wish(model="opus-1"), "x") as ticket:
            # Taken when the call arrived: before its agent has so much as looked.
            assert held(engine) == LIMITERS

            grant = await ticket.granted()

            assert grant.permit is not None
            assert grant.permit.group == "opus-*"
            assert engine.snapshot().pools["p"].groups_inflight == {"opus-*": 1}
        assert_empty(engine)


async def test_a_waiting_call_holds_nothing(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x"), engine.ticket(wish(), "y"):
            assert engine.snapshot().waiting == 1
            assert held(engine) == LIMITERS


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(ONE_SLOT, id="provider"),
        pytest.param(program(providers=[provider("p", groups={"opus-*": 1})]), id="group"),
        pytest.param(program(lanes=[lane(max=1)]), id="lane"),
        pytest.param(program(providers=[provider("p", limit=4)], lanes=[lane(max="25%")]), id="share of a lane"),
        pytest.param(program(providers=[provider("p", limit=4)], lanes=[lane(max="1%")]), id="share below one"),
        pytest.param(program(agents=[agent("ci", concurrency=1)]), id="agent"),
        pytest.param(program(unknown=agent("unknown", concurrency=1)), id="caller"),
    ],
)
async def test_more_than_a_cap_is_a_bug_that_the_limiters_notice(policy: Program, autojump_clock: MockClock) -> None:
    async with running(policy) as engine:
        with engine.ticket(wish(agent="ci", model="opus-1"), "x") as ticket:
            grant = await ticket.granted()
            assert grant.permit is not None

            with pytest.raises(AssertionError, match="beyond a cap"):
                engine.caps.take(grant.permit, object())

            # Whichever was full, those before it were given back.
            assert held(engine) == LIMITERS
        assert_empty(engine)


async def test_a_grant_beyond_a_cap_ends_its_call_and_no_other(autojump_clock: MockClock) -> None:
    bugs: list[Exception] = []
    engine = Engine(program(providers=[provider("p", limit=2)]), on_crash=bugs.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        with engine.ticket(wish(), "x") as first:
            await first.granted()
            engine.caps.providers["p"].pool.total_tokens = 1  # the scheduler counts 2
            with engine.ticket(wish(), "y") as second:
                with pytest.raises(Rejected, match="the proxy has made a mistake") as rejected:
                    await second.granted()
                assert rejected.value.reject.reason is Reason.INTERNAL_ERROR

            assert [type(bug) for bug in bugs] == [AssertionError]
            assert engine.snapshot().inflight == 1
            engine.caps.providers["p"].pool.total_tokens = 2
            with engine.ticket(wish(), "y") as third:
                await third.granted()
        assert_empty(engine)
        nursery.cancel_scope.cancel()


async def test_a_difference_between_the_keepers_is_a_bug_that_the_audit_notices(autojump_clock: MockClock) -> None:
    async with running(program(providers=[provider("p", groups={"opus-*": 9})])) as engine:
        with engine.ticket(wish(model="opus-1"), "x") as ticket:
            await ticket.granted()
            caps = engine.caps.providers["p"]
            for limiter in (caps.pool, caps.lanes["default"], caps.groups["opus-*"]):
                stranger = object()
                limiter.acquire_on_behalf_of_nowait(stranger)

                with pytest.raises(AssertionError, match="2 held, the scheduler counts 1"):
                    engine.post(TimePassed())

                limiter.release_on_behalf_of(stranger)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(program(providers=[provider("p", limit=3)]), id="provider"),
        pytest.param(program(providers=[provider("p", groups={"opus-*": 3})]), id="group"),
        pytest.param(program(providers=[provider("p", groups={None: 3})]), id="all other models"),
        pytest.param(program(lanes=[lane(max=3)]), id="lane"),
        pytest.param(program(providers=[provider("p", limit=12)], lanes=[lane(max="25%")]), id="share of a lane"),
        pytest.param(program(agents=[agent("ci", concurrency=3)]), id="agent"),
        pytest.param(program(unknown=agent("unknown", concurrency=3)), id="caller"),
    ],
)
async def test_attempts_that_run_are_as_many_as_the_cap_and_never_more(
    policy: Program, autojump_clock: MockClock
) -> None:
    work = Work()
    async with running(policy) as engine:
        async with trio.open_nursery() as agents:
            for _ in range(10):
                agents.start_soon(partial(work.call, engine, wish(agent="ci", model="opus-1"), caller="one"))

        assert work.finished["p"] == 10
        assert work.peak["p"] == 3
        assert_empty(engine)


async def test_a_caller_who_calls_itself_what_an_agent_is_called_shares_no_cap_with_it(
    autojump_clock: MockClock,
) -> None:
    def by_token(request: Request) -> Decision:
        return treatment(agent=request.token_agent or "unknown")

    work = Work()
    async with running(program(agents=[agent("ci", concurrency=1)], decide=by_token)) as engine:
        async with trio.open_nursery() as agents:
            agents.start_soon(partial(work.call, engine, attrs.evolve(wish(), token_agent="ci"), caller="x"))
            agents.start_soon(partial(work.call, engine, wish(), caller="ci"))
            agents.start_soon(partial(work.call, engine, wish(), caller="ci"))

        assert work.peak["p"] == 3
        assert_empty(engine)


async def test_a_call_that_needs_no_slot_runs_outside_the_limiters(autojump_clock: MockClock) -> None:
    work = Work()
    async with running(ONE_SLOT) as engine:
        async with trio.open_nursery() as agents:
            for _ in range(5):
                grant = await agents.start(partial(work.call, engine, wish(), needs_slot=False))
                assert grant.permit is None
            await trio.testing.wait_all_tasks_blocked()

            assert work.now["p"] == 5
            assert held(engine) == 0
            assert (await agents.start(work.call, engine, wish())).permit is not None

        assert_empty(engine)


# ---- the client leaves ----


async def test_a_client_that_leaves_while_it_waits_leaves_the_queue(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x"):
            with trio.move_on_after(1) as patience, engine.ticket(wish(), "y") as waiting:
                await waiting.granted()

            assert patience.cancelled_caught
            assert engine.snapshot().waiting == 0
        assert_empty(engine)


@pytest.mark.parametrize("cancelled_first", [True, False])
@pytest.mark.parametrize("starts", [True, False])
async def test_a_client_that_leaves_in_the_tick_of_its_grant_passes_the_permit_on(
    cancelled_first: bool, starts: bool, autojump_clock: MockClock
) -> None:
    work, next_one, scope = Work(), Work(), trio.CancelScope()

    async def leaver(engine: Engine) -> None:
        with scope, engine.ticket(wish(), "leaver") as ticket:
            await ticket.granted()
            if starts:
                ticket.start(work.attempt)
            await trio.sleep_forever()

    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:
        with engine.ticket(wish(), "first"):
            agents.start_soon(leaver, engine)
            await trio.testing.wait_all_tasks_blocked()
            agents.start_soon(next_one.call, engine, wish())
            await trio.testing.wait_all_tasks_blocked()
            assert engine.snapshot().waiting == 2
            if cancelled_first:
                scope.cancel()
        # The leaver has the grant now, and no task has run in between.
        assert engine.snapshot().waiting == 1
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

        assert next_one.now["p"] == 1
        assert work.finished.total() == 0


async def test_a_client_that_leaves_before_it_looked_gives_the_permit_back(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x"):
            pass
        assert_empty(engine)


async def test_a_client_that_leaves_while_its_attempt_runs_cancels_it_and_the_permit_comes_back(
    autojump_clock: MockClock,
) -> None:
    work, next_one = Work(), Work()
    async with running(ONE_SLOT) as engine, trio.open_nursery() as agents:
        scope = trio.CancelScope()

        async def leaver() -> None:
            with scope:
                await work.call(engine, wish())

        agents.start_soon(leaver)
        await trio.testing.wait_all_tasks_blocked()
        agents.start_soon(next_one.call, engine, wish())
        await trio.testing.wait_all_tasks_blocked()
        assert (work.now["p"], next_one.now["p"]) == (1, 0)

        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

        assert work.cancelled["p"] == 1
        assert next_one.now["p"] == 1


async def test_the_permit_of_an_attempt_that_is_slow_to_stop_stays_taken_until_it_has(
    autojump_clock: MockClock,
) -> None:
    async def shielded() -> AttemptResult:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return SUCCEEDED

    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            ticket.start(shielded)
            await trio.testing.wait_all_tasks_blocked()

        assert engine.snapshot().inflight == 1
        await trio.sleep(4)
        assert engine.snapshot().inflight == 1
        await trio.sleep(2)
        assert_empty(engine)


async def test_an_attempt_does_not_begin_for_a_client_that_left_at_once(autojump_clock: MockClock) -> None:
    work = Work()
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            ticket.start(work.attempt)  # and out, before the new task has had its first turn
        await engine.idle()

        assert work.finished.total() == 0
        assert_empty(engine)


async def test_a_client_that_was_interrupted_while_waiting_can_wait_again(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with ExitStack() as first:
            first.enter_context(engine.ticket(wish(), "x"))
            with engine.ticket(wish(), "y") as ticket:
                with trio.move_on_after(1):
                    await ticket.granted()
                first.close()
                grant = await ticket.granted()

        assert grant.waited_ns == SECOND_NS
        assert_empty(engine)


async def test_an_attempt_runs_once_per_grant(autojump_clock: MockClock) -> None:
    work = Work()
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x") as ticket, engine.ticket(wish(), "y") as waiting:
            ticket.start(work.attempt)

            with pytest.raises(AssertionError, match="is running, not granted"):
                ticket.start(work.attempt)
            with pytest.raises(AssertionError, match="is waiting, not granted"):
                waiting.start(work.attempt)


# ---- an attempt crashes ----


async def test_an_attempt_that_crashes_gives_its_permit_back_and_takes_nobody_with_it(
    autojump_clock: MockClock,
) -> None:
    work = Work(hold_s=5)
    crashes: list[Exception] = []
    bug = KeyError("a bug")
    async with running(program(providers=[provider("p", limit=2)]), on_crash=crashes.append) as engine:
        async with trio.open_nursery() as agents:
            await agents.start(work.call, engine, wish())
            await agents.start(partial(Work(hold_s=1).call, engine, wish(), crash=bug))
            await trio.sleep(2)

            assert crashes == [bug]
            assert engine.snapshot().inflight == 1
            await agents.start(work.call, engine, wish())

        assert work.finished["p"] == 2
        assert_empty(engine)


async def test_neither_a_crash_nor_a_cancellation_counts_against_the_provider(
    autojump_clock: MockClock,
) -> None:
    heard: list[Outcome] = []

    def journal(_now_ns: int, event: object, _commands: object) -> None:
        if isinstance(event, AttemptEnded):
            heard.append(event.ended.outcome)

    work = Work()
    async with running(ONE_SLOT, journal=journal) as engine:
        await work.call(engine, wish(), crash=ValueError("a bug"))
        with trio.move_on_after(0.5):
            await work.call(engine, wish())
        await engine.idle()
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
        await work.call(engine, wish())

    assert heard == [Outcome.IGNORED, Outcome.IGNORED, Outcome.IGNORED, Outcome.SUCCEEDED]


async def test_what_is_no_mere_exception_ends_the_engine_and_still_gives_the_permit_back(
    autojump_clock: MockClock,
) -> None:
    class Stop(BaseException):
        pass

    engine = Engine(program(), audit=True)
    with pytest.RaisesGroup(Stop, flatten_subgroups=True, allow_unwrapped=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            nursery.start_soon(partial(Work().call, engine, wish()))
            nursery.start_soon(partial(Work().call, engine, wish(), crash=Stop()))
    assert_empty(engine)


# ---- refusals ----


def queue_full(engine: Engine, stack: ExitStack) -> Request:
    stack.enter_context(engine.ticket(wish(), "x"))
    stack.enter_context(engine.ticket(wish(), "x"))
    return wish()


def drained(engine: Engine, _: ExitStack) -> Request:
    engine.drain()
    return wish()


def denied(_: Engine, __: ExitStack) -> Request:
    return wish(deny=True)


@pytest.mark.parametrize(
    ("arrange", "needs_slot", "reason", "message"),
    [
        (queue_full, True, Reason.QUEUE_FULL, "queue full: 1 waiting for provider `p` (limit 1)"),
        (drained, True, Reason.DRAINING, "the proxy is shutting down and accepts no new calls"),
        (drained, False, Reason.DRAINING, "the proxy is shutting down and accepts no new calls"),
        (denied, True, Reason.DENIED, "denied by the policy: not on a Sunday"),
        (denied, False, Reason.DENIED, "denied by the policy: not on a Sunday"),
    ],
)
async def test_a_rejection_carries_the_refusal(
    arrange: Callable[[Engine, ExitStack], Request],
    needs_slot: bool,
    reason: Reason,
    message: str,
    autojump_clock: MockClock,
) -> None:
    async with running(program(providers=[provider("p", limit=1, queue=1)])) as engine:
        with ExitStack() as stack:
            request = arrange(engine, stack)
            with engine.ticket(request, "x", needs_slot=needs_slot) as ticket:
                with pytest.raises(Rejected) as rejected:
                    await ticket.granted()

                assert rejected.value.reject.reason is reason
                assert rejected.value.reject.message == message
                assert rejected.value.reject.call_id == ticket.id
                with pytest.raises(AssertionError, match="is over, not granted"):
                    ticket.start(Work().attempt)
        assert_empty(engine)


async def test_a_deadline_comes_though_nothing_else_happens(autojump_clock: MockClock) -> None:
    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x"), engine.ticket(wish(deadline_ns=3 * SECOND_NS), "y") as ticket:
            began = trio.current_time()

            with pytest.raises(Rejected) as rejected:
                await ticket.granted()

            assert rejected.value.reject.reason is Reason.DEADLINE
            assert rejected.value.reject.waited_ns == 3 * SECOND_NS
            assert trio.current_time() - began == pytest.approx(3)
            assert engine.snapshot().waiting == 0


@pytest.mark.parametrize("order", [(5, 2, 9, 0, 2), (9, 5, 2, 2, 0), (0, 2, 2, 5, 9)])
async def test_every_deadline_comes_at_its_time_in_whatever_order_they_were_set(
    order: tuple[int, ...], autojump_clock: MockClock
) -> None:
    heard: list[tuple[int, int]] = []

    async def patient(engine: Engine, patience_s: int, task_status: trio.TaskStatus[None]) -> None:
        with engine.ticket(wish(deadline_ns=patience_s * SECOND_NS), "y") as ticket:
            task_status.started()
            with pytest.raises(Rejected) as rejected:
                await ticket.granted()
            heard.append((patience_s, rejected.value.reject.waited_ns // SECOND_NS))

    async with running(ONE_SLOT) as engine:
        with engine.ticket(wish(), "x"):
            async with trio.open_nursery() as agents:
                for patience_s in order:
                    await agents.start(patient, engine, patience_s)

    assert sorted(heard) == [(0, 0), (2, 2), (2, 2), (5, 5), (9, 9)]


async def test_a_deadline_that_a_float_of_seconds_cannot_hit_comes_all_the_same(autojump_clock: MockClock) -> None:
    # After a year of uptime the clock's floats are 4 ns apart.
    autojump_clock.jump(366 * 24 * 3_600)
    wakings = 0

    def journal(_now_ns: int, event: Event, _commands: object) -> None:
        nonlocal wakings
        wakings += isinstance(event, TimePassed)
        assert wakings < 1_000, "woken again and again for the same deadline"

    async with running(ONE_SLOT, journal=journal) as engine:
        with engine.ticket(wish(), "x"):
            for odd_ns in range(20):
                ticket = engine.ticket(wish(deadline_ns=SECOND_NS + odd_ns), "y")
                with ticket as waiting, pytest.raises(Rejected):
                    await waiting.granted()

    assert wakings == 20


async def test_a_deadline_that_came_while_no_engine_ran_comes_when_it_does(autojump_clock: MockClock) -> None:
    engine = Engine(ONE_SLOT, audit=True)
    with engine.ticket(wish(), "x"), engine.ticket(wish(deadline_ns=SECOND_NS), "y") as ticket:
        await trio.sleep(5)
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)

            with pytest.raises(Rejected):
                await ticket.granted()
            nursery.cancel_scope.cancel()
