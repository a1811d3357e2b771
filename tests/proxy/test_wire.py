"""The same over real sockets: the listener before the door, our own pool behind it, and a server that talks bytes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import h11
import pytest
import trio
import trio.testing

from hivemind_trio.listen import bind
from hivemind_trio.proxy.response_buffer import OUTBOX_BYTES_MAX
from hivemind_trio.serve import ProxyServer, open_house
from tests.runtime.agents import assert_empty
from tests.support.programs import program, provider
from tests.support.relay import Accepting, Peer, raw_server

from .house import END_S

BODY = b'{"model":"m","messages":[]}'
CALL = b"POST /v1/messages HTTP/1.1\r\nhost: proxy\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
ODD = b"\r\n".join(
    [
        b"POST /@ci/v1/mess%61ges?x=%2F&x HTTP/1.1",
        b"Host: proxy",
        *(b"X-B: 2", b"x-a: 1", b"X-B: 3", b"TE: trailers", b"x-hivemind-agent: ci", b"connection: te, x-a"),
        b"transfer-encoding: chunked\r\n\r\n3",
        b'{"m\r\n2\r\n":\r\n0\r\n\r\n',
    ]
)
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Jumps when nothing has happened for longer than a byte takes over loopback."""
    return trio.testing.MockClock(autojump_threshold=0.03)


@asynccontextmanager
async def serving(
    script: Callable[[Peer], Awaitable[None]], *, limit: int = 1
) -> AsyncIterator[tuple[ProxyServer, Accepting]]:
    """A proxy before one provider that plays the script; at the end nobody waits and nothing is in flight."""
    # With a bound there is always a next time to jump to: who is forgotten fails, and does not hang.
    with trio.fail_after(END_S):
        async with raw_server(script) as there:
            policy = program(providers=[provider(limit=limit, base=there.base)])
            async with open_house(policy, {}, bind("127.0.0.1", 0), audit=True) as house:
                yield house, there
                await house.engine.idle()
                assert_empty(house.engine)


async def connect(house: ProxyServer, request: bytes = CALL) -> trio.SocketStream:
    stream = await trio.open_tcp_stream(*house.address)
    await stream.send_all(request)
    return stream


async def all_of(stream: trio.SocketStream) -> bytes:
    """Everything until a clean end; raises `trio.BrokenResourceError` at another."""
    return b"".join([bytes(piece) async for piece in stream])


