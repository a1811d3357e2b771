"""Invariant: what is end-to-end passes byte for byte, both ways; what is not, or is ours, passes not at all."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from hivemind_trio.dialects import CREDENTIAL_HEADERS
from hivemind_trio.model import Api
from tests.proxy.house import env, house
from tests.support.agent import Agent
from tests.support.programs import program, provider
from tests.support.upstream import FakeProvider, Reply, Request

BASE = "http://127.0.0.1:9/base"
KEY = "the-provider-s-key"

# From RFC 9110, 7.6.1 and 11.7, and what the field adds; not from the code that is under test.
HOP_BY_HOP = [
    *(b"Connection", b"Keep-Alive", b"Proxy-Connection", b"TE", b"Transfer-Encoding", b"Upgrade"),
    *(b"Proxy-Authenticate", b"Proxy-Authorization"),
]
TOKEN_CHARACTERS = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
KNOWN = [
    *(b"anthropic-version", b"anthropic-beta", b"x-codex-turn-state", b"OpenAI-Beta", b"User-Agent", b"Accept"),
    *(
        b"Accept-Encoding",
        b"Cookie",
        b"Referer",
        b"Set-Cookie",
        b"x-request-id",
        b"Content-Type",
        b"X-Stainless-Retry-Count",
    ),
    *(b"traceparent", b"Via", b"Location", b"Trailer", b"ETag", b"Retry-After", b"x-claude-code-session-id"),
]
OF_BROWSERS = (b"cookie", b"origin", b"referer")
OURS = [b"x-hivemind-agent", b"X-Hivemind-Call", b"x-hivemind-reason", b"X-HIVEMIND-x"]
UNSAID = {b"host", b"content-length", b"expect"} | {name.lower() for name in HOP_BY_HOP}

values = st.binary(max_size=20).map(lambda raw: bytes(byte for byte in raw if byte > 0x1F and byte != 0x7F).strip())
tokens = st.text(TOKEN_CHARACTERS, min_size=1, max_size=12).map(lambda token: token.encode())
names = st.sampled_from(KNOWN) | tokens.filter(lambda name: name.lower() not in UNSAID)
# Few names, so that headers come twice.
header_lists = st.lists(st.tuples(st.sampled_from(KNOWN[:6]) | names, values), max_size=8)
hop_by_hop = st.lists(st.tuples(st.sampled_from([*HOP_BY_HOP[1:], *OURS]), values), max_size=3)
# Escapes that say what they need not, and what must not be unescaped.
segments = st.sampled_from(
    ["/", "//", "a", "b.c", "%61", "%2F", "%2f", "%25", "%40", "@a", "..", ".", ":x", "~", "!$&'()*+,;="]
)
targets = st.lists(segments, max_size=6).map(lambda parts: "".join(parts).encode())
queries = st.text("ab=&%2B+?/:@~k", max_size=12).map(str.encode)
bodies = st.lists(st.binary(max_size=40), max_size=4)


def mixed(draw: Any, *lists: list[Any]) -> list[Any]:
    """The lists' items in one, each list's in its own order."""
    result: list[Any] = []
    for each in lists:
        for item in each:
            result.insert(draw(st.integers(0, len(result))), item)
    return result


@st.composite
def said(draw: Any) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Headers, and those of them that are end-to-end."""
    through = draw(header_lists)
    named = draw(st.lists(names, max_size=2))
    # What `Connection` names may stand there in any case, and is dropped however often it comes.
    dropped = [*draw(hop_by_hop), *[(name.swapcase(), b"of this hop") for name in named]]
    if named:
        dropped.append((b"cOnnection", b"close , " + b", ".join(named)))
    hidden = {name.lower() for name in named}
    whole = mixed(draw, through, dropped)
    gone = hidden | {name.lower() for name in HOP_BY_HOP}
    kept = [(n, v) for n, v in whole if n.lower() not in gone and not n.lower().startswith(b"x-hivemind-")]
    return whole, kept


def on_mock_clock(act: Callable[[], Awaitable[None]]) -> None:
    trio.run(act, clock=MockClock(autojump_threshold=0))


async def exchange(agent: Agent, reply: Reply, *, keyed: bool = False, api: Api = Api.ANTHROPIC) -> Request:
    """What the provider saw."""
    secret = env("KEY")
    policy = program(providers=[provider(api=api, base=BASE, keys=[secret] if keyed else [])])
    answers = FakeProvider(lambda _: reply)
    async with house(policy, answers, {secret: KEY}) as opened:
        await opened.ask(agent)
    assert len(answers.requests) == 1
    return answers.requests[0]


