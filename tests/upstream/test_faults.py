"""Every way in which a provider can fail has its kind; `sent` is False only where nothing can have been executed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.upstream import PoolTransport, Upstream, UpstreamError, UpstreamErrorKind
from tests.support.relay import GARBAGE, HOST, Fault, Peer, Weather, raw_server, relay

from .calls import PATIENT, S, call, collect
from .server import Seen, serve

# httpx2 leaves httpcore2's generator to the garbage collector when a body is left early. The connection is closed.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")

Script = Callable[[Peer], Awaitable[None]]

K = UpstreamErrorKind


def says(data: bytes, *, then: str = "close") -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(data)
        if then == "reset":
            # The client has to read what was said before it is told of the reset: an RST throws away the rest.
            await trio.sleep(0.01)
            await peer.reset()
        elif then == "freeze":
            await peer.request()  # which never comes, so: until the client hangs up

    return script


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

FAULTS = {
    "closed before a response": (says(b""), K.RESET),
    "reset before a response": (says(b"", then="reset"), K.RESET),
    "closed within the head": (says(b"HTTP/1.1 200 O"), K.RESET),
    "closed between head lines": (says(b"HTTP/1.1 200 OK\r\nx: y\r\n"), K.RESET),
    "only informational heads": (says(b"HTTP/1.1 103 Early\r\n\r\n"), K.RESET),
    "closed right after the head": (says(HEAD), K.TRUNCATED),
    "closed within a body of known length": (says(HEAD + b"12345"), K.TRUNCATED),
    "closed within a chunk": (says(CHUNKED + b"a\r\n12345"), K.TRUNCATED),
    "closed between chunks": (says(CHUNKED + b"5\r\n12345\r\n"), K.TRUNCATED),
    "closed before the last line": (says(CHUNKED + b"5\r\n12345\r\n0\r\n"), K.TRUNCATED),
    "reset within a body": (says(HEAD + b"12345", then="reset"), K.RESET),
    "not HTTP": (says(GARBAGE), K.PROTOCOL),
    "HTTP/0.9 of sorts": (says(b"hello, world\r\n\r\n", then="freeze"), K.PROTOCOL),
    "two lengths": (says(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12"), K.PROTOCOL),
    "an unknown coding": (says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n"), K.PROTOCOL),
    "a bad chunk size": (says(CHUNKED + b"zz\r\n12345\r\n"), K.PROTOCOL),
    "an upgrade that nobody asked for": (says(b"HTTP/1.1 101 Switching\r\n\r\n", then="freeze"), K.PROTOCOL),
    "an endless head": (says(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000, then="freeze"), K.PROTOCOL),
    "an endless header line": (says(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 600_000, then="freeze"), K.PROTOCOL),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_fault_has_its_kind(upstream: Upstream, method: str, name: str) -> None:
    script, kind = FAULTS[name]

    async with raw_server(script) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base, method, body=b"{}")

        assert (caught.value.kind, caught.value.sent) == (kind, True)
        assert str(caught.value).startswith(kind)
        assert server.accepted == 1


async def test_what_came_before_the_cut_was_handed_over(upstream: Upstream) -> None:
    pieces: list[bytes] = []

    async with raw_server(says(CHUNKED + b"5\r\n12345\r\n")) as server:
        with pytest.raises(UpstreamError):
            await collect(upstream, server.base, pieces)

    assert pieces == [b"12345"]


@pytest.mark.parametrize(
    ("fault", "after_bytes", "kind"),
    [
        (Fault.RESET, 50, K.RESET),
        (Fault.RESET, 1000, K.RESET),
        (Fault.HALF_CLOSE, 50, K.RESET),
        (Fault.HALF_CLOSE, 1000, K.TRUNCATED),
        (Fault.GARBAGE, 0, K.PROTOCOL),
    ],
)
async def test_a_long_answer_that_the_network_spoils(
    upstream: Upstream, fault: Fault, after_bytes: int, kind: UpstreamErrorKind
) -> None:
    async def app(seen: Seen) -> None:
        await seen.head(200, [(b"x-padding", b"x" * 60)])
        for _ in range(100):
            await seen.piece(b"y" * 100)
        await seen.end()

    async with serve(app) as server:
        async with relay(server.port, Weather(slice_bytes=37, fault=fault, after_bytes=after_bytes)) as spoiled:
            with pytest.raises(UpstreamError) as caught:
                await call(upstream, spoiled.base)

            assert (caught.value.kind, caught.value.sent) == (kind, True)
        async with relay(server.port, Weather(slice_bytes=37)) as slow:
            assert (await call(upstream, slow.base)).body == b"y" * 10_000


async def test_nobody_listens(upstream: Upstream) -> None:
    async with raw_server(says(b"")) as server:
        base = server.base

    with pytest.raises(UpstreamError) as caught:
        await call(upstream, base)

    assert (caught.value.kind, caught.value.sent) == (K.CONNECT, False)
    assert HOST in str(caught.value)


async def test_an_unknown_host(upstream: Upstream) -> None:
    with pytest.raises(UpstreamError) as caught:
        await call(upstream, "http://nowhere.invalid")

    assert (caught.value.kind, caught.value.sent) == (K.CONNECT, False)


async def test_a_flood_of_informational_heads_is_no_http(pool: PoolTransport) -> None:
    # Ours only: httpcore2 reads on until the deadline.
    async with raw_server(says(b"HTTP/1.1 103 Early\r\n\r\n" * 1000, then="freeze")) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(Upstream(pool), server.base)

        assert caught.value.kind is K.PROTOCOL


# ---- time ----


async def test_no_connection_in_time(upstream: Upstream, autojump_clock: MockClock) -> None:
    # A listener whose queue is full: the kernel drops what knocks, as an unreachable host does.
    listener = trio.socket.socket()
    await listener.bind((HOST, 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    with listener:
        knocking = []
        for _ in range(4):
            knock = trio.socket.socket()
            knocking.append(knock)
            with trio.move_on_after(0.2):
                await knock.connect((HOST, port))
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, f"http://{HOST}:{port}")
        for knock in knocking:
            knock.close()

    assert (caught.value.kind, caught.value.sent) == (K.CONNECT, False)
    assert trio.current_time() <= 4 * 0.2 + PATIENT.connect_ns / S + 1


LATE = {
    "no response": (b"", K.FIRST_BYTE, 20),
    "half a head": (HEAD[:20], K.FIRST_BYTE, 20),
    "only 100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n", K.FIRST_BYTE, 20),
    "no body": (HEAD, K.IDLE, 30),
    "half a body": (HEAD + b"12345", K.IDLE, 30),
    "half a chunk": (CHUNKED + b"a\r\n123", K.IDLE, 30),
}


@pytest.mark.parametrize("name", LATE)
async def test_a_provider_that_falls_silent(upstream: Upstream, autojump_clock: MockClock, name: str) -> None:
    said, kind, after_s = LATE[name]

    async with raw_server(says(said, then="freeze")) as server:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base)

        assert (caught.value.kind, caught.value.sent) == (kind, True)
        # Silence between pieces is noticed within nine eighths of the time given.
        latest_s = after_s * 9 / 8 if kind is K.IDLE else after_s
        assert after_s <= trio.current_time() < latest_s + 1


def drip(seconds: float) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(CHUNKED)
        for _ in range(1000):
            await trio.sleep(seconds)
            await peer.stream.send_all(b"1\r\nx\r\n")

    return script


async def test_a_steady_drip_is_not_idle_but_has_its_total(upstream: Upstream, autojump_clock: MockClock) -> None:
    pieces: list[bytes] = []

    async with raw_server(drip(7)) as server:
        with pytest.raises(UpstreamError) as caught:
            await collect(upstream, server.base, pieces)

    assert (caught.value.kind, caught.value.sent) == (K.TOTAL, True)
    assert len(pieces) == 8
    assert 60 <= trio.current_time() < 61


async def test_a_slow_caller_is_not_an_idle_provider(upstream: Upstream, autojump_clock: MockClock) -> None:
    timeouts = attrs.evolve(PATIENT, total_ns=10_000 * S)

    async def app(seen: Seen) -> None:
        await seen.head()
        for _ in range(5):
            await seen.piece(b"x")
            await trio.sleep(1)
        await seen.end()

    async with (
        serve(app) as server,
        upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b"", timeouts=timeouts) as response,
    ):
        await trio.sleep(100)
        async for _ in response:
            response.pause()
            await trio.sleep(100)


async def held(upstream: Upstream, base: str, pieces: list[bytes], *, begins: bool) -> None:
    async with upstream.send(base=base, method="GET", target=b"/", headers=[], body=b"", timeouts=PATIENT) as response:
        response.opening()
        async for piece in response:
            pieces.append(piece)
            if begins:
                response.opened()


async def test_a_head_that_says_nothing_leaves_the_first_byte_s_time_running(
    upstream: Upstream, autojump_clock: MockClock
) -> None:
    async with raw_server(drip(7)) as server:
        pieces: list[bytes] = []
        with pytest.raises(UpstreamError, match="no content in time") as caught:
            await held(upstream, server.base, pieces, begins=False)

        assert (caught.value.kind, caught.value.sent, len(pieces)) == (K.FIRST_BYTE, True, 2)
        assert 20 <= trio.current_time() < 21


async def test_an_answer_that_has_begun_has_the_time_between_pieces(
    upstream: Upstream, autojump_clock: MockClock
) -> None:
    async with raw_server(says(CHUNKED + b"1\r\nx\r\n", then="freeze")) as server:
        pieces: list[bytes] = []
        with pytest.raises(UpstreamError) as caught:
            await held(upstream, server.base, pieces, begins=True)

        assert (caught.value.kind, caught.value.message) == (K.IDLE, "idle: the body stopped coming")


async def test_the_total_also_ends_a_caller_that_is_stuck(upstream: Upstream, autojump_clock: MockClock) -> None:
    async with raw_server(drip(1)) as server:
        with pytest.raises(UpstreamError) as caught:
            async with upstream.send(
                base=server.base, method="GET", target=b"/", headers=[], body=b"", timeouts=PATIENT
            ):
                await trio.sleep_forever()

        assert caught.value.kind is K.TOTAL
        await server.all_closed()


async def test_an_outer_cancellation_is_no_error_of_the_provider(upstream: Upstream, autojump_clock: MockClock) -> None:
    async with raw_server(says(HEAD, then="freeze")) as server:
        with trio.move_on_after(3) as scope:
            await call(upstream, server.base)

        assert scope.cancelled_caught
        await server.all_closed()


async def test_a_callers_own_error_passes_and_ends_the_exchange(upstream: Upstream) -> None:
    async with raw_server(says(HEAD, then="freeze")) as server:
        with pytest.raises(ZeroDivisionError):
            async with upstream.send(base=server.base, method="GET", target=b"/", headers=[], body=b""):
                raise ZeroDivisionError

        await server.all_closed()


# ---- a connection that was used before ----


def once_then(fault: Callable[[Peer], Awaitable[None]]) -> Script:
    """Answers the first request of the first connection; the second befalls the fault. Later connections are well."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"first")
        while await peer.request():
            if peer.number == 0:
                await fault(peer)
                return
            await peer.answer(b"again")

    return script


