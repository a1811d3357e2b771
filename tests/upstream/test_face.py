"""The pool is a transport of httpx2's like any other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx2
import pytest
import trio

from hivemind_trio.upstream import PoolTransport, Upstream, UpstreamError, UpstreamErrorKind
from tests.support.relay import Fault, Peer, Weather, raw_server, relay

from .calls import call
from .server import Seen, echo, serve


@pytest.fixture
async def client(pool: PoolTransport) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=pool) as client:
        yield client


async def test_upstream_takes_any_transport_of_httpx2s_kind() -> None:
    def provider(request: httpx2.Request) -> httpx2.Response:
        if request.extensions["target"] == b"/broken":
            raise httpx2.ReadError("broken")
        return httpx2.Response(200, headers=[(b"X-Case", b"Kept")], content=request.content)

    upstream = Upstream(httpx2.MockTransport(provider))

    answer = await call(upstream, "http://provider", body=b"hello")
    assert answer.body == b"hello"
    assert (b"X-Case", b"Kept") in answer.headers
    with pytest.raises(UpstreamError) as caught:
        await call(upstream, "http://provider", target=b"/broken")
    assert (caught.value.kind, caught.value.sent) == (UpstreamErrorKind.RESET, True)


async def test_a_client_gets_json_and_uses_a_connection_again(client: httpx2.AsyncClient) -> None:
    async with serve(echo) as server:
        for number in range(3):
            response = await client.post(f"{server.base}/a%20b?q=1", json={"n": number}, headers={"X-Case": "Kept"})

            assert response.status_code == 200
            assert response.http_version == "HTTP/1.1"
            said = response.json()
            assert said["target"] == "/a%20b?q=1"
            assert said["body"].replace(" ", "") == f'{{"n":{number}}}'
            assert ["X-Case", "Kept"] in said["headers"]

        assert server.accepted == 1


async def test_a_streamed_request_body_is_gathered(client: httpx2.AsyncClient) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"abc"

    async with serve(echo) as server:
        response = await client.post(server.base, content=body())

        assert response.json()["body"] == "abcabcabc"
        assert server.seen[0].header(b"content-length") == b"9"


async def test_redirects_and_decoding_are_the_clients_business(client: httpx2.AsyncClient) -> None:
    async def app(seen: Seen) -> None:
        if seen.target == b"/":
            await seen.plain(b"", 302, [(b"location", b"/there")])
        else:
            await echo(seen)

    async with serve(app) as server:
        assert (await client.get(server.base)).status_code == 302
        assert (await client.get(server.base, follow_redirects=True)).json()["target"] == "/there"


async def test_a_clients_own_host_header_is_the_one_that_is_sent(client: httpx2.AsyncClient) -> None:
    async with serve(echo) as server:
        await client.get(server.base, headers={"Host": "example.org"})

        assert [value for name, value in server.seen[0].headers if name.lower() == b"host"] == [b"example.org"]


async def test_streaming_and_leaving_early(client: httpx2.AsyncClient) -> None:
    async def app(seen: Seen) -> None:
        await seen.head()
        for _ in range(3):
            await seen.piece(b"piece")
            await trio.sleep(0.001)
        await trio.sleep_forever()

    async with serve(app) as server:
        async with client.stream("GET", server.base) as response, aclosing(response.aiter_raw()) as pieces:
            assert (await anext(pieces)).startswith(b"piece")

        await server.all_closed()


async def test_errors_and_timeouts_are_httpx2s(client: httpx2.AsyncClient) -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n" if peer.number else b"")
        await peer.request()

    async with raw_server(silent) as server:
        for _ in range(2):
            with pytest.raises(httpx2.ReadTimeout):
                await client.get(server.base, timeout=0.05)
        base = server.base
        await server.all_closed()
    with pytest.raises(httpx2.ConnectError):
        await client.get(base)


@pytest.mark.parametrize(
    ("fault", "after_bytes", "expected"),
    [
        (Fault.RESET, 10, httpx2.ReadError),
        (Fault.HALF_CLOSE, 60, httpx2.RemoteProtocolError),
        (Fault.GARBAGE, 0, httpx2.RemoteProtocolError),
    ],
)
async def test_faults_are_httpx2s(
    client: httpx2.AsyncClient, fault: Fault, after_bytes: int, expected: type[Exception]
) -> None:
    async with serve(echo) as server, relay(server.port, Weather(fault=fault, after_bytes=after_bytes)) as spoiled:
        with pytest.raises(expected):
            await client.get(spoiled.base)
