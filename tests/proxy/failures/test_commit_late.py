"""A stream is held until its first content event: what fails before that is tried again, and the agent sees nothing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any, Final

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import Failure
from hivemind_trio.proxy.attempt import HELD_BYTES_MAX
from hivemind_trio.scheduler import AttemptEnded, Circuit, Command, Event, ResponseStarted
from tests.proxy.house import body_of, house
from tests.proxy.scripted import DELTA, FIRST_BYTE_S, START, STOP, from_provider, playing, policy
from tests.support.agent import Agent
from tests.support.policies import compiled
from tests.support.upstream import EARLY_END, EVENT_STREAM, RESET, STALL, FakeProvider, Reply, Step

PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
GOOD: Final = START + DELTA + STOP
NDJSON: Final = (b"content-type", b"application/x-ndjson")
ODD: Final = (b"X-Odd", b"of the provider")


def reply(*steps: Step, headers: Sequence[tuple[bytes, bytes]] = (EVENT_STREAM,)) -> Reply:
    return Reply(headers=[*headers], steps=steps)


def data(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def error(kind: str) -> bytes:
    return b"event: error\n" + data({"type": "error", "error": {"type": kind, "message": "no"}})


@attrs.frozen
class Dialect:
    """One API's stream in parts, and an error of it."""

    api: str
    target: bytes
    body: dict[str, Any]
    preamble: bytes
    content: bytes
    closing: bytes
    error: bytes
    content_type: tuple[bytes, bytes] = EVENT_STREAM
    opening: bytes = b""
    """Before the first event."""


STREAM: Final = {"stream": True}
DIALECTS: Final = {
    "anthropic": Dialect("anthropic", b"/v1/messages", STREAM, START, DELTA, STOP, error("overloaded_error")),
    "chat": Dialect(
        "openai", b"/v1/chat/completions", STREAM, data({"choices": [{"delta": {"role": "assistant"}}]}),
        data({"choices": [{"delta": {"content": "So"}}]}), b"data: [DONE]\n\n",
        data({"error": {"code": 503, "message": "no"}}),
    ),
    "responses": Dialect(
        "openai", b"/v1/responses", STREAM, data({"type": "response.created", "response": {"error": None}}),
        data({"type": "response.output_text.delta", "delta": "So"}), data({"type": "response.completed"}),
        data({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}),
    ),
    "gemini": Dialect(
        "gemini", b"/v1beta/models/g:streamGenerateContent?alt=sse", {}, data({"usageMetadata": {}}),
        data({"candidates": [{"content": {"parts": [{"text": "So"}]}}]}),
        data({"candidates": [{"finishReason": "STOP"}]}), data({"error": {"code": 503, "message": "no"}}),
    ),
    "gemini array": Dialect(
        "gemini", b"/v1beta/models/g:streamGenerateContent", {}, b'[{\r\n  "usageMetadata": {}\r\n}\r\n,\r\n',
        b'{"candidates": [{"content": {"parts": [{"text": "So {[\\\""}]}}]},\r\n',
        b'{"candidates": [{"finishReason":\r\n"STOP"}]}\r\n]', b'{"error": {"code": 503, "message": "no"}}\r\n]',
        (b"content-type", b"application/json"), b"[",
    ),
    "ollama": Dialect(
        "ollama", b"/api/chat", {}, b'{"message":{"content":""},"done":false}\n',
        b'{"message":{"content":"So"},"done":false}\n', b'{"done":true}\n', b'{"error":"no"}\n', NDJSON,
    ),
}  # fmt: skip


def failures(one: Dialect) -> dict[str, tuple[Step, ...]]:
    return {
        "an error at once": (one.opening + one.error,),
        "an error behind the preamble": (one.preamble, 0.1, one.error),
        "an error, and silence": (one.preamble, one.error, STALL),
        "a reset": (one.preamble, RESET),
        "an early end": (one.preamble, EARLY_END),
        "silence": (one.preamble, STALL),
        "silence behind the head": (STALL,),
        "an end without content": (one.preamble,),
        "an end without a byte": (),
    }


FAILURES: Final = tuple(failures(DIALECTS["anthropic"]))


