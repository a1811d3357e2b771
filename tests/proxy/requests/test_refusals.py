"""Every refusal: its status, its words in the caller's dialect, and when it is worth coming back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from hivemind_trio.model import REJECTIONS, Api, Reason
from hivemind_trio.proxy import CallRecord, Door
from hivemind_trio.proxy.error_responses import refusal
from hivemind_trio.proxy.request.client_profile import ClientProfile
from hivemind_trio.runtime import Engine
from hivemind_trio.upstream import Upstream
from hivemind_trio.wire import read_signal
from tests.proxy.house import body_of, compiled, env, house
from tests.support.agent import Agent
from tests.support.programs import SECOND_NS, lane, program, provider
from tests.support.upstream import FakeProvider, Reply

TARGETS = {
    Api.ANTHROPIC: b"/v1/messages",
    Api.OPENAI: b"/v1/chat/completions",
    Api.GEMINI: b"/v1beta/models/g:generateContent",
    Api.OLLAMA: b"/api/chat",
}
PROVIDERS = "\n".join(f'provider {api} {{ api {api}; base "http://127.0.0.1:9"; concurrency 1 }}' for api in TARGETS)
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
SLOW = Reply(steps=(10.0, b"done"))


def message(agent: Agent, api: Api = Api.ANTHROPIC) -> str:
    """The words, from where the dialect has them."""
    match api:
        case Api.ANTHROPIC:
            assert agent.error["type"] == "error"
            assert agent.error["error"]["type"] == ANTHROPIC_TYPES.get(agent.status, "api_error")
        case Api.OPENAI:
            assert agent.error["error"]["code"].encode() == agent.header(b"x-hivemind-reason")
        case Api.GEMINI:
            assert agent.error["error"]["code"] == agent.status
        case _:
            return str(agent.error["error"])
    return str(agent.error["error"]["message"])


def assert_refused(agent: Agent, status: int, reason: Reason, *, retry_after: bytes | None = None) -> None:
    assert agent.status == status
    assert agent.header(b"x-hivemind-reason") == str(reason).encode()
    assert agent.header(b"retry-after") == retry_after
    assert agent.header(b"content-type") == b"application/json"
    assert agent.header(b"x-hivemind-attempts") == b"0"
    assert agent.header(b"x-hivemind-call")
    assert agent.whole


@pytest.mark.parametrize("api", TARGETS)
async def test_a_full_queue_is_a_429_with_a_time_to_come_back(api: Api, autojump_clock: object) -> None:
    policy = compiled(PROVIDERS + "\nlane fleet { queue 1 }\nrule everyone { lane fleet }")
    async with house(policy, FakeProvider(lambda _: SLOW)) as opened:
        for _ in range(2):
            await opened.begin(target=TARGETS[api])

        refused = await opened.ask(target=TARGETS[api])

        after = refused.header(b"retry-after")
        assert after is not None
        assert 1 <= int(after) <= 60
        assert_refused(refused, 429, Reason.QUEUE_FULL, retry_after=after)
        assert refused.header(b"x-should-retry") is None
        assert message(refused, api).startswith("hivemind-trio: queue full: 1 waiting")
        assert f"in lane `fleet` (limit 1); retry after {int(after)} s" in message(refused, api)
    assert [record.rejected for record in opened.records] == [True, False, False]


async def test_the_one_that_waited_longest_is_dropped_where_the_policy_says_so(autojump_clock: object) -> None:
    policy = program(providers=[provider(limit=1)], lanes=[lane(queue=1, shed_oldest=True)])
    async with house(policy, FakeProvider(lambda _: SLOW)) as opened:
        await opened.begin()
        oldest = await opened.begin()
        newest = await opened.begin()

        assert oldest.status == 429
        assert oldest.header(b"x-hivemind-reason") == b"shed-oldest"
        await newest.done.wait()
        assert newest.status == 200


async def test_a_deadline_is_a_429_that_says_what_it_waited_for(autojump_clock: object) -> None:
    policy = program(providers=[provider(limit=1)], lanes=[lane(deadline_ns=3 * SECOND_NS)])
    async with house(policy, FakeProvider(lambda _: SLOW)) as opened:
        await opened.begin()
        began = trio.current_time()

        late = await opened.ask()

        assert trio.current_time() - began == pytest.approx(3)
        assert_refused(late, 429, Reason.DEADLINE, retry_after=late.header(b"retry-after"))
        assert late.header(b"x-hivemind-wait-ms") == b"3000"
        assert "at its concurrency limit of 1" in message(late)
        assert len(opened.provider.requests) == 1


async def test_draining_sends_waiting_and_new_calls_away_and_finishes_what_runs(autojump_clock: object) -> None:
    async with house(program(providers=[provider(limit=1)]), FakeProvider(lambda _: SLOW)) as opened:
        running, waiting = await opened.begin(), await opened.begin()

        opened.engine.drain()
        late = await opened.ask()
        await waiting.done.wait()

        for agent in (waiting, late):
            assert_refused(agent, 503, Reason.DRAINING, retry_after=b"1")
            assert "shutting down" in message(agent)
        await running.done.wait()
        assert running.answer == b"done"


DENYING = """
provider p { api anthropic; base "http://127.0.0.1:9"; concurrency 1 }
rule no-opus when model ~ "claude-opus-*" { deny "ask for claude-haiku instead" }
"""


async def test_a_rule_that_denies_says_its_words_and_that_no_retry_helps(autojump_clock: object) -> None:
    async with house(compiled(DENYING)) as opened:
        denied = await opened.ask(body=body_of(model="claude-opus-4"))
        allowed = await opened.ask(body=body_of(model="claude-haiku-4"))

        assert_refused(denied, 403, Reason.DENIED)
        assert "ask for claude-haiku instead" in message(denied)
        assert denied.header(b"x-should-retry") == b"false"
        assert allowed.status == 200
        assert len(opened.provider.requests) == 1


TWO_PROVIDERS = """
provider here  { api anthropic; base "http://127.0.0.1:9"; serves ["claude-*"]; concurrency 1 }
provider there { api anthropic; base "http://127.0.0.1:9"; serves ["gpt-*"]; concurrency 1 }
"""


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"body": body_of(model="llama-9")}, "no provider in the policy serves model `llama-9`"),
        (
            {"target": b"/v1/chat/completions"},
            "no provider in the policy speaks the API `openai` of the path `/v1/chat/completions`",
        ),
        ({"target": b"/nowhere"}, "unknown API path `/nowhere`"),
    ],
    ids=["model", "dialect", "path"],
)
async def test_what_nobody_serves_is_a_404_that_says_why_and_names_who_serves_what(
    request_: dict[str, Any], why: str, autojump_clock: object
) -> None:
    async with house(compiled(TWO_PROVIDERS)) as opened:
        lost = await opened.ask(**request_)

        assert_refused(lost, 404, Reason.NO_PROVIDER)
        words = lost.error["error"]["message"]
        assert why in words
        assert "here (anthropic: claude-*)" in words
        assert "there (anthropic: gpt-*)" in words
        assert lost.header(b"x-should-retry") == b"false"


DECLARED_ONLY = """
server { unknown-agent deny }
provider p { api anthropic; base "http://127.0.0.1:9"; key env(KEY); concurrency 1 }
agent ci { token env(CI_TOKEN) }
"""


@pytest.mark.parametrize(
    "headers",
    [[], [(b"x-api-key", b"wrong")], [(b"authorization", b"Bearer wrong")], [(b"x-hivemind-agent", b"ci")]],
)
async def test_a_caller_without_a_right_token_is_a_401_where_the_policy_knows_all(
    headers: list[tuple[bytes, bytes]], autojump_clock: object
) -> None:
    secrets = {env("KEY"): "key", env("CI_TOKEN"): "right"}
    async with house(compiled(DECLARED_ONLY), secrets=secrets) as opened:
        wrong = await opened.ask(headers=headers)
        right = await opened.ask(headers=[(b"authorization", b"Bearer right")])

        assert_refused(wrong, 401, Reason.UNKNOWN_AGENT)
        assert wrong.error["error"]["type"] == "authentication_error"
        assert "wrong" not in wrong.answer.decode()
        assert right.status == 200


SMALL_BODIES = "server { max-body 1KiB }\n" + PROVIDERS


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("api", TARGETS)
async def test_a_body_over_the_limit_is_a_413_in_the_caller_s_dialect(
    declared: bool, api: Api, autojump_clock: object
) -> None:
    body = [b"x" * 600, b"y" * 600]
    headers = [(b"Content-Length", b"1200")] if declared else []
    async with house(compiled(SMALL_BODIES)) as opened:
        large = await opened.ask(target=TARGETS[api], headers=headers, body=body)

        assert_refused(large, 413, Reason.BODY_TOO_LARGE)
        assert "1,024 bytes" in message(large, api)
        assert large.header(b"x-should-retry") == b"false"
        assert opened.provider.requests == []


async def test_a_body_of_just_the_limit_passes(autojump_clock: object) -> None:
    async with house(compiled(SMALL_BODIES)) as opened:
        fits = await opened.ask(headers=[(b"content-length", b"1024")], body=[b"x" * 424, b"y" * 600])

        assert fits.status == 200
        assert len(opened.provider.requests[0].body) == 1_024


async def test_a_declared_length_over_the_limit_is_refused_before_the_body_is_read(autojump_clock: object) -> None:
    async with house(compiled(SMALL_BODIES)) as opened:
        large = await opened.ask(headers=[(b"content-length", b"9" * 30)], body=[b"x"] * 9, piece_delay_s=100)

        assert large.status == 413
        assert trio.current_time() == pytest.approx(0)


async def test_a_head_is_refused_without_a_body(autojump_clock: object) -> None:
    async with house(compiled(TWO_PROVIDERS)) as opened:
        lost = await opened.ask(method="HEAD", target=b"/nowhere", body=())

        assert (lost.status, lost.answer, lost.whole) == (404, b"", True)
        assert int(lost.header(b"content-length") or 0) > 0


async def test_a_provider_without_a_key_is_not_given_an_agent_s_token(autojump_clock: object) -> None:
    policy = compiled('provider p { api anthropic; base "http://127.0.0.1:9" }\nagent ci { token env(CI_TOKEN) }')
    async with house(policy, secrets={env("CI_TOKEN"): "tok"}) as opened:
        refused = await opened.ask(headers=[(b"x-api-key", b"tok")])

        assert_refused(refused, 403, Reason.DENIED)
        assert "add `key env(NAME)`" in message(refused)
        assert opened.provider.requests == []


# ---- all reasons ----


FINAL = {reason for reason, row in REJECTIONS.items() if row.is_final}


@pytest.mark.parametrize("reason", [reason for reason in REJECTIONS if reason not in FINAL])
def test_gemini_s_clients_find_in_the_body_when_to_come_back(reason: Reason) -> None:
    error = json.loads(refusal(Api.GEMINI, reason, "no", 7 * SECOND_NS).body)["error"]
    silent = json.loads(refusal(Api.GEMINI, reason, "no").body)["error"]

    assert error["details"] == [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    assert "details" not in silent
    # As we read it ourselves, where another proxy of ours says it.
    assert read_signal(429, {}, json.dumps({"error": error}).encode()).retry_after_ns == 7 * SECOND_NS


@pytest.mark.parametrize("reason", sorted(FINAL))
def test_who_need_not_come_back_is_told_no_time_in_the_body(reason: Reason) -> None:
    assert b"retryDelay" not in refusal(Api.GEMINI, reason, "no", 7 * SECOND_NS).body


@pytest.mark.parametrize("reason", REJECTIONS)
def test_whoever_dies_of_a_429_is_told_503_unless_it_is_meant_so(reason: Reason) -> None:
    codex = refusal(Api.OPENAI, reason, "no", None, ClientProfile(dies_of_429=True))
    others = refusal(Api.OPENAI, reason, "no", None, ClientProfile())

    survives = others.status == 429 and reason not in FINAL
    assert codex.status == (503 if survives else others.status)


@pytest.mark.parametrize("reason", REJECTIONS)
@pytest.mark.parametrize("retry_after_ns", [None, 0, 1, SECOND_NS, SECOND_NS + 1, 10**15])
def test_retry_after_is_whole_seconds_that_the_sdks_heed(reason: Reason, retry_after_ns: int | None) -> None:
    answer = refusal(Api.ANTHROPIC, reason, "no", retry_after_ns)
    headers = dict(answer.headers)

    expected = {None: None, 0: b"1", 1: b"1", SECOND_NS: b"1", SECOND_NS + 1: b"2"}
    expected[10**15] = b"1000000" if reason in FINAL else b"60"
    assert headers.get(b"retry-after") == expected[retry_after_ns]
    assert (headers.get(b"x-should-retry") == b"false") is (reason in FINAL)
    assert headers[b"content-length"] == str(len(answer.body)).encode()
    assert answer.status != 529


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.QUEUE_FULL, 429),
        (Reason.SHED_OLDEST, 429),
        (Reason.DEADLINE, 429),
        (Reason.CLIENT_PATIENCE, 429),
        (Reason.HELD_TOO_LONG, 429),
        (Reason.PROVIDER_SPENT, 429),
        (Reason.BUDGET, 429),
        (Reason.DENIED, 403),
        (Reason.UNKNOWN_AGENT, 401),
        (Reason.NO_PROVIDER, 404),
        (Reason.BODY_TOO_LARGE, 413),
        (Reason.BAD_REQUEST, 400),
        (Reason.UPGRADE_REJECTED, 426),
        (Reason.DRAINING, 503),
        (Reason.UPSTREAM_UNREACHABLE, 503),
        (Reason.UPSTREAM_TIMEOUT, 504),
        (Reason.UPSTREAM_BROKE, 502),
    ],
)
def test_each_reason_has_the_status_of_the_table(reason: Reason, status: int) -> None:
    assert refusal(None, reason, "no").status == status


# ---- what is not HTTP ----


RECORDS: list[CallRecord] = []
"""Of the last WebSocket."""


async def websocket(
    extensions: dict[str, Any], headers: list[tuple[bytes, bytes]] | None = None
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(said: dict[str, Any]) -> None:
        sent.append(said)

    policy = program()
    door = Door(Engine(policy), Upstream(FakeProvider()), on_call=RECORDS.append)
    RECORDS.clear()
    door.use(policy, {})
    scope = {"type": "websocket", "raw_path": b"/v1/responses", "query_string": b"", "headers": headers or []}
    await door(scope | {"extensions": extensions}, receive, send)
    return sent


async def test_a_websocket_is_refused_with_a_status_that_codex_understands(autojump_clock: object) -> None:
    start, body = await websocket({"websocket.http.response": {}})

    assert (start["type"], start["status"]) == ("websocket.http.response.start", 426)
    assert (b"x-hivemind-reason", b"upgrade-rejected") in start["headers"]
    assert b"use HTTP" in body["body"]
    (record,) = RECORDS
    assert (record.status, record.reason, record.path) == (426, Reason.UPGRADE_REJECTED, "/v1/responses")
    assert record.rejected


async def test_a_websocket_of_a_web_page_is_refused_as_one(autojump_clock: object) -> None:
    start, _ = await websocket({"websocket.http.response": {}}, [(b"origin", b"https://evil.example")])

    assert start["status"] == 403
    assert (b"x-hivemind-reason", b"foreign-origin") in start["headers"]


async def test_a_websocket_that_can_be_told_no_status_is_closed(autojump_clock: object) -> None:
    (close,) = await websocket({})

    assert (close["type"], close["code"]) == ("websocket.close", 1008)


@pytest.mark.parametrize(("seconds", "said"), [(5, b"5"), (60, b"60"), (61, b"60"), (16_800, b"60")])
def test_the_words_and_the_header_name_the_same_time_of_a_retry(seconds: int, said: bytes) -> None:
    answer = refusal(Api.ANTHROPIC, Reason.BREAKER_OPEN, "circuit breaker open", seconds * SECOND_NS)

    assert b"circuit breaker open; retry after %b s" % said in answer.body
    assert dict(answer.headers)[b"retry-after"] == said


def test_a_spent_budget_says_in_the_header_what_its_words_say() -> None:
    answer = refusal(Api.ANTHROPIC, Reason.BUDGET, "it resets in 4 h 40 min", 16_800 * SECOND_NS)

    assert dict(answer.headers)[b"retry-after"] == b"16800"
    assert b"retry after" not in answer.body
