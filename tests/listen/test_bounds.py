"""Time, room and the end: each bound of `Bounds`, small enough to be hit."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from hivemind_trio.listen import Bounds, Receive, Scope, Send

from .house import GET, echoes, header, listens, post, respond, serving

S = 10**9


@pytest.mark.slow
async def test_a_head_that_drips_is_refused_in_time_though_every_byte_is_prompt(clock: trio.abc.Clock) -> None:
    async with serving(echoes, Bounds(header_ns=10 * S)) as house:
        client = await house.client()
        began = trio.current_time()
        with trio.move_on_after(60):
            for _ in range(100):
                await client.say(b"a")
                await trio.sleep(1)
                if house.listener.connections == 0 or b"408" in (heard := await _what_is_there(client.stream)):
                    break

        assert heard.startswith(b"HTTP/1.1 408 ")
        assert 10 <= trio.current_time() - began < 13


async def _what_is_there(stream: trio.SocketStream) -> bytes:
    with trio.move_on_after(0.1):
        return bytes(await stream.receive_some())
    return b""


async def test_a_head_may_take_its_time_within_the_bound_and_the_next_one_too(clock: trio.abc.Clock) -> None:
    async with serving(echoes, Bounds(header_ns=10 * S)) as house:
        client = await house.client()
        for _ in range(3):
            await client.say(GET[:10])
            await trio.sleep(9)
            assert await client.ask(GET[10:]) == (200, b"")


async def test_a_body_that_stands_still_is_refused(clock: trio.abc.Clock) -> None:
    async with serving(echoes, Bounds(body_idle_ns=10 * S)) as house:
        client = await house.client()
        await client.say(post(b"x" * 100)[:-50])
        for _ in range(3):
            await trio.sleep(9)
            await client.say(b"x")
        before = trio.current_time()

        status, _, _ = await client.answer()

        assert status == 408
        assert 9 <= trio.current_time() - before <= 11


async def test_an_app_that_takes_its_time_is_not_the_clients_fault(clock: trio.abc.Clock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(1_000)
        await echoes(scope, receive, send)

    async with serving(app, Bounds(body_idle_ns=10 * S, body_buffer_bytes=1_000)) as house:
        quiet, full, expecting = [await house.client() for _ in range(3)]
        await quiet.say(post(b"abc"))
        house.nursery.start_soon(full.say, post(b"x" * 100_000))
        await expecting.say(post(b"", b"expect: 100-continue").replace(b"length: 0", b"length: 3"))

        assert (await quiet.answer())[0] == 200
        assert (await full.answer())[2] == b"x" * 100_000
        assert await expecting.raw() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await expecting.ask(b"abc") == (200, b"abc")


async def test_a_connection_that_rests_too_long_is_closed_without_a_word(clock: trio.abc.Clock) -> None:
    async with serving(echoes, Bounds(keep_alive_ns=100 * S)) as house:
        fresh, used = await house.client(), await house.client()
        await used.ask()
        await trio.sleep(99)
        await used.ask()
        before = trio.current_time()

        assert await fresh.rest() == b""
        assert trio.current_time() - before == pytest.approx(1, abs=0.5)
        assert await used.rest() == b""
        assert trio.current_time() - before == pytest.approx(100, abs=0.5)


async def test_a_long_answer_is_not_a_rest(clock: trio.abc.Clock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(10_000)
        await respond(send)

    async with serving(app) as house:
        assert await (await house.client()).ask() == (200, b"ok")


async def test_a_slow_reader_within_the_patience_gets_everything(clock: trio.abc.Clock) -> None:
    body = bytes(range(256)) * 40_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, body)

    async with serving(app, Bounds(write_patience_ns=10 * S)) as house:
        client = await house.client()
        await client.say(GET)
        heard, sips = bytearray(), 0
        while len(heard) < len(body):
            if len(heard) > sips * 2_000_000:
                sips += 1
                await trio.sleep(9)
            heard += await client.raw()

        assert bytes(heard).endswith(body)


# -- how many ------------------------------------------------------------


async def test_at_the_bound_a_resting_connection_makes_room() -> None:
    async with serving(echoes, Bounds(connections=2)) as house:
        first, second, third = [await house.client() for _ in range(3)]
        await second.ask()

        assert await third.ask() == (200, b"")
        assert house.listener.connections <= 2
        assert await first.rest() == b""
        assert await second.ask() == (200, b"")


async def test_at_the_bound_a_new_client_waits_until_one_is_done() -> None:
    done = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await done.wait()
        await respond(send)

    async with serving(app, Bounds(connections=1)) as house:
        slow, waiting = await house.client(), await house.client()
        await slow.say(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        await waiting.say(GET)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert house.listener.connections == 1

        done.set()

        assert (await waiting.answer())[0] == 200


# -- the end ------------------------------------------------------------


async def test_to_stop_accepting_lets_what_is_in_progress_finish_and_closes_the_rest() -> None:
    go = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await respond(send)

    async with serving(app) as house:
        resting, busy = await house.client(), await house.client()
        await busy.say(GET + GET)
        await trio.testing.wait_all_tasks_blocked(0.01)

        house.listener.stop_accepting()

        assert await resting.rest() == b""
        with pytest.raises(OSError, match="all attempts to connect"):
            await house.client()
        assert house.listener.connections == 1
        go.set()
        status, headers, _ = await busy.answer()
        assert status == 200
        assert header(headers, b"connection") == [b"close"]
        assert await busy.rest() == b""  # the second request is left to another connection


async def test_to_stop_is_to_return_when_the_last_connection_is_gone() -> None:
    async with serving(listens) as house:
        client = await house.client()
        await client.say(GET)
        await client.raw()
        house.listener.stop_accepting()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(house.nursery.child_tasks) == 1

        client.stream.socket.close()
        await house.listener.idle()
        await trio.testing.wait_all_tasks_blocked(0.01)

        assert house.listener.connections == 0
        assert not house.nursery.child_tasks


async def test_idle_connections_can_be_closed_while_others_go_on() -> None:
    async with serving(listens) as house:
        resting, busy = await house.client(), await house.client()
        await busy.say(GET)
        await busy.raw()

        house.listener.close_idle()

        assert await resting.rest() == b""
        await trio.testing.wait_all_tasks_blocked()
        assert house.listener.connections == 1
        assert (await house.client()) is not None


async def test_to_cancel_cuts_an_answer_that_only_the_end_would_end_visibly_short() -> None:
    async with serving(listens) as house:
        client = await house.client()
        await client.say(b"GET / HTTP/1.0\r\n\r\n")
        await client.raw()
        house.nursery.cancel_scope.cancel()
        house.clients.clear()
    with pytest.raises(trio.BrokenResourceError):
        await client.rest()
    client.stream.socket.close()


async def test_the_listening_sockets_are_closed_at_the_end() -> None:
    async with serving(echoes) as house:
        sockets = house.listener.sockets
        assert all(sock.fileno() != -1 for sock in sockets)

    assert all(isinstance(sock, socket.socket) and sock.fileno() == -1 for sock in sockets)
