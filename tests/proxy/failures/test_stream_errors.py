"""An error within a 200's stream: the agent sees it byte for byte and once, and the provider is judged by it."""

from __future__ import annotations

import json
from typing import Final

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.scheduler import Circuit
from tests.proxy.house import House, body_of, house
from tests.proxy.scripted import DELTA, START, STOP
from tests.support.agent import Agent
from tests.support.policies import compiled
from tests.support.upstream import EVENT_STREAM, RESET, STALL, FakeProvider, Reply, Step

PATIENT: Final = "retry patient {{ on [529, reset]; attempts 5 }}\nprovider anthropic {{ retry patient; {} }}"


def error(kind: str) -> bytes:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": "no"}})
    return b"event: error\ndata: " + body.encode() + b"\n\n"


OTHERS: Final = 3
LASTING: Final = (START, *(DELTA, 10.0) * 20, STOP)


def streaming(*steps: Step) -> FakeProvider:
    return FakeProvider(lambda _: Reply(headers=[EVENT_STREAM], steps=steps))


def beside_others(*steps: Step) -> FakeProvider:
    """A provider that serves `OTHERS` calls for long and answers all later ones so."""
    replies = [LASTING] * OTHERS
    return FakeProvider(lambda _: Reply(headers=[EVENT_STREAM], steps=replies.pop() if replies else steps))


async def begin_others(opened: House) -> None:
    for _ in range(OTHERS):
        await opened.begin(body=body_of(stream=True))


def limit(opened: House) -> int:
    return opened.engine.snapshot().pools["anthropic"].limit


def rate_is_known(opened: House) -> bool:
    gates = opened.engine.snapshot().pools["anthropic"].gates.values()
    return any(gate.rate_per_s is not None for gate in gates)


@pytest.mark.parametrize(
    ("kind", "left"),
    [("overloaded_error", OTHERS), ("rate_limit_error", 8), ("api_error", 8), ("not_found_error", 8)],
)
@pytest.mark.parametrize("end", [(), (RESET,), (STALL,)], ids=["and an orderly end", "and a reset", "and silence"])
async def test_the_limit_gives_way_as_it_would_for_a_status(
    kind: str, left: int, end: tuple[Step, ...], autojump_clock: MockClock
) -> None:
    steps = START, DELTA, error(kind)
    policy = compiled(PATIENT.format("concurrency 1..8 start 8; timeout idle 60s"))
    async with house(policy, beside_others(*steps, *end)) as opened:
        await begin_others(opened)
        agent = await opened.ask(body=body_of(stream=True))

        assert agent.answer.startswith(b"".join(steps))
        assert (agent.status, agent.whole) == (200, not end)
        assert len(opened.provider.requests) == OTHERS + 1  # it had begun: who tries again is the agent
        # Too many at once: the number that remained is kept. Too often: the rate gives way, and the number does not.
        assert limit(opened) == left
        assert rate_is_known(opened) is (kind == "rate_limit_error")
        assert [record.attempts for record in opened.records] == [1]


async def test_the_agent_gets_every_byte_of_it_and_none_beside(autojump_clock: MockClock) -> None:
    whole = error("overloaded_error")
    steps = START, DELTA, whole[:20], whole[20:], b": and a word after it\n\n"
    async with house(compiled("provider anthropic { }"), streaming(*steps)) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert agent.answer == b"".join(steps)
    assert agent.whole


async def test_an_agent_that_hangs_up_on_the_error_takes_nothing_of_it_away(autojump_clock: MockClock) -> None:
    policy = compiled(PATIENT.format("concurrency 1..8 start 8"))
    async with house(policy, beside_others(START, DELTA, error("overloaded_error"), STALL)) as opened:
        await begin_others(opened)
        agent = await opened.begin(Agent(body=body_of(stream=True)))
        assert limit(opened) == 8

        agent.hang_up()
        await wait_all_tasks_blocked()

        assert limit(opened) == OTHERS


@pytest.mark.parametrize("kind", ["overloaded_error", "api_error"])
async def test_the_circuit_opens_for_what_breaks_after_its_200(kind: str, autojump_clock: MockClock) -> None:
    policy = compiled(PATIENT.format("breaker trip 100% of 4 over 5m open 10s probes 1"))
    replies = [[START, DELTA, error(kind)]] * 4 + [[START, DELTA, STOP]]
    async with house(policy, FakeProvider(lambda _: Reply(headers=[EVENT_STREAM], steps=replies.pop(0)))) as opened:
        for _ in range(4):
            await opened.ask(body=body_of(stream=True))
        assert opened.engine.snapshot().pools["anthropic"].circuit is Circuit.OPEN

        late = await opened.ask(body=body_of(stream=True))

        assert late.answer == START + DELTA + STOP
        assert opened.engine.snapshot().pools["anthropic"].circuit is Circuit.CLOSED


async def test_what_is_counted_for_nobody_says_nothing_of_the_provider(autojump_clock: MockClock) -> None:
    # A list of models is no generation: it took no slot, and nobody reads it.
    policy = compiled(PATIENT.format("concurrency 1..8 start 8"))
    async with house(policy, FakeProvider(lambda _: Reply(steps=(b'{"error": {"code": 529}}',)))) as opened:
        agent = await opened.ask(Agent(method="GET", target=b"/v1/models"))

        assert (agent.status, limit(opened)) == (200, 8)


# ---- answers that are worth nothing ----

WORTHLESS: Final = {
    "no word": (START, STOP),
    "a count of none": (START, b'data: {"type":"message_delta","usage":{"output_tokens":0}}\n\n', STOP),
}


@pytest.mark.parametrize("steps", WORTHLESS.values(), ids=WORTHLESS)
@pytest.mark.parametrize("degraded", [True, False])
async def test_the_circuit_opens_for_empty_answers_if_the_policy_says_so(
    degraded: bool, steps: tuple[bytes, ...], autojump_clock: MockClock
) -> None:
    said = "degraded when tokens.out == 0" if degraded else ""
    policy = compiled(f"provider anthropic {{ breaker of 2\n{said} }}")
    async with house(policy, streaming(*steps)) as opened:
        for _ in range(2):
            agent = await opened.ask(body=body_of(stream=True))
            assert (agent.status, agent.answer) == (200, b"".join(steps))

        circuit = opened.engine.snapshot().pools["anthropic"].circuit
        assert circuit is (Circuit.OPEN if degraded else Circuit.CLOSED)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers=[EVENT_STREAM], steps=(START, DELTA, STOP)),
        Reply(steps=(b'{"content": [], "text": "of a server that counts nothing"}',)),
        Reply(headers=[EVENT_STREAM, (b"Content-Encoding", b"gzip")], steps=(b"nobody can read this",)),
    ],
    ids=["with a word in it", "without figures", "in a coding that is none"],
)
async def test_an_answer_of_which_nothing_is_known_is_not_called_empty(reply: Reply, autojump_clock: MockClock) -> None:
    policy = compiled("provider anthropic { breaker of 2; degraded when tokens.out == 0 }")
    async with house(policy, FakeProvider(lambda _: reply)) as opened:
        for _ in range(4):
            await opened.ask(body=body_of(stream=True))

        assert opened.engine.snapshot().pools["anthropic"].circuit is Circuit.CLOSED
