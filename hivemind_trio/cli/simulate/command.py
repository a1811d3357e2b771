"""`hivemind-trio simulate`."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Final

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
from hivemind_trio.cli.pictures import stop_unless_drawable, write_drawing
from hivemind_trio.cli.policy_files import checked_policy, providing
from hivemind_trio.cli.progress import ProgressLine, RunProgress

from .scenarios import SEEDS, USUAL, list_scenarios, scenario_named, scenario_of_test, stop_at_misfits

if TYPE_CHECKING:
    from hivemind_trio.policy import Checked, Program
    from hivemind_trio.sim import Pair, Scenario


UNKNOWN: Final = "Recorded calls with the token of {} are unknown callers' where the policy has no such agent."


@click.command(
    epilog="""\b
Examples:
  hivemind-trio simulate team.hmp                          thirty agents, on limits as the policy has them
  hivemind-trio simulate team.hmp --scenario flood --compare new.hmp
  hivemind-trio simulate team.hmp --scenario mine.toml --seeds 20 --plot out.svg
  hivemind-trio simulate new.hmp --trace team.journal      what it would have made of the calls of yesterday
  hivemind-trio simulate team.hmp --test "a storm passes"  one of its simulated tests, at length
  hivemind-trio simulate --scenario replay-11              with the scenario's own policy
  hivemind-trio simulate --scenario list                   what there is

\b
Scenario files: hivemind_trio/sim/scenarios/README.md
Exit status: 0 it has run, 1 the policy has errors, 2 wrong usage or an unreadable file, 130 interrupted."""
)
@click.argument("policy", required=False, metavar="[POLICY]")
@click.option("--scenario", "named", show_default=USUAL, metavar="NAME|FILE", help="`list` names them.")
@click.option(
    "--trace",
    metavar="JOURNAL",
    help="Agents that `serve --journal` has recorded, instead of the scenario's; without --scenario, limits are as the "
    "policy has them.",
)
@click.option("--test", "tested", metavar="TEST", help="A simulated test of the policy, instead of a scenario.")
@click.option("--list", "listing", is_flag=True, help="The scenarios that ship.")
@click.option(
    "--seeds", default=SEEDS, show_default=True, type=click.IntRange(1, 10_000), help="Runs; each another day."
)
@click.option("--seed", type=int, help="The first of them; unsaid, a test's own, else 1.")
@click.option("--compare", "other", metavar="OTHER", help="Another policy on the same days: what it changes.")
@click.option(
    "--plot",
    "picture",
    metavar="FILE.svg|png",
    help="Draw limit, queue and what is in flight in the first run; a PNG needs Pillow.",
)
@click.option("--audit", is_flag=True, help="Check the scheduler's invariants after every event; slower.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@color_option
def simulate(
    policy: str | None,
    named: str | None,
    trace: str | None,
    tested: str | None,
    listing: bool,
    seeds: int,
    seed: int | None,
    other: str | None,
    picture: str | None,
    audit: bool,
    as_json: bool,
    color: str,
) -> None:
    """Say what a policy makes of a fleet, before anything is deployed.

    Runs the scheduler of the proxy in virtual time, with simulated providers and agents whose clients retry as the SDKs
    do: straight at the providers, and through the proxy. Needs no key and no network, and takes seconds.
    """
    if listing or named == "list":
        list_scenarios()
        sys.exit(EXIT_CLEAN)
    if picture is not None:
        stop_unless_drawable(picture)
    if tested is not None:
        if policy is None:
            fail("which policy is it that has this test", hint=f'`hivemind-trio simulate team.hmp --test "{tested}"`')
        if named is not None or trace is not None:
            fail("--test brings its own scenario", hint="leave out --test, or --scenario and --trace")
        checked = checked_policy(policy)
        name, program = policy, _compiled(checked)
        scenario, own = scenario_of_test(checked, tested)
        seed = own if seed is None else seed
    else:
        scenario = scenario_named(named, trace)
        if policy is None and trace is not None and scenario.policy is None:
            fail("which policy are these calls to be put to", hint=f"`hivemind-trio simulate team.hmp --trace {trace}`")
        name, program = _program(policy, scenario)
    first = 1 if seed is None else seed
    compared = None if other is None else (other, _compiled(checked_policy(other)))
    programs = [program, compared[1]] if compared else [program]
    stop_at_misfits(scenario, programs)
    pairs, others, whole = _run(programs, scenario, range(first, first + seeds), audit)
    if not pairs:
        click.echo("interrupted before the first seed was through", err=True)
        sys.exit(EXIT_INTERRUPTED)
    against = (compared[0], others[: len(pairs)]) if compared else None
    if as_json:
        from .json_output import as_object

        json.dump(as_object(scenario, name, pairs, against), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        from hivemind_trio.sim import same_truth, strangers

        from .policy_effect import AS_SAID
        from .tables import as_text

        gone = strangers(scenario, programs)
        text = as_text(
            scenario,
            name,
            pairs,
            against,
            color=wants_color(color, sys.stdout),
            columns=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
            blocks=_can_show("▁█"),
            notes=[
                *([AS_SAID] if len(programs) > 1 and not same_truth(programs[0], programs[1], scenario) else []),
                *([UNKNOWN.format(", ".join(f"`{name}`" for name in gone))] if gone else []),
            ],
        )
        click.echo(text, nl=False, color=True)
    if picture is not None:
        _plot(picture, scenario, name, pairs, against)
    if not whole:
        click.echo(f"interrupted after {len(pairs)} of {seeds} seeds", err=True)
    sys.exit(EXIT_CLEAN if whole else EXIT_INTERRUPTED)


# ---- what is run ----


def _run(programs: list[Program], scenario: Scenario, seeds: range, audit: bool) -> tuple[list[Pair], list[Pair], bool]:
    """Both policies' runs, as many as there was patience for, and whether that was all."""
    from hivemind_trio.sim import settled, study

    scenario = settled(scenario, programs)
    first, *more = programs
    pairs: list[Pair] = []
    others: list[Pair] = []
    with ProgressLine() as line:
        progress = RunProgress(line, seeds)
        try:
            for seed in seeds:
                one = next(study(first, scenario, [seed], audit=audit, told=progress.of(seed)))
                for other in more:
                    others.extend(study(other, scenario, [seed], audit=audit, told=progress.of(seed)))
                pairs.append(one)
        except KeyboardInterrupt:
            return pairs, others, False
    return pairs, others, True