async def close(peer: Peer) -> None:
    await peer.stream.aclose()


@pytest.mark.parametrize("fault", [close, Peer.reset], ids=["closed", "reset"])
async def test_a_post_on_a_used_connection_is_never_sent_twice(
    upstream: Upstream, fault: Callable[[Peer], Awaitable[None]]
) -> None:
    async with raw_server(once_then(fault)) as server:
        assert (await call(upstream, server.base)).body == b"first"
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, server.base, body=b"costly")

        assert (caught.value.kind, caught.value.sent) == (K.RESET, True)
        assert server.accepted == 1


@pytest.mark.parametrize("fault", [close, Peer.reset], ids=["closed", "reset"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_safe_request_on_a_used_connection_gets_a_fresh_one(
    pool: PoolTransport, fault: Callable[[Peer], Awaitable[None]], method: str
) -> None:
    # Ours only: httpcore2 leaves it to its caller.
    upstream = Upstream(pool)

    async with raw_server(once_then(fault)) as server:
        assert (await call(upstream, server.base)).body == b"first"
        answer = await call(upstream, server.base, method)

        assert answer.status == 200
        assert server.accepted == 2


async def test_a_safe_request_is_not_sent_again_once_the_answer_has_begun(pool: PoolTransport) -> None:
    async def half_an_answer(peer: Peer) -> None:
        await peer.stream.send_all(b"HTTP/1.1 2")

    async with raw_server(once_then(half_an_answer)) as server:
        await call(Upstream(pool), server.base)
        with pytest.raises(UpstreamError) as caught:
            await call(Upstream(pool), server.base, "GET")

        assert (caught.value.kind, caught.value.sent) == (K.RESET, True)
        assert server.accepted == 1
