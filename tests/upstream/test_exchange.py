"""One exchange on one connection, where a server on loopback could not bring about the moment reliably."""

from __future__ import annotations

import socket

import pytest

from hivemind_trio.upstream.exchange import IdleConnection, PooledExchange
from hivemind_trio.upstream.outgoing import Base, OutgoingRequest
from hivemind_trio.upstream.wire import OutboundWire


@pytest.mark.parametrize("body", [b"", b"x" * 1000, b"x" * 1_000_000], ids=len)
async def test_an_answer_is_heard_though_writing_fails(body: bytes) -> None:
    # 413 and gone, before our first byte: the write meets a broken pipe, and the reason waits to be read.
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
    theirs.close()
    kept: list[IdleConnection] = []
    outgoing = OutgoingRequest(Base.parse("http://provider"), b"POST", b"/", [], body)
    exchange = PooledExchange(IdleConnection(OutboundWire(ours)), kept.append)

    await exchange.request(outgoing, outgoing.head())

    assert (exchange.status, await exchange.receive(), await exchange.receive()) == (413, b"big", b"")
    assert kept == []
    assert ours.fileno() == -1, "it could not be kept, so it is closed"
