"""A failed attempt, and the next one that does better: an agent sees that one alone."""

from __future__ import annotations

import gzip
import json
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from hivemind_trio.model import Reason
from tests.proxy.house import body_of, house
from tests.proxy.scripted import PLAIN, STREAMED, failing, from_provider, playing, policy
from tests.support.agent import Agent
from tests.support.upstream import EARLY_END, HUNG_UP, JSON, REFUSED, RESET, STALL, FakeProvider, Reply, Request

IN_A_200: Final = (
    b'{"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "gone"}}, "user_id": "u"}'
)
"""OpenRouter, of a provider that failed after the head had been sent."""

FAILURES: Final = {
    "529": failing(529),
    "429": failing(429),
    "503": failing(503),
    "500": failing(500),
    "502": failing(502, body=b"<html>"),
    "504": failing(504, body=b""),
    "a reset": Reply(before=(RESET,)),
    "a hang-up instead of an answer": Reply(before=(1.0, HUNG_UP)),
    "nobody there": Reply(before=(REFUSED,)),
    "silence": Reply(before=(STALL,)),
    "an error that breaks off": Reply(status=529, steps=(b'{"error"', RESET)),
    "an error that ends early": Reply(status=503, steps=(b'{"error"', EARLY_END)),
}
WITHIN_200: Final = {
    "an error object in a 200": Reply(steps=(IN_A_200,)),
    "the same in pieces": Reply(steps=(IN_A_200[:12], 1.0, IN_A_200[12:40], 1.0, IN_A_200[40:])),
    "the same, compressed": Reply(headers=[JSON, (b"content-encoding", b"gzip")], steps=(gzip.compress(IN_A_200),)),
    "a 200 without a body that breaks off": Reply(steps=(1.0, RESET)),
}
AGENT_S: Final[dict[str, tuple[dict[str, Any], Reply]]] = {
    "streaming": ({"stream": True}, STREAMED),
    "plain": ({}, PLAIN),
}


@pytest.mark.parametrize("failure", [*FAILURES.values(), *WITHIN_200.values()], ids=[*FAILURES, *WITHIN_200])
@pytest.mark.parametrize(("fields", "success"), AGENT_S.values(), ids=AGENT_S)
async def test_an_agent_sees_one_clean_answer(
    failure: Reply, fields: dict[str, Any], success: Reply, autojump_clock: MockClock
) -> None:
    upstream, script = playing(failure, success)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(**fields))

    assert (agent.status, agent.whole, agent.aborted) == (200, True, False)
    assert from_provider(agent) == success.headers
    assert agent.answer == b"".join(step for step in success.steps if isinstance(step, bytes))
    assert agent.header(b"x-hivemind-attempts") == b"2"
    assert agent.header(b"x-hivemind-reason") == str(Reason.RETRY).encode()
    assert len(script.times) == 2
    assert [(record.status, record.attempts, record.rejected) for record in opened.records] == [(200, 2, False)]


async def test_an_error_object_in_a_200_is_given_as_the_answer_with_its_status(autojump_clock: MockClock) -> None:
    """An SDK takes a 200 for an answer, and its agent dies of an answer that has no choices."""
    upstream, script = playing(*[Reply(steps=(IN_A_200,))] * 4)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of())

    assert len(script.times) == 4
    assert agent.status == 502
    assert json.loads(agent.answer)["error"]["message"] == "Provider returned error"


@pytest.mark.parametrize(
    "first",
    [b'{"id": "x", "choices": [], ', b"\n", b'{"error": null, ', b'{"errors": {}, '],
    ids=["another member", "a keep-alive", "no error", "another name"],
)
async def test_other_plain_answers_are_not_held(first: bytes, autojump_clock: MockClock) -> None:
    rest = b'{"ok": 1}' if first.isspace() else b'"usage": {"error": {"code": 502}}}'
    upstream, _ = playing(Reply(steps=(first, 5.0, rest)))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin(Agent(body=body_of()))

        assert (agent.status, agent.answer) == (200, first)
        await agent.done.wait()
        assert (agent.answer, agent.whole) == (first + rest, True)


async def test_it_is_tried_as_often_as_the_class_says(autojump_clock: MockClock) -> None:
    upstream, script = playing(failing(529), Reply(before=(RESET,)), failing(500), PLAIN)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert agent.status == 200
    assert script.times == [0, 1, 3, 7]
    assert agent.header(b"x-hivemind-attempts") == b"4"
    assert agent.header(b"x-hivemind-wait-ms") == b"7000"


# ---- what is sent again ----

LARGE: Final = json.dumps(
    {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "é" * 50_000}]}
)


