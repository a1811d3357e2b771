"""`hivemind-trio serve`: from arguments to exit status, with signals and reload."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import trio

from hivemind_trio.admin import PolicyKeeper
from hivemind_trio.runtime import Reloader
from hivemind_trio.store import Journal

from .assembly import ProxyServer, settle_memory
from .events import (
    DrainStarted,
    DrainTimedOut,
    ReloadRequested,
    ServingStopped,
    StopForced,
)
from .launch import EXIT_OK, Launch, NotStarted, refuse
from .load import Loaded
from .log import EventLog, Notices
from .options import Options, unshared, worker_count
from .standstill_log import Standstills
from .workers.supervisor import supervise

SECOND_NS: Final = 1_000_000_000


def main(options: Options) -> int:
    """Serve until told to stop; the exit status."""
    return trio.run(_serve, options)


async def _serve(options: Options) -> int:
    try:
        launch = await Launch.prepare(options, sys.stderr)
        workers = worker_count(options, launch.loaded.program)
        if workers > 1:
            problem = unshared(launch.loaded.program)
            if problem:
                raise NotStarted(refuse(problem))
            return await supervise(launch, workers)
        async with AsyncExitStack() as stack:
            state, journal = await launch.open_files(stack)
            # Heeded from before it says that it serves: whoever reads that line may send one at once.
            signals = stack.enter_context(trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
            shared = await launch.open_shared(stack)
            house = await stack.enter_async_context(launch.open_house(state, journal, shared=shared))
            keeper = await stack.enter_async_context(launch.open_control(house, journal))
            settle_memory()
            launch.watcher.say_start(house, launch.loaded, launch.found)
            await _run(launch, house, keeper, signals, journal)
    except NotStarted as error:
        return error.status
    return EXIT_OK


async def _run(
    launch: Launch, house: ProxyServer, keeper: PolicyKeeper, signals: AsyncIterator[int], journal: Journal | None
) -> None:
    """Serve, and reload, until a signal."""
    log, notices, watcher = launch.log, launch.notices, launch.watcher
    async with trio.open_nursery() as nursery:
        reloader = Reloader(
            launch.read,
            lambda new: watcher.take(house, new, nursery),
            watcher.keep,
        )
        keeper.reload = reloader.reload
        nursery.start_soon(notices.run)
        nursery.start_soon(Standstills(log).run, house.engine)
        nursery.start_soon(reloader.run, launch.loaded)
        number = await _until_told(signals, reloader, log)
        nursery.start_soon(_at_once, signals, log, journal)
        await _drain(house, notices, log, number)
        nursery.cancel_scope.cancel()


async def _until_told(signals: AsyncIterator[int], reloader: Reloader[Loaded], log: EventLog) -> int:
    """Reload at SIGHUP; return the first signal to stop."""
    async for number in signals:
        if number != signal.SIGHUP:
            return number
        log.emit(ReloadRequested(signal=_signal_name(number)))
        reloader.trigger()
    raise AssertionError("the signals of a process do not end")


async def _drain(house: ProxyServer, notices: Notices, log: EventLog, number: int) -> None:
    """Let what is in flight end, for as long as the policy says."""
    at_most_s = house.engine.program.server.drain_ns / SECOND_NS
    in_flight = house.engine.snapshot().inflight
    log.emit(DrainStarted(signal=_signal_name(number), in_flight=in_flight, timeout_s=at_most_s))
    with trio.move_on_after(at_most_s) as patience:
        await house.drain()
    notices.flush(everything=True)
    if patience.cancelled_caught:
        log.emit(DrainTimedOut(cut_off=house.engine.snapshot().inflight))
    log.emit(ServingStopped())


async def _at_once(signals: AsyncIterator[int], log: EventLog, journal: Journal | None) -> None:
    """End the process at a second signal to stop, whatever is still in progress."""
    async for number in signals:
        if number != signal.SIGHUP:
            unwritten = journal.unwritten if journal is not None else 0
            log.emit(StopForced(signal=_signal_name(number), not_in_journal=unwritten or None))
            os._exit(128 + number)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name
