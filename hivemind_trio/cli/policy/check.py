"""`hivemind-trio check`."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from hivemind_trio.cli.console import EXIT_CLEAN, EXIT_PROBLEMS, EXIT_USAGE, color_option, fail, wants_color
from hivemind_trio.cli.policy_files import (
    STDIN,
    checked_policy,
    policies,
    with_environment,
    with_secret_files,
    without_parts,
)
from hivemind_trio.cli.progress import CheckProgress, ProgressLine

from .fix import fixable_line, fixed
from .run_tests import CHOICES, outcome, ran_tests, with_what_they_found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hivemind_trio.policy import Checked, Diagnostic

FORMATS = ("text", "short", "json", "sarif", "github", "junit")


@click.command(
    epilog="""\b
Examples:
  hivemind-trio check                               check every *.hmp in this folder and below
  hivemind-trio check policies                      check every *.hmp in another folder and below
  hivemind-trio check team.hmp --deny warnings      fail on warnings, too
  hivemind-trio check --deny HM407 --format github  annotate a pull request
  hivemind-trio check team.hmp --env                check the secrets of this machine, too
  hivemind-trio check team.hmp --tests calls        skip the simulated tests
  hivemind-trio check team.hmp --coverage           report rules that no test exercises, too
  hivemind-trio check --format junit > tests.xml    write the results of tests for a CI service
  hivemind-trio check --fix team.hmp                apply the safe fixes, then report the rest
  hivemind-trio check --diff                        show the fixes as a unified diff; write nothing
  cat team.hmp | hivemind-trio check -              check standard input
  cat team.hmp | hivemind-trio check --fix -        write the fixed policy to standard output

