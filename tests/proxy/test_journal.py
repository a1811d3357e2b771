"""What cannot be written down is not done: new calls wait for the journal, and are told to come back."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.model import Reason
from hivemind_trio.proxy import Door
from hivemind_trio.upstream import Upstream
from tests.proxy.house import House, compiled, house
from tests.support.agent import Agent

OPEN = "provider anthropic { concurrency 2 }"


@attrs.define(eq=False)
class Journal:
    """One whose disk is as it is told to be."""

    behind: bool = True
    _room: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def caught_up(self) -> None:
        while self.behind:
            await self._room.wait()

    def catch_up(self) -> None:
        self.behind = False
        self._room.set()


def guarded(opened: House, gate: Journal) -> None:
    rules = opened.door.current()
    opened.door = Door(opened.engine, Upstream(opened.provider), on_call=opened.records.append, gate=gate)
    opened.door.use(rules.program, rules.secrets)


async def test_a_call_waits_for_the_journal_and_is_served_when_there_is_room(autojump_clock: MockClock) -> None:
    async with house(compiled(OPEN)) as opened:
        journal = Journal()
        guarded(opened, journal)
        agent = await opened.begin()
        assert opened.records == []
        await trio.sleep(5)
        journal.catch_up()
        await agent.done.wait()

        assert agent.status == 200
        (record,) = opened.records
        assert record.number is not None


async def test_who_has_waited_too_long_for_it_is_told_to_come_back(autojump_clock: MockClock) -> None:
    async with house(compiled(OPEN)) as opened:
        guarded(opened, Journal())
        began_s = trio.current_time()
        agent = await opened.ask()

        assert (agent.status, agent.header(b"x-hivemind-reason")) == (503, str(Reason.JOURNAL_BEHIND).encode())
        assert agent.header(b"retry-after") == b"30"
        assert trio.current_time() - began_s < 15, "before its client is left without a word"
        (record,) = opened.records
        assert (record.number, record.refused, record.attempts) == (None, True, 0)


async def test_who_hangs_up_meanwhile_is_gone(autojump_clock: MockClock) -> None:
    async with house(compiled(OPEN)) as opened:
        guarded(opened, Journal())
        agent = await opened.begin(Agent())
        agent.hang_up()
        await agent.done.wait()

        assert opened.records[0].status == 0


@pytest.mark.parametrize("behind", [True, False])
async def test_calls_that_are_on_their_way_go_on(autojump_clock: MockClock, behind: bool) -> None:
    async with house(compiled("provider anthropic { concurrency 1 }")) as opened:
        journal = Journal(behind=False)
        guarded(opened, journal)
        first, second = await opened.begin(), await opened.begin()
        journal.behind = behind
        await first.done.wait()
        await second.done.wait()

        assert (first.status, second.status) == (200, 200)
