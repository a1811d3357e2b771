"""Pieces are handed over as they come, however many and however large, and a body goes out as far as it is wanted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable

import pytest
import trio

from hivemind_trio.upstream import PoolTransport, Upstream
from tests.support.relay import Peer, Weather, raw_server, relay

from .calls import call
from .server import Seen, serve

# httpx2 leaves httpcore2's generator to the garbage collector when a body is left early. The connection is closed.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")

MB = 1_000_000


async def test_each_piece_is_delivered_before_the_next_is_sent(upstream: Upstream) -> None:
    taken = trio.Event()

    async def app(seen: Seen) -> None:
        nonlocal taken
        await seen.head(200, [(b"content-type", b"text/event-stream")])
        for number in range(20):
            taken = trio.Event()
            await seen.piece(b"data: %d\n\n" % number)
            await taken.wait()  # deadlocks if anybody waits for more
        await seen.end()

    async with serve(app) as server:
        with trio.fail_after(60):
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b"") as response:
                pieces = []
                async for piece in response:
                    pieces.append(piece)
                    taken.set()

        assert pieces == [b"data: %d\n\n" % number for number in range(20)]


async def test_a_head_is_delivered_before_its_body(upstream: Upstream) -> None:
    go_on = trio.Event()

    async def app(seen: Seen) -> None:
        await seen.head()
        await go_on.wait()
        await seen.piece(b"late")
        await seen.end()

    async with serve(app) as server:
        with trio.fail_after(60):
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b"") as response:
                assert response.status == 200
                go_on.set()
                assert [piece async for piece in response] == [b"late"]


@pytest.mark.parametrize("slice_bytes", [1, 2, 3, 7])
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_response_in_crumbs_is_the_same_response(upstream: Upstream, slice_bytes: int, chunked: bool) -> None:
    async def app(seen: Seen) -> None:
        if chunked:
            await seen.head()
            await seen.piece(b"hello, ")
            await seen.piece(b"world")
            await seen.end()
        else:
            await seen.plain(b"hello, world")

    async with serve(app) as server, relay(server.port, Weather(slice_bytes=slice_bytes)) as crumbs:
        for _ in range(2):
            assert (await call(upstream, crumbs.base)).body == b"hello, world"

        assert crumbs.accepted == 1


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_huge_answer_takes_little_memory(upstream: Upstream, chunked: bool) -> None:
    size, block = 40 * MB, b"x" * 100_000

    async def app(seen: Seen) -> None:
        await seen.head(200, [] if chunked else [(b"content-length", b"%d" % size)])
        for _ in range(size // len(block)):
            await seen.piece(block)
        await seen.end()

    async with serve(app) as server:
        await call(upstream, server.base, "HEAD")
        tracemalloc.start()
        try:
            received = 0
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b"") as response:
                async for piece in response:
                    received += len(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert received == size
        assert peak < 2 * MB


@pytest.mark.slow
async def test_an_answer_that_nobody_reads_stays_with_the_provider(upstream: Upstream) -> None:
    sent = 0

    async def app(seen: Seen) -> None:
        nonlocal sent
        await seen.head()
        while True:
            await seen.piece(b"x" * 100_000)
            sent += 100_000

    async with serve(app) as server:
        with trio.move_on_after(0.3):
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b""):
                await trio.sleep_forever()

        await server.all_closed()
        assert sent < 20 * MB  # the kernel's buffers on both sides


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 5 * MB])
async def test_a_body_of_any_size_arrives(upstream: Upstream, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"z" * (size % 256)

    async def app(seen: Seen) -> None:
        await seen.plain(b"%d" % len(seen.body))

    async with serve(app) as server:
        for _ in range(2):
            assert (await call(upstream, server.base, body=body)).body == b"%d" % size

        assert all(seen.body == body for seen in server.seen)
        assert server.accepted == 1


async def test_an_answer_before_the_whole_body_was_sent_is_heard(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.stream.receive_some(1000)
        await peer.answer(b"too much", head=b"HTTP/1.1 413 Too Large")
        await trio.sleep(0.05)

    await an_early_answer(upstream, script)


async def test_an_early_answer_is_heard_though_the_server_neither_reads_nor_closes(pool: PoolTransport) -> None:
    # Ours only: httpcore2 writes all of a body before it reads, and hangs.
    async def script(peer: Peer) -> None:
        await peer.stream.receive_some(1000)
        await peer.answer(b"too much", head=b"HTTP/1.1 413 Too Large")
        await trio.sleep_forever()

    await an_early_answer(Upstream(pool), script)


async def an_early_answer(upstream: Upstream, script: Callable[[Peer], Awaitable[None]]) -> None:
    """413 or 429 while megabytes are on their way: who only writes sees a broken pipe, or nothing at all."""
    async with raw_server(script) as server:
        for number, body in enumerate((b"x" * 20 * MB, b"x")):
            with trio.fail_after(60):
                answer = await call(upstream, server.base, body=body)
            assert (answer.status, answer.body) == (413, b"too much")
            assert server.accepted == number + 1


async def test_100_continue_in_the_middle_of_a_body_is_no_answer(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            await trio.sleep(0.01)
            if not await peer.request():
                return
            await peer.answer()

    async with raw_server(script) as server:
        with trio.fail_after(60):
            answer = await call(upstream, server.base, body=b"x" * 20 * MB)

        assert (answer.status, answer.body) == (200, b"ok")