def served_by(one: Dialect) -> Any:
    return compiled(
        f'provider p {{ api {one.api}; base "http://there"; timeout first-byte {FIRST_BYTE_S}s; retry quick }}\n'
        "retry quick { on [429, 500..504, 529, reset, first-byte]; attempts 3; backoff 1s..1s jitter none }"
    )


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", DIALECTS)
async def test_what_fails_before_any_content_is_tried_again_and_never_seen(
    name: str, failure: str, autojump_clock: MockClock
) -> None:
    one = DIALECTS[name]
    good = one.preamble + one.content + one.closing
    upstream, script = playing(
        reply(*failures(one)[failure], headers=[one.content_type]),
        reply(one.preamble, 1.0, one.content, one.closing, headers=[one.content_type, ODD]),
    )
    async with house(served_by(one), upstream) as opened:
        agent = await opened.ask(target=one.target, body=body_of(**one.body))

    assert (agent.status, agent.whole, agent.answer) == (200, True, good)
    assert from_provider(agent) == [one.content_type, ODD]
    assert agent.header(b"x-hivemind-attempts") == b"2"
    assert len(script.times) == 2
    # The first-byte timeout ends a stall, not the idle one.
    assert script.times[1] < FIRST_BYTE_S + 2
    assert [(record.status, record.upstream_error, record.rejected) for record in opened.records] == [
        (200, None, False)
    ]


@pytest.mark.parametrize("name", DIALECTS)
async def test_content_goes_out_in_the_moment_in_which_it_comes(name: str, autojump_clock: MockClock) -> None:
    one = DIALECTS[name]
    steps = (one.preamble[:9], 1.0, one.preamble[9:], 1.0, one.content, 1.0, one.closing)
    upstream, _ = playing(reply(*steps, headers=[one.content_type]))
    async with house(served_by(one), upstream) as opened:
        agent = await opened.begin(target=one.target, body=body_of(**one.body))
        await trio.sleep(1.5)
        held = agent.status, agent.answer
        await trio.sleep(0.5)
        await wait_all_tasks_blocked()
        begun = agent.status, agent.answer
        await agent.done.wait()

    assert held == (0, b"")
    assert begun == (200, one.preamble + one.content)
    assert (agent.whole, agent.answer) == (True, one.preamble + one.content + one.closing)


async def test_thinking_is_content(autojump_clock: MockClock) -> None:
    thinking = b'data: {"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}\n\n'
    upstream, _ = playing(reply(START, thinking, 20.0, DELTA, STOP))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=True))
        assert (agent.status, agent.answer) == (200, START + thinking)
        await agent.done.wait()

    assert agent.whole  # 20 s are more than the first-byte timeout, which is over with the first thought


async def test_a_preamble_is_held_up_to_a_bound(autojump_clock: MockClock) -> None:
    long = b'data: {"type":"message_start","message":"' + b"x" * HELD_BYTES_MAX + b'"}\n\n'
    upstream, script = playing(reply(long[:HELD_BYTES_MAX], 1.0, long[HELD_BYTES_MAX:], 1.0, RESET))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=True))
        assert agent.status == 0
        await trio.sleep(1.5)
        assert agent.answer == long
        await agent.done.wait()

    assert (agent.aborted, len(script.times)) == (True, 1)


@pytest.mark.parametrize("cut", range(1, len(GOOD), 17))
async def test_every_byte_arrives_once_and_in_order_wherever_it_is_cut(cut: int, autojump_clock: MockClock) -> None:
    upstream, _ = playing(reply(GOOD[:cut], GOOD[cut : cut + 1], 1.0, GOOD[cut + 1 :]))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert (agent.answer, agent.whole) == (GOOD, True)


# ---- what the agent is given when no attempt did better ----


async def test_of_attempts_that_all_fail_the_last_error_is_given_with_its_status(autojump_clock: MockClock) -> None:
    headers = [(b"request-id", b"r"), EVENT_STREAM, (b"content-length", b"999")]
    last = reply(START, error("overloaded_error"), headers=headers)
    upstream, script = playing(*[last] * 4)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert (agent.status, agent.whole, len(script.times)) == (529, True, 4)
    assert agent.error == {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}
    assert from_provider(agent) == [(b"request-id", b"r"), (b"content-type", b"application/json")]


