"""Invariant: whatever mix of endings, every permit comes back, nobody is forgotten, and no cap is exceeded upstream.

The times are few, so that arrivals, hang-ups, ends, reloads and drains meet in the same tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.model import Outcome
from hivemind_trio.proxy.response_buffer import OUTBOX_BYTES_MAX
from hivemind_trio.scheduler import AttemptEnded, Command, Event, Grant
from tests.support.agent import Agent
from tests.support.programs import SECOND_NS, lane, program, provider
from tests.support.upstream import EARLY_END, EVENT_STREAM, HUNG_UP, REFUSED, RESET, STALL, FakeProvider, Reply, Request

from .house import House, house

GENERATION, CHEAP = b"/v1/messages", b"/v1/messages/count_tokens"
LARGE = b"x" * (OUTBOX_BYTES_MAX // 2)

steps = st.lists(
    st.sampled_from([b"piece", b"piece", LARGE, LARGE, LARGE, 0.0, 1.0, 1.0, 2.0, RESET, EARLY_END, STALL]), max_size=7
)
replies = st.builds(
    Reply,
    before=st.sampled_from([(), (), (1.0,), (2.0,), (STALL,), (REFUSED,), (1.0, HUNG_UP)]),
    status=st.sampled_from([200, 200, 204, 400, 429, 500]),
    headers=st.just([EVENT_STREAM]),
    steps=steps,
)


@attrs.frozen
class Manner:
    """How one agent behaves; times are seconds from its arrival, None: never."""

    arrives_s: float
    target: bytes
    method: str
    body_delay_s: float
    hangs_up_s: float | None
    takes_bytes: int | None
    reads_s: float | None
    reply: Reply


times = st.sampled_from([None, None, 0.0, 1.0, 2.0, 3.0, 61.0])
manners = st.builds(
    Manner,
    arrives_s=st.sampled_from([0.0, 0.0, 1.0, 2.0]),
    target=st.sampled_from([GENERATION, GENERATION, GENERATION, CHEAP]),
    method=st.sampled_from(["POST", "POST", "POST", "POST", "GET", "HEAD"]),
    body_delay_s=st.sampled_from([0.0, 0.0, 1.0]),
    hangs_up_s=times,
    takes_bytes=st.sampled_from([None, None, 0, 10]),
    reads_s=times,
    reply=replies,
)


@attrs.define(eq=False)
class Crowd:
    """Agents before one door."""

    opened: House
    agents: list[Agent] = attrs.field(factory=list)

    async def one(self, number: int, manner: Manner) -> None:
        await trio.sleep(manner.arrives_s)
        agent = Agent(
            manner.method,
            manner.target,
            [(b"x-number", str(number).encode())],
            piece_delay_s=manner.body_delay_s,
            takes_bytes=manner.takes_bytes,
        )
        self.agents.append(agent)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.call, self.opened.door)
            if manner.hangs_up_s is not None:
                await trio.sleep(manner.hangs_up_s)
                agent.hang_up()
            elif manner.takes_bytes is not None:
                # The listener does not wait for ever either: then the connection is reset.
                await trio.sleep(manner.reads_s if manner.reads_s is not None else 120.0)
                agent.reading.set()


@pytest.mark.slow
@settings(max_examples=150)
@given(
    limit=st.integers(1, 3),
    queue=st.none() | st.integers(0, 2).filter(bool),
    deadline_s=st.sampled_from([None, None, 1, 2]),
    crowd=st.lists(manners, min_size=1, max_size=8),
    reload_s=st.sampled_from([None, None, 0.0, 1.0, 2.0]),
    drain_s=st.sampled_from([None, None, None, 1.0, 3.0]),
)
def test_after_any_mix_of_endings_nothing_is_left(
    limit: int,
    queue: int | None,
    deadline_s: int | None,
    crowd: Sequence[Manner],
    reload_s: float | None,
    drain_s: float | None,
) -> None:
    policy = program(
        providers=[provider(limit=limit)],
        lanes=[lane(queue=queue, deadline_ns=deadline_s and deadline_s * SECOND_NS)],
    )
    after = program(providers=[provider(limit=limit)], hash="reloaded")
    seen: Counter[str] = Counter()

    def journal(_now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        seen["granted"] += sum(isinstance(one, Grant) and one.permit is not None for one in commands)
        seen["ended"] += isinstance(event, AttemptEnded)

    def play(request: Request) -> Reply:
        return crowd[int(request.values(b"x-number")[0])].reply

    async def act() -> None:
        answers = FakeProvider(play)
        async with house(policy, answers, journal=journal) as opened:
            everybody = Crowd(opened)
            for number, manner in enumerate(crowd):
                opened.nursery.start_soon(everybody.one, number, manner)
            if reload_s is not None:
                await trio.sleep(reload_s)
                opened.door.use(after, {})
                opened.engine.load(after)
            if drain_s is not None:
                await trio.sleep(drain_s)
                opened.engine.drain()

        assert seen["granted"] == seen["ended"]
        assert answers.most_at[GENERATION] - sum(one.method != "POST" for one in crowd) <= limit
        assert len(opened.records) == len(crowd)
        for agent in everybody.agents:
            # Each has exactly one end, and was told the truth about it.
            assert agent.served
            assert agent.gone + agent.whole + agent.aborted == 1
            number = int(agent.headers[0][1])
            if agent.whole and agent.status == 200:
                pieces = [step for step in crowd[number].reply.steps if isinstance(step, bytes)]
                assert agent.answer == b"".join(pieces)

    trio.run(act, clock=MockClock(autojump_threshold=0))


# ---- what the scheduler hears of an attempt ----


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(), Outcome.SUCCEEDED),
        (Reply(status=304, steps=()), Outcome.SUCCEEDED),
        (Reply(status=400), Outcome.IGNORED),
        (Reply(status=401), Outcome.IGNORED),
        (Reply(status=429), Outcome.BURST),
        (Reply(status=500), Outcome.FAILED),
        (Reply(status=529), Outcome.OVERLOADED),
        (Reply(before=(REFUSED,)), Outcome.UNREACHABLE),
        (Reply(steps=(b"half", RESET)), Outcome.FAILED),
        (Reply(before=(STALL,)), Outcome.FAILED),
        (Reply(steps=(b"half", STALL)), Outcome.FAILED),
    ],
)
async def test_an_attempt_s_end_says_something_of_the_provider(
    reply: Reply, outcome: Outcome, autojump_clock: object
) -> None:
    heard: list[Any] = []

    def journal(_now_ns: int, event: Event, _commands: Sequence[Command]) -> None:
        heard.extend([event.ended.outcome] if isinstance(event, AttemptEnded) else [])

    replies = [reply, Reply()]
    async with house(program(), FakeProvider(lambda _: replies.pop()), journal=journal) as opened:
        await opened.ask()
        await opened.ask()

    assert heard == [Outcome.SUCCEEDED, outcome]


async def test_an_agent_s_own_doing_says_nothing_of_the_provider(autojump_clock: object) -> None:
    heard: list[Any] = []

    def journal(_now_ns: int, event: Event, _commands: Sequence[Command]) -> None:
        heard.extend([event.ended.outcome] if isinstance(event, AttemptEnded) else [])

    endless = FakeProvider(lambda _: Reply(steps=[LARGE] * 9))
    async with house(program(), endless, journal=journal) as opened:
        goes, sleeps = await opened.begin(takes_bytes=0), await opened.begin(takes_bytes=0)
        goes.hang_up()
        await trio.sleep(100)
        sleeps.reading.set()

    assert heard == [Outcome.IGNORED, Outcome.IGNORED]


# ---- who takes one ----


async def test_what_does_not_generate_passes_a_full_provider(autojump_clock: object) -> None:
    slow = FakeProvider(lambda request: Reply(steps=(5.0, b"x") if request.target == GENERATION else ()))
    async with house(program(providers=[provider(limit=1)]), slow) as opened:
        await opened.begin()

        cheap = [
            await opened.ask(target=CHEAP),
            await opened.ask(method="GET", target=b"/v1/models", body=()),
            await opened.ask(method="HEAD", target=b"/", body=()),
            await opened.ask(method="GET", target=GENERATION + b"/", body=()),
        ]

        assert [agent.status for agent in cheap] == [200] * 4
        assert opened.engine.snapshot().inflight == 1


async def test_a_slow_reader_s_slot_is_free_once_the_provider_is_done(autojump_clock: object) -> None:
    async with house(program(providers=[provider(limit=1)])) as opened:
        readers = [await opened.begin(takes_bytes=0) for _ in range(5)]
        await wait_all_tasks_blocked()

        # All five answers are here; none has been read.
        assert len(opened.provider.requests) == 5
        assert opened.engine.snapshot().inflight == 0
        assert not any(reader.served for reader in readers)
        for reader in readers:
            reader.reading.set()
    assert all(reader.whole for reader in readers)


async def test_no_connection_is_held_by_a_call_that_waits(autojump_clock: object) -> None:
    async with house(
        program(providers=[provider(limit=2)]), FakeProvider(lambda _: Reply(steps=(5.0, b"x")))
    ) as opened:
        for _ in range(10):
            await opened.begin()

        assert opened.provider.open == 2
        assert opened.engine.snapshot().waiting == 8
    assert opened.provider.most_at[GENERATION] == 2


async def test_a_bug_in_an_attempt_is_loud_and_costs_no_slot(autojump_clock: object) -> None:
    replies: Iterator[Exception | Reply] = iter([ZeroDivisionError("a bug"), Reply()])

    def play(_: Request) -> Reply:
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async with house(program(providers=[provider(limit=1)]), FakeProvider(play)) as opened:
        first, second = await opened.ask(), await opened.ask()

        assert [type(crash) for crash in opened.crashes] == [ZeroDivisionError]
        opened.crashes.clear()
        assert (first.status, second.status) == (503, 200)
        assert "bug" not in first.answer.decode()