def _program(policy: str | None, scenario: Scenario) -> tuple[str, Program]:
    if policy is not None:
        return policy, _compiled(checked_policy(policy))
    if scenario.policy is None:
        fail(
            f"scenario {scenario.name} brings no policy of its own",
            hint=f"`hivemind-trio simulate team.hmp --scenario {scenario.name}`",
        )
    from hivemind_trio.policy import MemoryFiles, check

    name = f"{scenario.name}.hmp"
    return "the scenario's own policy", _compiled(check(name, MemoryFiles({name: scenario.policy.encode()})))


def _compiled(checked: Checked) -> Program:
    if checked.program is None:
        from hivemind_trio.policy import render

        colored = wants_color("auto", sys.stderr)
        click.echo(render([checked], "text", color=colored), nl=False, err=True, color=colored)
        sys.exit(EXIT_USAGE if checked.unreadable else EXIT_PROBLEMS)
    return providing(checked)


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _plot(path: str, scenario: Scenario, name: str, pairs: list[Pair], against: tuple[str, list[Pair]] | None) -> None:
    from hivemind_trio.policy import visible
    from hivemind_trio.sim import plot

    runs = [("direct", pairs[0].direct), (visible(name), pairs[0].proxy)]
    if against is not None:
        runs = [(visible(name), pairs[0].proxy), (visible(against[0]), against[1][0].proxy)]
    write_drawing(path, plot(runs, title=visible(f"{scenario.name}, seed {pairs[0].seed}")))
