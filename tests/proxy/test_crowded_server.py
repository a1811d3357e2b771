"""A server that serves fewer streams faster: the proxy learns it from the streams themselves, while they run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Final

import trio
from trio.testing import MockClock

from hivemind_trio.scheduler import Event, StreamsReceived
from tests.proxy.house import House, body_of, house
from tests.support.agent import Agent
from tests.support.policies import compiled
from tests.support.upstream import EVENT_STREAM, FakeProvider, Reply, Request, Step

START: Final = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}\n\n'
DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"So"}}\n\n'
STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

POLICY: Final = compiled("provider anthropic { concurrency 2..64 }")
AGENTS: Final = 6
TURNS: Final = 6
KNEE: Final = 2
PIECES: Final = 40
PIECE_S: Final = 0.1


class CrowdedServer(FakeProvider):
    """As fast as ever up to `KNEE` exchanges, and slower by the square of how many there are beyond it."""

    def __init__(self) -> None:
        super().__init__(self._play)
        self._length = Random(1)

    def _play(self, _: Request) -> Reply:
        return Reply(headers=[EVENT_STREAM], steps=self._steps())

    def _steps(self) -> Iterator[Step]:
        yield START
        for _ in range(PIECES + self._length.randint(-PIECES // 2, PIECES // 2)):
            yield PIECE_S * max(1.0, (self.open / KNEE) ** 2)
            yield DELTA
        yield STOP


async def work(opened: House, number: int, *, stream: bool) -> None:
    await trio.sleep(number / 10)
    for _ in range(TURNS):
        agent = await opened.ask(Agent(body=body_of(stream=stream), headers=[(b"X-Api-Key", b"key-%d" % number)]))
        assert (agent.status, agent.whole) == (200, True)


async def took_s(*, stream: bool, events: list[Event]) -> float:
    def journal(_at_ns: int, event: Event, _commands: object) -> None:
        events.append(event)

    async with house(POLICY, CrowdedServer(), journal=journal) as opened:
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(AGENTS):
                nursery.start_soon(partial(work, opened, number, stream=stream))
        return trio.current_time() - began_s


async def test_a_small_fleet_is_served_as_many_at_once_as_are_served_best(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    at_once_s = PIECES * PIECE_S * TURNS * (AGENTS / KNEE) ** 2
    best_s = PIECES * PIECE_S * TURNS * AGENTS / KNEE

    told_s = await took_s(stream=True, events=events)

    assert told_s < (at_once_s + best_s) / 2
    reports = [one for one in events if isinstance(one, StreamsReceived)]
    assert len(reports) <= 2 * told_s + 1
    # All but what an answer held until its first content, and what it received after the last report.
    received = sum(sum(one.received.values()) for one in reports)
    assert AGENTS * TURNS * (PIECES - 10) * len(DELTA) < received <= AGENTS * TURNS * PIECES * 2 * len(DELTA)


async def test_answers_that_are_not_streamed_are_not_told(autojump_clock: MockClock) -> None:
    events: list[Event] = []

    await took_s(stream=False, events=events)

    assert not [one for one in events if isinstance(one, StreamsReceived)]
