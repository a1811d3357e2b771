"""Display of a run: a table that is drawn anew on a terminal, plain lines elsewhere, and a summary."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol, final

import attrs
import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hivemind_trio.policy import visible

from .gate import Hold
from .job import ENDED, Job, JobState
from .run_file import RunFile

REFRESH_S: Final = 0.5
FORMAT_VERSION: Final = 1
CONTINUED_SHOWN: Final = 20
STYLES: Final = {
    JobState.RUNNING: "cyan",
    JobState.PARKED: "yellow",
    JobState.STOPPED: "yellow",
    JobState.DONE: "green",
    JobState.FAILED: "red",
    JobState.BLOCKED: "red",
    JobState.CANCELLED: "red",
}
ROW_ORDER: Final = (
    *(JobState.RUNNING, JobState.PARKED, JobState.FAILED, JobState.BLOCKED),
    *(JobState.CANCELLED, JobState.STOPPED, JobState.WAITING, JobState.DONE),
)
"""Order in which jobs get the rows of a small terminal."""


class Display(Protocol):
    """Display of a run."""

    def changed(self, job: Job) -> None:
        """Note that a job has another state."""

    def holds(self, hold: Hold | None) -> None:
        """Note why no further job starts; None: one may."""

    async def watch(self) -> None:
        """Show the run until cancelled."""


@final
class QuietDisplay:
    """Shows nothing while the run goes on."""

    def changed(self, job: Job) -> None:
        """Do nothing."""

    def holds(self, hold: Hold | None) -> None:
        """Do nothing."""

    async def watch(self) -> None:
        """Wait until cancelled."""
        await trio.sleep_forever()


@final
@attrs.define(eq=False)
class LineDisplay:
    """A line for each change, for pipes and logs."""

    console: Console
    clock: Callable[[], float]
    _held: str = attrs.field(default="", init=False)

    def changed(self, job: Job) -> None:
        """Print the change."""
        if job.state is JobState.RUNNING and not job.pid:
            return  # it is said once it has a process
        doing = f"{job.state}"
        if job.state is JobState.RUNNING:
            doing = "started" if job.starts == 1 else f"resumed (start {job.starts})"
        until = f", until {_clock(job.opens_s)}" if job.state is JobState.PARKED and job.opens_s is not None else ""
        why = f": {visible(job.reason)}" if job.reason else ""
        self._print(f"{job.id} {doing}{until}{why}")

    def holds(self, hold: Hold | None) -> None:
        """Print why no further job starts, if that is news and takes long."""
        reason = hold.reason if hold is not None and hold.until_s is not None else ""
        if reason == self._held:
            return
        self._held = reason
        if hold is not None and hold.until_s is not None and hold.until_s - self.clock() > 2:
            self._print(f"no job starts before {_clock(hold.until_s)}: {reason}")

    async def watch(self) -> None:
        """Wait until cancelled: changes are printed as they come."""
        await trio.sleep_forever()

    def _print(self, line: str) -> None:
        self.console.print(Text(f"{_clock(self.clock())} {line}"), soft_wrap=True)


@final
@attrs.define(eq=False)
class LiveDisplay:
    """A table of the jobs on a terminal."""

    console: Console
    file: RunFile
    clock: Callable[[], float]
    _hold: Hold | None = attrs.field(default=None, init=False)

    def changed(self, job: Job) -> None:
        """Do nothing: the table is drawn from the jobs."""

    def holds(self, hold: Hold | None) -> None:
        """Remember why no further job starts."""
        self._hold = hold

    async def watch(self) -> None:
        """Draw the table again and again until cancelled."""
        with Live(console=self.console, auto_refresh=False, transient=True) as screen:
            while True:
                screen.update(self._picture(), refresh=True)
                await trio.sleep(REFRESH_S)

    def _picture(self) -> Group:
        now_s, jobs = self.clock(), self.file.jobs
        rows = max(3, self.console.height - 5)
        shown = sorted(jobs, key=lambda job: ROW_ORDER.index(job.state))[:rows]
        table = jobs_table(sorted(shown, key=lambda job: job.number), now_s)
        below = [Text(_counts(jobs))]
        if len(jobs) > len(shown):
            below[0].append(f"; {len(jobs) - len(shown)} not shown")
        if self._hold is not None:
            until = f" until {_clock(self._hold.until_s)}" if self._hold.until_s is not None else ""
            below.append(Text(f"no further start{until}: {self._hold.reason}"))
        return Group(table, *below)


def jobs_table(jobs: list[Job], now_s: float) -> Table:
    """Return the table of jobs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("calls", "tokens", "cost", "waited", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="ellipsis", no_wrap=True)
    for job in jobs:
        running_s = job.ran_s
        if job.state is JobState.RUNNING and job.began_s is not None:
            running_s = max(running_s, now_s - job.began_s - job.parked_s)
        why = job.reason
        if job.state is JobState.PARKED and job.opens_s is not None:
            why = f"until {_clock(job.opens_s)}: {why}"
        table.add_row(
            job.id,
            Text(f"{job.state}", style=STYLES.get(job.state, "")),
            f"{job.calls:,}",
            f"{job.tokens:,}",
            f"${job.cost_microusd / 1e6:,.2f}",
            _span(job.waited_s),
            _span(running_s),
            Text(visible(why)),
        )
    return table