@pytest.mark.parametrize(
    "body",
    [
        (b'{ "model":\t"claude-x" , "messages" : [ ] ,"messages":[]}\r\n',),
        (b"\xff\x00 no JSON at all",),
        (gzip.compress(b'{"model":"claude-x","messages":[]}', mtime=0),),
        tuple(LARGE.encode()[at : at + 9_999] for at in range(0, len(LARGE.encode()), 9_999)),
        (),
    ],
    ids=["spelt strangely", "bytes", "compressed", "in pieces", "empty"],
)
async def test_the_request_is_sent_again_byte_for_byte(body: tuple[bytes, ...], autojump_clock: MockClock) -> None:
    headers = [(b"Content-Type", b"application/json"), (b"X-Twice", b"1"), (b"x-twice", b"2"), (b"X-Api-Key", b"sk-1")]
    upstream, _ = playing(failing(529), Reply(before=(RESET,)), PLAIN)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(target=b"/v1/messages?beta=true&x=%2F", headers=headers, body=body)

    assert agent.status == 200
    first, *others = upstream.requests
    assert first.body == b"".join(body)
    assert set(headers) <= set(first.headers)
    assert [(one.method, one.target, one.headers, one.body) for one in others] == [
        (first.method, first.target, first.headers, first.body)
    ] * 2


async def test_another_attempt_goes_where_the_policy_of_now_says(autojump_clock: MockClock) -> None:
    upstream, script = playing(failing(529), PLAIN)
    async with house(policy(), upstream) as opened:
        agent = await opened.begin()
        after = policy(base="http://elsewhere/v2")
        opened.door.use(after, {})
        opened.engine.load(after)
        await agent.done.wait()

    assert agent.status == 200
    assert script.times == [0, 1]
    assert [(one.url.host, one.target) for one in upstream.requests] == [
        ("there", b"/v1/messages"),
        ("elsewhere", b"/v2/v1/messages"),
    ]


# ---- when ----

DATE: Final = (b"date", b"Sat, 21 Nov 2026 07:00:00 GMT")
WORDS: Final = {
    "seconds": (failing(529, (b"Retry-After", b"7")), 7.0),
    "milliseconds": (failing(529, (b"retry-after-ms", b"1500"), (b"retry-after", b"2")), 1.5),
    "a date": (failing(503, (b"retry-after", b"Sat, 21 Nov 2026 07:00:09 GMT"), DATE), 9.0),
    "a quota's reset": (
        failing(429, (b"x-ratelimit-remaining-tokens", b"0"), (b"x-ratelimit-reset-tokens", b"6.5s")),
        6.5,
    ),
    "Google's RetryInfo": (failing(429, body=b'{"error":{"details":[{"retryDelay":"8s"}]}}'), 8.0),
    "the first of two": (failing(500, (b"retry-after", b"3"), (b"retry-after", b"9")), 3.0),
    "at once: the back-off": (failing(529, (b"retry-after", b"0")), 1.0),
    "nothing that can be read: the back-off": (failing(529, (b"retry-after", b"soon")), 1.0),
    "as long as is believed": (failing(529, (b"retry-after", b"20")), 20.0),
    "longer: one attempt tests it": (failing(529, (b"retry-after", b"60")), 20.0),
    "longer, of a quota: a probe tests it": (failing(429, (b"retry-after", b"60")), 5.0),
}


@pytest.mark.parametrize(("failure", "wait_s"), WORDS.values(), ids=WORDS)
async def test_the_provider_s_word_on_when_is_kept(failure: Reply, wait_s: float, autojump_clock: MockClock) -> None:
    upstream, script = playing(failure, PLAIN)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask()

    assert agent.status == 200
    # Up to a tenth later: those who were told the same should not come together.
    assert wait_s <= script.times[1] <= wait_s * 1.1


async def test_who_comes_while_a_quota_is_used_up_does_not_ask_for_it(autojump_clock: MockClock) -> None:
    upstream, script = playing(
        failing(429, (b"x-ratelimit-remaining", b"0"), (b"x-ratelimit-reset", b"10")), PLAIN, PLAIN
    )
    async with house(policy(), upstream) as opened:
        first = await opened.begin()
        await trio.sleep(1)
        second = await opened.ask()
        await first.done.wait()

    assert (first.status, second.status) == (200, 200)
    assert min(script.times[1:]) >= 10


async def test_while_one_rests_another_is_served(autojump_clock: MockClock) -> None:
    upstream, script = playing(failing(529, (b"retry-after", b"10")), PLAIN, PLAIN)
    async with house(policy(limit=1), upstream) as opened:
        resting = await opened.begin()
        assert (upstream.open, opened.engine.snapshot().inflight, opened.engine.snapshot().waiting) == (0, 0, 1)

        other = await opened.ask()

        assert (other.status, trio.current_time(), resting.status) == (200, 0, 0)
        await resting.done.wait()
    assert resting.status == 200
    assert script.times[2] <= 5  # the other was served at once, so it has its own back-off and not the 10 s


# ---- who leaves, and what is left ----


