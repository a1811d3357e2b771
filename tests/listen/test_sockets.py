"""`bind`, as an operator meets it."""

from __future__ import annotations

import socket

import pytest
import trio

from hivemind_trio.listen import Listener, Receive, Scope, Send, bind

from .house import GET, Client, echoes


def closed(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_port_0_takes_a_free_one() -> None:
    sockets = bind("127.0.0.1", 0)

    assert all(sock.getsockname()[1] > 0 for sock in sockets)
    assert not any(sock.getblocking() for sock in sockets)
    closed(sockets)


def test_an_address_in_use_is_named() -> None:
    sockets = bind("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]

    with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}: the address is in use"):
        bind("127.0.0.1", port)
    closed(sockets)


def test_a_port_can_be_taken_again_at_once() -> None:
    sockets = bind("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        accepted, _ = sockets[0].accept()
        accepted.close()  # first, so that this side is left in TIME_WAIT
    closed(sockets)

    closed(bind("127.0.0.1", port))


def test_an_address_of_another_machine_is_said_to_be_one() -> None:
    with pytest.raises(OSError, match="this machine does not have that address"):
        bind("192.0.2.1", 0)


def test_a_name_that_is_none_is_named() -> None:
    with pytest.raises(OSError, match=r"cannot listen on no\.such\.invalid:1"):
        bind("no.such.invalid", 1)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_ipv6_is_served_and_its_clients_are_told_apart() -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["client"])
        await echoes(scope, receive, send)

    async with trio.open_nursery() as nursery:
        sockets = bind("::1", 0)
        await nursery.start(Listener(app).run, sockets)
        client = Client(await trio.open_tcp_stream("::1", sockets[0].getsockname()[1]))

        assert (await client.ask(GET))[0] == 200
        assert seen == [client.stream.socket.getsockname()[:2]]

        await client.stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.skipif(not (has_ipv6() and socket.has_dualstack_ipv6()), reason="this machine has no such IPv6")
async def test_every_ipv6_address_takes_ipv4_too_and_its_callers_are_the_same() -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["client"][0])
        await echoes(scope, receive, send)

    async with trio.open_nursery() as nursery:
        sockets = bind("::", 0)
        await nursery.start(Listener(app).run, sockets)
        for host in ("127.0.0.1", "::1"):
            client = Client(await trio.open_tcp_stream(host, sockets[0].getsockname()[1]))
            assert (await client.ask(GET))[0] == 200
            client.stream.socket.close()
        nursery.cancel_scope.cancel()

    assert seen == ["127.0.0.1", "::1"]
