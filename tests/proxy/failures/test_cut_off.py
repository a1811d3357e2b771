"""Calls that are not over when the time to drain is, or that an operator cancels: each agent is told.

An answer that has begun ends with an error event of its dialect, as far as it can have one.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hivemind_trio.model import Api, Reason
from tests.proxy.house import House, body_of, house
from tests.proxy.scripted import DELTA, START, STOP, playing, policy
from tests.support.agent import Agent
from tests.support.policies import compiled
from tests.support.programs import program, provider
from tests.support.upstream import EVENT_STREAM, JSON, STALL, FakeProvider, Reply

WORDS: Final = "the proxy has shut down"
NDJSON: Final = (b"content-type", b"application/x-ndjson")
STREAMS: Final[dict[str, tuple[Api, bytes, tuple[bytes, bytes], bytes]]] = {
    "anthropic": (Api.ANTHROPIC, b"/v1/messages", EVENT_STREAM, START + DELTA),
    "chat": (Api.OPENAI, b"/v1/chat/completions", EVENT_STREAM, b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'),
    "responses": (
        Api.OPENAI,
        b"/v1/responses",
        EVENT_STREAM,
        b'data: {"type":"response.output_text.delta","delta":"a"}\n\n',
    ),
    "gemini": (
        Api.GEMINI,
        b"/v1beta/models/g:streamGenerateContent",
        EVENT_STREAM,
        b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}\r\n\r\n',
    ),
    "ollama": (Api.OLLAMA, b"/api/chat", NDJSON, b'{"message":{"content":"a"},"done":false}\n'),
}


async def cut_off(opened: House, agent: Agent) -> None:
    """Drain without success, and end what is left."""
    opened.engine.drain()
    opened.door.cut_off()
    with trio.fail_after(1):
        await agent.done.wait()
        await opened.engine.idle()


async def cancel(opened: House, agent: Agent) -> None:
    """Cancel the only call, as an operator does."""
    (exchange,) = opened.door.exchanges.values()
    exchange.cancel()
    with trio.fail_after(1):
        await agent.done.wait()
        await opened.engine.idle()


ENDS: Final = {
    "drain": (cut_off, Reason.DRAINING, WORDS),
    "cancel": (cancel, Reason.CANCELLED, "cancelled by an operator"),
}
"""How calls are ended, the reason in their records, and the words that agents are told."""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("api", "target", "kind", "sent"), STREAMS.values(), ids=STREAMS)
async def test_a_stream_ends_with_an_error_event_of_its_dialect(
    api: Api, target: bytes, kind: tuple[bytes, bytes], sent: bytes, end: str, autojump_clock: object
) -> None:
    ending, reason, words = ENDS[end]
    upstream = FakeProvider(lambda _: Reply(headers=[kind], steps=(sent, STALL)))
    async with house(program(providers=[provider(api=api)]), upstream) as opened:
        agent = await opened.begin(target=target, body=body_of(stream=True))
        assert (agent.status, agent.answer) == (200, sent)

        await ending(opened, agent)

        assert upstream.cancelled == 1
    event = agent.answer.removeprefix(sent)
    assert event.endswith(b"\n")
    data = event.strip().split(b"\n")[-1].removeprefix(b"data: ")
    assert words in str(json.loads(data)["error"])
    assert (agent.aborted, agent.whole) == (True, False)
    (record,) = opened.records
    assert (record.status, record.rejected, record.reason) == (200, True, reason)
    assert record.upstream_error is None


async def cut_off_while_behind(*steps: Any) -> tuple[Agent, list[Reason]]:
    """An agent that reads on only after its call was cut off, and the reason in its record."""
    upstream, _ = playing(Reply(headers=[EVENT_STREAM], steps=(START + DELTA, 1.0, *steps)))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin(Agent(body=body_of(stream=True), takes_bytes=len(START + DELTA)))
        await trio.sleep(2)
        await wait_all_tasks_blocked()
        opened.engine.drain()
        opened.door.cut_off()
        await wait_all_tasks_blocked()
        agent.reading.set()
        await agent.done.wait()
        return agent, [one.reason for one in opened.records]


async def test_what_has_come_is_delivered_before_the_error(autojump_clock: object) -> None:
    agent, reasons = await cut_off_while_behind(DELTA, DELTA, STALL)

    assert agent.answer.startswith(START + DELTA * 3 + b"event: error\n")
    assert (agent.aborted, reasons) == (True, [Reason.DRAINING])


async def test_a_stream_that_has_come_whole_ends_well_for_a_slow_agent(autojump_clock: object) -> None:
    agent, reasons = await cut_off_while_behind(DELTA, STOP)

    assert (agent.answer, agent.whole) == (START + DELTA * 2 + STOP, True)
    assert reasons == [Reason.NONE]


@pytest.mark.parametrize("steps", [(STALL,), (START, STALL)], ids=["no head", "a head that is held"])
async def test_a_call_that_has_no_answer_yet_is_told_to_come_back(
    steps: tuple[Any, ...], autojump_clock: object
) -> None:
    reply = Reply(headers=[EVENT_STREAM], steps=steps) if steps[0] == START else Reply(before=steps)
    upstream, _ = playing(reply)
    async with house(policy(), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=True))
        assert agent.status == 0

        await cut_off(opened, agent)

    assert (agent.status, agent.whole, agent.header(b"retry-after")) == (503, True, b"1")
    assert (agent.error["type"], agent.header(b"x-should-retry")) == ("error", None)
    assert WORDS in agent.error["error"]["message"]
    assert [one.reason for one in opened.records] == [Reason.DRAINING]


async def test_a_request_that_is_still_coming_is_told_to_come_back_in_its_dialect(autojump_clock: object) -> None:
    async with house(policy()) as opened:
        agent = await opened.begin(Agent(body=(b"{", b"}"), piece_delay_s=50.0))

        await cut_off(opened, agent)

    assert (agent.status, agent.error["type"]) == (503, "error")


async def test_a_stream_that_is_kept_alive_ends_with_an_error_event(autojump_clock: object) -> None:
    impatient = """
        server { wait silent 15s hold 240s }
        provider p { api anthropic; base "http://there"; timeout first-byte 60s }
    """
    upstream, _ = playing(Reply(headers=[EVENT_STREAM], steps=(START, STALL)))
    async with house(compiled(impatient), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=True))
        await trio.sleep(20)
        assert (agent.status, b"ping" in agent.answer) == (200, True)

        await cut_off(opened, agent)

    assert agent.answer.rpartition(b"event: error\n")[2].startswith(b'data: {"type":"error"')
    assert agent.whole


async def test_a_plain_answer_that_has_begun_never_looks_whole(autojump_clock: object) -> None:
    upstream, _ = playing(Reply(headers=[JSON], steps=(b'{"half":', STALL)))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin()
        await cut_off(opened, agent)

    assert (agent.answer, agent.aborted) == (b'{"half":', True)


async def test_a_call_that_an_operator_has_ended_is_not_cut_off_as_well(autojump_clock: object) -> None:
    upstream, _ = playing(Reply(before=(STALL,)))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin()
        (exchange,) = opened.door.exchanges.values()
        exchange.cancel()

        await cut_off(opened, agent)

    assert (agent.status, [one.reason for one in opened.records]) == (403, [Reason.CANCELLED])


async def cancelled_while_behind(opened: House) -> Agent:
    """Cancel a stream whose agent has stopped reading."""
    agent = await opened.begin(Agent(body=body_of(stream=True), takes_bytes=len(START + DELTA)))
    await trio.sleep(2)
    (exchange,) = opened.door.exchanges.values()
    exchange.cancel()
    await wait_all_tasks_blocked()
    return agent


async def test_a_cancelled_stream_gives_its_slot_back_before_its_agent_has_read_the_rest(
    autojump_clock: object,
) -> None:
    upstream, _ = playing(Reply(headers=[EVENT_STREAM], steps=(START + DELTA, 1.0, DELTA, STALL)))
    async with house(policy(), upstream) as opened:
        agent = await cancelled_while_behind(opened)
        assert (opened.engine.snapshot().inflight, upstream.cancelled) == (0, 1)
        agent.reading.set()
        await agent.done.wait()

    assert agent.answer.startswith(START + DELTA * 2 + b"event: error\n")
    assert [one.reason for one in opened.records] == [Reason.CANCELLED]


async def test_a_cancelled_stream_does_not_wait_for_an_agent_that_never_reads_on(autojump_clock: object) -> None:
    upstream, _ = playing(Reply(headers=[EVENT_STREAM], steps=(START + DELTA, 1.0, DELTA, STALL)))
    async with house(policy(), upstream) as opened:
        agent = await cancelled_while_behind(opened)
        assert not agent.done.is_set()
        with trio.fail_after(5):
            await agent.done.wait()

    assert (agent.answer, agent.aborted) == (START + DELTA, True)
    assert [one.reason for one in opened.records] == [Reason.CANCELLED]


async def test_a_cancelled_plain_answer_that_has_begun_never_looks_whole(autojump_clock: object) -> None:
    upstream, _ = playing(Reply(headers=[JSON], steps=(b'{"half":', STALL)))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin()
        await cancel(opened, agent)

    assert (agent.answer, agent.aborted) == (b'{"half":', True)