Exit status: 0 clean, 1 errors (or what --deny names; with --diff, files that would change), 2 wrong usage, or a file
that cannot be read or written."""
)
@click.argument("files", nargs=-1, type=click.Path())
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    help="Output format. Default: text, or github if GITHUB_ACTIONS is set.",
)
@click.option("--deny", multiple=True, metavar="warnings|CODE", help="Fail on warnings, or on this code. Repeatable.")
@click.option(
    "--tests",
    "which",
    type=click.Choice(CHOICES),
    default="all",
    show_default=True,
    help="Tests to run. `calls` skips the simulated ones, which may take seconds.",
)
@click.option("--coverage", is_flag=True, help="Report the rules that no test exercises (HM311).")
@click.option("--env", "environment", is_flag=True, help="Check every env(...) and file(...) on this machine, too.")
@click.option("--fix", "is_fixing", is_flag=True, help="Apply fixes to the files; report what remains.")
@click.option(
    "--diff", "is_diffing", is_flag=True, help="Print the fixes as a unified diff; write nothing; run no tests."
)
@click.option(
    "--unsafe-fixes",
    "unsafe",
    is_flag=True,
    help="With --fix or --diff: also fixes that guess a name or an amount, or delete what nothing uses.",
)
@color_option
def check(
    files: tuple[str, ...],
    format_: str | None,
    deny: tuple[str, ...],
    which: str,
    coverage: bool,
    environment: bool,
    is_fixing: bool,
    is_diffing: bool,
    unsafe: bool,
    color: str,
) -> None:
    """Check policy files and run their tests.

    Reports every problem at once, each with what to write instead. Needs no key and no network. The report goes to
    standard output, also of a file that cannot be read.
    """
    from hivemind_trio.policy import Severity, render, visible

    _stop_at_wrong_usage(
        files,
        format_,
        deny,
        without_tests=coverage and which == "none",
        is_fixing=is_fixing,
        is_diffing=is_diffing,
        unsafe=unsafe,
    )
    if format_ is None:
        on_github = os.environ.get("GITHUB_ACTIONS") == "true" and not sys.stdout.isatty()
        format_ = "github" if on_github else "text"

    named = policies(files)
    with ProgressLine() as line:
        progress = CheckProgress(line, time.perf_counter)
        checked = [checked_policy(one.path, progress=progress.of(one.path)) for one in named]
    checked, left_out = without_parts(named, checked)
    for path, includer in left_out.items():
        click.echo(visible(f"skipped {path}: checked as a part of {includer}"), err=True)
    if is_diffing:
        sys.exit(_diff(checked, unsafe=unsafe, color=color))
    to_stderr = False
    if is_fixing:
        checked, to_stderr = _fixed(checked, format_, unsafe=unsafe)
    checked = [with_environment(one) if environment else with_secret_files(one) for one in checked]
    ran = [ran_tests(one, which, coverage=coverage) for one in checked]
    checked = [with_what_they_found(one, tests, coverage=coverage) for one, tests in zip(checked, ran, strict=True)]

    def fails(diagnostic: Diagnostic) -> bool:
        if diagnostic.severity is Severity.ERROR or diagnostic.code in deny:
            return True
        return diagnostic.severity is Severity.WARNING and "warnings" in deny

    if format_ == "junit":
        from .junit import junit

        click.echo(junit(list(zip(checked, ran, strict=True)), fails), nl=False, err=to_stderr)
    else:
        colored = wants_color(color, sys.stderr if to_stderr else sys.stdout)
        # Without `color` click would strip what is added here.
        click.echo(render(checked, format_, color=colored), nl=False, color=colored, err=to_stderr)
        if format_ == "text":
            for said in (fixable_line(checked, is_fixed=is_fixing), outcome(list(zip(checked, ran, strict=True)))):
                if said:
                    click.echo(said, err=to_stderr)
    if any(one.unreadable for one in checked):
        sys.exit(EXIT_USAGE)
    found = any(fails(diagnostic) for one in checked for diagnostic in one.diagnostics)
    sys.exit(EXIT_PROBLEMS if found else EXIT_CLEAN)


def _stop_at_wrong_usage(
    files: tuple[str, ...],
    format_: str | None,
    deny: tuple[str, ...],
    *,
    without_tests: bool,
    is_fixing: bool,
    is_diffing: bool,
    unsafe: bool,
) -> None:
    from hivemind_trio.policy import PAGES

    if without_tests:
        fail("--coverage needs the tests that --tests none skips", hint="remove one of them")
    unknown = [code for code in deny if code != "warnings" and code not in PAGES]
    if unknown:
        fail(f"--deny {unknown[0]}: no such code", hint="`warnings`, or a code such as HM407")
    if unsafe and not (is_fixing or is_diffing):
        fail("--unsafe-fixes needs --fix or --diff", hint="`hivemind-trio check --diff --unsafe-fixes` shows them")
    if is_diffing and format_ is not None:
        fail("--diff prints a unified diff and takes no --format", hint="remove one of them")
    if is_fixing and "-" in files and len(files) > 1:
        fail("`-` stands alone with --fix: the fixed policy goes to standard output")


def _diff(checked: Sequence[Checked], *, unsafe: bool, color: str) -> int:
    """Print what `--fix` would change; return the exit status."""
    fixes = fixed(checked, unsafe=unsafe)
    fixes.print_diff(color=wants_color(color, sys.stdout))
    fixes.say(would=True, err=True)
    if any(one.unreadable for one in checked):
        return EXIT_USAGE
    return EXIT_PROBLEMS if fixes.texts else EXIT_CLEAN


def _fixed(checked: Sequence[Checked], format_: str, *, unsafe: bool) -> tuple[list[Checked], bool]:
    """Write the fixes; return the policies as they are now, and True if standard output has the fixed policy."""
    from hivemind_trio.policy import visible

    fixes = fixed(checked, unsafe=unsafe)
    errors = fixes.failed_writes()
    to_stderr = any(one.paths[0] == STDIN for one in checked)
    if errors:
        for error in errors:
            click.echo(visible(f"hivemind-trio: {error}"), err=True)
        sys.exit(EXIT_USAGE)
    fixes.say(would=False, err=to_stderr or format_ != "text")
    return list(fixes.after), to_stderr
