"""An attempt that makes no progress is ended by what is usual, before the policy's timeouts; one that does is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.policy import Program
from hivemind_trio.scheduler.health.adaptive_timeout import SAMPLES_MIN
from tests.proxy.house import House, body_of, house
from tests.support.agent import Agent
from tests.support.policies import compiled
from tests.support.upstream import EVENT_STREAM, RESET, STALL, FakeProvider, Reply, Step

START: Final = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}\n\n'
DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"So"}}\n\n'
STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
GOOD: Final = START + DELTA + STOP


def reply(*steps: Step, before: tuple[Step, ...] = ()) -> Reply:
    return Reply(headers=[EVENT_STREAM], before=before, steps=steps)


QUICK: Final = reply(START, 0.5, DELTA, 0.5, STOP, before=(1.0,))


RETRY: Final = "retry r { on [first-byte, reset]; backoff 1ms..1ms jitter none }"
"""At once, so that the clock says what attempts took."""
SILENT: Final = "server { wait silent 10m hold 10m }"
"""No early 200, so that an agent sees a status and the number of attempts."""


def policy(*settings: str) -> Program:
    return compiled(f"{SILENT}\n{RETRY}\nprovider anthropic {{ retry r; {'; '.join(settings)} }}")


class Script:
    """A provider whose replies a test exchanges as it goes."""

    def __init__(self, first: Reply) -> None:
        self.replies = [first]
        self.provider = FakeProvider(self._play)

    def _play(self, _: object) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def asked() -> Agent:
    return Agent(body=body_of(stream=True))


async def learn(opened: House, times: int = SAMPLES_MIN) -> None:
    for _ in range(times):
        agent = await opened.ask(asked())
        assert agent.status == 200


async def test_who_waits_in_vain_for_the_first_byte_is_tried_again_after_half_a_minute(
    autojump_clock: MockClock,
) -> None:
    script = Script(QUICK)
    async with house(policy(), script.provider) as opened:
        await learn(opened)
        script.replies = [reply(before=(STALL,)), QUICK]
        began_s = trio.current_time()

        agent = await opened.ask(asked())

        assert (agent.status, agent.whole, agent.answer) == (200, True, GOOD)
        assert agent.header(b"x-hivemind-attempts") == b"2"
        assert 32 <= trio.current_time() - began_s < 33
        assert opened.provider.cancelled == 1


async def test_each_attempt_that_hangs_has_twice_the_time_of_the_one_before(autojump_clock: MockClock) -> None:
    script = Script(QUICK)
    async with house(policy(), script.provider) as opened:
        await learn(opened)
        script.replies = [reply(before=(STALL,)), reply(before=(STALL,)), reply(GOOD, before=(100.0,))]
        began_s = trio.current_time()

        agent = await opened.ask(asked())

        # 30 and 60 seconds were not enough; 120 are.
        assert (agent.status, agent.header(b"x-hivemind-attempts")) == (200, b"3")
        assert 190 <= trio.current_time() - began_s < 191


async def test_a_class_that_does_not_try_again_gives_the_agent_an_error(autojump_clock: MockClock) -> None:
    script = Script(QUICK)
    once = compiled(f"{SILENT}\nprovider anthropic {{ retry r }}\nretry r {{ on [reset] }}")
    async with house(once, script.provider) as opened:
        await learn(opened)
        script.replies = [reply(before=(STALL,))]

        agent = await opened.ask(asked())

        assert (agent.status, len(opened.provider.requests)) == (504, SAMPLES_MIN + 1)


async def test_a_stream_that_falls_silent_ends_with_an_error_event_and_is_not_tried_again(
    autojump_clock: MockClock,
) -> None:
    script = Script(QUICK)
    async with house(policy(), script.provider) as opened:
        await learn(opened)
        script.replies = [reply(START, DELTA, STALL)]
        began_s = trio.current_time()

        agent = await opened.ask(asked())

        assert agent.answer.startswith(START + DELTA + b"event: error\n")
        assert (agent.aborted, agent.whole) == (True, False)
        assert 20 <= trio.current_time() - began_s <= 22.5  # silence is noticed within nine eighths
        assert len(opened.provider.requests) == SAMPLES_MIN + 1
    assert opened.records[-1].upstream_error == "idle"


HONEST: Final[dict[str, tuple[Reply, Reply]]] = {
    "which thinks before it begins": (reply(GOOD, before=(60.0,)), reply(GOOD, before=(200.0,))),
    "which thinks in the middle, once": (
        reply(START, *[0.01, DELTA] * 500, 25.0, STOP),
        reply(START, DELTA, 200.0, STOP),
    ),
    "which thinks before it says the first word": (reply(25.0, GOOD), reply(90.0, GOOD)),
    "which thinks before it ends": (reply(GOOD, 25.0), reply(GOOD, 200.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("usual", "later"), HONEST.values(), ids=HONEST)
async def test_a_model_is_measured_by_its_own_like(usual: Reply, later: Reply, autojump_clock: MockClock) -> None:
    script = Script(usual)
    async with house(policy(), script.provider) as opened:
        await learn(opened)
        script.replies = [later]

        agent = await opened.ask(asked())

        assert (agent.whole, agent.header(b"x-hivemind-attempts")) == (True, b"1")


async def test_before_anything_is_known_nothing_is_ended_but_by_the_policy(autojump_clock: MockClock) -> None:
    script = Script(reply(GOOD, before=(290.0,)))
    async with house(policy(), script.provider) as opened:
        agent = await opened.ask(asked())

        assert (agent.status, agent.header(b"x-hivemind-attempts")) == (200, b"1")


@pytest.mark.parametrize(("samples", "seconds"), [(1, 120), (2, 60), (SAMPLES_MIN - 1, 30)])
async def test_the_fewer_answers_there_were_the_longer_one_that_hangs_is_waited_for(
    samples: int, seconds: int, autojump_clock: MockClock
) -> None:
    script = Script(QUICK)
    async with house(policy(), script.provider) as opened:
        await learn(opened, samples)
        script.replies = [reply(before=(STALL,)), QUICK]
        began_s = trio.current_time()

        agent = await opened.ask(asked())

        assert (agent.status, agent.header(b"x-hivemind-attempts")) == (200, b"2")
        assert seconds <= trio.current_time() - began_s - 2 <= seconds * 1.05


async def test_an_answer_teaches_when_it_begins_and_not_when_it_ends(autojump_clock: MockClock) -> None:
    script = Script(reply(START, DELTA, 200.0, STOP, before=(1.0,)))
    async with house(policy(), script.provider) as opened:
        long = await opened.begin(asked())
        await trio.sleep(2)
        script.replies = [reply(before=(STALL,)), QUICK]
        began_s = trio.current_time()

        agent = await opened.ask(asked())

        assert (agent.status, agent.header(b"x-hivemind-attempts")) == (200, b"2")
        assert 80 <= trio.current_time() - began_s <= 86
        await long.done.wait()
        assert long.whole


async def refused(opened: House) -> None:
    agent = await opened.ask(asked())
    assert agent.status == 529


async def broken(opened: House) -> None:
    agent = await opened.ask(asked())
    assert agent.aborted


async def hung_up(opened: House) -> None:
    agent = await opened.begin(asked())
    agent.hang_up()
    await agent.done.wait()


NO_SAMPLES: Final[dict[str, tuple[Reply, Callable[[House], Awaitable[object]]]]] = {
    "errors": (Reply(status=529), refused),
    "hang-ups": (reply(START, STALL), hung_up),
}

NO_SILENCE: Final[dict[str, tuple[Reply, Callable[[House], Awaitable[object]]]]] = {
    "break-offs": (reply(START, DELTA, RESET), broken),
    "errors in a stream": (reply(START, DELTA, b'data: {"error": {"code": 400}}\n\n'), learn),
}


@pytest.mark.parametrize(
    ("given", "meet", "later"),
    [
        *((given, meet, reply(GOOD, before=(100.0,))) for given, meet in NO_SAMPLES.values()),
        *((given, meet, reply(START, DELTA, 100.0, STOP)) for given, meet in NO_SILENCE.values()),
    ],
    ids=[*NO_SAMPLES, *NO_SILENCE],
)
async def test_only_good_answers_say_what_is_usual(
    given: Reply, meet: Callable[[House], Awaitable[object]], later: Reply, autojump_clock: MockClock
) -> None:
    script = Script(given)
    async with house(policy("breaker of 1000"), script.provider) as opened:
        for _ in range(1 if meet is learn else SAMPLES_MIN):
            await meet(opened)
        script.replies = [later]

        agent = await opened.ask(asked())

        assert (agent.whole, agent.header(b"x-hivemind-attempts")) == (True, b"1")


async def test_an_agent_that_reads_slowly_makes_no_silence(autojump_clock: MockClock) -> None:
    piece = b"x" * 300_000
    script = Script(reply(piece, piece, STOP))
    async with house(policy(), script.provider) as opened:
        for _ in range(SAMPLES_MIN):
            agent = await opened.begin(Agent(body=body_of(stream=True), takes_bytes=0))
            await trio.sleep(50)
            agent.reading.set()
            await agent.done.wait()
            assert agent.whole
        script.replies = [reply(START, DELTA, STALL)]
        began_s = trio.current_time()

        await opened.ask(asked())

        assert trio.current_time() - began_s < 23


async def test_what_the_policy_allows_is_never_exceeded_and_its_multiples_count(autojump_clock: MockClock) -> None:
    script = Script(reply(START, DELTA, 8.0, STOP, before=(16.0,)))
    async with house(policy("reaper first-byte 3x idle 3x", "timeout idle 10s"), script.provider) as opened:
        await learn(opened)
        script.replies = [reply(before=(STALL,)), reply(START, DELTA, STALL)]
        began_s = trio.current_time()

        await opened.ask(asked())

        # 3 × 16 s, counted in eighths; then nine eighths of the ten seconds, although 24 would be usual.
        assert 48 + 10 <= trio.current_time() - began_s <= 54 + 12
