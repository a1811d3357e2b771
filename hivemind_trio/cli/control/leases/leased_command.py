"""A command that runs while it holds a lease: its process group, its signals, and its end when the lease is lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import click
import trio

from hivemind_trio.control import HeldSession, WaitListener, held_lease

EXIT_LOST: Final = 76
GRACE_S: Final = 10.0
"""Time between SIGTERM and SIGKILL for a command whose lease is lost."""
PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


async def run_leased(
    where: Callable[[], str],
    body: dict[str, Any],
    command: Sequence[str],
    *,
    on_wait: WaitListener,
    on_lease: Callable[[dict[str, Any]], object],
    keeps_running: bool,
) -> int:
    """Wait for a lease, run a command with it, and return the exit status.

    Args:
        where: Finds the proxy.
        body: The request for the lease.
        command: Empty: hold the lease until a signal.
        on_wait: Told the place in line.
        on_lease: Told the lease once it is granted.
        keeps_running: Warn instead of ending the command if the lease is lost.
    """
    async with held_lease(where, body, on_wait) as session:
        on_lease(session.lease)
        if command:
            return await _run(session, command, keeps_running=keeps_running)
        return await _hold(session)


async def _hold(session: HeldSession) -> int:
    with trio.open_signal_receiver(*PASSED_ON) as signals:
        async with trio.open_nursery() as nursery:
            got: list[int] = []

            async def heed() -> None:
                async for number in signals:
                    got.append(number)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(heed)
            await session.lost.wait()
            nursery.cancel_scope.cancel()
    if got:
        return 0
    _say_lost(session)
    return EXIT_LOST


async def _run(session: HeldSession, command: Sequence[str], *, keeps_running: bool) -> int:
    held = session.lease
    environment = {
        **os.environ,
        "HIVEMIND_LEASE": held["lease"],
        "HIVEMIND_FENCE": str(held["fence"]),
        "HIVEMIND_RESOURCE": held["resource"],
    }
    with trio.open_signal_receiver(*PASSED_ON) as signals:
        try:
            process = await trio.lowlevel.open_process(
                list(command), stdin=None, stdout=None, stderr=None, env=environment, process_group=0
            )
        except OSError as error:
            click.echo(f"hivemind-trio: {command[0]}: {error.strerror or error}", err=True)
            return 127 if isinstance(error, FileNotFoundError) else 126
        lost = False
        try:
            with _in_foreground(process.pid):
                async with trio.open_nursery() as nursery:

                    async def pass_on() -> None:
                        async for number in signals:
                            _signal_group(process.pid, number)

                    async def end_when_lost() -> None:
                        nonlocal lost
                        await session.lost.wait()
                        _say_lost(session)
                        if keeps_running:
                            return
                        lost = True
                        _signal_group(process.pid, signal.SIGTERM)
                        await trio.sleep(GRACE_S)
                        _signal_group(process.pid, signal.SIGKILL)

                    nursery.start_soon(pass_on)
                    nursery.start_soon(end_when_lost)
                    status = await process.wait()
                    nursery.cancel_scope.cancel()
        except BaseException:
            _signal_group(process.pid, signal.SIGKILL)
            raise
    if lost:
        # Its children would go on with what is another's now.
        _signal_group(process.pid, signal.SIGKILL)
        return EXIT_LOST
    return status if status >= 0 else 128 - status


def _say_lost(session: HeldSession) -> None:
    click.echo(f"hivemind-trio: lease {session.lease['lease']} is lost: {session.why}", err=True)


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@contextmanager
def _in_foreground(group: int) -> Iterator[None]:
    """Give a process group the terminal within the context, if it is ours to give: so its keys reach the command."""
    try:
        terminal = sys.stdin.fileno()
        is_ours = os.isatty(terminal) and os.tcgetpgrp(terminal) == os.getpgrp()
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        yield
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with suppress(OSError):
            os.tcsetpgrp(terminal, group)
            os.killpg(group, signal.SIGCONT)  # it may have read before the terminal was its own
        yield
    finally:
        with suppress(OSError):
            os.tcsetpgrp(terminal, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
