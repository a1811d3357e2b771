"""Budgets, and what else a policy does to a call, as an agent and its provider see it."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

from hivemind_trio.proxy.request.caller_identity import network
from tests.support.agent import Agent
from tests.support.upstream import FakeProvider, Reply

from .house import body_of, compiled, env, house

PROVIDER = 'provider anthropic { base "http://127.0.0.1:9" }\n'


def takes(tokens_out: int) -> FakeProvider:
    usage = {"input_tokens": 0, "output_tokens": tokens_out}
    return FakeProvider(lambda _: Reply(steps=(json.dumps({"content": [], "usage": usage}).encode(),)))


async def test_an_agent_is_warned_and_then_refused_in_its_dialect(autojump_clock: MockClock) -> None:
    policy = compiled(PROVIDER + "budget team { output 100/hour; at 50% { warn } }")
    async with house(policy, takes(60)) as opened:
        first = await opened.ask(Agent(body=body_of(max_tokens=60)))
        second = await opened.ask(Agent(body=body_of(max_tokens=60)))
        third = await opened.ask(Agent(body=body_of(max_tokens=60)))

    assert first.header(b"x-hivemind-budget-warning") is None
    assert second.header(b"x-hivemind-budget-warning") == b"budget team: 60%, 60 output of 100 output per hour"
    assert third.status == 429
    assert third.error["error"]["type"] == "rate_limit_error"
    assert "budget `team` is used up (100 output per hour); it resets in" in third.error["error"]["message"]
    assert third.header(b"x-should-retry") == b"false"
    assert third.header(b"x-hivemind-reason") == b"budget"
    assert len(opened.provider.requests) == 2


async def test_two_calls_at_once_do_not_spend_the_same_money(autojump_clock: MockClock) -> None:
    policy = compiled(PROVIDER + "budget b { output 100/hour; at 100% { hold } }")
    usage = b'{"usage": {"input_tokens": 0, "output_tokens": 20}}'
    provider = FakeProvider(lambda _: Reply(before=(1.0,), steps=(usage,)))
    async with house(policy, provider) as opened:
        agents = [Agent(body=body_of(max_tokens=60)) for _ in range(4)]
        for agent in agents:
            opened.nursery.start_soon(agent.call, opened.door)

    assert [agent.status for agent in agents] == [200] * 4
    assert provider.most_at[b"/v1/messages"] == 1, "each might have taken more than half"


async def test_another_model_reaches_the_provider_and_nothing_else_changes(autojump_clock: MockClock) -> None:
    policy = compiled(
        PROVIDER + 'rule cheaper when model ~ "claude-opus-*" { model "claude-haiku-4-5"; tag downgraded }'
    )
    async with house(policy) as opened:
        await opened.ask(Agent(body=body_of(model="claude-opus-4", temperature=0.5)))
        await opened.ask(Agent(body=body_of(model="claude-sonnet-4")))

    first, second = opened.provider.requests
    assert json.loads(first.body) == json.loads(body_of(model="claude-haiku-4-5", temperature=0.5)[0])
    assert first.values(b"content-length") == [str(len(first.body)).encode()]
    assert second.body == body_of(model="claude-sonnet-4")[0]
    record = opened.records[0]
    assert (record.model, record.sent_model, record.tags) == ("claude-opus-4", "claude-haiku-4-5", ("downgraded",))


async def test_what_names_no_model_is_not_sent_with_another(autojump_clock: MockClock) -> None:
    policy = compiled(PROVIDER + 'rule all { model "claude-haiku-4-5" }')
    async with house(policy) as opened:
        generation = await opened.ask(Agent(body=(b"{broken",)))
        list_ = await opened.ask(Agent(method="GET", target=b"/v1/models", body=()))

    assert generation.status == 403
    assert "names no model" in generation.error["error"]["message"]
    assert list_.status == 200


async def test_a_rule_s_warnings_reach_the_agent_on_every_answer(autojump_clock: MockClock) -> None:
    policy = compiled(
        PROVIDER + 'rule a { warn "größer\\nwie möglich" }\nrule b { warn }\nrule c when method == "POST" { deny }'
    )
    async with house(policy) as opened:
        agent = await opened.ask(Agent(body=body_of()))

    assert agent.status == 403
    values = [value for name, value in agent.answer_headers if name == b"x-hivemind-warning"]
    assert values == [b"gr\\xf6\\xdfer wie m\\xf6glich", b"rule `b`"]


@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without"])
async def test_neither_a_connection_nor_a_name_nor_a_session_is_a_new_budget(
    keyed: bool, autojump_clock: MockClock
) -> None:
    provider = PROVIDER.replace("{", "{ key env(KEY);") if keyed else PROVIDER
    policy = compiled(provider + "budget each per agent { output 100/hour }")
    async with house(policy, takes(60), {env("KEY"): "k"}) as opened:
        callers = [
            Agent(peer=("10.0.0.1", 1), headers=[(b"x-api-key", b"a")]),
            Agent(peer=("10.0.0.1", 2), headers=[(b"x-api-key", b"a")]),
            Agent(peer=("10.0.0.1", 3), headers=[(b"x-api-key", b"a")], target=b"/@me/v1/messages"),
            Agent(peer=("10.0.0.1", 4), headers=[(b"x-api-key", b"a"), (b"x-claude-code-session-id", b"new")]),
            Agent(peer=("10.0.0.1", 5), headers=[(b"x-api-key", b"a")], body=body_of(metadata={"user_id": "u"})),
        ]
        statuses = [(await opened.ask(agent)).status for agent in callers]
        elsewhere = await opened.ask(peer=("10.0.0.2", 1), headers=[(b"x-api-key", b"b")])

    assert statuses == [200, 200, 429, 429, 429]
    assert elsewhere.status == 200


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/chat/completions", b"/v1beta/models/m:generateContent"])
async def test_a_second_credential_is_no_new_budget(target: bytes, autojump_clock: MockClock) -> None:
    policy = compiled(
        PROVIDER
        + 'provider o { api openai; base "http://127.0.0.1:9" }\n'
        + 'provider g { api gemini; base "http://127.0.0.1:9" }\n'
        + "budget each per agent { requests 2/hour }"
    )
    own: dict[bytes, tuple[bytes, bytes]] = {
        b"/v1/messages": (b"x-api-key", b"own"),
        b"/v1/chat/completions": (b"authorization", b"Bearer own"),
    }
    places = [b"x-api-key", b"authorization", b"api-key", b"x-goog-api-key"]
    async with house(policy) as opened:
        statuses = [
            (
                await opened.ask(
                    target=target + b"?key=%d" % number,
                    headers=[own.get(target, (b"x-goog-api-key", b"own")), (place, b"Bearer %d" % number)],
                    body=body_of(),
                )
            ).status
            for number, place in enumerate(places)
        ]

    assert statuses == [200, 200, 429, 429]


async def test_each_header_metadata_value_and_session_has_a_share(autojump_clock: MockClock) -> None:
    policy = compiled(
        PROVIDER
        + "budget users per header.X-User { output 100/month }\n"
        + "budget tasks per meta.user_id { output 100/week }\n"
        + "budget runs per session { output 100/day }\n"
    )
    async with house(policy, takes(60)) as opened:

        async def ask(user: bytes, task: str, session: bytes) -> int:
            headers = [(b"x-api-key", b"a"), (b"x-user", user), (b"x-claude-code-session-id", session)]
            return (await opened.ask(headers=headers, body=body_of(metadata={"user_id": task}))).status

        statuses = [await ask(b"u1", "t1", b"s1"), await ask(b"u1", "t2", b"s2")]
        assert statuses == [200, 200]
        assert await ask(b"u1", "t3", b"s3") == 429
        assert await ask(b"u2", "t2", b"s4") == 200
        assert await ask(b"u3", "t2", b"s5") == 429
        assert await ask(b"u3", "t4", b"s4") == 200
        assert await ask(b"u4", "t5", b"s4") == 429


async def test_an_unproven_caller_does_not_spend_what_another_one_claims_too(autojump_clock: MockClock) -> None:
    policy = compiled(
        PROVIDER.replace("{", "{ key env(KEY);")
        + "agent front { token env(FRONT) }\n"
        + "budget users per header.x-user { output 100/month }\n"
    )
    async with house(policy, takes(60), {env("KEY"): "k", env("FRONT"): "secret"}) as opened:

        async def ask(key: bytes, peer: str) -> int:
            return (await opened.ask(headers=[(b"x-api-key", key), (b"x-user", b"ann")], peer=(peer, 1))).status

        assert [await ask(b"x", "10.0.0.9") for _ in range(3)] == [200, 200, 429]
        assert [await ask(b"secret", "10.0.0.1") for _ in range(3)] == [200, 200, 429]
        assert await ask(b"y", "10.0.0.8") == 200


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("10.0.0.1", 1), ("10.0.0.1", 2), True),
        (("10.0.0.1", 1), ("10.0.0.2", 1), False),
        (("::ffff:10.0.0.1", 1), ("10.0.0.1", 2), True),
        (("::ffff:10.0.0.1", 1), ("::ffff:10.0.0.2", 1), False),
        (("2001:db8:0:1::1", 1), ("2001:db8:0:1:ffff::9", 1), True),
        (("2001:db8:0:1::1", 1), ("2001:db8:0:2::1", 1), False),
        (("fe80::1%eth0", 1), ("fe80::2%eth0", 1), True),
        (None, None, True),
        (("127.0.0.1", 1), ("127.99.0.7", 1), True),
        (("127.0.0.1", 1), ("::1", 1), True),
        (("::ffff:127.0.0.2", 1), ("::1", 1), True),
        (("::1", 1), ("::2", 1), False),
    ],
)
def test_a_caller_is_counted_by_what_one_host_has_of_addresses(
    one: tuple[str, int] | None, other: tuple[str, int] | None, same: bool
) -> None:
    assert (network(one) == network(other)) is same
    assert network(one)
