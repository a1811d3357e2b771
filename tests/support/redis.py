"""A real Redis on a port of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")

needs_redis = pytest.mark.skipif(BINARY is None, reason="no redis-server: apt install redis-server")


@attrs.define(eq=False)
class RedisServer:
    folder: Path
    port: int
    process: trio.Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def start(self) -> None:
        assert BINARY is not None
        self.process = await trio.lowlevel.open_process(
            [BINARY, "--port", f"{self.port}", "--bind", "127.0.0.1", "--save", "", "--dir", f"{self.folder}"],
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

    async def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[RedisServer]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = RedisServer(folder, port)
    await server.start()
    try:
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.stop()