@pytest.mark.parametrize("leaves_s", [0.0, 0.5, 1.0, 1.5], ids="at {} s".format)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_who_hangs_up_while_it_rests_leaves_nothing_behind(
    leaves_s: float, streaming: bool, autojump_clock: MockClock
) -> None:
    upstream, script = playing(failing(529), Reply(steps=(STALL,)))
    async with house(policy(limit=1), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=streaming))
        await trio.sleep(leaves_s)
        agent.hang_up()
        await trio.sleep(0.1)

        await opened.assert_quiet()
        await trio.sleep(100)
        await opened.assert_quiet()
    assert agent.served
    # At 1 s it is due: the two come in one tick, in whichever order.
    assert len(script.times) in {0.0: {1}, 0.5: {1}, 1.0: {1, 2}, 1.5: {2}}[leaves_s]


async def test_a_crowd_whose_first_attempts_all_fail_is_served_within_the_slots(autojump_clock: MockClock) -> None:
    failed: set[bytes] = set()

    def play(request: Request) -> Reply:
        (number,) = request.values(b"x-number")
        if number in failed:
            return Reply(steps=(1.0, number))
        failed.add(number)
        return attrs.evolve(failing(529), before=(1.0,))

    upstream = FakeProvider(play)
    async with house(policy(limit=2), upstream) as opened:
        agents = [await opened.begin(headers=[(b"x-number", b"%d" % number)]) for number in range(10)]
        for agent in agents:
            await agent.done.wait()

    assert [agent.answer for agent in agents] == [b"%d" % number for number in range(10)]
    assert upstream.most_at == {b"/v1/messages": 2}


# ---- a property ----

WRONG: Final = failing(400)
GOOD: Final = (WRONG, PLAIN, STREAMED)
UNCOUNTED: Final = (FAILURES["429"],)
"""Refusals for going too often do not count as attempts."""
TURNED_AWAY: Final = (
    *(FAILURES[name] for name in ("529", "503", "nobody there", "an error that breaks off")),
    *(FAILURES["an error that ends early"], failing(529, (b"retry-after", b"2"))),
)
"""These count, unless they are probes of a circuit or a gate."""
COUNTED: Final = tuple(each for each in FAILURES.values() if each not in (*UNCOUNTED, *TURNED_AWAY))
outcomes = st.sampled_from(COUNTED) | st.sampled_from([*FAILURES.values(), *TURNED_AWAY[-1:], *GOOD])


@pytest.mark.slow
@settings(max_examples=40)
@given(
    limit=st.integers(1, 2),
    # Three, whose nine retries are within what a provider may be sent again (ten at once).
    scripts=st.lists(
        st.tuples(st.booleans(), st.lists(outcomes, min_size=4, max_size=6)),
        min_size=1,
        max_size=3,
    ),
)
def test_each_agent_sees_one_attempt_alone_the_good_one_or_the_last(
    limit: int, scripts: list[tuple[bool, list[Reply]]]
) -> None:
    played: dict[int, list[Reply]] = {number: [] for number in range(len(scripts))}

    def play(request: Request) -> Reply:
        (number,) = (int(value) for value in request.values(b"x-number"))
        assert json.loads(request.body)["number"] == number
        replies = [*scripts[number][1], PLAIN]  # for attempts beyond four: some do not count
        played[number].append(replies[min(len(played[number]), len(replies) - 1)])
        return played[number][-1]

    async def act() -> None:
        upstream = FakeProvider(play)
        async with house(policy(limit=limit), upstream) as opened:
            agents = [
                await opened.begin(headers=[(b"x-number", b"%d" % number)], body=body_of(stream=stream, number=number))
                for number, (stream, _) in enumerate(scripts)
            ]
            for agent in agents:
                await agent.done.wait()
        assert upstream.most_at[b"/v1/messages"] <= limit
        for number, agent in enumerate(agents):
            assert_sees(agent, played[number])

    trio.run(act, clock=MockClock(autojump_threshold=0))


def assert_sees(agent: Agent, replies: list[Reply]) -> None:
    *before, last = replies
    assert not any(reply in GOOD for reply in before)
    assert sum(reply in COUNTED for reply in before) < 4
    assert last in GOOD or sum(reply not in UNCOUNTED for reply in replies) >= 4
    assert agent.whole
    if agent.answer.startswith(b"event: ping"):
        return  # it was kept alive meanwhile: what follows a 200 of ours is test_waiting_room's
    assert agent.header(b"x-hivemind-attempts") == b"%d" % len(replies)
    pieces = [step for step in last.steps if isinstance(step, bytes)]
    if last.before or any(isinstance(step, Exception) for step in last.steps):
        assert (agent.status in (503, 504), agent.header(b"x-of")) == (True, None)
    else:
        assert (agent.status, from_provider(agent), agent.answer) == (last.status, last.headers, b"".join(pieces))
