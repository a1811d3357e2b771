"""`hivemind-trio jobs`."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from hivemind_trio.cli.console import color_option, fail, wants_color
from hivemind_trio.cli.policy_files import allowed_folders
from hivemind_trio.cli.table import aligned

if TYPE_CHECKING:
    from hivemind_trio.jobs import RunOverview

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  hivemind-trio jobs                     the runs of `hivemind-trio run`, the latest first
  hivemind-trio jobs show last           the jobs of a run: state, place, session and reason
  hivemind-trio jobs resume last         go on with what is not done, each job in its session""",
)
@_json
@click.pass_context
def jobs(context: click.Context, as_json: bool) -> None:
    """Show the runs and their jobs, and resume them."""
    if context.invoked_subcommand is not None:
        return
    from hivemind_trio.jobs import overviews

    found, wrong = overviews()
    for error in wrong:
        click.echo(f"hivemind-trio: {error}", err=True)
    if as_json:
        click.echo(json.dumps({"format_version": 1, "runs": [one.as_json(with_jobs=False) for one in found]}, indent=2))
    elif not found:
        click.echo("no runs")
    else:
        _table([("run", "began", "jobs", "folder"), *map(_run_row, found)])


@jobs.command(
    epilog="""\b
Examples:
  hivemind-trio jobs show last
  hivemind-trio jobs show 20261123-160409-4711 --json"""
)
@click.argument("run")
@_json
def show(run: str, as_json: bool) -> None:
    """Show the jobs of a run: state, place, session and reason."""
    from hivemind_trio.jobs import RunFileError, overview

    try:
        found = overview(run)
    except RunFileError as error:
        fail(f"{error}", hint=error.help)
    if as_json:
        click.echo(json.dumps({"format_version": 1, **found.as_json(with_jobs=True)}, indent=2))
        return
    click.echo(f"run {found.name}, {'in progress' if found.in_progress else 'not in progress'}\n")
    rows: list[tuple[str, ...]] = [("job", "state", "place", "session", "reason")]
    for job in found.jobs:
        until = f"until {_local(job.opens_s)}: " if job.state == "parked" and job.opens_s is not None else ""
        rows.append((job.id, job.state, found.place(job), job.session or "-", f"{until}{job.reason}"))
    _table(rows)
    by_hand = [line for job in found.resumable if (line := found.by_hand(job))]
    if found.is_served:
        if not found.in_progress and found.resumable:
            click.echo("\nthey go on when `hivemind-trio serve` runs the policy again")
    elif found.resumable:
        click.echo(f"\ngo on with: hivemind-trio jobs resume {found.name}")
    elif any(job.state in ("failed", "blocked") for job in found.jobs) and not found.in_progress:
        click.echo(f"\ntry again with: hivemind-trio jobs resume {found.name} --retry-failed")
    if by_hand:
        click.echo("or one by hand:")
        _table([("  " + line,) for line in by_hand])


@jobs.command(
    epilog="""\b
Examples:
  hivemind-trio jobs resume last
  hivemind-trio jobs resume last --retry-failed      jobs that have failed, too

\b
The same as `hivemind-trio run --continue RUN`."""
)
@click.argument("run")
@click.option("--retry-failed", is_flag=True, help="Run jobs again that have failed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and no progress.")
@color_option
def resume(run: str, retry_failed: bool, as_json: bool, color: str) -> None:
    """Resume the jobs of a run that are not done, in their sessions."""
    from hivemind_trio.jobs import RunOptions, main

    options = RunOptions(
        continues=run,
        retries_failed=retry_failed,
        as_json=as_json,
        allow_include=allowed_folders(),
        color=wants_color(color, sys.stderr),
    )
    sys.exit(main(options))


def _run_row(one: RunOverview) -> tuple[str, ...]:
    counts = ", ".join(f"{count} {state}" for state, count in one.counts.items())
    state = "in progress: " if one.in_progress else ""
    return one.name, _local(one.began_s), f"{state}{counts}", one.folder


def _local(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s):%Y-%m-%d %H:%M}"


def _table(rows: list[tuple[Any, ...]]) -> None:
    for cells in aligned([tuple(map(str, row)) for row in rows]):
        click.echo("  ".join(cells).rstrip())
