"""Processes of jobs: each leads a process group of its own, which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import trio

from .output import BoundedFile

GRACE_S: Final = 10.0
"""Time between SIGTERM and SIGKILL."""
DRAIN_S: Final = 1.0
"""Time for output that comes after the process, from what it has left behind."""
READ_BYTES: Final = 65_536


class Spawn(Protocol):
    """Way to run a command, as `run_process` does."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        out: BoundedFile,
        err: BoundedFile,
        on_started: Callable[[int], None],
    ) -> int:
        """Run a command to its end; return its exit status."""


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    out: BoundedFile,
    err: BoundedFile,
    on_started: Callable[[int], None],
) -> int:
    """Run a command to its end; return its exit status, or the negative number of the signal that ended it.

    Cancelled, it ends the process group: SIGTERM, and SIGKILL after some seconds.

    Args:
        argv: Program and arguments; no shell.
        cwd: Folder that it runs in.
        environment: All variables.
        out: Takes its standard output.
        err: Takes its standard error.
        on_started: Told the process id, which is that of the group.

    Raises:
        OSError: It cannot be started.
    """
    process = await trio.lowlevel.open_process(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=dict(environment),
        start_new_session=True,
    )
    on_started(process.pid)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_copy, process.stdout, out)
            nursery.start_soon(_copy, process.stderr, err)
            await process.wait()
            # A server that it has started may hold the pipes for good.
            nursery.cancel_scope.deadline = trio.current_time() + DRAIN_S
    finally:
        with trio.CancelScope(shield=True):
            await _end_group(process)
            await process.stdout.aclose()
            await process.stderr.aclose()
    assert process.returncode is not None
    return process.returncode


async def _copy(stream: trio.abc.ReceiveStream, file: BoundedFile) -> None:
    async with stream:
        async for piece in stream:
            file.write(bytes(piece))


async def _end_group(process: trio.Process) -> None:
    _signal_group(process.pid, signal.SIGTERM)
    with trio.move_on_after(GRACE_S):
        await process.wait()
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left in it


def birth(pid: int) -> str:
    """Return a word that tells the process from a later one with its id; empty: there is none."""
    try:
        # The name of the program is in parentheses, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        seen = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607 - `ps` of the path, of a number
        return seen.stdout.strip()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


async def end_leftover(pid: int, born: str) -> bool:
    """End the process group of a run that was killed; return whether it was still there."""
    if not pid or not born or birth(pid) != born:
        return False
    _signal_group(pid, signal.SIGTERM)
    with trio.move_on_after(GRACE_S):
        while birth(pid) == born:  # noqa: ASYNC110 - no child of ours: nothing tells of its end
            await trio.sleep(0.05)
    _signal_group(pid, signal.SIGKILL)
    return True
