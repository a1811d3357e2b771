"""`hivemind-trio simulate`."""

from __future__ import annotations

import json
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
from hivemind_trio.cli.table import columns_wanted

from .nodes import NODES_MAX, after_the_end, nodes_spec
from .scenarios import (
    SEEDS,
    USUAL,
    complete_scenario,
    list_scenarios,
    scenario_named,
    scenario_of_test,
    stop_at_misfits,
)

if TYPE_CHECKING:
    from hivemind_trio.policy import Checked, Program
    from hivemind_trio.sim import NodesSpec, Pair, Scenario
    from hivemind_trio.store import CallFilter


UNKNOWN: Final = "Recorded calls with the token of {} are unknown callers' where the policy has no such agent."


@click.command(
    epilog="""\b
Examples:
  hivemind-trio simulate team.hmp                          simulate thirty agents, with the limits of the policy
  hivemind-trio simulate team.hmp --scenario flood --compare new.hmp    compare two policies
  hivemind-trio simulate team.hmp --scenario mine.toml --seeds 20 --plot out.svg
  hivemind-trio simulate new.hmp --trace team.journal      replay recorded calls under a new policy
  hivemind-trio simulate new.hmp --trace team.journal --since 24h --agent ci
  hivemind-trio simulate team.hmp --test "a storm passes"  run a simulated test of the policy
  hivemind-trio simulate team.hmp --nodes 4 --die 2@90s    simulate four proxies, one of which is killed
  hivemind-trio simulate --scenario replay-11              use the policy of the scenario
  hivemind-trio simulate --scenario list                   list the scenarios

\b
Scenario files: hivemind_trio/sim/scenarios/README.md
Exit status: 0 after all runs, 1 the policy has errors, 2 wrong usage or a file that cannot be read, 130
interrupted."""
)
@click.argument("policy", required=False, metavar="[POLICY]")
@click.option(
    "--scenario",
    "named",
    show_default=USUAL,
    metavar="NAME|FILE",
    help="Scenario to simulate; `list` lists them.",
    shell_complete=complete_scenario,
)
@click.option(
    "--trace",
    metavar="JOURNAL",
    help="Replay the calls of this journal (`serve --journal`) in place of the scenario's agents. Without --scenario "
    "the limits are those of the policy.",
)
@click.option("--since", metavar="TIME", help="With --trace: replay calls from then on: `24h`, `2026-11-20T14:30`.")
@click.option("--until", metavar="TIME", help="With --trace: replay calls before that.")
@click.option("--agent", metavar="NAME", help="With --trace: replay calls of this agent only.")
@click.option("--test", "tested", metavar="TEST", help="Run this simulated test of the policy in place of a scenario.")
@click.option("--list", "listing", is_flag=True, help="List the scenarios that are shipped.")
@click.option(
    "--seeds",
    default=SEEDS,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Number of runs, each with a different random seed.",
)
@click.option("--seed", type=int, help="First seed. Default: the test's seed, or 1.")
@click.option("--compare", "other", metavar="OTHER", help="Also run this policy with the same seeds and compare.")
@click.option(
    "--plot",
    "picture",
    metavar="FILE.svg|png",
    help="Plot the limit, the queue and calls in flight of the first run. A PNG needs Pillow.",
)
@click.option(
    "--nodes",
    "count",
    type=click.IntRange(1, NODES_MAX),
    help="Simulate so many proxies that share the providers through a store.",
)
@click.option(
    "--store-away",
    "away",
    multiple=True,
    metavar="FROM..TO",
    help="With --nodes: nobody reaches the store from then to then: `60s..100s`.",
)
@click.option(
    "--die",
    "dies",
    multiple=True,
    metavar="NODE@TIME",
    help="With --nodes: kill a node: `2@90s`, or `2@90s..120s`: it is started again.",
)
@click.option(
    "--cut",
    "cuts",
    multiple=True,
    metavar="NODE@FROM..TO",
    help="With --nodes: a node does not reach the store: `3@60s..100s`.",
)
@click.option("--audit", is_flag=True, help="Check the invariants of the scheduler after every event; slower.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@color_option
def simulate(
    policy: str | None,
    named: str | None,
    trace: str | None,
    since: str | None,
    until: str | None,
    agent: str | None,
    tested: str | None,
    listing: bool,
    seeds: int,
    seed: int | None,
    other: str | None,
    picture: str | None,
    count: int | None,
    away: tuple[str, ...],
    dies: tuple[str, ...],
    cuts: tuple[str, ...],
    audit: bool,
    as_json: bool,
    color: str,
) -> None:
    """Simulate a fleet of agents under a policy.

    Runs the scheduler of the proxy in virtual time, with simulated providers and with agents that retry as the SDKs do:
    once directly at the providers, once through the proxy. Needs no key and no network, and takes seconds.
    """
    if listing or named == "list":
        list_scenarios()
        sys.exit(EXIT_CLEAN)
    if picture is not None:
        stop_unless_drawable(picture)
    nodes = nodes_spec(count, away, dies, cuts)
    chosen = _chosen(trace, since, until, agent)
    scenario, name, program, own_seed, own_nodes = _selected(policy, named, trace, tested, chosen)
    nodes = own_nodes if nodes is None else nodes
    first = own_seed if seed is None else seed
    compared = None if other is None else (other, _compiled(checked_policy(other)))
    programs = [program, compared[1]] if compared else [program]
    stop_at_misfits(scenario, programs)
    pairs, others, whole = _run(programs, scenario, range(first, first + seeds), audit, nodes)
    if not pairs:
        click.echo("interrupted before the first seed was through", err=True)
        sys.exit(EXIT_INTERRUPTED)
    late = after_the_end(nodes, max(pair.proxy.makespan_ns for pair in pairs)) if nodes is not None else None
    if late is not None:
        click.echo(late, err=True)
    against = (compared[0], others[: len(pairs)]) if compared else None
    if as_json:
        from .json_output import as_object

        json.dump(as_object(scenario, name, pairs, against), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _print_tables(scenario, name, programs, pairs, against, color)
    if picture is not None:
        _plot(picture, scenario, name, pairs, against)
    if not whole:
        click.echo(f"interrupted after {len(pairs)} of {seeds} seeds", err=True)
    sys.exit(EXIT_CLEAN if whole else EXIT_INTERRUPTED)


# ---- what is run ----


def _chosen(trace: str | None, since: str | None, until: str | None, agent: str | None) -> CallFilter | None:
    """Return the calls of the trace that are asked for; None: all."""
    if since is None and until is None and agent is None:
        return None
    if trace is None:
        fail("--since, --until and --agent choose calls of a trace", hint="add `--trace JOURNAL`")
    from hivemind_trio.cli.journal.find import moment_ns
    from hivemind_trio.store import CallFilter

    whole = CallFilter()
    return CallFilter(
        since_ns=moment_ns(since, "--since") if since is not None else whole.since_ns,
        until_ns=moment_ns(until, "--until") if until is not None else whole.until_ns,
        agent=agent,
    )


def _selected(
    policy: str | None, named: str | None, trace: str | None, tested: str | None, chosen: CallFilter | None
) -> tuple[Scenario, str, Program, int, NodesSpec | None]:
    """Return the scenario, the policy's name, the policy, and the first seed and the nodes unless they are given."""
    if tested is not None:
        if policy is None:
            fail("--test needs a policy file", hint=f'`hivemind-trio simulate team.hmp --test "{tested}"`')
        if named is not None or trace is not None:
            fail("--test and --scenario or --trace exclude each other", hint="remove --test, or --scenario and --trace")
        checked = checked_policy(policy)
        program = _compiled(checked)
        scenario, seed, nodes = scenario_of_test(checked, tested)
        return scenario, policy, program, seed, nodes
    scenario = scenario_named(named, trace, chosen)
    if policy is None and trace is not None and scenario.policy is None:
        fail(
            "--trace needs a policy file to replay against",
            hint=f"`hivemind-trio simulate team.hmp --trace {trace}`",
        )
    name, program = _program(policy, scenario)
    return scenario, name, program, 1, None


def _run(
    programs: list[Program], scenario: Scenario, seeds: range, audit: bool, nodes: NodesSpec | None
) -> tuple[list[Pair], list[Pair], bool]:
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
                one = next(study(first, scenario, [seed], audit=audit, told=progress.of(seed), nodes=nodes))
                for other in more:
                    others.extend(study(other, scenario, [seed], audit=audit, told=progress.of(seed), nodes=nodes))
                pairs.append(one)
        except KeyboardInterrupt:
            return pairs, others, False
    return pairs, others, True


def _program(policy: str | None, scenario: Scenario) -> tuple[str, Program]:
    if policy is not None:
        return policy, _compiled(checked_policy(policy))
    if scenario.policy is None:
        fail(
            f"scenario {scenario.name} has no policy",
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


def _print_tables(
    scenario: Scenario,
    name: str,
    programs: list[Program],
    pairs: list[Pair],
    against: tuple[str, list[Pair]] | None,
    color: str,
) -> None:
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
        columns=columns_wanted(),
        blocks=_can_show("▁█"),
        notes=[
            *([AS_SAID] if len(programs) > 1 and not same_truth(programs[0], programs[1], scenario) else []),
            *([UNKNOWN.format(", ".join(f"`{name}`" for name in gone))] if gone else []),
        ],
    )
    click.echo(text, nl=False, color=True)


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
