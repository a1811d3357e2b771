"""What goes out is what was asked for, and what comes in is handed over as it came."""

from __future__ import annotations

import gzip

import h11
import pytest

from hivemind_trio.upstream import Upstream, UpstreamError, UpstreamErrorKind
from tests.support.relay import Peer, raw_server

from .calls import call
from .server import Seen, echo, serve

HEADERS = [
    (b"X-Api-Key", b"sk-1"),
    (b"anthropic-Beta", b"one"),
    (b"Accept-Encoding", b"gzip, br"),
    (b"anthropic-beta", b"two"),
    (b"x-empty", b""),
    (b"X-Latin", b"\xe9\xe8"),
]


@pytest.mark.parametrize(
    "target",
    [
        b"/",
        b"/v1/messages?beta=true",
        b"//double//slash/",
        b"/a%2Fb/%7Euser/%e4?q=%20+&&x",
        b"/dots/../stay/./here",
        b"/quotes'\"<>{}|^`[]\\;:@!$&()*,=?",
    ],
)
@pytest.mark.parametrize("prefix", ["", "/api", "/api/v2/"])
async def test_a_target_is_put_behind_the_base_byte_for_byte(upstream: Upstream, target: bytes, prefix: str) -> None:
    async with serve(echo) as server:
        await call(upstream, server.base + prefix, "GET", target)

        assert server.seen[0].target == prefix.rstrip("/").encode() + target


async def test_request_headers_keep_order_case_and_duplicates(upstream: Upstream) -> None:
    async with serve(echo) as server:
        await call(upstream, server.base, headers=HEADERS, body=b"{}")

        host, length, *rest = server.seen[0].headers
        assert host == (b"Host", b"127.0.0.1:%d" % server.port)
        assert length == (b"Content-Length", b"2")
        assert rest == HEADERS


async def test_response_headers_keep_order_case_and_duplicates(upstream: Upstream) -> None:
    said = [(b"X-Request-ID", b"1"), (b"Set-Cookie", b"a=1"), (b"x-request-id", b"2"), (b"set-cookie", b"b=2")]

    async def app(seen: Seen) -> None:
        await seen.plain(b"ok", headers=said)

    async with serve(app) as server:
        answer = await call(upstream, server.base)
        again = await call(upstream, server.base)

        assert answer.headers == [*said, (b"content-length", b"2")]
        assert again.status == 200
        assert server.seen[1].header(b"cookie") == b""


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST", "PUT", "PATCH", "OPTIONS", "PROPFIND", "lower"])
async def test_any_method_passes_and_only_a_body_is_announced(upstream: Upstream, method: str) -> None:
    async with serve(echo) as server:
        await call(upstream, server.base, method)
        await call(upstream, server.base, method, body=b"12345")

        assert [seen.method.decode() for seen in server.seen] == [method, method]
        empty, full = (seen.header(b"content-length") for seen in server.seen)
        assert empty == (b"0" if method in {"POST", "PUT", "PATCH"} else b"")
        assert full == b"5"
        assert server.seen[1].body == b"12345"


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("HEAD", 404), ("GET", 204), ("POST", 304)])
async def test_a_response_that_can_have_no_body_has_none_and_the_connection_goes_on(
    upstream: Upstream, method: str, status: int
) -> None:
    async def app(seen: Seen) -> None:
        await seen.head(status, [(b"content-length", b"1000"), (b"etag", b"e")] if status != 204 else [(b"etag", b"e")])
        await seen.end()

    async with serve(app) as server:
        for _ in range(3):
            answer = await call(upstream, server.base, method)
            assert (answer.status, answer.body) == (status, b"")
            assert (b"etag", b"e") in answer.headers

        assert server.accepted == 1


async def test_content_encoding_is_left_as_it_is(upstream: Upstream) -> None:
    packed = gzip.compress(b"hello" * 100)

    async def app(seen: Seen) -> None:
        await seen.plain(packed, headers=[(b"content-encoding", b"gzip")])

    async with serve(app) as server:
        answer = await call(upstream, server.base)

        assert answer.body == packed


async def test_a_redirect_is_an_answer_like_any_other(upstream: Upstream) -> None:
    async def app(seen: Seen) -> None:
        await seen.plain(b"", 307, [(b"location", b"/elsewhere")])

    async with serve(app) as server:
        answer = await call(upstream, server.base)

        assert answer.status == 307
        assert len(server.seen) == 1


@pytest.mark.parametrize("informational", [b"100 Continue", b"103 Early Hints", b"102 Processing"])
async def test_informational_heads_are_passed_over(upstream: Upstream, informational: bytes) -> None:
    async def app(seen: Seen) -> None:
        status, _, reason = informational.partition(b" ")
        for _ in range(3):
            await seen.say(h11.InformationalResponse(status_code=int(status), reason=reason, headers=[(b"link", b"x")]))
        await seen.plain(b"real")

    async with serve(app) as server:
        for _ in range(2):
            answer = await call(upstream, server.base, headers=[(b"expect", b"100-continue")], body=b"{}")
            assert (answer.status, answer.body) == (200, b"real")

        assert server.accepted == 1


@pytest.mark.parametrize(
    "header",
    [
        (b"x-key", b"secret\r\nx-evil: 1"),
        (b"x-key", b"secret\n"),
        (b"x-key\r\nx-evil", b"1"),
        (b"x key", b"1"),
        (b"x-key", b"\x00"),
        (b"", b"1"),
        (b"Host", b"elsewhere"),
        (b"content-LENGTH", b"7"),
        (b"Transfer-Encoding", b"chunked"),
        (b"connection", b"close"),
    ],
)
async def test_what_cannot_be_said_safely_is_not_sent(upstream: Upstream, header: tuple[bytes, bytes]) -> None:
    async with serve(echo) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base, headers=[(b"a", b"b"), header], body=b"{}")

        assert caught.value.kind is UpstreamErrorKind.PROTOCOL
        assert not caught.value.sent
        assert "secret" not in str(caught.value)
        assert server.seen == []


@pytest.mark.parametrize("target", [b"*", b"http://elsewhere/", b"", b"/a b", b"/a\r\nx: y", b"/\xe4"])
async def test_a_target_that_is_no_path_is_not_sent(upstream: Upstream, target: bytes) -> None:
    async with serve(echo) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base + "/v1", target=target)

        assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.PROTOCOL, False)
        assert server.seen == []


@pytest.mark.parametrize(
    "base", ["127.0.0.1:1", "ftp://127.0.0.1", "http://", "http://u:p@127.0.0.1", "http://127.0.0.1/?q", "http://h:x/"]
)
async def test_a_base_that_is_no_http_url_is_an_error_of_connecting(upstream: Upstream, base: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        await call(upstream, base)

    assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.CONNECT, False)


async def test_a_body_without_a_length_ends_with_the_connection(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(b"HTTP/1.1 200 OK\r\n\r\nuntil ")
        await peer.stream.send_all(b"the end")

    async with raw_server(script) as server:
        for _ in range(2):
            assert (await call(upstream, server.base)).body == b"until the end"

        assert server.accepted == 2