def summary(file: RunFile, now_s: float) -> dict[str, Any]:
    """Return the run as JSON has it."""
    jobs = file.jobs
    return {
        "format_version": FORMAT_VERSION,
        "run": file.name,
        "seconds": round(now_s - file.began_s, 3),
        "counts": {state.value: count for state, count in Counter(job.state for job in jobs).items()},
        "calls": sum(job.calls for job in jobs),
        "tokens": sum(job.tokens for job in jobs),
        "cost_usd": round(sum(job.cost_microusd for job in jobs) / 1e6, 6),
        "waited_s": round(sum(job.waited_s for job in jobs), 3),
        "parked_s": round(sum(job.parked_s for job in jobs), 3),
        "jobs": [
            {
                "id": job.id,
                "state": job.state.value,
                "reason": job.reason,
                "session": job.session,
                "place": os.path.join(file.folder, job.task.cwd or ""),
                "starts": job.starts,
                "seconds": round(job.ran_s, 3),
                "parked_s": round(job.parked_s, 3),
                "waited_s": round(job.waited_s, 3),
                "calls": job.calls,
                "tokens": job.tokens,
                "cost_usd": round(job.cost_microusd / 1e6, 6),
                "opens": None if job.opens_s is None else datetime.fromtimestamp(job.opens_s).astimezone().isoformat(),
                "out": f"{file.output(job, 'out')}",
                "err": f"{file.output(job, 'err')}",
            }
            for job in jobs
        ],
    }


def print_continued(console: Console, file: RunFile) -> None:
    """Print the jobs that a continued run goes on with: the place and the session of each, and why it was stopped."""
    left = [job for job in file.jobs if job.state not in ENDED]
    console.print(Text(f"run {file.name} goes on with {len(left)} of {len(file.jobs)} jobs"), soft_wrap=True)
    for job in left[:CONTINUED_SHOWN]:
        session = f", session {job.session}" if job.session else ""
        why = job.reason or ("the run was killed" if job.state is JobState.RUNNING else "it has not begun")
        place = os.path.join(file.folder, job.task.cwd or "")
        console.print(Text(visible(f"  {job.id} in {place}{session}: {why}")), soft_wrap=True)
    if len(left) > CONTINUED_SHOWN:
        console.print(Text(f"  and {len(left) - CONTINUED_SHOWN} more: hivemind-trio jobs show {file.name}"))


def print_summary(console: Console, file: RunFile, now_s: float) -> None:
    """Print the final table, and how to go on."""
    jobs = file.jobs
    console.print(jobs_table(jobs, now_s))
    tokens, cost = sum(job.tokens for job in jobs), sum(job.cost_microusd for job in jobs) / 1e6
    waited, parked = sum(job.waited_s for job in jobs), sum(job.parked_s for job in jobs)
    console.print(
        Text(
            f"{_counts(jobs)}; {tokens:,} tokens, ${cost:,.2f}, {_span(waited)} in line, {_span(parked)} parked, "
            f"{_span(now_s - file.began_s)} in all"
        ),
        soft_wrap=True,
    )
    console.print(Text(f"output: {file.path.parent}"), soft_wrap=True)
    if any(job.state not in ENDED for job in jobs):
        console.print(Text(f"go on with: hivemind-trio run --continue {file.name}"), soft_wrap=True)
    elif any(job.state in (JobState.FAILED, JobState.BLOCKED) for job in jobs):
        console.print(Text(f"try again with: hivemind-trio run --continue {file.name} --retry-failed"), soft_wrap=True)


def print_json(file: RunFile, now_s: float) -> None:
    """Print the run as JSON on standard output."""
    json.dump(summary(file, now_s), sys.stdout, indent=2)
    sys.stdout.write("\n")


def _counts(jobs: list[Job]) -> str:
    counts = Counter(job.state for job in jobs)
    told = ", ".join(f"{counts[state]} {state}" for state in JobState if counts[state])
    return f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}: {told}"


def _clock(time_s: float | None) -> str:
    if time_s is None:
        return ""
    when, today = datetime.fromtimestamp(time_s), datetime.now()
    return f"{when:%H:%M:%S}" if when.date() == today.date() else f"{when:%Y-%m-%d %H:%M}"


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60:02} min"
