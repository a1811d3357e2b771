"""What an agent is sent while its call waits, and how the answer goes on from there."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import trio

from hivemind_trio.model import Api, Reason
from hivemind_trio.proxy.hold import PING_S
from tests.support.agent import Agent
from tests.support.upstream import STALL, FakeProvider, Reply, Request

from .house import House, body_of, compiled, env, house
from .scripted import DELTA, START, STOP

ONE_SLOT_TEXT = """
server { wait silent 15s hold 240s }
provider p { api generic; base "http://there"; concurrency 1 }
retry default { attempts 1 }
"""
ONE_SLOT = compiled(ONE_SLOT_TEXT)

EVENTS = START + DELTA + STOP
SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]
PING = b'event: ping\ndata: {"type": "ping"}\n\n'

STREAMING = body_of(stream=True)


def busy_for(seconds: float, then: Reply | None = None) -> FakeProvider:
    """The first call takes so long; the others are answered as told."""
    answers = [Reply(steps=(seconds, b"first"))]

    def play(_: Request) -> Reply:
        return answers.pop() if answers else then or Reply(headers=SSE, steps=(EVENTS,))

    return FakeProvider(play)


async def behind_another(opened: House, **request: Any) -> Agent:
    """An agent that waits for the only slot."""
    await opened.begin(**request)
    return await opened.begin(**request)


async def test_a_stream_that_waits_is_silent_and_then_kept_alive(autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(15 + 2 * PING_S + 1)) as opened:
        agent = await behind_another(opened, body=STREAMING)

        await trio.sleep(14.9)
        assert agent.status == 0
        await trio.sleep(0.2)
        assert (agent.status, agent.answer) == (200, PING)
        await agent.done.wait()

    assert agent.answer == PING * 3 + EVENTS
    assert agent.whole
    assert agent.header(b"content-type") == b"text/event-stream; charset=utf-8"
    # What they would say is of the moment of the 200, and what follows it is not known yet.
    assert agent.header(b"x-hivemind-wait-ms") is None
    assert agent.header(b"x-hivemind-attempts") is None
    assert agent.header(b"x-hivemind-reason") is None
    assert [record.status for record in opened.records] == [200, 200]


async def test_what_follows_a_200_of_ours_is_asked_for_without_an_encoding(autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(20)) as opened:
        encodings = [(b"accept-encoding", b"gzip, br")]
        late = await behind_another(opened, body=STREAMING, headers=encodings)
        await late.done.wait()
        at_once = await opened.ask(body=STREAMING, headers=encodings)

    sent = [dict(request.headers) for request in opened.provider.requests]
    assert [headers.get(b"accept-encoding") for headers in sent[1:]] == [b"identity", b"gzip, br"]
    assert late.answer == PING + EVENTS
    assert at_once.answer == EVENTS


async def test_a_plain_call_waits_in_silence_and_is_sent_away_before_its_client_gives_up(
    autojump_clock: object,
) -> None:
    async with house(ONE_SLOT, busy_for(1_000)) as opened:
        agent = await behind_another(opened)

        await trio.sleep(254)
        assert agent.status == 0
        await agent.done.wait()

        assert (trio.current_time() < 290, agent.status) == (True, 429)
        assert agent.header(b"x-hivemind-reason") == str(Reason.HELD_TOO_LONG).encode()
        assert agent.header(b"retry-after") == b"30"
        assert b"because provider `p` was at its concurrency limit of 1" in agent.answer
        assert opened.engine.snapshot().waiting == 0


async def test_a_stream_is_held_as_long_as_the_policy_says_and_ends_with_an_error(autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(1_000)) as opened:
        agent = await behind_another(opened, body=STREAMING)

        await agent.done.wait()

        assert 255 <= trio.current_time() < 256
        assert opened.engine.snapshot().waiting == 0

    assert agent.whole
    assert agent.status == 200
    event = agent.answer.replace(PING, b"")
    assert agent.answer == PING * ((len(agent.answer) - len(event)) // len(PING)) + event
    assert event.startswith(b"event: error\ndata: ")
    error = json.loads(event.removeprefix(b"event: error\ndata: "))
    assert error["type"] == "error"
    assert "retry after 30 s" in error["error"]["message"]


async def test_a_stream_of_a_short_job_is_served_before_it_is_ended(autojump_clock: object) -> None:
    short = compiled(
        ONE_SLOT_TEXT.replace("15s hold 240s", "2s hold 28s").replace(
            "concurrency 1", "concurrency 1; objective makespan"
        )
    )
    # By these, its client would wait three times as long.
    sdk = [(b"user-agent", b"Anthropic/Python 0.121.0"), (b"x-stainless-retry-count", b"0")]

    async def goes_on(opened: House) -> None:
        while True:
            await opened.ask(body=STREAMING, headers=[*sdk, (b"x-hivemind-remaining", b"99")])

    each = FakeProvider(lambda _: Reply(headers=SSE, steps=(1, EVENTS)))
    async with house(short, each) as opened, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(goes_on, opened)
        await trio.sleep(0.5)
        agent = await opened.begin(body=STREAMING, headers=[*sdk, (b"x-hivemind-remaining", b"1")])
        await agent.done.wait()
        nursery.cancel_scope.cancel()

    assert agent.answer.endswith(EVENTS)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(status=529, headers=[(b"content-type", b"application/json")], steps=(b'{"no":1}',)), '529: {"no":1}'),
        (
            Reply(headers=[(b"content-type", b"application/json")], steps=(b"{}",)),
            "answered 200, and not with a stream",
        ),
        (Reply(headers=[*SSE, (b"content-encoding", b"gzip")], steps=(b"??",)), "and not with a stream"),
        (Reply(status=400, steps=(b"x" * 100_000,)), "answered 400, and not with a stream"),
    ],
    ids=["an error", "no stream", "compressed", "a long error"],
)
async def test_what_cannot_follow_a_200_is_told_in_an_event(reply: Reply, said: str, autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(20, reply)) as opened:
        agent = await behind_another(opened, body=STREAMING)
        await agent.done.wait()

    assert agent.whole
    assert agent.answer.startswith(PING + b"event: error\ndata: ")
    message = json.loads(agent.answer.removeprefix(PING + b"event: error\ndata: "))["error"]["message"]
    assert said in message
    assert opened.records[-1].reason is Reason.UPSTREAM_REFUSED


OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}'
JSON = (b"content-type", b"application/json")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=529, headers=[JSON], steps=(OVERLOADED,)),
        Reply(status=529, headers=[JSON, (b"content-encoding", b"gzip")], steps=(gzip.compress(OVERLOADED),)),
        Reply(headers=SSE, steps=(START, b"event: error\ndata: " + OVERLOADED + b"\n\n")),
    ],
    ids=["plain", "compressed", "in its stream"],
)
async def test_a_provider_s_error_is_told_in_its_own_words(reply: Reply, autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(20, reply)) as opened:
        agent = await behind_another(opened, body=STREAMING)
        await agent.done.wait()

    assert agent.whole
    assert agent.answer == PING + b"event: error\ndata: " + OVERLOADED + b"\n\n"
    assert opened.records[-1].reason is Reason.UPSTREAM_REFUSED


async def test_what_we_refuse_has_the_type_of_its_status(autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(1_000)) as opened:
        agent = await behind_another(opened, body=STREAMING)
        await agent.done.wait()

    error = json.loads(agent.answer.replace(PING, b"").removeprefix(b"event: error\ndata: "))["error"]
    assert error["type"] == "rate_limit_error"


async def test_a_provider_that_stalls_in_every_attempt_is_a_timeout(autojump_clock: object) -> None:
    stalling = ONE_SLOT_TEXT.replace("concurrency 1", "concurrency 1; timeout first-byte 30s")
    async with house(compiled(stalling), busy_for(1, Reply(headers=SSE, steps=(START, STALL)))) as opened:
        agent = await behind_another(opened, body=STREAMING)
        await agent.done.wait()

    error = json.loads(agent.answer.replace(PING, b"").removeprefix(b"event: error\ndata: "))["error"]
    assert (agent.whole, error["type"]) == (True, "timeout_error")


async def test_who_hangs_up_while_it_is_kept_alive_leaves_the_line(autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(100)) as opened:
        agent = await behind_another(opened, body=STREAMING)
        await trio.sleep(50)
        assert agent.status == 200

        agent.hang_up()
        await trio.sleep(1)

        assert agent.served
        assert opened.engine.snapshot().waiting == 0
        assert len(opened.provider.requests) == 1


async def test_a_call_that_rests_before_another_attempt_is_kept_alive_too(autojump_clock: object) -> None:
    policy = compiled('provider p { api generic; base "http://there" }')
    overloaded = Reply(status=529, headers=[(b"retry-after", b"40")], steps=(b"{}",))
    # Of the forty seconds twenty are believed at a time.
    answers = [Reply(headers=SSE, steps=(EVENTS,)), overloaded, overloaded]

    async with house(policy, FakeProvider(lambda _: answers.pop())) as opened:
        agent = await opened.ask(body=STREAMING)

    assert agent.whole
    assert agent.answer == PING * 2 + EVENTS
    assert opened.records[0].attempts == 3


async def test_a_stream_that_has_its_200_is_retried_when_all_retries_are_used_up(autojump_clock: object) -> None:
    policy = compiled("""
        server { wait silent 15s hold 240s }
        provider p { api generic; base "http://there"; concurrency 20; breaker trip 100% }
        retry default { ratio 0%; backoff 1ms..2ms }
        lane narrow { max 1 }
        rule narrow when model ~ "narrow*" { lane narrow }
    """)
    seen: set[str] = set()

    def play(request: Request) -> Reply:
        """Serve `good` at once and `narrow` after 18 s; fail the first attempt of every other."""
        asked = json.loads(request.body)
        model, first = asked["model"], asked["model"] not in seen
        seen.add(model)
        if first and model not in ("good", "narrow"):
            return Reply(status=502, headers=[(b"content-type", b"text/html")], steps=(b"<html>",))
        if asked.get("stream"):
            return Reply(headers=SSE, steps=(EVENTS,))
        return Reply(before=(18.0,) if model == "narrow" else ())

    async with house(policy, FakeProvider(play)) as opened:
        began = trio.current_time()
        await opened.begin(body=body_of(model="narrow"))
        agent = await opened.begin(body=body_of(stream=True, model="narrow stream"))
        for each in range(10):
            assert (await opened.ask(body=body_of(model=f"saved up {each}"))).status == 200
        await trio.sleep_until(began + 17.9)
        others = []
        for each in range(5):
            others.append(await opened.begin(body=body_of(model=f"borrowed {each}")))
            await opened.ask(body=body_of(model="good"))  # five failures in a row would open the circuit
        await agent.done.wait()

    # The last of the others has been given the error, for it can try again itself.
    assert [other.status for other in others] == [200, 200, 200, 200, 502]
    assert agent.whole
    assert agent.answer.replace(PING, b"") == EVENTS


@pytest.mark.parametrize(
    ("api", "target", "nothing"),
    [
        (Api.OPENAI, b"/v1/chat/completions", b": ping\n"),
        (Api.OPENAI, b"/v1/responses", b": ping\n"),
        (Api.GEMINI, b"/v1beta/models/g:streamGenerateContent?alt=sse", b"\n"),
        (Api.GEMINI, b"/v1beta/models/g:streamGenerateContent", b"\n"),
    ],
    ids=["chat", "responses", "gemini events", "gemini array"],
)
async def test_nothing_is_said_in_each_dialect(api: Api, target: bytes, nothing: bytes, autojump_clock: object) -> None:
    policy = compiled(f'provider p {{ api {api}; base "http://there"; concurrency 1 }}')
    kind = b"application/json" if api is Api.GEMINI and b"sse" not in target else b"text/event-stream"
    answer = Reply(headers=[(b"content-type", kind)], steps=(b"[{}]",))

    async with house(policy, busy_for(20, answer)) as opened:
        agent = await behind_another(opened, target=target, body=(b'{"model":"m","stream":true}',))
        await agent.done.wait()

    assert agent.answer == nothing + b"[{}]"
    assert (agent.header(b"content-type") or b"").startswith(kind)


async def test_ollama_is_sent_lines_that_say_nothing(autojump_clock: object) -> None:
    policy = compiled("provider ollama { concurrency 1 }")
    line = b'{"model":"m","message":{"role":"assistant","content":"hi"},"done":true}\n'
    answer = Reply(headers=[(b"content-type", b"application/x-ndjson")], steps=(line,))

    async with house(policy, busy_for(20, answer)) as opened:
        agent = await behind_another(opened, target=b"/api/chat", body=(b'{"model":"m","messages":[]}',))
        await agent.done.wait()

    said = [json.loads(each) for each in agent.answer.splitlines()]
    assert [each["message"]["content"] for each in said] == ["", "hi"]
    assert [each["done"] for each in said] == [False, True]


async def test_codex_is_sent_events_because_it_counts_nothing_else(autojump_clock: object) -> None:
    policy = compiled('provider p { api openai; base "http://there"; concurrency 1 }')
    codex = [(b"originator", b"codex_cli_rs")]

    async with house(policy, busy_for(20)) as opened:
        agent = await behind_another(opened, target=b"/v1/responses", headers=codex, body=STREAMING)
        await agent.done.wait()

    assert agent.answer == b'event: keepalive\ndata: {"type":"keepalive"}\n\n' + EVENTS


# ---- who gives up in line ----


async def test_a_caller_that_gives_up_in_line_is_recorded_with_its_wait(autojump_clock: object) -> None:
    policy = compiled("""
