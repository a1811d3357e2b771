"""What a request says of its client: how long that waits, how often it tries again, and what it dies of."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Reason
from hivemind_trio.proxy.request.client_profile import PATIENCE_MAX_S, ClientProfile, known_by
from tests.proxy.house import House, body_of, compiled, house
from tests.support.agent import Agent, Headers
from tests.support.upstream import FakeProvider, Reply

PYTHON = {"user-agent": "OpenAI/Python 3.52.0", "x-stainless-lang": "python", "x-stainless-retry-count": "0"}

# Headers as the clients sent them to a server of ours, or as their sources have them; the numbers are of their
# documentation and of what was measured.
CLIENTS: dict[str, tuple[dict[str, str], ClientProfile]] = {
    "openai-python": (PYTHON | {"x-stainless-read-timeout": "600"}, ClientProfile(waits_s=600, tries_left=2)),
    "openai-python, a timeout of one's own": (
        PYTHON | {"x-stainless-read-timeout": "12.5"},
        ClientProfile(waits_s=12.5, tries_left=2),
    ),
    "openai-python, its last try": (
        PYTHON | {"x-stainless-read-timeout": "60", "x-stainless-retry-count": "2"},
        ClientProfile(waits_s=60, tries_left=0),
    ),
    "openai-python, more tries than usual": (
        PYTHON | {"x-stainless-read-timeout": "60", "x-stainless-retry-count": "7"},
        ClientProfile(waits_s=60, tries_left=0),
    ),
    "openai-python, without a timeout": (PYTHON, ClientProfile(waits_s=600, tries_left=2)),
    "anthropic-python, streaming": (
        {
            "user-agent": "Anthropic/Python 2.11.0",
            "x-stainless-timeout": "NOT_GIVEN",
            "x-stainless-read-timeout": "600",
            "x-stainless-retry-count": "1",
        },
        ClientProfile(waits_s=600, tries_left=1),
    ),
    "anthropic-python, an older one": (
        {"user-agent": "Anthropic/Python 0.40.0", "x-stainless-timeout": "30", "x-stainless-retry-count": "0"},
        ClientProfile(waits_s=30, tries_left=2),
    ),
    "openai-node": (
        {"user-agent": "OpenAI/JS 6.49.0", "x-stainless-lang": "js", "x-stainless-timeout": "600"},
        ClientProfile(waits_s=300, tries_left=2),
    ),
    "openai-node, a short timeout": (
        {"user-agent": "OpenAI/JS 6.49.0", "x-stainless-lang": "js", "x-stainless-timeout": "20"},
        ClientProfile(waits_s=20, tries_left=2),
    ),
    "Claude Code": (
        {
            "user-agent": "claude-cli/2.1.190 (external, cli)",
            "x-stainless-lang": "js",
            "x-stainless-timeout": "600",
            "x-stainless-retry-count": "3",
        },
        ClientProfile(waits_s=300, tries_left=7),
    ),
    "Codex": (
        {"user-agent": "codex_cli_rs/0.155.1 (Debian 12; x86_64)", "originator": "codex_cli_rs"},
        ClientProfile(waits_s=300, tries_left=4, dies_of_429=True),
    ),
    "Vercel's": (
        {"user-agent": "ai/6.0.326 ai-sdk/provider-utils/4.0.1 runtime/node.js/22"},
        ClientProfile(waits_s=300),
    ),
    "google-genai, node": ({"user-agent": "google-genai-sdk/2.32.0 gl-node/v22.1.0"}, ClientProfile(waits_s=300)),
    "google-genai, python": ({"user-agent": "google-genai-sdk/3.4.0 gl-python/3.11.7"}, ClientProfile()),
    "ollama-python": ({"user-agent": "ollama-python/0.6.3 (x86_64 linux) Python/3.11.7"}, ClientProfile()),
    "litellm": ({"user-agent": "litellm/1.106.2"}, ClientProfile(waits_s=600)),
    "curl": ({"user-agent": "curl/8.7.1"}, ClientProfile()),
    "nothing": ({}, ClientProfile()),
    "noise": (
        {"x-stainless-read-timeout": "soon", "x-stainless-timeout": "-1", "x-stainless-retry-count": "many"},
        ClientProfile(),
    ),
    "no time at all": ({"x-stainless-read-timeout": "0", "x-stainless-timeout": "0.0"}, ClientProfile()),
    "more than a day": ({"x-stainless-read-timeout": "86401"}, ClientProfile()),
}


@pytest.mark.parametrize(("headers", "client"), CLIENTS.values(), ids=CLIENTS)
def test_a_client_is_known_by_its_headers(headers: dict[str, str], client: ClientProfile) -> None:
    assert ClientProfile.of(headers) == client


NAMES = sorted({name for headers, _ in CLIENTS.values() for name in headers})
VALUES = sorted({value for headers, _ in CLIENTS.values() for value in headers.values()})


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.text(max_size=30), max_size=5))
def test_whatever_a_client_says_it_is_read_within_bounds(headers: dict[str, str]) -> None:
    client = ClientProfile.of(headers)

    assert client.waits_s is None or 0 < client.waits_s <= PATIENCE_MAX_S
    assert 0 <= client.tries_left <= 10


# ---- what a call is known by ----

CALL: dict[str, Any] = {
    "whose": "ci",
    "method": "POST",
    "path": b"/v1/messages",
    "query": b"beta=true",
    "headers": {},
    "body": b'{"model":"m"}',
}


@pytest.mark.parametrize(
    "other",
    [
        {"whose": "another"},
        {"path": b"/v1/messages/batches"},
        {"query": b""},
        {"body": b'{"model":"n"}'},
        {"headers": {"idempotency-key": "k"}},
        {"path": b"/v1/message", "query": b"sbeta=true"},
    ],
)
def test_another_call_is_known_by_something_else(other: dict[str, Any]) -> None:
    assert known_by(**(CALL | other)) != known_by(**CALL)


def test_what_changes_from_try_to_try_tells_no_two_apart() -> None:
    again = CALL | {"headers": {"x-stainless-retry-count": "1", "traceparent": "00-1"}}

    assert known_by(**again) == known_by(**CALL)


def test_who_names_a_call_may_send_another_body() -> None:
    named = CALL | {"headers": {"idempotency-key": "k"}}

    assert known_by(**(named | {"body": b"other"})) == known_by(**named)


# ---- at the door ----

ONE_SLOT = compiled("""
server { wait silent 15s hold 240s }
provider p { api generic; base "http://there"; concurrency 1; queue 2 }
retry default { attempts 1 }
""")
SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]
EVENTS = b'event: message_start\ndata: {"type":"message_start"}\n\n'
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
USED_UP = Reply(
    status=429,
    headers=[(b"anthropic-ratelimit-requests-remaining", b"0"), (b"retry-after", b"3600")],
    steps=(b'{"type":"error","error":{"type":"rate_limit_error","message":"requests per hour"}}',),
)


def waiting_for(seconds: str) -> Headers:
    return [(b"x-stainless-read-timeout", seconds.encode()), (b"x-stainless-retry-count", b"0")]


def busy() -> FakeProvider:
    """The first call takes half an hour; what comes then is a stream."""
    answers = [Reply(steps=(1_800, b"first"))]
    return FakeProvider(lambda _: answers.pop() if answers else Reply(headers=SSE, steps=(EVENTS,)))


async def behind_another(opened: House, **request: Any) -> Agent:
    await opened.begin(body=body_of(first=True))
    return await opened.begin(**request)


async def test_a_plain_call_is_sent_away_before_its_client_gives_up(autojump_clock: object) -> None:
    async with house(ONE_SLOT, busy()) as opened:
        agent = await behind_another(opened, headers=waiting_for("60"))
        began = trio.current_time()

        await agent.done.wait()

        assert 50 < trio.current_time() - began < 60
        assert (agent.status, agent.header(b"x-hivemind-reason")) == (429, str(Reason.HELD_TOO_LONG).encode())


async def test_a_client_that_waits_longer_than_anybody_is_held_as_long_as_the_policy_says(
    autojump_clock: object,
) -> None:
    async with house(ONE_SLOT, busy()) as opened:
        agent = await behind_another(opened, headers=waiting_for("3600"))
        began = trio.current_time()

        await agent.done.wait()

        assert 255 <= trio.current_time() - began < 256


async def test_a_stream_of_an_impatient_client_is_kept_alive_sooner_and_held_as_long_as_any(
    autojump_clock: object,
) -> None:
    async with house(ONE_SLOT, busy()) as opened:
        agent = await behind_another(opened, headers=waiting_for("10"), body=body_of(stream=True))
        began = trio.current_time()

        await trio.sleep(5.1)
        assert (agent.status, agent.answer) == (200, PING)
        await trio.sleep(5)
        assert agent.answer == PING * 2
        await agent.done.wait()

        assert 255 <= trio.current_time() - began < 256


async def test_a_client_that_would_wait_in_vain_is_told_at_once(autojump_clock: object) -> None:
    async with house(ONE_SLOT, FakeProvider(lambda _: USED_UP)) as opened:
        await opened.ask(headers=waiting_for("60"))
        began = trio.current_time()

        agent = await opened.ask(headers=waiting_for("60"))

        assert trio.current_time() == began
        assert (agent.status, agent.header(b"x-hivemind-reason")) == (429, str(Reason.CLIENT_PATIENCE).encode())
        assert agent.header(b"x-should-retry") is None
        after = agent.header(b"retry-after")
        assert after is not None
        assert 54 <= int(after) <= 60
        # The hour is tested every five minutes: it may be wrong.
        assert "about 5 min in the queue" in json.loads(agent.answer)["error"]["message"]
        assert len(opened.provider.requests) == 1


async def test_codex_is_kept_as_long_as_can_be_and_then_told_what_it_survives(autojump_clock: object) -> None:
    async with house(ONE_SLOT, FakeProvider(lambda _: USED_UP)) as opened:
        await opened.ask()
        began = trio.current_time()

        agent = await opened.ask(headers=[(b"user-agent", b"codex_cli_rs/0.155.1")])

        assert trio.current_time() - began >= 250
        assert (agent.status, agent.header(b"x-hivemind-reason")) == (503, str(Reason.HELD_TOO_LONG).encode())
        assert agent.header(b"retry-after") == b"30"


async def test_a_call_that_comes_back_on_another_connection_has_its_old_place(autojump_clock: object) -> None:
    answers = [Reply(steps=(100, b"first"))]
    provider = FakeProvider(lambda _: answers.pop() if answers else Reply(steps=(b"{}",)))
    bodies = {name: body_of(named=name) for name in ("early", "late")}
    async with house(ONE_SLOT, provider) as opened:
        early = await behind_another(opened, body=bodies["early"], headers=waiting_for("60"), peer=("10.0.0.1", 1))
        late = await opened.begin(body=bodies["late"], headers=waiting_for("600"), peer=("10.0.0.2", 1))
        await early.done.wait()
        back = await opened.begin(
            body=bodies["early"],
            headers=[(b"x-stainless-read-timeout", b"60"), (b"x-stainless-retry-count", b"1")],
            peer=("10.0.0.1", 2),
        )
        await late.done.wait()
        await back.done.wait()

        assert [early.status, late.status, back.status] == [429, 200, 200]
        assert [request.body for request in provider.requests[1:]] == [bodies["early"][0], bodies["late"][0]]
