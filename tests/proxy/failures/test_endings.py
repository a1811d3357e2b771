"""How a call can end other than well, from either side, and at which moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hivemind_trio.model import Api, Reason
from hivemind_trio.proxy.response_buffer import AGENT_PATIENCE_S, OUTBOX_BYTES_MAX
from hivemind_trio.scheduler import Command, Event, Grant
from tests.proxy.house import House, house
from tests.support.agent import Agent
from tests.support.programs import program, provider
from tests.support.upstream import (
    EARLY_END,
    EVENT_STREAM,
    GARBAGE,
    HUNG_UP,
    REFUSED,
    RESET,
    STALL,
    FakeProvider,
    Reply,
    Step,
)

PIECE = b"x" * 4_096
ONE_SLOT = program(providers=[provider(limit=1)])


def streaming(*steps: Step, headers: Sequence[tuple[bytes, bytes]] = (EVENT_STREAM,)) -> FakeProvider:
    return FakeProvider(lambda _: Reply(headers=list(headers), steps=steps))


def inflight(opened: House) -> int:
    return opened.engine.snapshot().inflight


# ---- the agent goes ----


async def test_who_hangs_up_while_waiting_leaves_the_queue_and_never_goes_upstream(autojump_clock: object) -> None:
    async with house(ONE_SLOT, streaming(5.0, b"done")) as opened:
        first = await opened.begin()
        waiting, next_one = await opened.begin(), await opened.begin()
        assert opened.engine.snapshot().waiting == 2

        waiting.hang_up()
        await wait_all_tasks_blocked()

        assert opened.engine.snapshot().waiting == 1
        assert waiting.served
        await first.done.wait()
        await next_one.done.wait()
        assert next_one.answer == b"done"
        assert len(opened.provider.requests) == 2
    assert [record.status for record in opened.records] == [0, 200, 200]


async def test_who_hangs_up_while_streaming_stops_the_provider_and_gives_the_slot_back(autojump_clock: object) -> None:
    async with house(ONE_SLOT, streaming(b"data: 1\n\n", STALL)) as opened:
        reader = await opened.begin()
        assert (reader.answer, inflight(opened), opened.provider.open) == (b"data: 1\n\n", 1, 1)
        waiting = await opened.begin()

        reader.hang_up()
        await wait_all_tasks_blocked()

        assert reader.served
        assert opened.provider.cancelled == 1
        assert len(opened.provider.requests) == 2
        assert waiting.status == 200
        waiting.hang_up()


async def test_who_hangs_up_before_the_answer_s_head_stops_the_provider(autojump_clock: object) -> None:
    async with house(ONE_SLOT, FakeProvider(lambda _: Reply(before=(STALL,)))) as opened:
        agent = await opened.begin()

        agent.hang_up()
        await wait_all_tasks_blocked()

        assert (opened.provider.cancelled, inflight(opened)) == (1, 0)


async def test_who_hangs_up_in_the_middle_of_its_request_was_never_a_call(autojump_clock: object) -> None:
    async with house(ONE_SLOT) as opened:
        agent = await opened.begin(body=(b'{"model":', b'"m"}'), piece_delay_s=1)

        agent.hang_up()
        await wait_all_tasks_blocked()

        assert agent.served
        assert opened.provider.requests == []


async def test_who_had_hung_up_before_we_looked_is_not_served(autojump_clock: object) -> None:
    agent = Agent()
    agent.hang_up()

    async with house(ONE_SLOT) as opened:
        await opened.ask(agent)

        assert opened.provider.requests == []


async def test_who_hangs_up_in_the_very_moment_of_the_grant_gives_the_slot_back(autojump_clock: object) -> None:
    late = Agent()

    def at_the_grant(_now_ns: int, _event: Event, commands: Sequence[Command]) -> None:
        # The scheduler has decided, and the call's task does not know it yet.
        if granted and any(isinstance(command, Grant) for command in commands):
            late.hang_up()
        granted.extend(command for command in commands if isinstance(command, Grant))

    granted: list[Grant] = []
    async with house(ONE_SLOT, streaming(1.0, b"done"), journal=at_the_grant) as opened:
        await opened.begin()
        await opened.begin(late)
        third = await opened.begin()

        await trio.sleep(10)

        assert late.gone
        assert late.served
        assert third.answer == b"done"
        assert len(granted) == 3


@pytest.mark.parametrize("passes", range(1, 8))
async def test_a_hang_up_in_any_tick_after_the_grant_gives_the_slot_back(passes: int, autojump_clock: object) -> None:
    async with house(ONE_SLOT, streaming(b"one", b"two", 1.0, b"three")) as opened:
        opened.nursery.start_soon((agent := Agent()).call, opened.door)
        for _ in range(passes):
            await trio.lowlevel.checkpoint()

        agent.hang_up()
        await wait_all_tasks_blocked()

        assert agent.served
        assert inflight(opened) == 0
        assert opened.provider.open == 0


# ---- the agent does not read ----


async def test_what_is_kept_for_an_agent_that_does_not_read_is_bounded(autojump_clock: object) -> None:
    endless = FakeProvider(lambda _: Reply(headers=[EVENT_STREAM], steps=(PIECE for _ in range(10_000))))
    async with house(ONE_SLOT, endless) as opened:
        agent = await opened.begin(takes_bytes=0)

        # One turn is in `send`, one outbox is full, and one piece is what filled it.
        assert opened.provider.pulled_bytes <= 2 * OUTBOX_BYTES_MAX + 2 * len(PIECE)
        assert opened.provider.pulled_bytes >= OUTBOX_BYTES_MAX
        assert inflight(opened) == 1
        agent.hang_up()


async def test_an_agent_that_reads_slowly_gets_everything(autojump_clock: object) -> None:
    sent = [bytes([65 + i % 26]) * 10_000 for i in range(200)]
    async with house(ONE_SLOT, streaming(*sent)) as opened:
        agent = await opened.begin(takes_bytes=0)
        await trio.sleep(AGENT_PATIENCE_S - 1)

        agent.reading.set()
        await agent.done.wait()

        assert agent.answer == b"".join(sent)
        assert agent.whole


async def test_an_agent_that_reads_nothing_for_long_loses_its_attempt_and_others_get_the_slot(
    autojump_clock: object,
) -> None:
    async with house(ONE_SLOT, streaming(*[PIECE] * 1_000)) as opened:
        asleep = await opened.begin(takes_bytes=0)
        waiting = await opened.begin()

        await trio.sleep(AGENT_PATIENCE_S - 1)
        assert (opened.engine.snapshot().waiting, len(opened.provider.requests)) == (1, 1)
        await trio.sleep(2)

        assert waiting.whole
        assert opened.provider.open == 0
        assert not asleep.served
        asleep.reading.set()
        await asleep.done.wait()
        # What it missed cannot be had any more, and it is told so.
        assert asleep.aborted
        assert not asleep.whole


async def test_a_slow_reader_of_a_whole_answer_holds_no_slot(autojump_clock: object) -> None:
    async with house(ONE_SLOT, streaming(PIECE, b"end")) as opened:
        slow = await opened.begin(takes_bytes=0)

        assert opened.provider.open == 0
        assert inflight(opened) == 0
        assert not slow.served
        next_one = await opened.ask()
        assert next_one.whole
        slow.reading.set()
        await slow.done.wait()
        assert slow.answer == PIECE + b"end"


# ---- the provider breaks off ----


@pytest.mark.parametrize("error", [RESET, EARLY_END, GARBAGE], ids=["reset", "early end", "garbage"])
@pytest.mark.parametrize("content_type", [b"application/json", b"text/event-stream"])
async def test_an_answer_that_broke_off_never_looks_complete(
    error: Exception, content_type: bytes, autojump_clock: object
) -> None:
    async with house(
        ONE_SLOT, streaming(b"data: half\n of", 0.1, b" it", error, headers=[(b"content-type", content_type)])
    ) as opened:
        agent = await opened.ask()

        assert agent.status == 200
        assert agent.answer.startswith(b"data: half\n of it")
        assert agent.aborted
        assert not agent.whole
    assert opened.records[0].upstream_error in ("reset", "truncated", "protocol")


BROKEN_OFF: dict[str, tuple[Api, bytes]] = {
    "anthropic": (Api.ANTHROPIC, b"/v1/messages"),
    "chat": (Api.OPENAI, b"/v1/chat/completions"),
    "responses": (Api.OPENAI, b"/v1/responses"),
}


@pytest.mark.parametrize(("api", "target"), BROKEN_OFF.values(), ids=BROKEN_OFF)
@pytest.mark.parametrize("sent", [b"data: 1\n\n", b"data: 1\r\n\r\n"], ids=["lines", "lines of Windows"])
async def test_a_stream_that_broke_off_says_so_in_its_dialect(
    api: Api, target: bytes, sent: bytes, autojump_clock: object
) -> None:
    async with house(program(providers=[provider(api=api)]), streaming(sent, RESET)) as opened:
        agent = await opened.ask(target=target)

        assert agent.answer.startswith((sent + b"event: ", sent + b"data: "))
        last = agent.answer.removeprefix(sent).strip(b"\n").split(b"\n")
        assert agent.answer.endswith(b"\n\n")
        error: Any = json.loads(last[-1].removeprefix(b"data: "))
        message = error["message"] if target == b"/v1/responses" else error["error"]["message"]
        assert "broke off" in message
        assert (last[0] == b"event: error") is (target != b"/v1/chat/completions")
        assert agent.aborted


async def test_lines_that_broke_off_end_with_a_line_that_says_so(autojump_clock: object) -> None:
    lines = [(b"content-type", b"application/x-ndjson")]
    async with house(
        program(providers=[provider(api=Api.OLLAMA)]), streaming(b'{"a":1}\n', RESET, headers=lines)
    ) as opened:
        agent = await opened.ask(target=b"/api/chat")

        assert "broke off" in json.loads(agent.answer.split(b"\n")[1])["error"]
        assert agent.aborted


@pytest.mark.parametrize(
    ("kind", "api", "target", "sent"),
    [
        (b"text/event-stream", Api.ANTHROPIC, b"/v1/messages", b"event: a\ndata: 1\n\nevent: b\ndata: {hal"),
        (b"text/event-stream", Api.OPENAI, b"/v1/chat/completions", b"data: 1\n\ndata: {hal"),
        (b"application/x-ndjson", Api.OLLAMA, b"/api/chat", b'{"a":1}\n{"b'),
    ],
)
async def test_behind_half_an_event_the_answer_ends_without_ours(
    kind: bytes, api: Api, target: bytes, sent: bytes, autojump_clock: object
) -> None:
    # SDKs raise an error of the connection then; with an event they would raise one of their JSON parser.
    provided = streaming(sent, RESET, headers=[(b"content-type", kind)])
    async with house(program(providers=[provider(api=api)]), provided) as opened:
        agent = await opened.ask(target=target)

    assert agent.answer == sent
    assert agent.aborted


@pytest.mark.parametrize(
    "header", [(b"content-encoding", b"gzip"), (b"content-length", b"20000"), (b"Content-Length", b"9")]
)
async def test_no_error_is_written_where_it_would_be_taken_for_something_else(
    header: tuple[bytes, bytes], autojump_clock: object
) -> None:
    piece = b"data: 1\n" if header[0] != b"content-encoding" else b"\x1f\x8b data"
    async with house(ONE_SLOT, streaming(piece, RESET, headers=[EVENT_STREAM, header])) as opened:
        agent = await opened.ask()

        assert agent.answer == piece[: len(agent.answer)]
        assert agent.aborted


# ---- the provider does not answer ----

UNREACHABLE = {"refused": REFUSED, "hung up": HUNG_UP, "reset": RESET, "garbage": GARBAGE}
DIALECTS = {
    Api.ANTHROPIC: b"/v1/messages",
    Api.OPENAI: b"/v1/chat/completions",
    Api.GEMINI: b"/v1beta/models/g:generateContent",
    Api.OLLAMA: b"/api/chat",
}


@pytest.mark.parametrize("error", UNREACHABLE.values(), ids=UNREACHABLE)
@pytest.mark.parametrize(("api", "target"), DIALECTS.items())
async def test_a_provider_that_cannot_be_reached_is_a_503_that_names_it(
    api: Api, target: bytes, error: Exception, autojump_clock: object
) -> None:
    fails = FakeProvider(lambda _: Reply(before=(error,)))
    async with house(program(providers=[provider("there", api=api)]), fails) as opened:
        agent = await opened.ask(target=target)

        assert agent.status == 503
        assert agent.header(b"x-hivemind-reason") == str(Reason.UPSTREAM_UNREACHABLE).encode()
        assert agent.header(b"retry-after") == b"5"
        assert agent.header(b"x-hivemind-attempts") == b"1"
        said = agent.error["error"]
        assert "`there` is unreachable" in (said if api is Api.OLLAMA else said["message"])
        assert agent.whole


async def test_a_provider_that_says_nothing_is_a_504_after_the_stated_time(autojump_clock: object) -> None:
    async with house(ONE_SLOT, FakeProvider(lambda _: Reply(before=(STALL,)))) as opened:
        began = trio.current_time()
        agent = await opened.ask()

        assert trio.current_time() - began == pytest.approx(60)
        assert agent.status == 504
        assert agent.error["error"]["type"] == "timeout_error"
        assert agent.header(b"x-hivemind-reason") == b"upstream-timeout"
        assert opened.provider.cancelled == 1


async def test_a_provider_that_falls_silent_in_the_middle_is_not_waited_for_for_ever(autojump_clock: object) -> None:
    async with house(ONE_SLOT, streaming(b"data: 1\n\n", STALL)) as opened:
        began = trio.current_time()
        agent = await opened.ask()

        assert 30 <= trio.current_time() - began <= 30 * 9 / 8
        assert b"(idle)" in agent.answer
        assert agent.aborted


async def test_a_dead_provider_s_slot_is_free_for_the_next(autojump_clock: object) -> None:
    replies = iter([Reply(before=(REFUSED,)), Reply(steps=(b"x", RESET)), Reply()])
    async with house(ONE_SLOT, FakeProvider(lambda _: next(replies))) as opened:
        agents = [await opened.ask() for _ in range(3)]

        assert [agent.status for agent in agents] == [503, 200, 200]
        assert [agent.whole for agent in agents] == [True, False, True]
