"""Calls of Mistral's API through the proxy, by a policy that names the provider and nothing else of it."""

from __future__ import annotations

import json
from typing import Final

from trio.testing import MockClock

from hivemind_trio.model import Reason
from tests.support.agent import Agent
from tests.support.upstream import EVENT_STREAM, JSON, Reply, Request

from .house import compiled, env, house
from .scripted import playing

SECRETS: Final = {env("MISTRAL_API_KEY"): "the-key"}
POLICY: Final = "provider mistral { key env(MISTRAL_API_KEY) }\n"
BODY: Final = json.dumps({"model": "codestral-latest", "prompt": "def f(", "stream": True}).encode()
STREAM: Final = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":'
    b'"x"},"finish_reason":null}]}\n\n',
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":""},"finish_reason":'
    b'"stop"}],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
)
LIMITED: Final = b'{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}'
NOT_IN_PLAN: Final = [JSON, (b"x-ratelimit-limit-req-minute", b"0"), (b"x-ratelimit-remaining-req-minute", b"0")]


def call() -> Agent:
    headers = [(b"authorization", b"Bearer the-agents-own")]
    return Agent(target=b"/v1/fim/completions", headers=headers, body=(BODY,))


async def test_a_call_waits_for_a_limit_of_requests_and_goes_with_the_provider_s_key(
    autojump_clock: MockClock,
) -> None:
    refused = Reply(status=429, steps=(b'{"message":"Requests rate limit exceeded"}',))
    upstream, script = playing(refused, Reply(headers=[EVENT_STREAM], steps=STREAM))
    async with house(compiled(POLICY), upstream, SECRETS) as opened:
        agent = await opened.ask(call())

    sent: Request = opened.provider.requests[-1]
    assert (agent.status, agent.whole, len(script.times)) == (200, True, 2)
    assert agent.answer.endswith(b"".join(STREAM))
    assert (str(sent.url), sent.target) == ("https://api.mistral.ai", b"/v1/fim/completions")
    assert sent.values(b"authorization") == [b"Bearer the-key"]
    usage = opened.records[0].usage
    assert usage is not None
    assert (usage.input, usage.output) == (7, 2)


async def test_a_model_that_is_not_in_the_plan_is_asked_for_once(autojump_clock: MockClock) -> None:
    upstream, script = playing(Reply(status=429, headers=NOT_IN_PLAN, steps=(LIMITED,)))
    async with house(compiled(POLICY), upstream, SECRETS) as opened:
        first, second = await opened.ask(call()), await opened.ask(call())

    assert script.times == [0]
    assert (first.status, first.answer) == (429, LIMITED)
    assert [record.reason for record in opened.records][1] is Reason.PROVIDER_SPENT
    assert json.loads(second.answer)["type"] == "rate_limited"


async def test_a_rejection_is_flat_as_mistral_s_errors_are(autojump_clock: MockClock) -> None:
    policy = compiled(POLICY + 'rule none { deny "no completions here" }')
    async with house(policy, None, SECRETS) as opened:
        agent = await opened.ask(call())

    error = json.loads(agent.answer)
    assert (agent.status, error["object"], error["type"]) == (403, "error", "invalid_request_error")
    assert "no completions here" in error["message"]
