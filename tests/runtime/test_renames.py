"""Renamed (`was OLD`) while calls wait and run: both keepers of every cap count on, the same, and nothing closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from hivemind_trio.model import Request
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import AttemptEnded, Command, Event, Grant
from tests.scheduler.models.drawn import AGENTS, settings, wishes
from tests.support.programs import agent, lane, program, provider, wish

from .agents import Work, assert_empty, running
from .test_accounting import World, manners


def renamed(what: Program, **was: Mapping[str, str]) -> Program:
    return attrs.evolve(what, was=was)


ONE = {
    "provider": (
        program(providers=[provider("p", limit=1)]),
        renamed(program(providers=[provider("q", limit=1)]), provider={"q": "p"}),
        wish(),
        wish(),
    ),
    "lane": (
        program(lanes=[lane("a", max=1)]),
        renamed(program(lanes=[lane("b", max=1)]), lane={"b": "a"}),
        wish(lane="a"),
        wish(lane="b"),
    ),
    "agent": (
        program(agents=[agent("ci", concurrency=1)]),
        renamed(program(agents=[agent("bot", concurrency=1)]), agent={"bot": "ci"}),
        wish(agent="ci"),
        wish(agent="bot"),
    ),
}
"""A cap of one, under its old name and its new one, and calls that it holds back."""


@pytest.mark.parametrize(("before", "after", "old", "new"), ONE.values(), ids=ONE)
async def test_what_runs_holds_its_slot_under_the_new_name(
    before: Program, after: Program, old: Request, new: Request, autojump_clock: MockClock
) -> None:
    first, second = Work(hold_s=5), Work(hold_s=5)
    async with running(before) as engine:
        async with trio.open_nursery() as agents:
            await agents.start(first.call, engine, old)
            engine.load(after)
            agents.start_soon(second.call, engine, new)
            await trio.sleep(4)
            assert not second.now, "the cap is taken, whatever it is called"

            engine.load(after)
            await trio.sleep(2)
            assert second.now.total() == 1
        assert_empty(engine)


async def test_a_renamed_provider_goes_on_where_it_is(autojump_clock: MockClock) -> None:
    closed: list[str] = []
    work = Work(hold_s=5)
    before, after, old, _ = ONE["provider"]
    async with running(before, on_closed=closed.append) as engine:
        branch = engine.branches["p"]
        async with trio.open_nursery() as agents:
            await agents.start(work.call, engine, old)
            engine.load(after)
            await trio.sleep(6)

        assert engine.branches == {"q": branch}
        assert not closed

        engine.load(before)
        await trio.testing.wait_all_tasks_blocked()
        assert closed == ["q"], "it is gone under the name that it had last"
        assert_empty(engine)


async def test_a_call_that_was_granted_before_runs_in_the_nursery_of_now(autojump_clock: MockClock) -> None:
    closed: list[str] = []
    work = Work()
    before, after, old, _ = ONE["provider"]
    async with running(before, on_closed=closed.append) as engine:
        with engine.ticket(old, "x") as ticket:
            await ticket.granted()
            engine.load(after)
            ticket.start(partial(work.attempt, "p"))
            await trio.sleep(2)

        assert work.finished["p"] == 1
        assert not closed
        assert_empty(engine)


async def test_what_has_the_name_still_though_it_is_gone_makes_room(autojump_clock: MockClock) -> None:
    """The last attempt at the former `q` is not one at the new `q`, which was `p`."""
    closed: list[str] = []
    work = Work(hold_s=5)
    both = program(providers=[provider("p", limit=1), provider("q", limit=1)])
    before, after, _, _ = ONE["provider"]
    async with running(both, on_closed=closed.append) as engine:
        async with trio.open_nursery() as agents:
            await agents.start(work.call, engine, wish(provider="q"))
            engine.load(before)
            engine.load(after)
            grant = await agents.start(work.call, engine, wish(provider="q"))
            assert grant.waited_ns == 0
        await trio.testing.wait_all_tasks_blocked()

        assert not closed, "its name is in use"
        assert_empty(engine)


async def test_a_provider_is_closed_with_the_last_of_its_nurseries(autojump_clock: MockClock) -> None:
    closed: list[str] = []
    first, second = Work(hold_s=5), Work(hold_s=10)
    before = program(providers=[provider("p", limit=2)])
    async with running(before, on_closed=closed.append) as engine, trio.open_nursery() as agents:
        await agents.start(first.call, engine, wish())
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            engine.load(program(providers=[provider("other")]))
            ticket.start(partial(second.attempt, "p"))
            await trio.sleep(7)
            assert first.finished["p"] == 1
            assert not closed, "what was granted before it went still runs there"

            await trio.sleep(5)
            assert closed == ["p"]


# ---- any policies ----


@attrs.define(eq=False)
class Renaming(World):
    """Does not hold the caps against names of its own, which change here: the engine compares its two keepers."""

    def journal(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        self.ended += isinstance(event, AttemptEnded)
        self.granted += sum(isinstance(one, Grant) and one.permit is not None for one in commands)


def _named(told: dict[str, Any]) -> Program:
    others = {"provider": "pq", "lane": "ab", "agent": AGENTS}
    was = {
        kind: {told[kind]: names[0] if told[kind] == names[1] else names[1]}
        for kind, names in others.items()
        if told["was"]
    }
    return renamed(
        program(
            providers=[provider(told["provider"], limit=told["limit"])],
            lanes=[lane(told["lane"], max=told["max"])],
            agents=[agent(told["agent"], concurrency=told["concurrency"])],
        ),
        **was,
    )


policies = settings(
    provider=["p", "q"],
    lane=["a", "b"],
    agent=AGENTS,
    was=[True, True, False],
    limit=[1, 2, 3],
    max=[None, 1, 2],
    concurrency=[None, 1, 2],
).map(_named)
"""One of each kind, that may have been the other one; or the other one is gone, and may have attempts in flight."""


@pytest.mark.slow
@given(
    first=policies,
    reloads=st.lists(st.tuples(st.integers(0, 4), policies), min_size=2, max_size=6),
    calls=st.lists(st.tuples(wishes, manners), min_size=8, max_size=30),
)
def test_every_permit_comes_back_and_the_keepers_agree(
    first: Program, reloads: list[tuple[int, Program]], calls: list[tuple[Request, dict[str, Any]]]
) -> None:
    world = Renaming()

    trio.run(world.run, first, reloads, calls, clock=MockClock(autojump_threshold=0))
