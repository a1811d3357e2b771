"""`hivemind-trio diff`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from hivemind_trio.cli.console import (
    EXIT_CLEAN,
    EXIT_INTERRUPTED,
    EXIT_PROBLEMS,
    EXIT_USAGE,
    color_option,
    fail,
    wants_color,
)
from hivemind_trio.cli.policy_files import checked_policy, providing
from hivemind_trio.cli.simulate.scenarios import SEEDS, USUAL, scenario_named, stop_at_misfits
from hivemind_trio.cli.table import columns_wanted

if TYPE_CHECKING:
    from hivemind_trio.cli.simulate.policy_effect import PolicyEffect
    from hivemind_trio.policy import Checked, Diff
    from hivemind_trio.sim import Scenario

FORMATS = ("text", "json", "markdown")


@click.command(
    epilog="""\b
Examples:
  hivemind-trio diff team.hmp new.hmp               compare two files
  hivemind-trio diff --git HEAD team.hmp            compare a file with the last commit
  hivemind-trio diff --git origin/main team.hmp --format markdown     write the comment of a pull request
  hivemind-trio diff --exit-code team.hmp new.hmp   exit with status 1 if anything changes
  hivemind-trio diff team.hmp new.hmp --simulate    simulate a fleet under both

\b
Exit status: 0, or 1 if anything changes and --exit-code is given; 2 wrong usage, a file that cannot be read, or a
policy with errors, which are shown as `check` shows them; 130 interrupted."""
)
@click.argument("files", nargs=-1, metavar="[OLD] NEW", type=click.Path())
@click.option("--git", "revision", metavar="REV", help="Compare NEW with itself at this git revision, includes too.")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format."
)
@click.option("--simulate", is_flag=True, help="Simulate a fleet under both policies and add the differences.")
@click.option("--scenario", "named", metavar="NAME|FILE", help=f"Scenario to simulate.  [default: {USUAL}]")
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), help="Number of runs, each with a different random seed.  [default: 5]"
)
@click.option("--exit-code", is_flag=True, help="Exit with status 1 if anything changes, as git does.")
@color_option
def diff(
    files: tuple[str, ...],
    revision: str | None,
    format_: str,
    simulate: bool,
    named: str | None,
    seeds: int | None,
    exit_code: bool,
    color: str,
) -> None:
    """Show what a new policy changes, by meaning and not by text.

    Lists the calls that get another lane, priority, provider or verdict, with an example of each; limits and budgets
    that are raised or lowered; and what a reload does to the state of a running proxy. With --simulate also the
    differences in waits, dead agents, 429s and spend, with confidence intervals over the seeds.
    """
    wanted = 1 if revision is not None else 2
    if len(files) != wanted:
        needs = "one file" if revision is not None else "two files, the old and the new"
        fail(f"expected {needs}", hint="`hivemind-trio diff OLD NEW` or `hivemind-trio diff --git REV FILE`")
    if not simulate and (named is not None or seeds is not None):
        fail("--scenario and --seeds need --simulate", hint="`hivemind-trio diff OLD NEW --simulate`")
    if files.count("-") == 2:
        fail("standard input can be only one of the two", hint="`hivemind-trio diff OLD -`")
    if revision is not None:
        old, new = _at(revision, files[0]), checked_policy(files[0])
    else:
        old, new = checked_policy(files[0]), checked_policy(files[1])
    _stop_at_errors([one for one in (old, new) if one is not None], color)

    from hivemind_trio.policy import diff as compare
    from hivemind_trio.wire import apis_of

    scenario = scenario_named(named or USUAL) if simulate else None
    found = compare(old, new, apis_of=apis_of)
    effect = None if scenario is None else _effect(old, new, found, scenario, range(1, (seeds or SEEDS) + 1))
    _print(found, effect, format_, color, simulated=simulate)
    if effect is not None and not effect.whole:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(EXIT_PROBLEMS if found and exit_code else EXIT_CLEAN)


def _effect(old: Checked | None, new: Checked, found: Diff, scenario: Scenario, seeds: range) -> PolicyEffect | None:
    """Return the effect of a change on a fleet; None: the policies cannot be compared."""
    from hivemind_trio.cli.simulate.policy_effect import effect

    if old is None:
        alone = f"`hivemind-trio simulate {new.paths[0]}`"
        click.echo(f"nothing to simulate it against: there was no policy; {alone} says what this one does", err=True)
        return None
    programs = providing(old), providing(new)
    stop_at_misfits(scenario, programs)
    return effect(programs, (found.old or "", found.new), scenario, seeds)


def _print(found: Diff, effect: PolicyEffect | None, format_: str, color: str, *, simulated: bool) -> None:
    from hivemind_trio.policy import diff_object, render_diff

    if format_ == "json" and simulated:
        report = diff_object(found) | {"simulation": None if effect is None else effect.as_object()}
        click.echo(json.dumps(report, indent=2))
        return
    colored = format_ == "text" and wants_color(color, sys.stdout)
    columns = columns_wanted() if format_ == "text" else sys.maxsize
    said = render_diff(found, format_, color=colored, columns=columns)
    if effect is not None:
        said += effect.markdown() if format_ == "markdown" else effect.text(color=colored, columns=columns)
    click.echo(said, nl=False, color=colored)


def _at(revision: str, path: str) -> Checked | None:
    """Return the policy as it was then; None: it was not there."""
    from hivemind_trio.host import GitError, GitFiles
    from hivemind_trio.policy import check

    if path == "-":
        fail("standard input has no history", hint="`hivemind-trio diff --git REV FILE`")
    try:
        then = GitFiles.at(revision, path)
        return check(then.named(path), then) if then.has(path) else None
    except GitError as error:
        fail(str(error), hint="`hivemind-trio diff --git HEAD team.hmp`, in a repository that holds it")


def _stop_at_errors(policies: list[Checked], color: str) -> None:
    """Show what `check` shows if one of them has errors; what is wrong cannot be compared."""
    broken = [one for one in policies if one.program is None]
    if broken:
        from hivemind_trio.policy import render

        colored = wants_color(color, sys.stderr)
        click.echo(render(broken, "text", color=colored), nl=False, err=True, color=colored)
        sys.exit(EXIT_USAGE)
