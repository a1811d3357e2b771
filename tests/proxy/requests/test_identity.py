"""Who is calling: a token proves it, anything else claims it; and whose credential goes upstream."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.policy import Clue, Program
from hivemind_trio.proxy.request.caller_identity import (
    Credential,
    caller,
    credential,
    job,
    split_prefix,
    without_key,
)
from hivemind_trio.proxy.request.head import RequestHead
from hivemind_trio.proxy.request.provider_credential import with_key
from tests.proxy.house import compiled, env, house
from tests.support.agent import Agent, Headers
from tests.support.programs import agent as declared
from tests.support.programs import program, provider
from tests.support.upstream import FakeProvider, Reply, Request

TOKEN, KEY, OWN = "agent-token-ci", "provider-key", "an-agent-s-own-key"

AGENTS = """
agent ci      { token env(CI_TOKEN) }
agent laptop  { }
agent nightly when header.x-job == "nightly" { }
agent guarded when header.x-job == "guarded" { token env(GUARDED_TOKEN) }
"""
KEYED = compiled('provider p { api anthropic; base "http://127.0.0.1:9"; key env(KEY) }' + AGENTS)
KEYLESS = compiled('provider p { api anthropic; base "http://127.0.0.1:9" }' + AGENTS)
SECRETS = {env("KEY"): KEY, env("CI_TOKEN"): TOKEN, env("GUARDED_TOKEN"): "another"}

PLACES: dict[str, tuple[bytes, Headers]] = {
    "x-api-key": (b"", [(b"x-api-key", TOKEN.encode())]),
    "X-API-Key": (b"", [(b"X-API-Key", TOKEN.encode())]),
    "bearer": (b"", [(b"authorization", b"Bearer " + TOKEN.encode())]),
    "BEARER with spaces": (b"", [(b"Authorization", b"BEARER   " + TOKEN.encode())]),
    "no scheme": (b"", [(b"authorization", TOKEN.encode())]),
    "api-key": (b"", [(b"api-key", TOKEN.encode())]),
    "x-goog-api-key": (b"", [(b"x-goog-api-key", TOKEN.encode())]),
    "?key=": (b"?beta=true&key=" + TOKEN.encode(), []),
    "?key=, escaped": (b"?key=%61gent-token-ci&x=1", []),
    "beside a key": (b"", [(b"x-api-key", OWN.encode()), (b"authorization", b"Bearer " + TOKEN.encode())]),
    "the second of two": (b"", [(b"authorization", b"Bearer other"), (b"authorization", b"Bearer " + TOKEN.encode())]),
    "beside an empty one": (b"", [(b"x-api-key", b""), (b"api-key", TOKEN.encode())]),
    "?key= beside a key": (b"?key=" + TOKEN.encode(), [(b"x-api-key", OWN.encode())]),
}


async def identified(program: Program, agent: Agent) -> str:
    """The agent that the policy took it for."""
    async with house(program, secrets=SECRETS) as opened:
        await opened.ask(agent)
    return opened.records[0].agent


def everything(request: Request) -> bytes:
    """All that the provider was sent."""
    return b"\n".join([request.target, request.body, *itertools.chain.from_iterable(request.headers)])


# ---- tokens ----


@pytest.mark.parametrize(("query", "headers"), PLACES.values(), ids=PLACES)
async def test_a_token_proves_its_agent_wherever_sdks_put_it(
    query: bytes, headers: Headers, autojump_clock: object
) -> None:
    assert await identified(KEYED, Agent(target=b"/v1/messages" + query, headers=headers)) == "ci"


async def test_a_token_that_two_agents_have_is_the_first_one_s(autojump_clock: object) -> None:
    twice = compiled(
        """provider p { api anthropic; base "http://127.0.0.1:9" }
        agent ci { token env(CI_TOKEN) }
        agent late { token env(CI_TOKEN) }"""
    )

    assert await identified(twice, Agent(headers=[(b"x-api-key", TOKEN.encode())])) == "ci"


@pytest.mark.parametrize(("query", "headers"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("policy", [KEYED, KEYLESS], ids=["with a key", "without a key"])
async def test_a_token_never_reaches_the_provider(
    policy: Program, query: bytes, headers: Headers, autojump_clock: object
) -> None:
    async with house(policy, secrets=SECRETS) as opened:
        agent = await opened.ask(target=b"/v1/messages" + query, headers=headers)

        for request in opened.provider.requests:
            assert TOKEN.encode() not in everything(request)
            assert b"%61gent-token-ci" not in request.target
        assert len(opened.provider.requests) == (policy is KEYED)
        assert agent.status == (200 if policy is KEYED else 403)
        assert TOKEN.encode() not in agent.answer


@pytest.mark.parametrize("wrong", ["agent-token-c", "agent-token-cii", "AGENT-TOKEN-CI", "", " "])
async def test_a_token_is_the_whole_token(wrong: str, autojump_clock: object) -> None:
    assert await identified(KEYED, Agent(headers=[(b"x-api-key", wrong.encode())])) == "unknown"


async def test_a_token_without_a_value_is_nobody_s(autojump_clock: object) -> None:
    async with house(KEYED, secrets={env("KEY"): KEY, env("CI_TOKEN"): ""}) as opened:
        await opened.ask(headers=[(b"x-api-key", b"")])
        await opened.ask(headers=[(b"authorization", b"Bearer ")])

    assert [record.agent for record in opened.records] == ["unknown", "unknown"]


async def test_a_token_counts_more_than_what_the_caller_claims_to_be(autojump_clock: object) -> None:
    headers = [(b"x-api-key", TOKEN.encode()), (b"x-hivemind-agent", b"laptop"), (b"x-job", b"nightly")]

    assert await identified(KEYED, Agent(target=b"/@laptop/v1/messages", headers=headers)) == "ci"


# ---- claims ----


@pytest.mark.parametrize(
    ("target", "headers", "agent"),
    [
        (b"/@laptop/v1/messages", [], "laptop"),
        (b"/v1/messages", [(b"x-hivemind-agent", b"laptop")], "laptop"),
        (b"/v1/messages", [(b"X-Hivemind-Agent", b"laptop")], "laptop"),
        (b"/@laptop/v1/messages", [(b"x-hivemind-agent", b"nobody")], "laptop"),
        (b"/v1/messages", [(b"x-job", b"nightly")], "nightly"),
        (b"/@nobody/v1/messages", [(b"x-job", b"nightly")], "nightly"),
        (b"/@laptop/v1/messages", [(b"x-job", b"nightly")], "laptop"),
        (b"/@nobody/v1/messages", [], "unknown"),
        (b"/@Laptop/v1/messages", [], "unknown"),
        (b"/v1/messages", [], "unknown"),
    ],
)
async def test_a_claim_is_believed_where_nothing_is_to_be_proven(
    target: bytes, headers: Headers, agent: str, autojump_clock: object
) -> None:
    assert await identified(KEYED, Agent(target=target, headers=headers)) == agent


@pytest.mark.parametrize("name", ["ci", "guarded"])
@pytest.mark.parametrize("credentials", [[], [(b"x-api-key", b"a-guess")]])
async def test_an_agent_with_a_token_is_had_by_that_alone(
    name: str, credentials: Headers, autojump_clock: object
) -> None:
    claims = [(b"x-hivemind-agent", name.encode()), (b"x-job", name.encode()), *credentials]

    assert await identified(KEYED, Agent(target=f"/@{name}/v1/messages".encode(), headers=claims)) == "unknown"


@pytest.mark.parametrize(
    ("path", "name", "rest"),
    [
        (b"/@ci/v1/messages", "ci", b"/v1/messages"),
        (b"/@ci", "ci", b"/"),
        (b"/@ci/", "ci", b"/"),
        (b"/@ci//v1", "ci", b"//v1"),
        (b"/@a/@b/v1", "a", b"/@b/v1"),
        (b"/@a.b_c~-9/x", "a.b_c~-9", b"/x"),
        (b"/@" + b"n" * 64 + b"/x", "n" * 64, b"/x"),
        (b"/@" + b"n" * 65 + b"/x", None, b"/@" + b"n" * 65 + b"/x"),
        (b"/@/v1", None, b"/@/v1"),
        (b"/@c%69/v1", None, b"/@c%69/v1"),
        (b"/v1/@ci", None, b"/v1/@ci"),
        (b"", None, b""),
    ],
)
def test_a_prefix_names_the_agent_and_is_taken_off(path: bytes, name: str | None, rest: bytes) -> None:
    assert split_prefix(path) == (name, rest)


# ---- whose credential goes upstream ----


async def test_an_agent_s_own_credential_passes_where_the_policy_has_no_key(autojump_clock: object) -> None:
    headers = [(b"x-api-key", OWN.encode()), (b"Authorization", b"Bearer  " + OWN.encode())]
    async with house(KEYLESS, secrets=SECRETS) as opened:
        await opened.ask(target=b"/v1/messages?a=%20&key=" + OWN.encode(), headers=headers)

        (request,) = opened.provider.requests
        assert request.values(b"x-api-key") == [OWN.encode()]
        assert request.values(b"authorization") == [b"Bearer  " + OWN.encode()]
        assert request.target == b"/v1/messages?a=%20&key=" + OWN.encode()


@pytest.mark.parametrize(
    ("target", "headers", "counted"),
    [
        (b"/v1/messages", [(b"authorization", b"Bearer x"), (b"x-api-key", b"own")], b"own"),
        (b"/v1/messages", [(b"x-api-key", b"own"), (b"X-Api-Key", b"x")], b"own"),
        (b"/v1/messages?key=x", [(b"authorization", b"Bearer own")], b"own"),
        (b"/v1/chat/completions", [(b"x-api-key", b"x"), (b"authorization", b"Bearer own")], b"own"),
        (b"/v1/responses?key=x", [(b"api-key", b"x"), (b"authorization", b"bearer\town")], b"own"),
        (b"/v1beta/models/m:generateContent?key=x", [(b"x-goog-api-key", b"own"), (b"x-api-key", b"y")], b"own"),
        (b"/v1beta/models/m:generateContent?key=own&k%65y=y", [(b"authorization", b"Bearer x")], b"own"),
        (b"/v1beta/models/m:generateContent?%6bey=own", [(b"x-api-key", b"x")], b"own"),
        (b"/openai/deployments/m/chat/completions", [(b"authorization", b"Bearer x"), (b"api-key", b"own")], b"own"),
    ],
)
def test_the_credential_that_is_counted_is_what_the_provider_reads_and_all_that_it_is_sent(
    target: bytes, headers: Headers, counted: bytes
) -> None:
    head = RequestHead.of(Agent(target=target, headers=headers).scope())
    sent, query = with_key(head, provider("p"), None)

    assert head.credential == Credential(counted)
    again = RequestHead.of(Agent(target=b"/v1/other?" + query, headers=sent).scope())
    assert again.credential == Credential(counted)
    assert not {b"x", b"y", b"Bearer x"} & {value for _, value in sent}
    assert b"x" not in query
    assert b"y" not in query.replace(b"key", b"").replace(b"%6bey", b"")


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/chat/completions"])
def test_basic_authentication_of_a_gateway_passes_beside_the_credential_and_is_not_counted(target: bytes) -> None:
    headers = [(b"authorization", b"Basic dXNlcjpwYXNz"), (b"x-api-key", b"own")]
    both, alone = (RequestHead.of(Agent(target=target, headers=each).scope()) for each in (headers, headers[:1]))

    assert both.credential == Credential(b"own")
    assert set(headers) <= set(with_key(both, provider("p"), None)[0])
    assert alone.credential is None
    assert headers[0] in with_key(alone, provider("p"), None)[0]
    assert b"authorization" not in dict(with_key(both, provider("p"), "key")[0])


async def test_a_policy_s_key_goes_in_their_place(autojump_clock: object) -> None:
    headers = [(b"x-api-key", OWN.encode()), (b"Authorization", b"Bearer also-mine"), (b"Api-Key", b"mine")]
    async with house(KEYED, secrets=SECRETS) as opened:
        await opened.ask(target=b"/v1/messages?a=1&key=mine&b=2", headers=headers)

        (request,) = opened.provider.requests
        assert request.values(b"x-api-key") == [KEY.encode()]
        assert b"mine" not in everything(request)
        assert request.target == b"/v1/messages?a=1&b=2"


async def test_no_secret_is_in_what_is_kept_of_a_call(autojump_clock: object) -> None:
    headers = [(b"x-api-key", OWN.encode()), (b"authorization", b"Bearer " + TOKEN.encode())]
    async with house(KEYED, secrets=SECRETS) as opened:
        await opened.ask(target=b"/v1/messages?key=in-the-query", headers=headers)

    for secret in (OWN, TOKEN, KEY, "in-the-query"):
        assert secret not in repr(opened.records)
    head = RequestHead.of(Agent(target=b"/v1/messages", headers=[(b"authorization", b"Bearer x-secret")]).scope())
    assert "x-secret" not in repr(head.credential)


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        (b"", b""),
        (b"key=x", b""),
        (b"key", b""),
        (b"a=1&key=x&b=%20&key=y", b"a=1&b=%20"),
        (b"a=1&k%65y=x&%6B%65%79=y", b"a=1"),
        (b"keys=1&monkey=2", b"keys=1&monkey=2"),
        (b"&&a&&", b"&&a&&"),
    ],
)
def test_a_query_loses_its_key_and_nothing_else(query: bytes, rest: bytes) -> None:
    assert without_key(query) == rest


# ---- callers that the policy does not know ----


EVERYTHING: Final = ("url", "header", "session", "user", "connection")


def named(
    headers: dict[str, str] | None = None,
    *,
    claimed: str | None = None,
    header: str | None = None,
    user: str = "",
    key: bytes | None = b"k",
    peer: tuple[str, int] | None = ("10.0.0.1", 1),
    by: Iterable[str] = EVERYTHING,
) -> str:
    claims = {Clue.URL: claimed, Clue.HEADER: header}
    return caller(
        [Clue(one) for one in by],
        headers or {},
        {clue: name for clue, name in claims.items() if name},
        user,
        credential({b"x-api-key": key}, b"") if key else None,
        peer,
        b"alias key",
    )


ALL: Final[dict[str, Any]] = {
    "claimed": "u",
    "header": "h",
    "headers": {"session-id": "s", "thread-id": "t", "user-agent": "codex/1"},
    "user": "b",
}


@pytest.mark.parametrize(
    ("by", "name"),
    [
        (["url"], "u"),
        (["header"], "h"),
        (["session"], "s/t"),
        (["user"], "b"),
        (["client"], "codex/1"),
        (["connection"], "10.0.0.1:1"),
        (["session", "url"], "s/t"),
        (["header", "url"], "h"),
        (EVERYTHING, "u"),
        ([], ""),
    ],
)
def test_what_the_policy_names_first_tells_callers_apart(by: Iterable[str], name: str) -> None:
    assert named(**ALL, by=by).rpartition("@")[0] == name


@pytest.mark.parametrize("one", ["url", "header", "session", "user", "client"])
def test_what_is_not_said_leaves_it_to_what_comes_next(one: str) -> None:
    assert named(by=[one, "connection"]) == named(by=["connection"])
    assert named(by=[one], peer=("10.0.0.1", 1)) == named(by=[one], peer=("10.0.0.2", 9))


@pytest.mark.parametrize(("identify", "callers"), [("", 1), ("identify connection", 2), ("identify [user, url]", 1)])
async def test_callers_are_told_apart_at_the_door_by_what_the_policy_says(
    identify: str, callers: int, autojump_clock: object
) -> None:
    policy = compiled(f'server {{ {identify} }}\nprovider p {{ api anthropic; base "http://127.0.0.1:9" }}')
    async with house(policy) as opened:
        for port in (1, 2):
            await opened.ask(headers=[(b"session-id", b"s")], peer=("10.0.0.1", port))

    assert len({record.caller for record in opened.records}) == callers


@pytest.mark.parametrize(
    ("identify", "agent"),
    [
        ("", "laptop"),
        ("identify [header, url]", "night"),
        ("identify header", "night"),
        ("identify url", "laptop"),
        ("identify [session, connection]", "unknown"),
    ],
)
async def test_a_claim_is_believed_as_far_as_the_policy_says(identify: str, agent: str, autojump_clock: object) -> None:
    policy = compiled(
        f'server {{ {identify} }}\nprovider p {{ api anthropic; base "http://127.0.0.1:9" }}\n'
        "agent laptop { }\nagent night { }"
    )
    says = Agent(target=b"/@laptop/v1/messages", headers=[(b"x-hivemind-agent", b"night")])

    assert await identified(policy, says) == agent


def test_sessions_are_told_apart_by_what_agents_send_of_themselves() -> None:
    callers = [
        named(claimed="a"),
        named(claimed="b"),
        named({"x-claude-code-session-id": "s"}),
        named({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "sub"}),
        named({"session-id": "s", "thread-id": "t"}),
        named({"session_id": "s", "thread_id": "u"}),
        named({"conversation_id": "c"}),
        named({"x-session-id": "o"}),
        named(user="u"),
        named(),
        named(peer=("10.0.0.1", 2)),
        named(peer=None),
        named(key=b"another"),
        named(key=None),
    ]

    assert len(set(callers)) == len(callers)


def test_a_session_is_the_same_over_connections() -> None:
    for one in ({"claimed": "a"}, {"headers": {"session-id": "s"}}, {"user": "u"}):
        assert named(**one, peer=("10.0.0.1", 1)) == named(**one, peer=("10.0.0.2", 9))


@given(st.text(max_size=100), st.binary(min_size=1, max_size=20), st.binary(min_size=1, max_size=20))
def test_nobody_passes_for_the_session_of_another_credential(name: str, mine: bytes, yours: bytes) -> None:
    for one in ({"claimed": name or "x"}, {"user": name or "x"}, {"headers": {"session-id": name}}):
        assert (named(**one, key=mine) == named(**one, key=yours)) is (mine == yours)


def test_a_caller_s_name_is_bounded_however_much_it_says() -> None:
    long = "x" * 60_000

    for said in (named(claimed=long), named({"session-id": long, "thread-id": long}), named(user=long)):
        assert len(said) < 150


@given(
    st.lists(st.tuples(st.sampled_from([b"x-api-key", b"authorization", b"cookie", b"\xff"]), st.binary(max_size=9))),
    st.binary(max_size=40),
    st.binary(max_size=40),
)
def test_any_head_can_be_read(headers: Headers, path: bytes, query: bytes) -> None:
    head = RequestHead.of(Agent(target=b"/" + path.replace(b"?", b"") + b"?" + query, headers=headers).scope())

    assert head.path
    assert isinstance(head.path_text, str)
    assert all(isinstance(value, str) for value in head.words.values())


async def test_what_holds_for_unknown_callers_holds_for_each_on_its_own(autojump_clock: object) -> None:
    policy = program(providers=[provider(limit=9)], unknown=declared("unknown", concurrency=1))
    async with house(policy, FakeProvider(lambda _: Reply(steps=(1.0, b"done")))) as opened:
        for session in (b"greedy", b"greedy", b"greedy", b"modest"):
            await opened.begin(headers=[(b"x-session-id", session), (b"x-api-key", b"k")])

        running = [request.values(b"x-session-id")[0] for request in opened.provider.requests]
        assert sorted(running) == [b"greedy", b"modest"]
    assert sorted(record.waited_ms for record in opened.records) == [0, 0, 1000, 2000]


@pytest.mark.parametrize(
    ("headers", "user", "found"),
    [
        ({"x-hivemind-job": "nightly-7", "session-id": "s"}, "u", "nightly-7"),
        ({"x-hivemind-job": "", "session-id": "s"}, "u", "s/"),
        ({"x-hivemind-job": "j" * 200}, "", "j" * 64),
        ({}, "u", "u"),
        ({}, "", ""),
    ],
)
def test_a_job_is_what_its_header_says_or_else_the_session(headers: dict[str, str], user: str, found: str) -> None:
    assert job(headers, user) == found
