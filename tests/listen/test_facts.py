"""The six facts about Hypercorn's Trio worker in the design (`doors.md`), each as it is with our listener."""

from __future__ import annotations

import socket
import struct

import pytest
import trio
import trio.testing

from hivemind_trio.listen import Bounds, Receive, Scope, Send

from .corpus import SERVER_KILLERS, Hostile
from .house import GET, Client, House, body_of, echoes, header, listens, post, refuses, respond, serving

MEGABYTE = b"x" * 1_000_000


async def floods(scope: Scope, receive: Receive, send: Send) -> None:
    """More than any socket buffer takes."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(100):
        await send({"type": "http.response.body", "body": MEGABYTE, "more_body": True})


async def until_stalled(house: House) -> Client:
    client = await house.client()
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await client.say(GET)
    await trio.testing.wait_all_tasks_blocked(0.02)
    return client


async def test_fact_1_a_send_to_a_client_that_does_not_read_can_be_cancelled() -> None:
    freed = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with trio.CancelScope() as attempt:
            stalled.append(attempt)
            await floods(scope, receive, send)
        freed.set()

    stalled: list[trio.CancelScope] = []
    async with serving(app) as house:
        client = await until_stalled(house)
        assert not freed.is_set()

        stalled[0].cancel()
        await freed.wait()

        # Half a chunk was sent: what follows on this connection could be taken for its rest.
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()


async def test_fact_1_a_send_to_a_client_that_does_not_read_ends_when_patience_does(clock: trio.abc.Clock) -> None:
    async with serving(floods, Bounds(write_patience_ns=10 * 10**9)) as house:
        client = await until_stalled(house)
        assert house.listener.connections == 1

        await house.emptied()

        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
        assert not house.reports


async def test_fact_2_a_client_that_does_not_read_cannot_hold_up_the_end() -> None:
    async with serving(floods) as house:
        await until_stalled(house)
        house.nursery.cancel_scope.cancel()
    # Without any clock of ours that could jump: stock Hypercorn does not come to this line.
    assert house.listener.connections == 0


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this platform has no such option")
async def test_fact_2_the_kernel_gives_up_on_a_peer_that_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        (connection,) = house.listener.open_connections
        seen.append(connection.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        seen.append(connection.stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        seen.append(connection.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await respond(send)

    async with serving(app) as house:
        await (await house.client()).ask()

    assert seen == [60_000, 1, 1]


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("when", ["waiting", "in the body", "streaming"])
async def test_fact_3_a_hang_up_is_told_to_receive_and_to_the_callback(how: str, when: str) -> None:
    told = trio.Event()
    calls: list[str] = []
    last: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["hivemind.on_disconnect"](lambda: calls.append("hang-up"))
        if when != "in the body":
            await body_of(receive)
        if when == "streaming":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
        while (message := await receive())["type"] != "http.disconnect":
            pass
        last.append(message["type"])
        # Fact 3 itself: to send is still no error.
        if when != "streaming":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": MEGABYTE * 10, "more_body": how != "half-close"})
        told.set()

    async with serving(app) as house:
        client = await house.client()
        await client.say(post(b"abc")[: -1 if when == "in the body" else None])
        await trio.testing.wait_all_tasks_blocked(0.01)
        match how:
            case "close":
                client.stream.socket.close()
            case "reset":
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.stream.socket.close()
            case "half-close":
                await client.stream.send_eof()
                house.nursery.start_soon(client.rest)

        await told.wait()

        assert last == ["http.disconnect"]
        assert calls == ["hang-up"]
        assert not house.reports


async def test_fact_3_the_callback_of_a_client_already_gone_is_called_at_once() -> None:
    left = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        with trio.CancelScope() as attempt:
            scope["extensions"]["hivemind.on_disconnect"](attempt.cancel)
            await trio.sleep_forever()
        left.set()

    async with serving(app) as house:
        client = await house.client()
        await client.say(GET)
        await trio.testing.wait_all_tasks_blocked()
        client.stream.socket.close()
        await left.wait()


async def test_fact_3_no_hang_up_is_told_of_an_answer_that_was_complete() -> None:
    calls: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["hivemind.on_disconnect"](lambda: calls.append("hang-up"))
        await respond(send)

    async with serving(app) as house:
        client = await house.client()
        await client.ask()
        client.stream.socket.close()
        await trio.testing.wait_all_tasks_blocked(0.01)

        assert house.listener.connections == 0
        assert calls == []


async def test_fact_4_there_is_no_lifespan_to_return_from() -> None:
    types: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        types.append(scope["type"])
        await respond(send)

    async with serving(app) as house:
        assert (await (await house.client()).ask())[0] == 200

    assert types == ["http"]


@pytest.mark.parametrize("hostile", SERVER_KILLERS, ids=lambda hostile: hostile.name)
async def test_fact_5_what_ends_a_stock_server_ends_one_connection_of_ours(
    hostile: Hostile, clock: trio.abc.Clock
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await receive()
            await receive()
        elif scope["path"] == "/accept":
            await listens(scope, receive, send)
        else:
            await refuses(scope, receive, send)

    async with serving(app) as house:
        neighbour = await house.client()
        await neighbour.say(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await neighbour.raw()).startswith(b"HTTP/1.1 200")

        client = await house.client()
        await hostile.attack(client.stream)
        client.stream.socket.close()
        await trio.sleep(1000)

        assert house.listener.connections == 1  # the neighbour, still streaming
        assert (await (await house.client()).ask(GET)) == (429, b"later")


@pytest.mark.parametrize("megabytes", [1, 5])
async def test_fact_6_a_refusal_is_read_by_a_client_that_is_still_sending(
    megabytes: int, clock: trio.abc.Clock
) -> None:
    async with serving(refuses) as house:
        client = await house.client()

        await client.say(post(MEGABYTE * megabytes))  # to the end, before it looks for an answer
        status, headers, body = await client.answer()

        assert (status, body) == (429, b"later")
        assert header(headers, b"connection") == [b"close"]
        assert await client.rest() == b""
        client.stream.socket.close()
        await house.emptied()
        assert not house.reports


async def test_fact_6_reading_on_after_a_refusal_is_bounded_in_time(clock: trio.abc.Clock) -> None:
    async with serving(refuses, Bounds(linger_ns=10**9)) as house:
        client = await house.client()
        await client.say(post(MEGABYTE)[:100])

        await house.emptied()  # though the client neither finishes nor leaves


async def test_fact_6_reading_on_after_a_refusal_is_bounded_in_bytes(clock: trio.abc.Clock) -> None:
    async with serving(refuses, Bounds(linger_bytes=100_000, linger_ns=10**15)) as house:
        client = await house.client()
        with pytest.raises(trio.BrokenResourceError):
            await client.say(post(MEGABYTE * 20))

        await house.emptied()


async def test_fact_6_two_hundred_late_refusals_leave_no_task_behind(clock: trio.abc.Clock) -> None:
    async with serving(refuses) as house:
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(10):
            clients = [await house.client() for _ in range(20)]
            for client in clients:
                await client.say(post(b"x" * 50_000)[:-1])
                client.stream.socket.close()
        await house.emptied()

        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


async def test_fact_6_a_request_read_to_its_end_keeps_its_connection() -> None:
    async with serving(echoes) as house:
        client = await house.client()
        await client.ask(post(MEGABYTE))

        assert await client.ask() == (200, b"")
