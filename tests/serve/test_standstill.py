"""Report of a provider at which calls wait in line and none is in flight."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from hivemind_trio.admin import Silences
from hivemind_trio.model import Outcome
from hivemind_trio.policy import RetrySettings
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, Call, CallArrived, CallId, Scheduler, TimePassed
from hivemind_trio.serve.standstill_log import LONG_NS, Standstills
from tests.support.programs import SECOND_NS, program, provider, wish

from .conftest import Said


def standing(after_s: int) -> Scheduler:
    """Return a scheduler whose one call was refused at 0 and waits."""
    scheduler = Scheduler(program(providers=[provider("p")], retries=[RetrySettings()]))
    scheduler.handle(CallArrived(Call(id=CallId(1), request=wish(provider="p"), caller="x")), 0)
    ended = AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=after_s * SECOND_NS)
    scheduler.handle(AttemptEnded(CallId(1), ended), 0)
    return scheduler


def test_a_standstill_is_reported_once_with_its_reason_and_its_end(said: Said) -> None:
    scheduler, standstills = standing(20), Standstills(said.log, Silences())

    for now_ns in (LONG_NS, LONG_NS + SECOND_NS, LONG_NS + 2 * SECOND_NS):
        standstills.look(scheduler.snapshot(), now_ns)

    assert said.lines == [
        {
            "event": "provider_standstill",
            "level": "warning",
            "provider": "p",
            "reason": "provider-quota",
            "waiting": 1,
            "stands_s": 6.0,
            "next_in_s": 14.0,
        }
    ]


def test_the_next_standstill_is_reported_again(said: Said) -> None:
    scheduler, standstills = standing(20), Standstills(said.log, Silences())
    standstills.look(scheduler.snapshot(), 6 * SECOND_NS)

    scheduler.handle(TimePassed(), 20 * SECOND_NS)
    standstills.look(scheduler.snapshot(), 40 * SECOND_NS)  # in flight meanwhile
    ended = AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=20 * SECOND_NS)
    scheduler.handle(AttemptEnded(CallId(1), ended), 40 * SECOND_NS)
    standstills.look(scheduler.snapshot(), 46 * SECOND_NS)

    assert [one["stands_s"] for one in said.lines] == [6.0, 6.0]


@pytest.mark.parametrize("after_s", [3, 20])
async def test_an_engine_is_looked_at_while_it_runs(
    said: Said, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, after_s: int
) -> None:
    engine = Engine(program(providers=[provider("p")]))
    engine.scheduler = standing(after_s)  # as it would be after a refusal
    nursery.start_soon(Standstills(said.log, Silences()).run, engine)

    await trio.sleep(10 if after_s > 5 else 2.6)

    assert [one["event"] for one in said.lines] == (["provider_standstill"] if after_s > 5 else [])
