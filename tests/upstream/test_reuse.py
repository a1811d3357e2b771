"""The pool keeps what ended well, for as long as it may, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from hivemind_trio.upstream import NotSent, PoolTransport, Upstream, UpstreamError
from tests.support.relay import GARBAGE, Peer, raw_server

from .calls import call
from .server import App, Seen, echo, serve

# httpx2 leaves httpcore2's generator to the garbage collector when a body is left early. The connection is closed.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def together(upstream: Upstream, base: str, count: int) -> None:
    """So many calls at once, that they need as many connections."""
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(call, upstream, base)


def gate(count: int) -> App:
    """An app that answers nobody before `count` requests are there."""
    arrived = 0
    full = trio.Event()

    async def app(seen: Seen) -> None:
        nonlocal arrived
        arrived += 1
        if arrived >= count:
            full.set()
        await full.wait()
        await echo(seen)

    return app


async def test_one_after_the_other_takes_one_connection(upstream: Upstream) -> None:
    async with serve(echo) as server:
        for _ in range(20):
            await call(upstream, server.base, body=b"x" * 100)

        assert server.accepted == 1
        assert len(server.seen) == 20


async def test_many_at_once_take_as_many_and_use_them_again(upstream: Upstream) -> None:
    async with serve(gate(50)) as server:
        await together(upstream, server.base, 50)
        await together(upstream, server.base, 50)

        assert server.accepted == 50


async def test_the_connection_that_was_used_last_is_used_next(pool: PoolTransport) -> None:
    # httpcore2 takes the oldest, which keeps all of them alive for ever and leaves each to grow stale in turn.
    upstream = Upstream(pool)

    async with serve(gate(5)) as server:
        await together(upstream, server.base, 5)
        last = (await call(upstream, server.base)).said["connection"]

        for _ in range(5):
            assert (await call(upstream, server.base)).said["connection"] == last
        assert pool.idle_connections(server.base) == 5


async def test_no_more_than_the_bound_stay_idle() -> None:
    pool = PoolTransport(idle_connections_max=3)

    async with serve(gate(10)) as server:
        await together(Upstream(pool), server.base, 10)

        assert pool.idle_connections(server.base) == 3
        await wait_all_tasks_blocked()
        assert server.open == 3
        await pool.aclose()


async def test_no_idle_connections_may_be_kept_at_all() -> None:
    async with PoolTransport(idle_connections_max=0) as pool, serve(echo) as server:
        for _ in range(3):
            await call(Upstream(pool), server.base)

        assert pool.idle_connections(server.base) == 0
        assert server.accepted == 3


async def test_an_idle_connection_expires(make: Callable[..., httpx2.AsyncBaseTransport], trusting: object) -> None:
    # httpcore2 reads the system's clock, not Trio's: hence real time, and no upper bound on it.
    upstream = Upstream(make(idle_expiry_s=0.01, tls=trusting))

    async with serve(echo) as server:
        await call(upstream, server.base)
        await trio.sleep(0.05)
        await call(upstream, server.base)

        assert server.accepted == 2
        await upstream.aclose()
        await server.all_closed()


async def test_connections_that_are_not_needed_any_more_expire_under_traffic(
    pool: PoolTransport, autojump_clock: MockClock
) -> None:
    upstream = Upstream(pool)

    async with serve(gate(8)) as server:
        await together(upstream, server.base, 8)
        for _ in range(40):
            await trio.sleep(1)
            await call(upstream, server.base)

        assert pool.idle_connections(server.base) == 1
        assert server.accepted == 8


async def test_origins_do_not_share_connections(upstream: Upstream) -> None:
    async with serve(echo) as one, serve(echo) as other:
        for _ in range(3):
            await call(upstream, one.base)
            await call(upstream, other.base)

        assert (one.accepted, other.accepted) == (1, 1)


async def test_two_bases_of_one_origin_do(upstream: Upstream) -> None:
    async with serve(echo) as server:
        await call(upstream, server.base + "/a")
        await call(upstream, server.base + "/b/")

        assert server.accepted == 1
        assert [seen.target for seen in server.seen] == [b"/a/v1/messages", b"/b/v1/messages"]


# ---- stale ----


@pytest.mark.parametrize("how", ["closed", "reset", "garbage", "another answer"])
async def test_a_stale_connection_is_noticed_before_it_is_used(upstream: Upstream, how: str) -> None:
    spoil = trio.Event()
    spoiled = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"mine")
        if peer.number > 0:
            await peer.request()
            return
        await spoil.wait()
        if how == "reset":
            await peer.reset()
        elif how == "garbage":
            await peer.stream.send_all(GARBAGE)
        elif how == "another answer":
            await peer.answer(b"not yours")
        else:
            await peer.stream.aclose()
        spoiled.set()
        if how in {"garbage", "another answer"}:
            await trio.sleep_forever()

    async with raw_server(script) as server:
        await call(upstream, server.base)
        spoil.set()
        await spoiled.wait()
        answer = await call(upstream, server.base, body=b"costly")

        assert answer.body == b"mine"
        assert server.accepted == 2


async def test_bytes_behind_an_answer_spoil_its_connection(pool: PoolTransport) -> None:
    # Ours only: httpcore2 gives the second answer, if it came along with the first, to the next request.
    upstream = Upstream(pool)

    async def script(peer: Peer) -> None:
        await peer.request()
        one = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine"
        await peer.stream.send_all(one + one.replace(b"mine", b"evil"))
        await peer.request()

    async with raw_server(script) as server:
        for _ in range(3):
            assert (await call(upstream, server.base)).body == b"mine"

        assert server.accepted == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_a_server_that_wants_to_close_is_not_called_again(upstream: Upstream, answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(answer)
        await peer.request()  # were the connection kept, the next call would hang here

    async with raw_server(script) as server:
        for _ in range(3):
            assert (await call(upstream, server.base)).body == b"ok"

        assert server.accepted == 3
        await server.all_closed()


async def test_trailers_are_handed_over_and_the_connection_goes_on(
    upstream: Upstream, make: Callable[..., httpx2.AsyncBaseTransport]
) -> None:
    # httpcore2 drops them.
    expected = [(b"X-Checksum", b"1")] if make is PoolTransport else []

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.stream.send_all(CHUNKED + b"2\r\nok\r\n0\r\nX-Checksum: 1\r\n\r\n")

    async with raw_server(script) as server:
        for _ in range(3):
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b"") as response:
                assert [piece async for piece in response] == [b"ok"]
            assert response.trailers == expected

        assert server.accepted == 1


# ---- given up ----


async def test_a_response_that_is_left_early_takes_its_connection_along(upstream: Upstream) -> None:
    async def app(seen: Seen) -> None:
        await seen.head()
        for _ in range(3):
            await seen.piece(b"piece")
            await trio.lowlevel.checkpoint()
        await trio.sleep_forever()

    async with serve(app) as server:
        for number in range(3):
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b"") as response:
                async for piece in response:
                    assert piece.startswith(b"piece")
                    break
            assert server.accepted == number + 1
        await server.all_closed()


async def test_an_answer_that_has_come_whole_need_not_be_read(pool: PoolTransport) -> None:
    # Ours only: httpcore2 knows the end of a body only when somebody has asked for it.
    async with serve(echo) as server:
        for _ in range(3):
            async with Upstream(pool).send(base=server.base, method="GET", target=b"/", headers=[], body=b""):
                pass

        assert server.accepted == 1


async def test_a_connection_is_free_as_soon_as_the_last_byte_has_come(pool: PoolTransport) -> None:
    upstream = Upstream(pool)

    async with serve(echo) as server:
        async with upstream.send(base=server.base, method="GET", target=b"/one", headers=[], body=b"") as response:
            other = await call(upstream, server.base, "GET", b"/two")
            mine = b"".join([piece async for piece in response])

        assert b'"/one"' in mine
        assert other.said["target"] == "/two"
        assert other.said["connection"] == 0


# ---- closing ----


async def test_closing_leaves_nothing_open(upstream: Upstream) -> None:
    async with serve(gate(10)) as server:
        await together(upstream, server.base, 10)
        assert server.open == 10

        await upstream.aclose()

        await server.all_closed()


async def test_a_provider_that_is_gone_keeps_no_connection(pool: PoolTransport) -> None:
    # Ours only: the stock pool has no way to close one origin; its connections expire.
    upstream = Upstream(pool)
    answering = trio.Event()

    async def app(seen: Seen) -> None:
        if seen.target == b"/slow":
            await answering.wait()
        await echo(seen)

    async with serve(app) as gone, serve(echo) as staying, trio.open_nursery() as nursery:
        await call(upstream, gone.base)
        await call(upstream, staying.base)
        nursery.start_soon(call, upstream, gone.base, "GET", b"/slow")
        await wait_all_tasks_blocked()
        await call(upstream, gone.base)
        assert gone.open == 2

        upstream.close_origin(gone.base + "/any/path")
        await wait_all_tasks_blocked()
        assert gone.open == 1  # the one in use is left alone
        answering.set()

        await gone.all_closed()
        assert staying.open == 1


async def test_a_closed_transport_begins_nothing(pool: PoolTransport) -> None:
    async with serve(echo) as server:
        await pool.aclose()

        with pytest.raises(RuntimeError):
            await call(Upstream(pool), server.base)
        assert server.accepted == 0


async def test_what_is_in_use_when_the_transport_closes_may_end_but_is_not_kept(pool: PoolTransport) -> None:
    async def app(seen: Seen) -> None:
        await seen.head()
        for _ in range(10):
            await seen.piece(b"x")
            await trio.sleep(0.001)
        await seen.end()

    async with serve(app) as server:
        async with Upstream(pool).send(base=server.base, method="GET", target=b"/", headers=[], body=b"") as response:
            await pool.aclose()
            body = b"".join([piece async for piece in response])

        assert body == b"x" * 10
        await server.all_closed()


async def test_an_error_does_not_cost_the_other_connections(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        while request := await peer.request():
            if b"/bad" in request:
                return
            await peer.answer()

    async with raw_server(script) as server:
        await call(upstream, server.base)
        with pytest.raises(UpstreamError):
            await call(upstream, server.base, target=b"/bad")
        for _ in range(3):
            await call(upstream, server.base)

        assert server.accepted == 2


async def test_what_may_be_sent_no_more_is_not_and_its_connection_is_another_ones(upstream: Upstream) -> None:
    async def unwanted() -> None:
        async with upstream.send(
            base=server.base, method="POST", target=b"/", headers=[], body=b"{}", may_send=lambda: False
        ):
            pass

    async with serve(echo) as server:
        with pytest.raises(NotSent):
            await unwanted()  # over a new connection
        await call(upstream, server.base)
        with pytest.raises(NotSent):
            await unwanted()  # over one that was idle
        await call(upstream, server.base)

        assert [seen.method for seen in server.seen] == [b"POST", b"POST"]
        assert all(seen.target == b"/v1/messages" for seen in server.seen)
