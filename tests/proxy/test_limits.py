"""Limits per window, through the door: what an answer says it has taken is what counts."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.listen import App
from hivemind_trio.model import Usage
from hivemind_trio.policy import Program
from tests.support.agent import Agent
from tests.support.upstream import EVENT_STREAM, RESET, STALL, FakeProvider, Reply, Request, Step

from .house import body_of, compiled, house


def limits(settings: str) -> Program:
    return compiled(
        f'provider anthropic {{ base "http://127.0.0.1:9"; limits {{ {settings}; headroom 0%; window bucket }} }}'
    )


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()


START = event("message_start", message={"usage": {"input_tokens": 10, "output_tokens": 1}})
PIECE = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "so"})
END = event("message_delta", delta={}, usage={"output_tokens": 40})


def streams(*steps: Step) -> FakeProvider:
    return FakeProvider(lambda _: Reply(headers=[EVENT_STREAM], steps=steps))


async def ask(door: App, agents: list[Agent], **fields: object) -> float:
    """When the answer was whole, by the clock."""
    agent = Agent(body=body_of(**fields))
    agents.append(agent)
    await agent.call(door)
    return trio.current_time()


async def test_output_that_was_not_used_is_given_back_when_the_stream_says_so(autojump_clock: MockClock) -> None:
    async with house(limits("output 60/min"), streams(START, PIECE, END)) as opened:
        agents: list[Agent] = []
        # Thought to take all 60, it takes 40; the next is thought to take 30 % more than that, which is 53.
        first = await ask(opened.door, agents, max_tokens=60)
        second = await ask(opened.door, agents, max_tokens=60)

    assert second - first == pytest.approx(40 + 53 - 60)
    assert [record.usage for record in opened.records] == [Usage(input=10, output=40)] * 2


async def test_a_plain_answer_settles_too(autojump_clock: MockClock) -> None:
    body = json.dumps({"content": [], "usage": {"input_tokens": 10, "output_tokens": 30}}).encode()
    async with house(limits("output 60/min"), FakeProvider(lambda _: Reply(steps=(body[:20], body[20:])))) as opened:
        agents: list[Agent] = []
        first = await ask(opened.door, agents, max_tokens=60)
        second = await ask(opened.door, agents, max_tokens=60)

    assert second - first == pytest.approx(30 + 40 - 60)


async def test_a_caller_who_hangs_up_is_charged_for_what_had_come(autojump_clock: MockClock) -> None:
    came = [trio.Event(), trio.Event()]

    def play(_: Request) -> Reply:
        next(event for event in came if not event.is_set()).set()
        return Reply(headers=[EVENT_STREAM], steps=(START, PIECE, PIECE, PIECE, STALL))

    async with house(limits("output 60/min"), FakeProvider(play)) as opened:
        began = trio.current_time()
        agent = await opened.begin(Agent(body=body_of(max_tokens=60)))
        agent.hang_up()
        second = await opened.begin(Agent(body=body_of(max_tokens=60)))
        await came[1].wait()
        waited = trio.current_time() - began
        second.hang_up()

    # Three deltas went by: so many tokens are waited for, and not sixty.
    assert waited == pytest.approx(3)


async def test_a_stream_that_breaks_off_is_charged_for_what_had_come(autojump_clock: MockClock) -> None:
    async with house(limits("output 60/min"), streams(START, PIECE, PIECE, RESET)) as opened:
        agents: list[Agent] = []
        first = await ask(opened.door, agents, max_tokens=60)
        second = await ask(opened.door, agents, max_tokens=60)

    assert second - first == pytest.approx(2)


async def thirty_at(depth: int) -> tuple[list[float], list[int]]:
    """Ask thirty times at once under 120/min. Return when attempts came, and their statuses.

    Args:
        depth: Calls that the provider takes at once; it earns two a second.
    """
    policy = compiled('provider anthropic { base "http://127.0.0.1:9"; limits { requests 120/min } }')
    times: list[float] = []
    statuses: list[int] = []
    level, at_s = float(depth), 0.0

    def play(_: Request) -> Reply:
        nonlocal level, at_s
        now_s = trio.current_time()
        level, at_s = min(float(depth), level + 2 * (now_s - at_s)), now_s
        times.append(now_s)
        statuses.append(200 if level >= 1 else 429)
        level -= level >= 1
        return Reply(status=statuses[-1])

    agents: list[Agent] = []
    async with house(policy, FakeProvider(play)) as opened, trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(ask, opened.door, agents)

    assert [agent.status for agent in agents] == [200] * 30
    return times, statuses


async def test_requests_of_a_window_that_refuses_nobody_go_at_once(autojump_clock: MockClock) -> None:
    times, _ = await thirty_at(depth=30)

    assert times == [0.0] * 30


async def test_requests_beyond_a_burst_that_was_refused_go_at_the_rate_that_is_accepted(
    autojump_clock: MockClock,
) -> None:
    times, statuses = await thirty_at(depth=10)
    together = times.count(0.0)
    gaps = [later - earlier for earlier, later in pairwise(times[together:])]
    assert statuses[:together].count(200) == 10
    # From the first refusal on they are spread at about the rate that was accepted: a tenth off at the most.
    assert min(gaps) > 0.3
    assert statuses[together:].count(429) <= 5
    assert times[-1] < 1.1 * 20 / 2


async def test_a_call_that_no_window_could_hold_is_refused_at_once(autojump_clock: MockClock) -> None:
    async with house(limits("input 10/min")) as opened:
        agent = await opened.ask(Agent(body=body_of(messages=[{"role": "user", "content": "x" * 400}])))

    assert agent.status == 413
    assert b"more than the rate limit of 10 input tokens per minute" in agent.answer
    assert opened.provider.requests == []


async def test_what_needs_no_slot_is_not_counted(autojump_clock: MockClock) -> None:
    async with house(limits("requests 1/min")) as opened:
        for _ in range(3):
            await opened.ask(Agent(target=b"/v1/messages/count_tokens", body=body_of()))

    assert [record.waited_ms for record in opened.records] == [0, 0, 0]


# ---- what heads of answers say ----

RATES = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")


def telling(*rates: str) -> FakeProvider:
    """Its answers begin, and never end."""
    headers = [(name.encode(), text.encode()) for name, text in zip(RATES, rates, strict=True)]
    return FakeProvider(lambda _: Reply(headers=[EVENT_STREAM, *headers], steps=(PIECE, STALL)))


@pytest.mark.parametrize(("headers", "waits"), [("trust", True), ("ignore", False)])
async def test_the_head_of_an_answer_holds_up_the_next_call_at_once(
    headers: str, waits: bool, autojump_clock: MockClock
) -> None:
    program = compiled(f'provider anthropic {{ base "http://127.0.0.1:9"; headers {headers} }}')
    async with house(program, telling("60", "0", "30s")) as opened:
        first = await opened.begin(body=body_of())
        second = await opened.begin(body=body_of())

        # The first answer has begun, and is far from its end.
        assert opened.engine.snapshot().inflight == (1 if waits else 2)
        first.hang_up()
        second.hang_up()


async def test_a_429_freezes_the_quota_that_its_words_name(autojump_clock: MockClock) -> None:
    body = b'{"error": {"type": "rate_limit_error", "message": "rate limit of 50 requests per minute"}}'
    refusal = Reply(status=429, headers=[(b"retry-after", b"20")], steps=(body,))
    replies = iter([refusal, Reply(), Reply()])
    async with house(limits("requests 50/min; output 9/min"), FakeProvider(lambda _: next(replies))) as opened:
        began = trio.current_time()
        await opened.ask(body=body_of())

        # It was tried again when there was room, with the slots that there were before.
        assert 20 <= trio.current_time() - began < 25
        assert opened.engine.snapshot().pools["anthropic"].limit == 8
        assert len(opened.provider.requests) == 2
