"""What was granted of a share that has ended is not to be sent: it is another node's."""

from __future__ import annotations

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import AttemptResult, SharesSet
from tests.support.programs import SECOND_NS, program, provider, wish

from .agents import assert_empty, running
from .failing import ends

UNSENT = AttemptResult(outcome=Outcome.IGNORED, unsent=True)
TWO_SLOTS = program(providers=[provider("p", limit=2)])


async def test_a_grant_holds_as_long_as_the_share_is_renewed(autojump_clock: MockClock) -> None:
    async with running(TWO_SLOTS) as engine:
        engine.post(SharesSet({"p": 2}, 4 * SECOND_NS, {"p": 0}))
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            assert ticket.may_send()
            await trio.sleep(3)
            engine.post(SharesSet({"p": 2}, 7 * SECOND_NS, {"p": 0}))
            await trio.sleep(3)
            assert ticket.may_send()
            await trio.sleep(1)
            assert not ticket.may_send()
        assert_empty(engine)


async def test_what_was_granted_before_a_stop_is_not_sent_though_the_share_is_back(autojump_clock: MockClock) -> None:
    async with running(TWO_SLOTS) as engine:
        engine.post(SharesSet({"p": 2}, 4 * SECOND_NS, {"p": 0}))
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            await trio.sleep(5)
            engine.post(SharesSet({"p": 1}, 9 * SECOND_NS, {"p": 0}))
            assert not ticket.may_send()
            ticket.start(ends(UNSENT))
            await wait_all_tasks_blocked()
            again = await ticket.again()
            assert again is not None
            assert ticket.may_send()
            ticket.start(ends(attrs.evolve(UNSENT, unsent=False, committed=True)))
            await wait_all_tasks_blocked()
        assert_empty(engine)


async def test_a_node_that_is_alone_may_always_send(autojump_clock: MockClock) -> None:
    async with running(TWO_SLOTS) as engine:
        with engine.ticket(wish(), "x") as ticket:
            await ticket.granted()
            await trio.sleep(20)
            assert ticket.may_send()
        assert_empty(engine)