async def test_an_error_that_is_the_request_s_own_is_given_at_once(autojump_clock: MockClock) -> None:
    upstream, script = playing(reply(START, error("invalid_request_error")))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert (agent.status, agent.error["error"]["type"], len(script.times)) == (400, "invalid_request_error", 1)


LAST: Final[dict[str, tuple[tuple[Step, ...], int, Reason, str]]] = {
    "a reset": ((START, RESET), 502, Reason.UPSTREAM_BROKE, "reset"),
    "an end": ((START,), 502, Reason.UPSTREAM_BROKE, "truncated"),
    "silence": ((START, STALL), 504, Reason.UPSTREAM_TIMEOUT, "first-byte"),
}


@pytest.mark.parametrize(("steps", "status", "reason", "kind"), LAST.values(), ids=LAST)
async def test_a_stream_that_never_had_content_is_a_plain_failure_in_the_end(
    steps: tuple[Step, ...], status: int, reason: Reason, kind: str, autojump_clock: MockClock
) -> None:
    upstream, script = playing(*[reply(*steps)] * 4)
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of())  # plain: nothing can be said meanwhile

    assert (agent.status, agent.whole, len(script.times)) == (status, True, 4)
    assert [(one.reason, one.upstream_error, one.attempts) for one in opened.records] == [(reason, kind, 4)]


async def test_an_answer_without_content_that_is_complete_is_no_failure(autojump_clock: MockClock) -> None:
    upstream, script = playing(reply(START, 1.0, STOP))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert (agent.answer, agent.whole, len(script.times)) == (START + STOP, True, 1)
    assert opened.records[0].upstream_error is None


async def test_who_hangs_up_on_a_held_stream_stops_the_provider(autojump_clock: MockClock) -> None:
    upstream, _ = playing(reply(START, STALL))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=True))

        agent.hang_up()
        await wait_all_tasks_blocked()

        await opened.assert_quiet()
        assert upstream.cancelled == 1


# ---- the agent is kept alive meanwhile ----

SLOW: Final = """
server { wait silent 15s hold 240s }
provider p { api generic; base "http://there"; timeout first-byte 60s }
"""


async def test_a_held_stream_keeps_its_agent_alive_and_can_still_be_tried_again(autojump_clock: MockClock) -> None:
    upstream, script = playing(reply(START, 40.0, error("overloaded_error")), reply(START, 20.0, DELTA, STOP))
    async with house(compiled(SLOW), upstream) as opened:
        agent = await opened.begin(Agent(body=body_of(stream=True)))
        await trio.sleep(14)
        assert agent.status == 0
        await trio.sleep(2)
        assert (agent.status, agent.answer) == (200, PING)
        await agent.done.wait()

    pings = (len(agent.answer) - len(GOOD)) // len(PING)
    assert agent.answer == PING * pings + GOOD
    assert (agent.whole, len(script.times), pings >= 3) == (True, 2, True)
    assert opened.records[0].waited_ms < 5_000  # the time that attempts took is no wait


