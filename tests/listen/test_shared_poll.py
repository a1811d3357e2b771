"""Readers that wait together while calls are refused: cheaper, and nothing that a client could tell."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.listen import Bounds
from hivemind_trio.listen.wire import SharedPoll

from .house import GET, Client, House, echoes, post, serving
from .test_load import overload

CLOSING = b"GET / HTTP/1.1\r\nhost: x\r\nConnection: close\r\n\r\n"
REQUESTS = [
    GET,
    post(b"x" * 20),
    post(b"x" * 70_000),
    CLOSING,
    b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\r\n" + GET,
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nx",
    b"GET / HTTP/1.0\r\nhost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\ncontent-length: 27\r\n\r\n",
    b"nonsense\r\n\r\n",
]


@contextmanager
def alone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedPoll, "is_available", False)
        yield


async def together(house: House) -> Client:
    """A client whose reader waits together with others, for a call of its was refused."""
    client, before = await house.client(), len(house.listener.shared)
    assert (await client.ask(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"))[0] == 200
    assert (await client.ask())[0] == 503
    await trio.testing.wait_all_tasks_blocked()
    assert len(house.listener.shared) == before + 1
    return client


async def test_calls_are_refused_without_a_task_until_the_overload_is_over() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await together(house)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trio.lowlevel, "reschedule", None)  # no reader is woken
            for number in range(3):
                assert (await client.ask(post(b"x" * 100)))[0] == 503
                assert house.listener.lag.refused == 2 + number
        house.listener.lag.is_overloaded = False

        assert await client.ask(post(b"x" * 300_000)) == (200, b"x" * 300_000)
        assert house.listener.connections == 1


async def test_a_copy_of_a_closed_socket_is_not_waited_for() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await together(house)
        connection = next(iter(house.listener.open_connections))
        await together(house)
        copy = os.dup(connection.stream.socket.fileno())  # as between fork and exec
        try:
            connection.wire.close()
            await client.say(GET)
            with trio.fail_after(5):
                await trio.testing.wait_all_tasks_blocked(0.01)
        finally:
            os.close(copy)


async def said_to(pieces: list[bytes], *, shared: bool, ends_after: int) -> bytes:
    """All that a client hears whose overload ends after so many of its pieces, but when to come back."""
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await house.client()
        await client.ask(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        await client.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert len(house.listener.shared) == shared
        for number, piece in enumerate(pieces):
            if number == ends_after:
                house.listener.lag.is_overloaded = False
            try:
                await client.say(piece)
            except trio.BrokenResourceError:
                break
            await trio.testing.wait_all_tasks_blocked(0.002)
        client.stream.socket.shutdown(socket.SHUT_WR)
        try:
            said = await client.rest()
        except trio.BrokenResourceError:
            said = b"reset"
        return re.sub(rb"retry-after: \d+", b"", said)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=4),
    st.lists(st.integers(1, 400), max_size=5),
    st.integers(0, 6),
)
async def test_a_client_hears_the_same_as_if_its_reader_waited_alone(
    requests: list[bytes], cuts: list[int], ends_after: int
) -> None:
    whole, pieces = b"".join(requests), []
    for cut in cuts:
        pieces.append(whole[:cut])
        whole = whole[cut:]
    pieces = [piece for piece in [*pieces, whole] if piece]
    with alone():
        expected = await said_to(pieces, shared=False, ends_after=ends_after)

    assert await said_to(pieces, shared=True, ends_after=ends_after) == expected


@pytest.mark.parametrize("request_", REQUESTS, ids=range(len(REQUESTS)))
@pytest.mark.parametrize("cut", [0, 10, 40])
async def test_a_request_that_is_odd_or_comes_in_parts_is_answered_as_ever(request_: bytes, cut: int) -> None:
    pieces = [piece for piece in (request_[:cut], request_[cut:], GET) if piece]
    with alone():
        expected = await said_to(pieces, shared=False, ends_after=9)

    assert await said_to(pieces, shared=True, ends_after=9) == expected


async def test_a_refused_connection_may_rest_as_long_as_any_other(autojump_clock: object) -> None:
    async with serving(echoes, Bounds(keep_alive_ns=100 * 10**9)) as house:
        overload(house.listener.lag)
        client, silent = await together(house), await together(house)
        await trio.sleep(80)
        assert (await client.ask())[0] == 503
        await trio.sleep(80)
        assert await silent.rest() == b""
        assert (await client.ask())[0] == 503
        await trio.sleep(90)
        assert house.listener.connections == 1
        await trio.sleep(15)

        assert house.listener.connections == len(house.listener.shared) == 0
        assert await client.rest() == b""


async def test_a_head_that_does_not_come_whole_has_its_own_time(autojump_clock: object) -> None:
    async with serving(echoes, Bounds(header_ns=10 * 10**9)) as house:
        overload(house.listener.lag)
        client = await together(house)
        await client.say(GET[:-1])
        await trio.sleep(9)
        assert house.listener.connections == 1
        with trio.fail_after(2):
            assert (await client.answer())[0] == 408


async def test_whoever_leaves_is_gone_and_its_place_is_free(autojump_clock: object) -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        for way in ("closes", "says FIN", "resets"):
            client = await together(house)
            if way == "says FIN":
                client.stream.socket.shutdown(socket.SHUT_WR)
            else:
                linger = struct.pack("ii", way == "resets", 0)
                client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.stream.socket.close()
            await trio.sleep(1)
            assert house.listener.connections == len(house.listener.shared) == 0
        staying = await together(house)
        assert (await staying.ask())[0] == 503


async def test_a_listener_that_stops_lets_go_of_those_that_rest_and_answers_the_others() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        resting, asking = await together(house), await together(house)
        await asking.say(post(b"x" * 10)[:-5])
        await trio.testing.wait_all_tasks_blocked()
        house.listener.lag.is_overloaded = False
        assert (await asking.answer())[0] == 503  # it had come in parts, and is closed after its end
        late = await house.client()
        await late.say(post(b"x" * 10)[:-5])
        await trio.testing.wait_all_tasks_blocked()
        house.listener.stop_accepting()
        assert await resting.rest() == b""
        await late.say(b"xxxxx")

        assert await late.answer() == (200, [(b"content-length", b"10"), (b"connection", b"close")], b"x" * 10)
        for client in house.clients:
            client.stream.socket.close()
        await house.listener.idle()
        assert len(house.listener.shared) == 0


async def test_room_is_made_of_those_that_wait_together() -> None:
    async with serving(echoes, Bounds(connections=2)) as house:
        overload(house.listener.lag)
        first, second = await together(house), await together(house)
        house.listener.lag.is_overloaded = False
        third = await house.client()

        assert (await third.ask())[0] == 200
        assert await first.rest() == b""
        assert (await second.ask())[0] == 200


async def test_what_follows_a_connection_s_last_request_is_dropped() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await together(house)
        assert (await client.ask(CLOSING))[0] == 503
        refused = house.listener.lag.refused
        await client.say(GET)
        await trio.testing.wait_all_tasks_blocked()

        assert (house.listener.connections, house.listener.lag.refused) == (1, refused)
        assert await client.rest() == b""


async def test_http2_waits_alone() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        await together(house)
        other = await house.client()
        await other.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
        assert (await other.raw())[3] == 4  # SETTINGS
        await trio.testing.wait_all_tasks_blocked()

        assert (house.listener.connections, len(house.listener.shared)) == (2, 1)


async def test_a_client_that_leaves_answers_unread_is_reset_and_not_given_half_of_one() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await together(house)
        client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        (connection,) = house.listener.open_connections
        connection.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2_048)
        for _ in range(1_000):
            await client.say(GET)
            await trio.testing.wait_all_tasks_blocked()
            if not house.listener.connections:
                break

        assert house.listener.connections == 0
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()


async def test_a_reader_that_is_closed_while_another_one_is_read_is_left_alone() -> None:
    poll = SharedPoll()
    heard: list[bytes] = []
    pairs = [socket.socketpair() for _ in range(3)]
    scopes = [trio.CancelScope() for _ in pairs]

    async def read(number: int) -> None:
        def ends_others(data: bytes) -> bool:
            for other, scope in enumerate(scopes):
                if other != number:
                    scope.cancel()
            return False

        with scopes[number]:
            heard.append(await poll.receive(pairs[number][0], ends_others))

    for near, far in pairs:
        near.setblocking(False)
        far.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll.run)
        for number in range(3):
            nursery.start_soon(read, number)
        await trio.testing.wait_all_tasks_blocked()
        assert heard == [b"x"]
        assert len(poll) == 0
        nursery.cancel_scope.cancel()
    for pair in pairs:
        for end in pair:
            end.close()


async def test_what_the_answer_to_one_reader_raises_ends_no_other() -> None:
    poll = SharedPoll()
    pairs = [socket.socketpair() for _ in range(2)]
    heard: list[bytes] = []

    def fails(data: bytes) -> bool:
        raise RuntimeError("planted")

    async def first() -> None:
        with pytest.raises(RuntimeError, match="planted"):
            await poll.receive(pairs[0][0], fails)

    async def second() -> None:
        heard.append(await poll.receive(pairs[1][0], lambda data: False))

    for near, _ in pairs:
        near.setblocking(False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll.run)
        nursery.start_soon(first)
        nursery.start_soon(second)
        for _, far in pairs:
            await trio.testing.wait_all_tasks_blocked()
            far.send(b"x")
        await trio.testing.wait_all_tasks_blocked()
        assert heard == [b"x"]
        nursery.cancel_scope.cancel()
    for pair in pairs:
        for end in pair:
            end.close()


async def test_readers_that_outlast_the_poll_are_cancelled_and_it_takes_no_more() -> None:
    poll = SharedPoll()
    near, far = socket.socketpair()
    near.setblocking(False)
    async with trio.open_nursery() as readers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll.run)
            readers.start_soon(poll.receive, near, lambda data: False)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        readers.cancel_scope.cancel()

    assert len(poll) == 0
    assert not poll.is_available
    near.close()
    far.close()
