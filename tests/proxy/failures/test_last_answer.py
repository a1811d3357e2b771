"""The error that an agent is given in the end: what is not tried again, and what no attempt did better than."""

from __future__ import annotations

import gzip
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.model import Reason
from tests.proxy.house import body_of, house
from tests.proxy.scripted import PLAIN, failing, from_provider, playing, policy
from tests.support.upstream import EARLY_END, EVENT_STREAM, JSON, REFUSED, RESET, STALL, Reply

# ---- what is not tried again ----


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 409, 413, 422, 501])
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_an_error_that_is_the_request_s_own_passes_untouched(
    status: int, streaming: bool, autojump_clock: MockClock
) -> None:
    headers = [
        (b"Content-Type", b"application/json; charset=utf-8"),
        (b"request-id", b"req_1"),
        (b"Set-Cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"retry-after", b"1"),
        (b"x-should-retry", b"true"),
        (b"content-length", b"19"),
    ]
    upstream, script = playing(Reply(status=status, headers=headers, steps=(b'{"error": ', b'"\xff\x00 no"} ')))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=streaming))

    assert script.times == [0]
    assert (agent.status, agent.whole) == (status, True)
    assert from_provider(agent) == headers
    assert agent.answer == b'{"error": "\xff\x00 no"} '
    assert agent.header(b"x-hivemind-attempts") == b"1"


FORBIDDEN: Final = {
    "529": failing(529, (b"x-should-retry", b"false")),
    "500": failing(500, (b"X-Should-Retry", b"False")),
    "429": failing(429, (b"x-should-retry", b"false"), (b"retry-after", b"1")),
    "no money": failing(429, body=b'{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}'),
    "no money, compressed": failing(
        429, (b"content-encoding", b"gzip"), body=gzip.compress(b'{"error":{"code":"insufficient_quota"}}', mtime=0)
    ),
}


@pytest.mark.parametrize("failure", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_who_forbids_it_is_not_asked_again(failure: Reply, autojump_clock: MockClock) -> None:
    upstream, script = playing(failure)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert script.times == [0]
    assert (agent.status, from_provider(agent), agent.answer) == (failure.status, failure.headers, *failure.steps)


async def test_who_asks_for_it_is_asked_again_as_the_class_says(autojump_clock: MockClock) -> None:
    upstream, script = playing(failing(529, (b"x-should-retry", b"true")), PLAIN)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert (agent.status, script.times) == (200, [0, 1])


@pytest.mark.parametrize(
    "reply",
    [Reply(steps=(b"half", RESET)), Reply(status=529, steps=(b"x" * 100_000,))],
    ids=["it broke off", "a long error"],
)
async def test_while_an_agent_reads_what_has_begun_no_slot_is_kept_for_it(
    reply: Reply, autojump_clock: MockClock
) -> None:
    upstream, script = playing(reply)
    async with house(policy(limit=1), upstream) as opened:
        agent = await opened.begin(takes_bytes=0)
        for _ in range(5):
            await trio.sleep(1)
            snapshot = opened.engine.snapshot()
            assert (snapshot.inflight, snapshot.waiting) == (0, 0)
        agent.reading.set()

    assert (script.times, agent.served) == ([0], True)


async def test_a_longer_wait_is_the_agent_s_to_decide_on(autojump_clock: MockClock) -> None:
    failure = failing(529, (b"retry-after", b"601"))
    upstream, _ = playing(failure)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

        assert trio.current_time() == 0
    assert (agent.status, agent.header(b"retry-after")) == (529, b"601")


async def test_a_call_that_would_be_too_late_has_its_error_at_once(autojump_clock: MockClock) -> None:
    upstream, _ = playing(failing(529, (b"retry-after", b"7")))
    async with house(policy(deadline_s=7), upstream) as opened:
        agent = await opened.ask()

        assert (agent.status, trio.current_time()) == (529, 0)


BEGUN: Final = {
    "a reset after a piece": (b"data: 1\n\n", RESET),
    "an early end": (b"data: 1\n\n", 1.0, EARLY_END),
    "silence": (b"data: 1\n\n", STALL),
}


@pytest.mark.parametrize("steps", BEGUN.values(), ids=BEGUN)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_an_answer_that_has_begun_is_never_begun_again(
    steps: tuple[Any, ...], streaming: bool, autojump_clock: MockClock
) -> None:
    upstream, script = playing(Reply(headers=[EVENT_STREAM], steps=steps))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=streaming))

    assert script.times == [0]
    assert (agent.status, agent.aborted, agent.whole) == (200, True, False)
    assert agent.answer.startswith(b"".join(step for step in steps if isinstance(step, bytes)))
    assert opened.records[0].attempts == 1


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", b"/v1/models"),
        ("HEAD", b"/v1/models"),
        ("HEAD", b"/v1/messages"),
        ("POST", b"/v1/messages/count_tokens"),
    ],
)
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_what_takes_no_slot_is_tried_once(
    method: str, target: bytes, status: int, autojump_clock: MockClock
) -> None:
    headers = [JSON, (b"retry-after", b"1"), (b"content-length", b"2")]
    upstream, script = playing(Reply(status=status, headers=headers, steps=() if method == "HEAD" else (b"{}",)))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(method=method, target=target, body=() if method != "POST" else (b"{}",))

    assert script.times == [0]
    assert (agent.status, from_provider(agent), agent.whole) == (status, headers, True)
    assert agent.answer == (b"" if method == "HEAD" else b"{}")