async def answer(stream: trio.SocketStream, method: bytes = b"POST") -> tuple[h11.Response, bytes]:
    """The next answer, whole; raises `h11.RemoteProtocolError` if it ends before its end."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
    parser.send(h11.EndOfMessage())
    head, body = None, b""
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(bytes(await stream.receive_some()))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return head, body


async def test_bytes_pass_both_ways(clock: object) -> None:
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        head = (
            b"HTTP/1.1 429 Too Many\r\nSet-Cookie: a\r\nset-cookie: b\r\nX-Odd: \xff \r\nConnection: X-Hop\r\nX-Hop: 1"
        )
        await peer.answer(b"\x1f\x8bnot for us to read", head=head + b"\r\ncontent-encoding: gzip")

    async with serving(script) as (house, _):
        async with await connect(house, ODD) as stream:
            head, body = await answer(stream)

        line, *headers = seen[0].partition(b"\r\n\r\n")[0].split(b"\r\n")
        assert line == b"POST /v1/mess%61ges?x=%2F&x HTTP/1.1"
        # ASGI has names in lower case; which case they are in says nothing (RFC 9110, 5.1).
        assert [header for header in headers if header.startswith(b"x-")] == [b"x-b: 2", b"x-b: 3"]
        assert not any(header.lower().startswith((b"te:", b"connection:", b"transfer-")) for header in headers)
        assert seen[0].endswith(b'\r\n\r\n{"m":')
        assert (head.status_code, body) == (429, b"\x1f\x8bnot for us to read")
        raw = head.headers.raw_items()
        assert [value for name, value in raw if name.lower() == b"set-cookie"] == [b"a", b"b"]
        assert (b"X-Odd", b"\xff") in raw
        assert not any(name.lower() == b"x-hop" for name, _ in raw)
        assert any(name == b"x-hivemind-call" for name, _ in raw)


@pytest.mark.parametrize(
    ("method", "said", "status", "length"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n", 200, b"500"),
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, None),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\netag: x\r\ncontent-length: 7\r\n\r\n", 304, b"7"),
        (b"GET", b"HTTP/1.1 302 Found\r\nlocation: /v1/elsewhere\r\ncontent-length: 0\r\n\r\n", 302, b"0"),
    ],
)
async def test_answers_without_a_body_leave_the_connection_fit_for_the_next(
    method: bytes, said: bytes, status: int, length: bytes | None, clock: object
) -> None:
    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.stream.send_all(said)

    async with serving(script) as (house, there):
        request = b"%b /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" % method
        async with await connect(house, request) as stream:
            for _ in range(2):
                head, body = await answer(stream, method)
                assert (head.status_code, body) == (status, b"")
                assert dict(head.headers).get(b"content-length") == length
                await stream.send_all(request)
        assert there.accepted == 1


async def test_a_hang_up_while_streaming_reaches_the_provider(clock: object) -> None:
    gone = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(CHUNKED + b"8\r\ndata: 1\n\r\n")
        assert await peer.request() == b""
        gone.set()

    async with serving(script) as (house, _):
        stream = await connect(house)
        while b"data:" not in await stream.receive_some():
            pass
        assert house.engine.snapshot().inflight == 1

        await stream.aclose()

        with trio.fail_after(5):
            await gone.wait()


async def test_a_hang_up_while_waiting_never_reaches_the_provider(clock: object) -> None:
    release, calls = trio.Event(), 0

    async def script(peer: Peer) -> None:
        nonlocal calls
        while await peer.request():
            calls += 1
            await release.wait()
            await peer.answer()

    async with serving(script) as (house, _):
        first = await connect(house)
        await trio.sleep(1)
        waiting = await connect(house)
        await trio.sleep(1)
        assert house.engine.snapshot().waiting == 1

        await waiting.aclose()
        await trio.sleep(1)
        assert house.engine.snapshot().waiting == 0
        release.set()

        assert (await answer(first))[1] == b"ok"
        await first.aclose()
        await trio.sleep(1)
    assert calls == 1


@pytest.mark.parametrize("ending", ["reset", "end"])
@pytest.mark.parametrize(
    "head",
    [
        CHUNKED,
        CHUNKED.replace(b"text/event-stream", b"application/json"),
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n",
    ],
    ids=["events", "chunks", "a length"],
)
async def test_an_answer_that_broke_off_does_not_end_cleanly(head: bytes, ending: str, clock: object) -> None:
    piece = b"8\r\ndata: 1\n\r\n" if b"chunked" in head else b"data: 1\n"

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(head + piece)
        await trio.sleep(1)
        if ending == "reset":
            await peer.reset()

    async with serving(script) as (house, _), await connect(house) as stream:
        with pytest.raises((h11.RemoteProtocolError, trio.BrokenResourceError)):
            await answer(stream)


async def test_to_an_old_client_a_broken_answer_is_a_reset(clock: object) -> None:
    # HTTP/1.0 has no chunks: there the end of the connection is the end of the answer.
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(CHUNKED + b"8\r\ndata: 1\n\r\n")
        await trio.sleep(1)
        await peer.reset()

    async with serving(script) as (house, _):
        stream = await connect(house, CALL.replace(b"HTTP/1.1", b"HTTP/1.0"))
        with pytest.raises(trio.BrokenResourceError):
            await all_of(stream)
        await stream.aclose()


async def test_a_port_where_nobody_listens_is_a_503(clock: object) -> None:
    with socket.socket() as mute:
        # Bound and not listening, until the test is over: nobody else, the proxy included, is given its port.
        mute.bind(("127.0.0.1", 0))
        policy = program(providers=[provider(base=f"http://127.0.0.1:{mute.getsockname()[1]}")])

        async with open_house(policy, {}, bind("127.0.0.1", 0), audit=True) as house, await connect(house) as stream:
            head, body = await answer(stream)

    assert head.status_code == 503
    assert dict(head.headers)[b"retry-after"] == b"5"
    assert b"is unreachable" in body


async def test_an_agent_that_never_reads_stops_the_provider_and_then_loses_its_slot(clock: object) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        if peer.number:
            await peer.answer()
            return
        await peer.stream.send_all(CHUNKED)
        for _ in range(2_000):
            await peer.stream.send_all(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
            sent += 1 << 16

    async with serving(script) as (house, _):
        asleep = await connect(house)
        await trio.sleep(5)
        one_slot = house.engine.snapshot().inflight
        waiting = await connect(house)

        head, _body = await answer(waiting)

        # The rest of a hundred megabytes is in no buffer of ours, and the kernel's four buffers are a few megabytes.
        assert (one_slot, head.status_code) == (1, 200)
        assert sent < OUTBOX_BYTES_MAX * 4 + (24 << 20)
        await waiting.aclose()
        await asleep.aclose()


async def test_announced_trailers_pass(clock: trio.testing.MockClock) -> None:
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\ntrailer: x-sum\r\n\r\n")

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(head + b"2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n")

    async with serving(script) as (house, _):
        stream = await connect(house)
        answer = b""
        while not answer.endswith(b"\r\n\r\n") or b"x-sum: 42" not in answer:
            answer += await stream.receive_some()
        await stream.aclose()

    assert answer.endswith(b"2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n")


async def test_what_cannot_be_said_to_a_provider_is_the_request_s_own_fault(clock: trio.testing.MockClock) -> None:
    async def script(peer: Peer) -> None:
        raise AssertionError("nothing reaches the provider")

    async with serving(script) as (house, _):
        stream = await connect(house, b"OPTIONS * HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\nx-api-key: k\r\n\r\n")
        answer = b""
        while piece := await stream.receive_some():
            answer += piece
        await stream.aclose()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"x-hivemind-reason: bad-request" in answer
    assert b"retry-after" not in answer
