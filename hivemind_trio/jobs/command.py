"""`hivemind-trio run`: from arguments to exit status."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final, final

import attrs
import trio
from rich.console import Console

from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve import Found, Launch, NotStarted, Options

from .adapters import ADAPTERS, NAMED, adapter_of
from .display import Display, LineDisplay, LiveDisplay, QuietDisplay, print_continued, print_json, print_summary
from .job import JobState
from .job_proxy import JobProxy, OwnProxy, RemoteProxy
from .run_file import RunFile, RunFileError, RunSettings, runs
from .runner import Runner
from .task import Task, TaskError, from_arguments, from_text

EXIT_DONE: Final = 0
EXIT_NOT_DONE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

LATEST: Final = "last"


@final
@attrs.frozen(kw_only=True)
class RunOptions:
    """Options of the command line."""

    command: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    """Arguments after each `:::`."""
    tasks: tuple[str, str] | None = None
    """Name and text of a list of tasks."""
    continues: str | None = None
    """Name of a run to go on with, or `last`."""
    retries_failed: bool = False
    settings: RunSettings | None = None
    """None: the run that it continues has them."""
    as_json: bool = False
    allow_include: tuple[str, ...] = ()
    color: bool = False


def main(options: RunOptions) -> int:
    """Run jobs to their ends; the exit status."""
    try:
        file = _open(options)
    except (TaskError, RunFileError) as error:
        return _refuse(f"{error}", error.help)
    try:
        return trio.run(_run, options, file)
    except NotStarted as error:
        if not options.continues:
            shutil.rmtree(file.path.parent)
        return error.status
    finally:
        file.close()


def _open(options: RunOptions) -> RunFile:
    if options.continues is not None:
        name = options.continues
        if name == LATEST:
            known = runs()
            if not known:
                raise RunFileError("there is no run to continue", "start one: hivemind-trio run -- claude -p fix")
            name = known[0]
        file = RunFile.open(name)
        if file.settings.is_served:
            file.close()
            hint = "they go on when `hivemind-trio serve` runs the policy"
            raise RunFileError(f"the jobs of `{name}` are those of a proxy's agents", hint)
        for job in file.jobs:
            if options.retries_failed and job.state in (JobState.FAILED, JobState.BLOCKED):
                job.state, job.crashes, job.limits = JobState.WAITING, 0, 0
                file.save(job)
        return file
    began_s = time.time()  # noqa: TID251 - runs are compared with the clock on the wall
    name = f"{datetime.fromtimestamp(began_s):%Y%m%d-%H%M%S}-{os.getpid()}"
    assert options.settings is not None
    return RunFile.create(name, began_s, os.getcwd(), options.settings, _tasks(options, options.settings))


def _tasks(options: RunOptions, settings: RunSettings) -> list[Task]:
    if options.tasks is not None:
        where, text = options.tasks
        return from_text(text, options.command, _default(settings.adapter), where)
    return from_arguments(options.command, options.groups)


def _default(adapter: str) -> tuple[str, ...]:
    """Return the command of tasks that have none: that of the named agent, or of the first that is installed."""
    if adapter:
        return NAMED[adapter].default
    return next((one.default for one in ADAPTERS if any(map(shutil.which, one.programs))), ADAPTERS[0].default)


async def _run(options: RunOptions, file: RunFile) -> int:
    clock: Callable[[], float] = time.time  # noqa: TID251 - limits open by the clock on the wall
    console = Console(
        file=sys.stderr,
        color_system="auto" if options.color else None,
        no_color=not options.color,
        highlight=False,
    )
    display: Display
    if options.as_json:
        display = QuietDisplay()
    elif console.is_interactive:
        display = LiveDisplay(console, file, clock)
    else:
        display = LineDisplay(console, clock)
    runner: Runner | None = None

    def called(job: str) -> None:
        if runner is not None:
            runner.called(job)

    interrupted: list[int] = []
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with _proxy(options, file, clock, called) as proxy, trio.open_nursery() as nursery:
            runner = Runner(file, proxy, display, lambda: dict(os.environ), clock)
            if options.continues is not None and not options.as_json:
                print_continued(console, file)
            nursery.start_soon(display.watch)
            nursery.start_soon(partial(_heed, signals, runner, interrupted, quiet=options.as_json))
            await runner.run()
            nursery.cancel_scope.cancel()
    if options.as_json:
        print_json(file, clock())
    else:
        print_summary(console, file, clock())
    if all(job.state is JobState.DONE for job in file.jobs):
        return EXIT_DONE
    return EXIT_INTERRUPTED if interrupted else EXIT_NOT_DONE


@asynccontextmanager
async def _proxy(
    options: RunOptions, file: RunFile, clock: Callable[[], float], called: Callable[[str], None]
) -> AsyncIterator[JobProxy]:
    """Serve on a free loopback port within the context, or use the proxy that the run was given."""
    settings = file.settings
    if settings.proxy is not None:
        yield RemoteProxy(settings.proxy.rstrip("/"))
        return
    providers = _providers(file)
    serving = Options(
        policy=settings.policy,
        listen="127.0.0.1:0",
        allow_include=options.allow_include,
        state_folder=f"{file.path.parent}" if settings.policy is None else None,
    )
    with (file.path.parent / "proxy.log").open("a") as log:
        launch = await Launch.prepare(serving, log, [Found(name, "jobs call it", ()) for name in providers])
        async with AsyncExitStack() as stack:
            state, journal = await launch.open_files(stack)
            known: list[OwnProxy] = []

            def over(record: CallRecord) -> None:
                launch.watcher.call(record)
                for one in known:
                    one.record(record)

            shared = await launch.open_shared(stack)
            house = await stack.enter_async_context(launch.open_house(state, journal, over, shared))
            await stack.enter_async_context(launch.open_control(house, journal))
            launch.watcher.say_start(house, launch.loaded, launch.found)
            known.append(OwnProxy(house, providers[0] if len(providers) == 1 else "", clock, called))
            yield known[0]


def _providers(file: RunFile) -> list[str]:
    """Return the providers that the agents of the jobs are known to call."""
    named = file.settings.adapter
    adapters = [NAMED[named] if named else adapter_of(job.task.argv) for job in file.jobs]
    return list(dict.fromkeys(one.provider for one in adapters if one.provider))


async def _heed(signals: AsyncIterator[int], runner: Runner, interrupted: list[int], *, quiet: bool) -> None:
    """Stop starting jobs at the first SIGINT, and stop all at a second one, or at SIGTERM."""
    async for number in signals:
        interrupted.append(number)
        if number == signal.SIGTERM or len(interrupted) > 1:
            runner.stop_all("the run was stopped")
            continue
        if not quiet:
            sys.stderr.write("hivemind-trio: no further job starts; once more stops those that run, to be resumed\n")
        runner.stop_starting("interrupted")


def _refuse(message: str, help_text: str) -> int:
    sys.stderr.write(f"hivemind-trio: {message}\n" + (f"  {help_text}\n" if help_text else ""))
    return EXIT_USAGE


def groups_of(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Split a command line at each `:::` into the command and the groups of arguments."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":::":
            parts.append([])
        else:
            parts[-1].append(word)
    return tuple(parts[0]), tuple(map(tuple, parts[1:]))
