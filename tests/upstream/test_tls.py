"""TLS is verified: the authority, the name, and that an end is meant."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import httpx2
import pytest
import trio
import trustme

from hivemind_trio.upstream import PoolTransport, Upstream, UpstreamError, UpstreamErrorKind
from tests.support.relay import GARBAGE, HOST, Peer, raw_server

from .calls import call
from .server import Seen, echo, serve

MB = 1_000_000


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


async def test_a_trusted_server_is_called_and_called_again(upstream: Upstream, authority: trustme.CA) -> None:
    async with serve(echo, tls=server_context(authority, HOST)) as server:
        for _ in range(5):
            answer = await call(upstream, server.base, body=b"{}")
            assert answer.said["body"] == "{}"

        assert server.accepted == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_name_is_sent_and_only_http_1_is_offered(
    upstream: Upstream, authority: trustme.CA, version: ssl.TLSVersion
) -> None:
    context = server_context(authority, "localhost")
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    names: list[str] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    chosen: list[str | None] = []

    async def app(seen: Seen) -> None:
        chosen.append(seen.tls.selected_alpn_protocol())
        await echo(seen)

    async with serve(app, tls=context) as server:
        await call(upstream, f"https://localhost:{server.port}")

    assert names == ["localhost"]
    assert chosen == ["http/1.1"]


async def test_an_unknown_authority_is_refused(upstream: Upstream) -> None:
    async with serve(echo, tls=server_context(trustme.CA(), HOST)) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base)

        assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.TLS, False)
        assert caught.value.certificate
        assert caught.value.cause.startswith("its TLS certificate is not accepted: ")
        assert HOST not in caught.value.cause
        assert server.seen == []
        await server.all_closed()


async def test_another_hosts_certificate_is_refused(upstream: Upstream, authority: trustme.CA) -> None:
    async with serve(echo, tls=server_context(authority, "example.org")) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base)

        assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.TLS, False)
        assert caught.value.certificate
        assert caught.value.cause == "its TLS certificate is not accepted: it is for another name"
        assert server.seen == []


async def test_by_default_only_the_systems_authorities_are_trusted(
    make: Callable[[], httpx2.AsyncBaseTransport], authority: trustme.CA
) -> None:
    upstream = Upstream(make())

    async with serve(echo, tls=server_context(authority, HOST)) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base)

        assert caught.value.kind is UpstreamErrorKind.TLS
    await upstream.aclose()


async def test_no_tls_at_all(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.stream.receive_some(1000)
        await peer.stream.send_all(GARBAGE)

    async with raw_server(script) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base.replace("http", "https"))

        assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.TLS, False)
        assert not caught.value.certificate
        assert "does not speak TLS" in caught.value.cause
        await server.all_closed()


async def test_a_handshake_that_never_ends_is_no_connection_in_time(
    pool: PoolTransport, autojump_clock: trio.testing.MockClock
) -> None:
    # Ours only: httpcore2 leaves the socket of a cancelled handshake to the garbage collector.
    async def script(peer: Peer) -> None:
        while await peer.stream.receive_some(1000):
            pass

    async with raw_server(script) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(Upstream(pool), server.base.replace("http", "https"))

        assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.CONNECT, False)
        await server.all_closed()


async def test_large_bodies_both_ways(upstream: Upstream, authority: trustme.CA) -> None:
    async def app(seen: Seen) -> None:
        await seen.plain(seen.body)

    body = bytes(range(256)) * (5 * MB // 256)
    async with serve(app, tls=server_context(authority, HOST)) as server:
        for _ in range(2):
            assert (await call(upstream, server.base, body=body)).body == body

        assert server.accepted == 1


async def test_pieces_are_delivered_one_by_one(upstream: Upstream, authority: trustme.CA) -> None:
    taken = trio.Event()

    async def app(seen: Seen) -> None:
        nonlocal taken
        await seen.head()
        for number in range(20):
            taken = trio.Event()
            await seen.piece(b"%d" % number * 5000)
            await taken.wait()
        await seen.end()

    async with serve(app, tls=server_context(authority, HOST)) as server:
        received = 0
        with trio.fail_after(60):
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b"") as response:
                async for piece in response:
                    received += len(piece)
                    if received % 5000 == 0 or received > 50_000:
                        taken.set()

        assert received == 10 * 5000 + 10 * 10_000


async def test_an_idle_tls_connection_that_the_server_closed_is_noticed(
    upstream: Upstream, authority: trustme.CA
) -> None:
    async def app(seen: Seen) -> None:
        await echo(seen)
        await seen.hang_up()

    async with serve(app, tls=server_context(authority, HOST)) as server:
        for _ in range(3):
            await call(upstream, server.base)
            await server.all_closed()

        assert server.accepted == 3


@pytest.mark.parametrize("head", [b"content-length: 10\r\n", b"transfer-encoding: chunked\r\n", b""])
async def test_an_end_without_a_close_notify_is_no_end(authority: trustme.CA, head: bytes) -> None:
    # Ours only for the body without a length: trio.SSLStream in httpcore2's hands takes it for a clean end.
    trusting = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    trusting.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # as the Python of Debian 12 does by itself

    async def app(seen: Seen) -> None:
        await seen.raw(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n5\r\nhe")
        await seen.cut()

    async with serve(app, tls=server_context(authority, HOST)) as server, PoolTransport(tls=trusting) as pool:
        with pytest.raises(UpstreamError) as caught:
            await call(Upstream(pool), server.base)

        assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.TRUNCATED, True)


async def test_a_cut_before_the_head_is_a_reset(upstream: Upstream, authority: trustme.CA) -> None:
    async with serve(Seen.cut, tls=server_context(authority, HOST)) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base)

        assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.RESET, True)
