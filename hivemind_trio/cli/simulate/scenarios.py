"""Scenarios as the command line names them: one that ships, or a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import click
from click.shell_completion import CompletionItem

from hivemind_trio.cli.console import EXIT_USAGE, fail

if TYPE_CHECKING:
    from hivemind_trio.model import RecordedCall
    from hivemind_trio.policy import Checked, Program
    from hivemind_trio.sim import NodesSpec, PlanLimit, Scenario
    from hivemind_trio.store import CallFilter

PLANS_MAX: Final = 5
"""Accounts whose plans are listed."""

USUAL: Final = "fleet"
"""The scenario where none is named."""

SEEDS: Final = 5
"""Runs where it is not said how many."""


def _shipped() -> Iterator[tuple[str, str]]:
    """Names and texts, in order."""
    folder = resources.files("hivemind_trio.sim") / "scenarios"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            yield entry.name.removesuffix(".toml"), entry.read_text("utf-8")


def complete_scenario(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of a scenario that ships; what is none may be a file."""
    names = [CompletionItem(name) for name, _ in _shipped() if name.startswith(begun)]
    return names or [CompletionItem(begun, type="file")]


def scenario_named(named: str | None, trace: str | None = None, chosen: CallFilter | None = None) -> Scenario:
    """One that ships, or a file; ends with status 2 if there is none, or it has mistakes.

    Args:
        named: None: the usual one; of a trace, one that leaves the providers to the policy.
        trace: A journal, whose agents there are instead of the scenario's.
        chosen: Calls of the journal; None: all.
    """
    from hivemind_trio.policy import visible
    from hivemind_trio.sim import ScenarioError, parse_scenario

    calls = _recorded(trace, chosen) if trace is not None else None
    shipped = dict(_shipped())
    if named is None:
        named, text = (USUAL, shipped[USUAL]) if trace is None else (trace, "")
    else:
        text = shipped[named] if named in shipped else _read(named, list(shipped))
    try:
        scenario = parse_scenario(text, name=named, journals=_beside(named), trace=calls)
    except ScenarioError as error:
        click.echo("\n".join(map(visible, error.text().splitlines())), err=True)
        sys.exit(EXIT_USAGE)
    return scenario if calls is None else attrs.evolve(scenario, about=_about(calls, scenario))


def _recorded(trace: str, chosen: CallFilter | None) -> Sequence[RecordedCall]:
    from hivemind_trio.store import CallFilter, JournalError, read_journal

    try:
        calls = read_journal(trace, chosen or CallFilter())
    except JournalError as error:
        fail(f"--trace {error}", hint=error.help)
    if not any(call.needs_slot for call in calls):
        which = "" if chosen is None else " of that time and agent"
        what = "the journal has only calls that need no slot" if calls else f"the journal has no calls{which}"
        fail(f"--trace {trace}: {what}", hint="record calls of agents with `hivemind-trio serve --journal`")
    return calls


def _beside(scenario: str) -> Callable[[str], Sequence[RecordedCall]]:
    """Return a reader of the journals that a scenario names, whose paths are relative to its own."""
    from hivemind_trio.sim import ScenarioValueError
    from hivemind_trio.store import JournalError, read_journal

    def read(path: str) -> Sequence[RecordedCall]:
        try:
            return read_journal(str(Path(scenario).parent / path))
        except JournalError as error:
            raise ScenarioValueError(f"`{path}`: {error.what}", error.help) from None

    return read


def _about(calls: Sequence[RecordedCall], scenario: Scenario) -> str:
    """Return a line that describes a trace."""
    made = [call for call in calls if call.needs_slot]
    chains = sum(len(fleet.recorded) for fleet in scenario.fleets)
    seconds = (made[-1].arrived_ns - made[0].arrived_ns) / 1e9
    said = f"{len(made):,} recorded calls, {chains:,} chains of them, over {timedelta(seconds=round(seconds))}"
    left_out = len(calls) - len(made)
    if left_out:
        said = f"{said}; {left_out:,} that need no slot are left out"
    plans = [f"{provider}: {_plan(limits)}" for provider, own in scenario.plans.items() for limits in own.values()]
    return f"{said}; plans as they were read then: {'; '.join(plans[:PLANS_MAX])}" if plans else said


def _plan(limits: Sequence[PlanLimit]) -> str:
    return ", ".join(f"{one.span} of about {one.tokens:,} tokens, {one.used / 1e4:.0f} % used" for one in limits)


def _read(path: str, shipped: list[str]) -> str:
    import difflib

    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        near = difflib.get_close_matches(path, shipped, n=1)
        hint = f"did you mean `{near[0]}`? " if near else ""
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        fail(f"--scenario {path}: {why}", hint=f"{hint}`--scenario list` names those that ship; a file ends in .toml")


def scenario_of_test(checked: Checked, named: str) -> tuple[Scenario, int, NodesSpec | None]:
    """Return scenario, seed and nodes of a policy's simulated test; exits with status 2 if there is none."""
    import difflib

    from hivemind_trio.policy import Run
    from hivemind_trio.policy_tests import nodes_of, stage

    runs = {test.name: (test, test.asks) for test in checked.tests if isinstance(test.asks, Run)}
    if named not in runs:
        near = difflib.get_close_matches(named, runs, n=1)
        there = f"there are {', '.join(f'`{name}`' for name in runs)}" if runs else "there is none: none has a `load`"
        hint = f"did you mean `{near[0]}`?" if near else there
        fail(f"--test {named}: {checked.sources[0].name} has no simulated test of this name", hint=hint)
    test, run = runs[named]
    return attrs.evolve(stage(run), name=test.name, about=f"a test, {test.at}"), run.seed, nodes_of(run)


def list_scenarios() -> None:
    """Print the names of those that ship, and what each is about."""
    from hivemind_trio.sim import parse_scenario

    scenarios = [parse_scenario(text, name=name) for name, text in _shipped()]
    width = max(len(scenario.name) for scenario in scenarios)
    for scenario in scenarios:
        click.echo(f"{scenario.name:{width}}  {scenario.about}")


def stop_at_misfits(scenario: Scenario, programs: Sequence[Program]) -> None:
    """End with status 2 if the scenario speaks of what none of the policies has."""
    from hivemind_trio.policy import visible
    from hivemind_trio.sim import misfits

    found = list(misfits(scenario, programs))
    if found:
        for line in found:
            click.echo(visible(f"scenario {scenario.name}: {line}"), err=True)
        both = "either policy" if len(programs) > 1 else "the policy"
        fail(f"the scenario does not match {both}", hint="use names of the policy, or another scenario")
