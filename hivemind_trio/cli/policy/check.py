"""`hivemind-trio check`."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from hivemind_trio.cli.console import EXIT_CLEAN, EXIT_PROBLEMS, EXIT_USAGE, color_option, fail, wants_color
from hivemind_trio.cli.policy_files import checked_policy, policies, without_parts
from hivemind_trio.cli.progress import CheckProgress, ProgressLine

from .run_tests import CHOICES, outcome, ran_tests, with_what_they_found

if TYPE_CHECKING:
    from hivemind_trio.policy import Diagnostic

FORMATS = ("text", "short", "json", "sarif", "github", "junit")


@click.command(
    epilog="""\b
Examples:
  hivemind-trio check                               every *.hmp in this folder
  hivemind-trio check policies                      every *.hmp in another folder and below
  hivemind-trio check team.hmp --deny warnings      warnings fail too
  hivemind-trio check --deny HM407 --format github  as annotations in a pull request
  hivemind-trio check team.hmp --env                what this machine lacks of its secrets as well
  hivemind-trio check team.hmp --tests calls        without the simulated tests
  hivemind-trio check team.hmp --coverage           rules that no test exercises, too
  hivemind-trio check --format junit > tests.xml    tests, as CI services show them
  cat team.hmp | hivemind-trio check -              from standard input

Exit status: 0 clean, 1 errors (or what --deny names), 2 wrong usage or an unreadable file."""
)
@click.argument("files", nargs=-1, type=click.Path())
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="Default: text; github where GITHUB_ACTIONS is set."
)
@click.option(
    "--deny", multiple=True, metavar="warnings|CODE", help="Treat warnings, or this code, as errors. Repeatable."
)
@click.option(
    "--tests",
    "which",
    type=click.Choice(CHOICES),
    default="all",
    show_default=True,
    help="Those to run; `calls` leaves out the simulated ones, which may take seconds.",
)
@click.option("--coverage", is_flag=True, help="Name the rules that no test exercises (HM311).")
@click.option("--env", "environment", is_flag=True, help="Also resolve every env(...) and file(...) on this machine.")
@color_option
def check(
    files: tuple[str, ...],
    format_: str | None,
    deny: tuple[str, ...],
    which: str,
    coverage: bool,
    environment: bool,
    color: str,
) -> None:
    """Check policy files: every problem at once, each with what to write instead; and run their tests.

    Needs no key and no network. Prints to standard output; machine formats always, also for a file that cannot be read.
    """
    from hivemind_trio.policy import PAGES, Severity, render, visible

    if which == "none" and coverage:
        fail("--coverage is about tests, and --tests none leaves them out", hint="leave out one of them")
    unknown = [code for code in deny if code != "warnings" and code not in PAGES]
    if unknown:
        fail(f"--deny {unknown[0]}: no such code", hint="`warnings`, or a code such as HM407")
    if format_ is None:
        on_github = os.environ.get("GITHUB_ACTIONS") == "true" and not sys.stdout.isatty()
        format_ = "github" if on_github else "text"

    named = policies(files)
    with ProgressLine() as line:
        progress = CheckProgress(line, time.perf_counter)
        checked = [checked_policy(one.path, environment=environment, progress=progress.of(one.path)) for one in named]
    checked, left_out = without_parts(named, checked)
    for path, includer in left_out.items():
        click.echo(visible(f"skipped {path}: checked as a part of {includer}"), err=True)
    ran = [ran_tests(one, which, coverage=coverage) for one in checked]
    checked = [with_what_they_found(one, tests, coverage=coverage) for one, tests in zip(checked, ran, strict=True)]

    def fails(diagnostic: Diagnostic) -> bool:
        if diagnostic.severity is Severity.ERROR or diagnostic.code in deny:
            return True
        return diagnostic.severity is Severity.WARNING and "warnings" in deny

    if format_ == "junit":
        from .junit import junit

        click.echo(junit(list(zip(checked, ran, strict=True)), fails), nl=False)
    else:
        colored = wants_color(color, sys.stdout)
        click.echo(render(checked, format_, color=colored), nl=False, color=colored)  # or click would strip what we add
        if format_ == "text" and (said := outcome(list(zip(checked, ran, strict=True)))):
            click.echo(said)
    if any(one.unreadable for one in checked):
        sys.exit(EXIT_USAGE)
    found = any(fails(diagnostic) for one in checked for diagnostic in one.diagnostics)
    sys.exit(EXIT_PROBLEMS if found else EXIT_CLEAN)
