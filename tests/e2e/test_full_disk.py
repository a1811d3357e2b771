"""A disk that is full, and one that is read-only: real ones, in a mount namespace of the proxy's own.

The proxy keeps its files on a tmpfs of 2 MB that nobody else has. It is filled, and emptied again, through
`/proc/PID/root`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hivemind_trio.demo import SimulatedProvider
from tests.e2e.control import command, own_runtime
from tests.e2e.process import PATIENCE_S, Proxy, environment

MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]
BODY = {"model": "claude-haiku-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*MOUNTS, "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_mount(), reason="the machine lets nobody mount a tmpfs in a namespace of its own"),
]


@asynccontextmanager
async def serving_from(policy: Path, size: str, disk: Path, *words: str) -> AsyncIterator[tuple[Proxy, Path]]:
    """A proxy whose state directory is a tmpfs, and the path at which others see that."""
    mount = f'mkdir {disk} && mount -t tmpfs -o size={size} tmpfs {disk} && exec "$@"'
    serve = [sys.executable, "-m", "hivemind_trio", "serve", "--policy", str(policy), "--log-format", "json"]
    with own_runtime() as runtime:
        process = await trio.lowlevel.open_process(
            [*MOUNTS, "sh", "-c", mount, "sh", *serve, "--listen", "127.0.0.1:0", *words],
            stderr=subprocess.PIPE,
            env=environment(XDG_STATE_HOME=str(disk), **runtime),
        )
        async with ending(process) as proxy:
            yield proxy, Path(f"/proc/{process.pid}/root{disk}")


@asynccontextmanager
async def ending(process: trio.Process) -> AsyncIterator[Proxy]:
    """A proxy that serves, and is killed afterwards."""
    try:
        async with trio.open_nursery() as nursery:
            proxy = Proxy(process)
            nursery.start_soon(proxy.read)
            await proxy.says("serving")
            yield proxy
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def fill(disk: Path) -> Path:
    """Take all that is left of a disk."""
    filler = disk / "filler"
    file = os.open(filler, os.O_WRONLY | os.O_CREAT)
    size = 1 << 16
    try:
        while size:
            try:
                os.write(file, bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    finally:
        os.close(file)
    return filler


async def ask(url: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        return await client.post("/v1/messages", json=BODY, headers=headers)


async def asked_until(url: str, holds: Callable[[httpx2.Response], Any], **headers: str) -> httpx2.Response:
    """Ask again and again, until an answer is as it should be."""
    with trio.fail_after(PATIENCE_S):
        while True:
            answer = await ask(url, **headers)
            if holds(answer):
                return answer


async def notices(proxy: Proxy) -> set[tuple[str, str]]:
    """Kind and subject of what the status warns of."""
    socket_file = proxy.of("control_opened")[0]["socket"]
    code, shown, _ = await command({}, "status", "--socket", socket_file, "--json")
    assert code == 0
    return {(one["kind"], one["subject"]) for one in json.loads(shown)["notices"]}


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_full_disk_holds_calls_with_a_budget_only_and_says_so(
    tmp_path: Path, provider: SimulatedProvider, workers: int
) -> None:
    policy = tmp_path / "team.hmp"
    policy.write_text(
        f'hmp 1\nprovider sim {{ api generic; base "{provider.url}"; concurrency 4 }}\n'
        'budget metered when header.x-metered == "yes" { requests 10k/day }\n'
    )
    async with serving_from(policy, "4m", tmp_path / "disk", "--workers", f"{workers}") as (proxy, disk):
        assert (await ask(proxy.url, **{"x-metered": "yes"})).status_code == 200
        filler = fill(disk)

        held = await asked_until(proxy.url, lambda answer: answer.status_code != 200, **{"x-metered": "yes"})
        free = await ask(proxy.url)

        assert (held.status_code, held.headers["x-hivemind-reason"]) == (503, "store-unavailable")
        assert int(held.headers["retry-after"]) > 0
        assert free.status_code == 200
        failed = await proxy.says("state_write_failed")
        assert re.search("No space left|disk is full", failed["error"])  # the system's word, or SQLite's
        assert failed["file"].endswith("state.db")
        await proxy.says("journal_write_failed", times=workers)
        assert await notices(proxy) == {("disk", "state"), ("disk", "journal")}

        filler.unlink()

        await asked_until(proxy.url, lambda answer: answer.status_code == 200, **{"x-metered": "yes"})
        assert (await proxy.says("state_write_recovered"))["file"] == failed["file"]
        await proxy.says("journal_write_recovered", times=workers)
        assert await notices(proxy) == set()
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0


async def test_a_read_only_disk_stops_a_policy_with_a_budget_and_says_what_to_do(tmp_path: Path) -> None:
    policy = tmp_path / "team.hmp"
    policy.write_text(
        'hmp 1\nprovider sim { api generic; base "http://127.0.0.1:1" }\nbudget calls { requests 10k/day }\n'
    )
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o ro tmpfs {disk} && exec "$@"'
    serve = [sys.executable, "-m", "hivemind_trio", "serve", "--policy", str(policy), "--listen", "127.0.0.1:0"]
    with trio.fail_after(PATIENCE_S):
        ended = await trio.run_process(
            [*MOUNTS, "sh", "-c", mount, "sh", *serve],
            check=False,
            capture_stderr=True,
            env=environment(XDG_STATE_HOME=str(disk)),
        )

    assert ended.returncode == 2
    said = ended.stderr.decode()
    assert "Read-only file system" in said
    assert "store memory" in said


async def test_a_lease_that_waits_for_the_disk_says_so(tmp_path: Path) -> None:
    policy = tmp_path / "team.hmp"
    policy.write_text('hmp 1\nprovider sim { api generic; base "http://127.0.0.1:1" }\nresource gpu { }\n')

    async def wait(holds: Callable[[tuple[int, str, str]], Any], *words: str) -> tuple[int, str, str]:
        """Repeat a command until its end is as it should be."""
        with trio.fail_after(PATIENCE_S):
            while not holds(ended := await command({}, *words)):
                pass
        return ended

    async with serving_from(policy, "4m", tmp_path / "disk") as (proxy, disk):
        where = "--socket", proxy.of("control_opened")[0]["socket"]
        lease = "lease", *where, "--agent", "a"
        filler = fill(disk)
        _, _, error = await wait(lambda ended: ended[0] == 75, *lease, "--wait", "4s", "gpu", "true")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(command, {}, *lease, "--wait", f"{PATIENCE_S}s", "gpu", "true")
            _, shown, _ = await wait(lambda ended: "not given yet" in ended[1], "lease", *where)
            _, status, _ = await command({}, "status", *where)
            filler.unlink()
        assert (await command({}, *lease, "gpu", "true"))[0] == 0
        _, after, _ = await command({}, "lease", *where)

    said = "no lease is given while leases cannot be written to disk ("
    assert f"waiting for `gpu`: {said}" in error
    assert "no lease of `gpu` could be written to disk in time" in error
    assert "next in line" not in error
    assert said in shown
    assert said in " ".join(status.split())
    assert "written" not in after
