"""`hivemind-trio serve` as the process that an operator starts, read through its standard error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from tests.support.log_lines import unregistered

COMMAND: Final = [sys.executable, "-m", "hivemind_trio", "serve"]

PATIENCE_S: Final = 120
"""For a start on a busy machine; only a test that would otherwise hang for ever meets it."""

CLOSED: Final = "127.0.0.1:1"
"""Where nobody listens."""


def environment(**more: str) -> dict[str, str]:
    """An environment in which no provider is to be found, and `more`."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "PYTHONPATH", "LANG", "XDG_STATE_HOME")
        if name in os.environ
    }
    return {**kept, "OLLAMA_HOST": CLOSED, **more}


@attrs.define(eq=False)
class Proxy:
    """A proxy that runs in a process of its own."""

    process: trio.Process
    lines: list[str] = attrs.field(factory=list)
    """Of standard error, so far."""
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines that are JSON; each is a registered event with its fields."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        assert [wrong for one in found if (wrong := unregistered(one))] == []
        return found

    def of(self, event: str) -> list[dict[str, Any]]:
        """All lines that report it."""
        return [one for one in self.events if one["event"] == event]

    @property
    def url(self) -> str:
        """Its address, as it says."""
        url = self.of("serving")[0]["address"]
        assert isinstance(url, str)
        return url

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def says(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait for a JSON line; the last of them."""
        await self.until(lambda: len(self.of(event)) >= times)
        return self.of(event)[times - 1]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about its lines is true; the failure shows them."""
        with trio.move_on_after(PATIENCE_S):
            while not holds():
                await self._changed.wait()
        assert holds(), self.lines

    async def ended(self) -> int:
        """Wait for its end; the exit status."""
        with trio.fail_after(PATIENCE_S):
            return await self.process.wait()

    async def read(self) -> None:
        """Collect standard error until either side closes it."""
        assert self.process.stderr is not None
        rest = b""
        with suppress(trio.ClosedResourceError):
            async for data in self.process.stderr:
                *whole, rest = (rest + data).split(b"\n")
                self.lines += [line.decode() for line in whole]
                self._changed.set()
                self._changed = trio.Event()

    async def close(self) -> None:
        """Read no more of standard error, and let the process feel it."""
        assert self.process.stderr is not None
        await self.process.stderr.aclose()


@asynccontextmanager
async def serving(
    *arguments: str | Path,
    log: str | None = "json",
    listen: str = "127.0.0.1:0",
    env: Mapping[str, str] | None = None,
    serve: Sequence[str] = COMMAND,
) -> AsyncIterator[Proxy]:
    """Start it and wait until it serves. Whatever happens, it is gone afterwards."""
    command = [*serve, *map(str, arguments), *(["--log-format", log] if log is not None else [])]
    command += ["--listen", listen] if listen else []
    process = await trio.lowlevel.open_process(
        command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment(**(env or {}))
    )
    try:
        async with trio.open_nursery() as nursery:
            proxy = Proxy(process)
            nursery.start_soon(proxy.read)
            await proxy.until(lambda: any("serving" in line for line in proxy.lines))
            yield proxy
            nursery.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_S):
            await process.wait()
        if process.stderr is not None:
            await process.stderr.aclose()


async def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Start it where it should end by itself; exit status, standard output, standard error."""
    with trio.fail_after(PATIENCE_S):
        ended = await trio.run_process(
            [*COMMAND, *map(str, arguments)],
            check=False,
            capture_stdout=True,
            capture_stderr=True,
            env=environment(**(env or {})),
        )
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()
