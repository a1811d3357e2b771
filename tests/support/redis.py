"""A real Redis on a port of its own."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import pytest
import trio

from .ports import kept_port

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")

needs_redis = pytest.mark.skipif(BINARY is None, reason="no redis-server: apt install redis-server")


@attrs.define(eq=False)
class RedisServer:
    folder: Path
    port: int
    options: tuple[str, ...] = ("--save", "")
    """Options for the files that it keeps; by default it keeps none."""
    process: trio.Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def start(self) -> None:
        assert BINARY is not None
        self.process = await trio.lowlevel.open_process(
            [BINARY, "--port", f"{self.port}", "--bind", "127.0.0.1", "--dir", f"{self.folder}", *self.options],
            stdout=subprocess.DEVNULL,
        )
        with trio.fail_after(120):
            while True:
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", self.port)
                except OSError:
                    await trio.sleep(0.02)
                    continue
                await stream.aclose()
                return

    async def send(self, *words: str) -> str:
        """Run a command, and return the beginning of its answer."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            await stream.send_all((" ".join(words) + "\r\n").encode())
            return (await stream.receive_some(4_096)).decode()

    async def follow(self, master: RedisServer) -> None:
        """Become a replica, and return once it has what its master has."""
        await self.send("REPLICAOF", "127.0.0.1", f"{master.port}")
        with trio.fail_after(120):
            while "master_link_status:up" not in await self.send("INFO", "replication"):  # noqa: ASYNC110 - Redis tells of it by no event
                await trio.sleep(0.05)

    async def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()


@attrs.define(eq=False)
class StoreAddress:
    """An address that leads to one server, and later to another, as that of a managed store does."""

    url: str
    target: int
    """Port of the server."""
    delay_s: float = 0.0
    """Time by which what the server says is late."""
    _streams: set[trio.SocketStream] = attrs.field(factory=set)

    def switch(self, target: RedisServer) -> None:
        """Lead new connections to another server, and reset those that there are."""
        self.target = target.port
        self.reset()

    def reset(self) -> None:
        """Reset every connection."""
        for stream in list(self._streams):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            trio.lowlevel.notify_closing(stream.socket)
            stream.socket.close()

    async def serve(self, client: trio.SocketStream) -> None:
        """Pass what one client and its server say."""
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self.target)
        except OSError:
            return
        self._streams |= {client, server}

        async def pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                async for data in source:
                    if source is server:
                        await trio.sleep(self.delay_s)
                    await sink.send_all(data)
            nursery.cancel_scope.cancel()

        async with server, trio.open_nursery() as nursery:
            nursery.start_soon(pump, client, server)
            nursery.start_soon(pump, server, client)
        self._streams -= {client, server}


@asynccontextmanager
async def store_address(first: RedisServer) -> AsyncIterator[StoreAddress]:
    """Open an address that leads to a server."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = StoreAddress(f"redis://127.0.0.1:{listeners[0].socket.getsockname()[1]}", first.port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, address.serve, listeners)
        yield address
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def redis_server(folder: Path, *options: str) -> AsyncIterator[RedisServer]:
    with kept_port() as port:
        server = RedisServer(folder, port, options or ("--save", ""))
        await server.start()
        try:
            yield server
        finally:
            with trio.CancelScope(shield=True):
                await server.stop()