# ---- the last attempt's answer ----


async def test_of_all_errors_the_last_arrives_byte_for_byte(autojump_clock: MockClock) -> None:
    packed = gzip.compress(b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', mtime=0)
    last = [
        (b"Content-Type", b"application/json"),
        (b"content-encoding", b"gzip"),
        (b"Request-Id", b"req_4"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"Content-Length", str(len(packed)).encode()),
    ]
    upstream, script = playing(
        failing(500, body=b"1"),
        Reply(before=(RESET,)),
        failing(429, body=b"3"),  # which does not count
        failing(503, body=b"4"),
        Reply(status=529, headers=last, steps=(packed[:9], 1.0, packed[9:])),
    )
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert script.times[:3] == [0, 1, 3]
    assert (agent.status, agent.whole, agent.answer) == (529, True, packed)
    assert from_provider(agent) == last
    assert agent.header(b"x-hivemind-attempts") == b"5"
    assert [(one.status, one.rejected, one.attempts, one.bytes_out) for one in opened.records] == [
        (529, False, 5, len(packed))
    ]


NO_ANSWER: Final = {
    "a reset": (Reply(before=(RESET,)), 503, Reason.UPSTREAM_UNREACHABLE),
    "silence": (Reply(before=(STALL,)), 504, Reason.UPSTREAM_TIMEOUT),
    "nobody there": (Reply(before=(REFUSED,)), 503, Reason.UPSTREAM_UNREACHABLE),
}


@pytest.mark.parametrize(("last", "status", "reason"), NO_ANSWER.values(), ids=NO_ANSWER)
async def test_if_the_last_gave_none_no_older_one_is_served_instead(
    last: Reply, status: int, reason: Reason, autojump_clock: MockClock
) -> None:
    upstream, script = playing(failing(529), failing(529), failing(529), last)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert len(script.times) == 4
    assert (agent.status, agent.header(b"x-of"), agent.whole) == (status, None, True)
    assert agent.header(b"x-hivemind-reason") == str(reason).encode()
    assert agent.error["type"] == "error"


# ---- long errors ----


async def test_an_error_of_usual_length_is_kept_back(autojump_clock: MockClock) -> None:
    upstream, script = playing(failing(529, body=b"x" * 60_000), PLAIN)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert (agent.status, len(script.times), agent.header(b"x-of")) == (200, 2, b"the success")


@pytest.mark.parametrize("size", [100_000, 3_000_000])
async def test_an_error_that_is_too_long_to_keep_passes_as_it_comes(size: int, autojump_clock: MockClock) -> None:
    half = b"x" * (size // 2)
    headers = [JSON, (b"content-length", str(size).encode())]
    upstream, script = playing(Reply(status=529, headers=headers, steps=(half, 20.0, half)))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin()
        await trio.sleep(10)
        begun = (agent.status, len(agent.answer))
        await agent.done.wait()

    # Of 50 000 bytes it cannot be known yet that they are too many.
    assert begun == ((0, 0) if size == 100_000 else (529, size // 2))
    assert script.times == [0]
    assert (agent.status, from_provider(agent), agent.answer) == (529, headers, half * 2)


async def test_an_error_that_is_too_long_and_breaks_off_is_not_tried_again(autojump_clock: MockClock) -> None:
    upstream, script = playing(Reply(status=529, steps=(b"x" * 100_000, RESET)))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert (script.times, agent.status, agent.aborted) == ([0], 529, True)