async def test_a_held_stream_has_the_time_of_its_attempt_and_not_that_of_the_waiting_room(
    autojump_clock: MockClock,
) -> None:
    upstream, _ = playing(reply(START, 400.0, DELTA, STOP))
    async with house(compiled(SLOW.replace("60s", "10m")), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert (agent.answer.replace(PING, b""), agent.whole) == (GOOD, True)
    assert (opened.records[0].waited_ms, opened.records[0].attempts) == (0, 1)


async def test_a_head_that_came_late_has_a_moment_before_our_own_200_hides_it(autojump_clock: MockClock) -> None:
    late = attrs.evolve(reply(START, 4.0, DELTA, STOP, headers=[EVENT_STREAM, ODD]), before=(30.0,))
    upstream, _ = playing(late)
    async with house(compiled(SLOW), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert (agent.answer, from_provider(agent)) == (GOOD, [EVENT_STREAM, ODD])


async def test_no_event_of_ours_hides_a_provider_that_has_not_answered(autojump_clock: MockClock) -> None:
    upstream, _ = playing(Reply(before=(50.0,), headers=[EVENT_STREAM], steps=(GOOD,)))
    async with house(compiled(SLOW), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=True))
        await trio.sleep(45)
        assert agent.status == 0
        await agent.done.wait()

    assert agent.answer == GOOD


async def test_a_compressed_stream_goes_out_when_silence_ends_because_nothing_can_be_said_before_it(
    autojump_clock: MockClock,
) -> None:
    pressed = gzip.compress(START, mtime=0), gzip.compress(DELTA + STOP, mtime=0)
    headers = [EVENT_STREAM, (b"content-encoding", b"gzip")]
    upstream, _ = playing(reply(pressed[0], 20.0, pressed[1], headers=headers))
    async with house(compiled(SLOW), upstream) as opened:
        agent = await opened.begin(body=body_of(stream=True))
        await trio.sleep(14)
        assert agent.status == 0
        await trio.sleep(2)
        assert (agent.status, agent.answer) == (200, pressed[0])
        await agent.done.wait()

    assert (agent.answer, agent.whole, from_provider(agent)) == (b"".join(pressed), True, headers)


async def test_a_compressed_error_is_tried_again(autojump_clock: MockClock) -> None:
    pressed = gzip.compress(START + error("overloaded_error"), mtime=0)
    upstream, script = playing(reply(pressed, headers=[EVENT_STREAM, (b"content-encoding", b"gzip")]), reply(GOOD))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(body=body_of(stream=True))

    assert (agent.answer, len(script.times)) == (GOOD, 2)


# ---- what the scheduler hears ----


class Heard:
    """The events of attempts."""

    def __init__(self) -> None:
        self.began: list[tuple[float, bool, bool]] = []
        self.ended: list[AttemptEnded] = []

    def __call__(self, now_ns: int, event: Event, _commands: Sequence[Command]) -> None:
        match event:
            case ResponseStarted(readings=readings, good=good):
                self.began.append((now_ns / 1e9, bool(readings), good))
            case AttemptEnded():
                self.ended.append(event)


PREFIXES: Final = """
provider anthropic { limits { input 1M/min }; timeout first-byte 9s; retry quick }
retry quick { backoff 1ms..1ms jitter none }
"""
LIMITS: Final = [
    (b"anthropic-ratelimit-requests-limit", b"50"),
    (b"anthropic-ratelimit-requests-remaining", b"49"),
    (b"anthropic-ratelimit-requests-reset", b"2026-11-21T07:01:00Z"),
    (b"date", b"Sat, 21 Nov 2026 07:00:00 GMT"),
]


async def test_quotas_are_heard_with_the_head_and_that_the_prompt_was_read_with_the_content(
    autojump_clock: MockClock,
) -> None:
    heard = Heard()
    upstream, _ = playing(reply(START, 2.0, DELTA, STOP, headers=[EVENT_STREAM, *LIMITS]))
    async with house(compiled(PREFIXES), upstream, journal=heard) as opened:
        await opened.ask(body=body_of(stream=True))

    assert heard.began == [(0.0, True, False), (2.0, False, True)]


@pytest.mark.parametrize(
    ("steps", "began"),
    [
        ((b'{"choices": [', 2.0, b"]}"), [(0.0, True)]),
        ((1.0, b'{"choices": []}'), [(1.0, True)]),
        ((b'{"error": {"code"', 2.0, b": 502}}"), []),
    ],
    ids=["an answer", "one that comes later than its head", "nothing but an error"],
)
async def test_a_plain_answer_is_a_good_one_once_it_cannot_be_an_error(
    steps: tuple[Step, ...], began: list[tuple[float, bool]], autojump_clock: MockClock
) -> None:
    heard = Heard()
    upstream, _ = playing(Reply(steps=steps), Reply())
    async with house(compiled(PREFIXES), upstream, journal=heard) as opened:
        await opened.ask(body=body_of())

    first = [(at_s, good) for at_s, _, good in heard.began if at_s <= 2.0]
    assert [one for one in first if one[1]][:1] == began


async def test_the_first_byte_of_a_stream_is_its_first_content(autojump_clock: MockClock) -> None:
    heard = Heard()
    upstream, _ = playing(attrs.evolve(reply(START, 2.0, PING, 1.0, DELTA, 0.5, STOP), before=(1.0,)))
    async with house(compiled(PREFIXES), upstream, journal=heard) as opened:
        await opened.ask(body=body_of(stream=True))

    (ended,) = heard.ended
    assert (ended.ended.first_byte_ns, ended.ended.silence_ns) == (4_000_000_000, 500_000_000)
    assert ended.ended.outcome is Outcome.SUCCEEDED


async def test_each_failed_attempt_is_told_with_its_outcome_and_takes_no_usage_with_it(
    autojump_clock: MockClock,
) -> None:
    heard = Heard()
    steps: list[tuple[Step, ...]] = [(START, error("overloaded_error")), (START, RESET), (START,), (START, STALL)]
    upstream, _ = playing(*[reply(*each) for each in steps], reply(GOOD))
    patient = PREFIXES.replace("backoff", "attempts 9; backoff")
    async with house(compiled(patient), upstream, journal=heard) as opened:
        await opened.ask(body=body_of(stream=True))

    *failed, good = [event.ended for event in heard.ended]
    assert [(one.outcome, one.status, one.failure) for one in failed] == [
        (Outcome.OVERLOADED, 529, None),
        (Outcome.FAILED, 200, Failure.RESET),
        (Outcome.FAILED, 200, Failure.RESET),
        (Outcome.FAILED, 200, Failure.FIRST_BYTE),
    ]
    assert not any(one.committed or one.usage for one in failed)
    assert failed[-1].first_byte_ns == 9_000_000_000
    assert (good.outcome, good.committed) == (Outcome.SUCCEEDED, True)


# ---- streams that end without their end ----


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_stream_without_its_closing_event_passes_as_it_is_and_counts_as_broken(
    name: str, autojump_clock: MockClock
) -> None:
    one = DIALECTS[name]
    heard = Heard()
    upstream, script = playing(reply(one.preamble, one.content, 1.0, one.content, headers=[one.content_type]))
    async with house(served_by(one), upstream, journal=heard) as opened:
        agent = await opened.ask(target=one.target, body=body_of(**one.body))

    assert (agent.status, agent.whole, agent.answer) == (200, True, one.preamble + one.content * 2)
    assert len(script.times) == 1
    assert [(one.status, one.upstream_error) for one in opened.records] == [(200, "truncated")]
    (ended,) = heard.ended
    assert (ended.ended.outcome, ended.ended.failure, ended.ended.committed) == (Outcome.FAILED, Failure.RESET, True)


async def test_the_circuit_opens_for_streams_without_an_end(autojump_clock: MockClock) -> None:
    broken = FakeProvider(lambda _: reply(START, DELTA))
    async with house(compiled("provider anthropic { breaker trip 100% of 2 }"), broken) as opened:
        for _ in range(2):
            await opened.ask(body=body_of(stream=True))

        assert opened.engine.snapshot().pools["anthropic"].circuit is Circuit.OPEN


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (b"application/json", b'{"half": '),
        (b"text/event-stream", b"data: of a server that nobody knows\n\n"),
        (b"text/event-stream", data({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]})),
        (b"text/plain", b"So"),
    ],
    ids=["plain JSON", "an unknown form", "no [DONE]", "text"],
)
async def test_what_needs_no_closing_event_is_not_called_broken(
    content_type: bytes, body: bytes, autojump_clock: MockClock
) -> None:
    upstream, _ = playing(reply(body, headers=[(b"content-type", content_type)]))
    async with house(policy(), upstream) as opened:
        agent = await opened.ask(target=b"/v1/messages", body=body_of(stream=True))

    assert (agent.answer, agent.whole) == (body, True)
    assert opened.records[0].upstream_error is None


async def test_a_stream_that_generates_nothing_is_not_held(autojump_clock: MockClock) -> None:
    upstream, _ = playing(reply(START, STALL))
    async with house(policy(), upstream) as opened:
        agent = await opened.begin(Agent(method="GET", target=b"/v1/models"))
        assert agent.answer == START
        agent.hang_up()