provider p { api generic; base "http://there"; concurrency 1 }
agent ci { lane batch }
lane batch { }
""")
    async with house(policy, busy_for(100)) as opened:
        await opened.begin()
        agent = await opened.begin(target=b"/@ci/v1/messages")
        await trio.sleep(7)
        agent.hang_up()
        await agent.done.wait()

        record = opened.records[0]
    assert (record.status, record.rejected, record.attempts) == (0, False, 0)
    assert (record.agent, record.lane, record.waited_ms) == ("ci", "batch", 7_000)
    assert record.reason is Reason.PROVIDER_CONCURRENCY


async def test_a_caller_that_gives_up_between_attempts_is_recorded_with_all_its_waits(autojump_clock: object) -> None:
    policy = compiled("""
provider p { api generic; base "http://there"; concurrency 1; retry slow }
retry slow { on [529]; backoff 20s..40s jitter none }
""")
    async with house(policy, FakeProvider(lambda _: Reply(status=529))) as opened:
        agent = await opened.begin()
        await trio.sleep(5)
        agent.hang_up()
        await agent.done.wait()

        (record,) = opened.records
    assert (record.status, record.attempts, record.reason) == (0, 1, Reason.RETRY)
    assert (record.lane, record.waited_ms) == ("default", 5_000)


async def test_a_caller_held_for_too_long_is_recorded_with_its_lane(autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy_for(2_000)) as opened:
        await opened.begin()
        agent = await opened.begin()
        await agent.done.wait()

        record = opened.records[0]
    assert (record.reason, record.rejected, record.lane) == (Reason.HELD_TOO_LONG, True, "default")
    assert record.waited_ms == 255_000


# ---- probes ----


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_probe_is_answered_here(path: bytes, method: str, autojump_clock: object) -> None:
    async with house(ONE_SLOT) as opened:
        agent = await opened.ask(method=method, target=path, headers=[(b"host", b"10.0.0.7:8787")])

        assert opened.provider.requests == []
        assert opened.records == []
    assert agent.status == 200
    assert agent.answer == (b'{"status":"ok"}' if method == "GET" else b"")


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz"])
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "OPTIONS", "TRACE"])
async def test_a_probe_by_another_method_is_told_which_are_served(
    path: bytes, method: str, autojump_clock: object
) -> None:
    async with house(ONE_SLOT) as opened:
        agent = await opened.ask(method=method, target=path, headers=[(b"host", b"10.0.0.7:8787")])

        assert opened.provider.requests == []
        assert opened.records == []
    assert (agent.status, agent.header(b"allow")) == (405, b"GET, HEAD")
    assert method in agent.error["error"]["message"]


async def test_a_proxy_that_drains_is_alive_and_not_ready(autojump_clock: object) -> None:
    async with house(ONE_SLOT) as opened:
        opened.engine.drain()
        alive = await opened.ask(method="GET", target=b"/healthz")
        ready = await opened.ask(method="GET", target=b"/readyz")

    assert (alive.status, ready.status) == (200, 503)
    assert ready.error == {"status": "draining"}


async def test_a_probe_of_a_web_page_is_refused(autojump_clock: object) -> None:
    async with house(ONE_SLOT) as opened:
        agent = await opened.ask(method="GET", target=b"/healthz", headers=[(b"host", b"evil.example")])

    assert agent.status == 421


@pytest.mark.parametrize("target", [b"/", b"//", b"/.", b"/%2e/", b"/?key=mine", b"/@ci"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_a_connectivity_probe_goes_upstream_without_the_key(
    target: bytes, method: str, autojump_clock: object
) -> None:
    policy = compiled('provider p { api anthropic; base "http://127.0.0.1:9"; key env(KEY) }')
    async with house(policy, secrets={env("KEY"): "the-providers-key"}) as opened:
        await opened.ask(method=method, target=target, headers=[(b"x-api-key", b"the-agents-key")])

        (request,) = opened.provider.requests
    assert b"-key" not in b"".join(value for _, value in request.headers)
    assert b"mine" not in request.target
