"""`hivemind-trio serve`: from arguments to exit status, with signals and reload."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Protocol

import trio

from hivemind_trio.admin import JobDesk, PolicyKeeper
from hivemind_trio.host.start_signals import StartSignals
from hivemind_trio.model import SecretRef
from hivemind_trio.policy import Program
from hivemind_trio.proxy import CallRecord
from hivemind_trio.runtime import Reloader
from hivemind_trio.store import Journal, SqliteStore, policy_key

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


class ServedJobs(JobDesk, Protocol):
    """Jobs of agents, as the proxy that serves needs them."""

    def record(self, call: CallRecord) -> None:
        """Count a call that is over, if a job made it."""

    def load(self, program: Program) -> None:
        """Take over a new policy."""

    def stop_starting(self) -> None:
        """Start no job any more."""


OpenJobs = Callable[
    [ProxyServer, str, Callable[[], Mapping[SecretRef, str]], Callable[[str], None]],
    AbstractAsyncContextManager[ServedJobs],
]
"""Opens what runs the jobs of agents.

Given are the proxy, a name for its file, what gives the secrets in force, and what is told why jobs cannot be kept.
"""


def main(options: Options, open_jobs: OpenJobs | None = None) -> int:
    """Serve until told to stop; the exit status.

    Args:
        options: As on the command line.
        open_jobs: Runs the jobs of agents (`jobs` of the policy); None: none are run.
    """
    with StartSignals.kept() as start_signals:
        return trio.run(_serve, options, open_jobs, start_signals)


async def _serve(options: Options, open_jobs: OpenJobs | None, start_signals: StartSignals) -> int:
    try:
        launch = await Launch.prepare(options, sys.stderr)
        workers = worker_count(options, launch.loaded.program)
        if workers > 1:
            problem = unshared(launch.loaded.program)
            if problem:
                raise NotStarted(refuse(problem))
            return await supervise(launch, workers, start_signals)
        async with AsyncExitStack() as stack:
            state, journal = await launch.open_files(stack)
            # Heeded from before it says that it serves: whoever reads that line may send one at once.
            signals = stack.enter_context(start_signals.heeded())
            shared = await launch.open_shared(stack)
            jobs: list[ServedJobs] = []

            def over(record: CallRecord) -> None:
                launch.watcher.call(record)
                for one in jobs:
                    one.record(record)

            house = await stack.enter_async_context(launch.open_house(state, journal, over, shared))
            if open_jobs is not None:
                jobs.append(await stack.enter_async_context(_jobs(launch, house, open_jobs)))
            keeper = await stack.enter_async_context(launch.open_control(house, journal, *jobs))
            settle_memory()
            launch.watcher.say_start(house, launch.loaded, launch.found)
            await _run(launch, house, keeper, signals, state, journal, jobs)
    except NotStarted as error:
        return error.status
    return EXIT_OK


def _jobs(launch: Launch, house: ProxyServer, open_jobs: OpenJobs) -> AbstractAsyncContextManager[ServedJobs]:
    """Run jobs of agents, in a file that is that of the policy."""
    name = f"serve-{policy_key(launch.options.policy, house.address[1])}"
    return open_jobs(
        house, name, lambda: (launch.watcher.running or launch.loaded).secrets, launch.watcher.jobs_trouble
    )


async def _run(
    launch: Launch,
    house: ProxyServer,
    keeper: PolicyKeeper,
    signals: AsyncIterator[int],
    state: SqliteStore | None,
    journal: Journal | None,
    jobs: Sequence[ServedJobs],
) -> None:
    """Serve, and reload, until a signal."""
    log, notices, watcher = launch.log, launch.notices, launch.watcher
    async with trio.open_nursery() as nursery:

        def take(new: Loaded) -> None:
            watcher.take(house, new, nursery)
            for one in jobs:
                one.load(house.engine.program)

        reloader = Reloader(
            launch.read,
            take,
            watcher.keep,
            launch.own_files(state, journal),
        )
        keeper.reload = reloader.reload
        nursery.start_soon(notices.run)
        nursery.start_soon(Standstills(log, house.providers.silences).run, house.engine)
        nursery.start_soon(reloader.run, launch.loaded)
        number = await _until_told(signals, reloader, log)
        for one in jobs:
            one.stop_starting()
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
    if patience.cancelled_caught:
        log.emit(DrainTimedOut(cut_off=house.engine.snapshot().inflight))
        await house.cut_off()
    notices.flush(everything=True)
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