def framing_off(request: Request) -> list[tuple[bytes, bytes]]:
    """The headers that the agent's may be compared with: those that every sender sets for itself are not among them."""
    return [(name, value) for name, value in request.headers if name.lower() not in (b"host", b"content-length")]


@pytest.mark.slow
@given(
    method=st.sampled_from(["POST", "GET", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY", "M-SEARCH"]),
    path=targets,
    query=st.none() | queries,
    prefix=st.sampled_from([b"", b"/@ci", b"/@a.b_c~-9"]),
    headers=said(),
    body=bodies,
)
def test_a_request_passes_byte_for_byte(
    method: str, path: bytes, query: bytes | None, prefix: bytes, headers: Any, body: list[bytes]
) -> None:
    whole, kept = headers
    kept = [(name, value) for name, value in kept if name.lower() not in OF_BROWSERS]
    # Behind a prefix of ours the next `/@` is the provider's.
    path = b"/v1/" + path
    target = path + (b"?" + query if query else b"")
    agent = Agent(method, prefix + target, [(b"Host", b"proxy:8787"), *whole], body)

    async def act() -> None:
        seen = await exchange(agent, Reply())

        assert (seen.method, seen.target) == (method, b"/base" + target)
        assert framing_off(seen) == kept
        assert seen.body == b"".join(body)
        assert seen.values(b"host") == [b"127.0.0.1:9"]
        expects_body = bool(seen.body) or method in ("POST", "PUT", "PATCH", "QUERY")
        assert seen.values(b"content-length") == ([str(len(seen.body)).encode()] if expects_body else [])

    on_mock_clock(act)


@pytest.mark.slow
@given(
    credentials=st.lists(st.tuples(st.sampled_from(CREDENTIAL_HEADERS), st.just(b"the agent's")), max_size=4),
    headers=said(),
    query=queries,
    api=st.sampled_from(Api),
)
def test_a_policy_s_key_goes_in_the_place_of_any_credential_and_nothing_else_changes(
    credentials: Any, headers: Any, query: bytes, api: Api
) -> None:
    whole, kept = headers
    kept = [(name, value) for name, value in kept if name.lower() not in (*CREDENTIAL_HEADERS, *OF_BROWSERS)]
    target = b"/v1/models" + (b"?" + query if query else b"")
    agent = Agent("GET", target, [*credentials, *whole])
    rest = b"&".join(part for part in query.split(b"&") if part != b"key" and not part.startswith(b"key="))

    async def act() -> None:
        secret = env("KEY")
        policy = program(providers=[provider(api=api, base=BASE, keys=[secret])])
        answers = FakeProvider()
        async with house(policy, answers, {secret: KEY}) as opened:
            await opened.ask(agent)
        (seen,) = answers.requests

        *others, (name, value) = framing_off(seen)
        assert others == kept
        assert name in CREDENTIAL_HEADERS
        assert value in (KEY.encode(), b"Bearer " + KEY.encode())
        assert seen.target == b"/base/v1/models" + (b"?" + rest if rest else b"")

    on_mock_clock(act)


@pytest.mark.slow
@given(
    method=st.sampled_from(["POST", "GET", "HEAD"]),
    status=st.sampled_from([200, 201, 204, 206, 301, 302, 304, 307, 308, 400, 401, 404, 418, 429, 500, 529, 599]),
    headers=said(),
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    pause_s=st.sampled_from([0.0, 0.0, 1.0]),
    sized=st.booleans(),
)
def test_an_answer_passes_byte_for_byte(
    method: str, status: int, headers: Any, pieces: list[bytes], pause_s: float, sized: bool
) -> None:
    whole, kept = headers
    bodyless = method == "HEAD" or status in (204, 304)
    if sized and status != 204:
        length = (b"Content-Length", str(len(b"".join(pieces))).encode())
        whole, kept = [length, *whole], [length, *kept]
    if bodyless:
        pieces = []
    steps = [step for piece in pieces for step in (pause_s, piece)]
    agent = Agent(method)

    async def act() -> None:
        await exchange(agent, Reply(status=status, headers=whole, steps=steps))

        ours = [(name, value) for name, value in agent.answer_headers if name.startswith(b"x-hivemind-")]
        assert agent.status == status
        assert [pair for pair in agent.answer_headers if pair not in ours] == kept
        assert agent.answer == b"".join(pieces)
        assert agent.whole
        assert {name for name, _ in ours} == {
            *(b"x-hivemind-call", b"x-hivemind-wait-ms", b"x-hivemind-attempts"),
            *(b"x-hivemind-reason", b"x-hivemind-policy"),
        }
        assert len(ours) == 5

    on_mock_clock(act)


# Named, so that a search with other luck does not miss them.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int, autojump_clock: object) -> None:
    moved = Reply(status=status, headers=[(b"Location", b"http://127.0.0.1:9/elsewhere")], steps=())
    agent = Agent()

    await exchange(agent, moved)

    assert agent.status == status
    assert agent.header(b"location") == b"http://127.0.0.1:9/elsewhere"


async def test_a_compressed_answer_stays_compressed(autojump_clock: object) -> None:
    body = gzip.compress(b'{"content": []}')
    agent = Agent(headers=[(b"accept-encoding", b"gzip")])

    seen = await exchange(agent, Reply(headers=[(b"Content-Encoding", b"gzip")], steps=(body[:7], body[7:])))

    assert seen.values(b"accept-encoding") == [b"gzip"]
    assert agent.header(b"content-encoding") == b"gzip"
    assert agent.answer == body


async def test_no_encoding_is_asked_for_that_the_agent_did_not_ask_for(autojump_clock: object) -> None:
    seen = await exchange(Agent(), Reply())

    assert {name.lower() for name, _ in seen.headers} == {b"host", b"content-length"}


async def test_a_compressed_request_stays_compressed(autojump_clock: object) -> None:
    body = gzip.compress(b'{"model": "m", "messages": []}')

    seen = await exchange(Agent(headers=[(b"Content-Encoding", b"gzip")], body=[body]), Reply())

    assert seen.body == body
    assert seen.values(b"content-encoding") == [b"gzip"]


async def test_a_head_keeps_the_length_of_what_it_does_not_get(autojump_clock: object) -> None:
    agent = Agent("HEAD", b"/v1/models", body=())

    await exchange(agent, Reply(headers=[(b"Content-Length", b"5000")], steps=()))

    assert agent.header(b"content-length") == b"5000"
    assert agent.answer == b""
    assert agent.whole


async def test_a_piece_passes_as_soon_as_it_has_come(autojump_clock: object) -> None:
    answers = FakeProvider(lambda _: Reply(steps=(b"event: ping\n", 10.0, b"data: {}\n\n", 10.0, b"end")))
    async with house(program(providers=[provider()]), answers) as opened:
        agent = await opened.begin()

        assert (agent.status, agent.pieces) == (200, [b"event: ping\n"])
        await trio.sleep(11)
        assert agent.pieces == [b"event: ping\n", b"data: {}\n\n"]
        await agent.done.wait()
        assert agent.answer == b"event: ping\ndata: {}\n\nend"


async def test_what_an_agent_names_never_decides_where_a_call_goes(autojump_clock: object) -> None:
    headers = [(b"host", b"evil"), (b"x-forwarded-host", b"evil.example"), (b"x-hivemind-upstream", b"evil")]

    seen = await exchange(Agent(target=b"/v1/messages?base=http://evil.example", headers=headers), Reply())

    assert str(seen.url) == "http://127.0.0.1:9"
    assert seen.values(b"host") == [b"127.0.0.1:9"]


async def test_how_long_it_waited_and_for_what_is_said(autojump_clock: object) -> None:
    answers = FakeProvider(lambda _: Reply(steps=(2.5, b"x")))
    async with house(program(providers=[provider(limit=1)]), answers) as opened:
        first = await opened.begin()
        second = await opened.ask()

        assert (first.header(b"x-hivemind-wait-ms"), first.header(b"x-hivemind-reason")) == (b"0", b"none")
        assert second.header(b"x-hivemind-wait-ms") == b"2500"
        assert second.header(b"x-hivemind-reason") == b"provider-concurrency"
        assert second.header(b"x-hivemind-attempts") == b"1"
        assert first.header(b"x-hivemind-call") != second.header(b"x-hivemind-call")
    assert [record.id.encode() for record in opened.records] == [
        first.header(b"x-hivemind-call"),
        second.header(b"x-hivemind-call"),
    ]
    assert [record.waited_ms for record in opened.records] == [0, 2500]
