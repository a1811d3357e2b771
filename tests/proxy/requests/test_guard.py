"""Requests that a web page can have sent: refused before their body is read, and nothing of a browser goes upstream."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Reason
from hivemind_trio.proxy.request import guard as request_guard
from hivemind_trio.proxy.request.head import RequestHead
from tests.proxy.house import compiled, env, house
from tests.support.agent import Agent
from tests.support.upstream import FakeProvider

KEY = "the-providers-key"
POLICY = """provider p { api anthropic; base "http://127.0.0.1:9"; key env(KEY) }
server { hosts ["llm.example.com", "*.dev.example.com"] }"""
SECRETS = {env("KEY"): KEY}

OURS = [
    *("127.0.0.1:8787", "127.0.0.1", "10.1.2.3:80", "[::1]:8787", "[fe80::1]", "localhost:8787", "LOCALHOST"),
    *("hivemind", "hivemind:8787", "host.docker.internal:8787", "a.b.localhost", "localhost.", "host.internal.:1"),
    *("llm.example.com", "LLM.Example.COM:443", "llm.example.com.:8787", "a.dev.example.com"),
]
FOREIGN = [
    *("evil.example", "evil.example:8787", "127.0.0.1.evil.example", "localhost.evil.example", "example.com"),
    *("llm.example.com.evil.example", "dev.example.com", "127.0.0.1.nip.io:8787", "1.2.3"),
    *(
        "internal.evil.example",
        "xlocalhost.com",
        "a.xlocalhost",
        "a.xinternal",
        "999.1.1.1",
        "evil.example..:1",
    ),
]
FROM_A_PAGE = [
    (b"origin", b"https://evil.example"),
    (b"origin", b"http://127.0.0.1:3000"),
    (b"origin", b"null"),
    (b"origin", b"http://evil.example/@127.0.0.1:8787"),
    (b"Sec-Fetch-Site", b"cross-site"),
    (b"sec-fetch-site", b"same-site"),
]


@pytest.mark.parametrize("host", OURS)
async def test_a_name_that_no_outsider_can_make_dns_point_here_is_served(host: str, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(headers=[(b"host", host.encode())])

    assert agent.status == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_name_of_somebody_else_is_421_and_names_the_setting(host: str, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(headers=[(b"Host", host.encode())])

        assert opened.provider.requests == []
    assert agent.status == 421
    assert agent.header(b"x-hivemind-reason") == b"foreign-host"
    assert agent.header(b"x-should-retry") == b"false"
    assert "server { hosts [" in agent.error["error"]["message"]
    assert [record.reason for record in opened.records] == [Reason.FOREIGN_HOST]


@pytest.mark.parametrize(
    "host", [b"a b", b"127.0.0.1 evil", b"x,\ty", b"a/b", b"a@b", b"[::1", b"a:b", b"::1", b"\xe9"]
)
async def test_a_host_that_is_none_is_400(host: bytes, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(headers=[(b"host", host)])

        assert opened.provider.requests == []
    assert (agent.status, agent.header(b"x-hivemind-reason")) == (400, b"bad-request")


async def test_without_host_there_is_no_browser(autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(headers=[])

    assert agent.status == 200


@pytest.mark.parametrize(
    ("header", "method"), list(product(FROM_A_PAGE, ["POST", "GET", "OPTIONS"])), ids=lambda one: str(one)
)
async def test_a_web_page_cannot_have_anything_sent(
    header: tuple[bytes, bytes], method: str, autojump_clock: object
) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        headers = [(b"host", b"127.0.0.1:8787"), (b"content-type", b"text/plain"), header]
        agent = await opened.ask(method=method, headers=headers)

        assert opened.provider.requests == []
    assert agent.status == 403
    assert agent.header(b"x-hivemind-reason") == b"foreign-origin"
    assert agent.header(b"access-control-allow-origin") is None


@pytest.mark.parametrize(
    "headers",
    [
        [(b"sec-fetch-mode", b"cors")],  # Node's own `fetch`
        [(b"sec-fetch-site", b"none")],  # an address that a person typed
        [(b"sec-fetch-site", b"same-origin"), (b"origin", b"http://127.0.0.1:8787")],
        [(b"referer", b"https://evil.example/"), (b"cookie", b"session=1")],
    ],
)
async def test_what_no_page_can_send_is_served(headers: list[tuple[bytes, bytes]], autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(headers=[(b"host", b"127.0.0.1:8787"), *headers])

    assert agent.status == 200


@pytest.mark.parametrize("policy", [POLICY, POLICY.replace("; key env(KEY)", "")], ids=["with a key", "without"])
async def test_cookies_origin_and_referer_stay_here(policy: str, autojump_clock: object) -> None:
    headers = [(b"Cookie", b"a=1"), (b"cookie", b"b=2"), (b"Referer", b"http://127.0.0.1:8787/here")]
    headers += [(b"Origin", b"http://127.0.0.1:8787"), (b"host", b"127.0.0.1:8787"), (b"HTTP-Referer", b"app")]
    async with house(compiled(policy), secrets=SECRETS) as opened:
        await opened.ask(headers=headers)

        (request,) = opened.provider.requests
    names = {name.lower() for name, _ in request.headers}
    assert not names & {b"cookie", b"referer", b"origin"}
    assert b"http-referer" in names  # of OpenRouter, and not a browser's


async def test_a_reload_changes_the_names_from_the_next_request_on(autojump_clock: object) -> None:
    closed = compiled(POLICY.replace("llm.example.com", "other.example.com"))
    async with house(compiled(POLICY), FakeProvider(), SECRETS) as opened:
        before = await opened.ask(headers=[(b"host", b"llm.example.com")])
        opened.engine.load(closed)
        opened.door.use(closed, SECRETS)
        after = await opened.ask(headers=[(b"host", b"llm.example.com")])

    assert (before.status, after.status) == (200, 421)


@given(st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), min_size=1, max_size=40))
def test_any_bytes_as_host_have_an_answer(host: str) -> None:
    scope = Agent(headers=[(b"host", host.encode("latin-1")), (b"origin", host.encode("latin-1"))]).scope()

    found = request_guard.refused(RequestHead.of(scope), compiled(POLICY).server)

    assert found is None or found[0] in (Reason.BAD_REQUEST, Reason.FOREIGN_HOST, Reason.FOREIGN_ORIGIN)


# ---- methods and paths ----


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "TRACK"])
async def test_methods_that_show_headers_or_want_a_tunnel_stay_here(method: str, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(method=method)

        assert opened.provider.requests == []
    assert (agent.status, agent.header(b"x-hivemind-reason")) == (405, b"method-rejected")
    assert agent.header(b"allow") == b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


@pytest.mark.parametrize("target", [b"http://evil.example/v1/messages", b"evil.example:443", b"*", b""])
async def test_what_is_no_path_stays_here(target: bytes, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(method="OPTIONS", target=target)

        assert opened.provider.requests == []
    assert agent.status == 400


ADMIN_RULES = {
    "": 403,
    'rule admin when path ~ "/v1/organization*" { allow }': 200,
    'rule admin when path ~ "/v1/organization*" { priority 5 }': 403,
    'rule admin when agent == unknown { deny "no" }': 403,
}


@pytest.mark.parametrize(("rule", "status"), ADMIN_RULES.items())
@pytest.mark.parametrize("keyed", [True, False])
async def test_an_account_is_administered_only_if_a_rule_allows(
    rule: str, status: int, keyed: bool, autojump_clock: object
) -> None:
    policy = POLICY if keyed else POLICY.replace("; key env(KEY)", "")
    async with house(compiled(f"{policy}\n{rule}"), secrets=SECRETS) as opened:
        headers = [(b"x-api-key", b"mine")]
        agent = await opened.ask(method="GET", target=b"/v1/organizations/api_keys", headers=headers)

        assert len(opened.provider.requests) == (status == 200)
    assert agent.status == status
    if not rule:
        assert "{ allow }" in agent.error["error"]["message"]


@pytest.mark.parametrize("target", [b"/v1/organizations/users", b"//v1/organization/x", b"/gateway/v1/organizations"])
async def test_the_rule_that_the_answer_names_lets_the_call_through(target: bytes, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        before = await opened.ask(method="GET", target=target, headers=[(b"x-api-key", b"mine")])

        assert (before.status, opened.provider.requests) == (403, [])
    rule = before.error["error"]["message"].split("`")[3]
    async with house(compiled(f"{POLICY}\n{rule}"), secrets=SECRETS) as opened:
        after = await opened.ask(method="GET", target=target, headers=[(b"x-api-key", b"mine")])

    assert after.status == 200


NOBODYS = [b"/favicon.ico", b"/robots.txt", b"/apple-touch-icon-120x120.png", b"/.env", b"//favicon.ico", b'/a"\\b%0a']
"""Paths of no API, as browsers and crawlers ask for them."""


@pytest.mark.parametrize("target", NOBODYS)
async def test_the_key_is_not_used_for_what_is_no_call_of_an_api(target: bytes, autojump_clock: object) -> None:
    browser = [(b"accept", b"image/*"), (b"cookie", b"a=1"), (b"authorization", b"")]
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        lost = await opened.ask(method="GET", target=target, headers=browser, body=())

        assert opened.provider.requests == []
        assert [record.reason for record in opened.records] == [Reason.NO_PROVIDER]
    assert (lost.status, lost.header(b"x-hivemind-reason")) == (404, b"no-provider")
    rule = lost.error["error"]["message"].split("`")[3]
    async with house(compiled(f"{POLICY}\n{rule}"), secrets=SECRETS) as opened:
        allowed = await opened.ask(method="GET", target=target, headers=browser, body=())

        assert KEY.encode() in dict(opened.provider.requests[0].headers).values()
    assert allowed.status == 200


@pytest.mark.parametrize(
    ("policy", "target", "headers"),
    [
        (POLICY, b"/tokenize", [(b"authorization", b"Bearer mine")]),  # of a client of an API that we do not know
        (POLICY, b"/tokenize?key=mine", []),
        (POLICY, b"/v1/news", []),  # a new endpoint
        (POLICY.replace("; key env(KEY)", ""), b"/metrics", []),  # there is no key to spend
    ],
)
async def test_calls_on_paths_that_we_do_not_know_are_forwarded(
    policy: str, target: bytes, headers: list[tuple[bytes, bytes]], autojump_clock: object
) -> None:
    async with house(compiled(policy), secrets=SECRETS) as opened:
        agent = await opened.ask(method="GET", target=target, headers=headers)

        assert len(opened.provider.requests) == 1
    assert agent.status == 200


@pytest.mark.parametrize(
    "target", [b"/@a%20b/v1/messages", b"/@/v1/messages", b"/@ci/@ci/v1/messages", b"/@" + b"n" * 65]
)
async def test_a_prefix_that_names_nobody_is_400_and_stays_here(target: bytes, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(target=target)

        assert opened.provider.requests == []
    assert (agent.status, agent.header(b"x-hivemind-reason")) == (400, b"bad-request")
    assert "name after `/@`" in agent.answer.decode()


@pytest.mark.parametrize("target", [b"/v1/v1/messages", b"/chat/completions"])
async def test_a_wrong_base_url_is_a_404_that_says_so(target: bytes, autojump_clock: object) -> None:
    async with house(compiled(POLICY), secrets=SECRETS) as opened:
        agent = await opened.ask(target=target, headers=[(b"x-api-key", b"mine")])

        assert opened.provider.requests == []
    assert agent.status == 404
    assert "base URL" in agent.error["error"]["message"]


async def test_a_path_without_a_version_is_right_behind_a_base_with_one(autojump_clock: object) -> None:
    policy = POLICY.replace("http://127.0.0.1:9", "http://127.0.0.1:9/api/v1")
    async with house(compiled(policy), secrets=SECRETS) as opened:
        agent = await opened.ask(target=b"/chat/completions", headers=[(b"x-api-key", b"mine")])

    assert agent.status == 200
