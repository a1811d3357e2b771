"""Effect of a change on a simulated fleet, for `diff --simulate`."""

from __future__ import annotations

import sys
from typing import Any, Final, final

import attrs
import click

from hivemind_trio.cli.console import EXIT_INTERRUPTED
from hivemind_trio.cli.progress import ProgressLine, RunProgress
from hivemind_trio.policy import Program, markdown_words, visible
from hivemind_trio.sim import Figures, Scenario, same_truth, settled, shifts, side_by_side

from .json_output import interval
from .tables import changes, fitting, wrapped

AS_SAID: Final = (
    "The providers here are as strict as each policy says: what a policy raises is taken to be there. "
    "A scenario with `concurrency` and `limits` of its own says what they really allow."
)


@final
@attrs.frozen(kw_only=True)
class PolicyEffect:
    """Both policies' runs of the same seeds."""

    scenario: Scenario
    names: tuple[str, str]
    """The old policy's and the new one's."""
    seeds: tuple[int, ...]
    before: tuple[Figures, ...]
    after: tuple[Figures, ...]
    whole: bool
    """Nobody interrupted it."""
    as_said: bool
    """The providers are not equally strict in both."""

    def text(self, *, color: bool, columns: int = sys.maxsize) -> str:
        """For a terminal, below the changes."""
        head = wrapped(visible(self._head("simulated")), columns)
        parts = [
            click.style(head, bold=True) if color else head,
            fitting(self._rows(), columns, color=color),
            *([wrapped(AS_SAID, columns)] if self.as_said else []),
        ]
        return "\n" + "\n\n".join(parts) + "\n"

    def markdown(self) -> str:
        """For the comment of a pull request."""
        rows = self._rows()[1:]
        lines = ["", f"{markdown_words(self._head('Simulated'))}:", ""]
        lines += ["| | before | after | difference | 19 of 20 times within |", "|---|--:|--:|--:|---|"]
        lines += [f"| {' | '.join(map(markdown_words, row))} |" for row in rows]
        return "\n".join([*lines, *(["", f"_{AS_SAID}_"] if self.as_said else [])]) + "\n"

    def as_object(self) -> dict[str, Any]:
        """For machines; times in seconds, money in dollars."""
        return {
            "scenario": self.scenario.name,
            "seeds": list(self.seeds),
            "as_declared": self.as_said,
            "metrics": [
                {
                    "name": shift.metric.name,
                    "unit": shift.metric.unit,
                    "before": interval(shift.before),
                    "after": interval(shift.after),
                    "difference": interval(shift.difference),
                }
                for shift in shifts(self.before, self.after)
            ],
        }

    def _head(self, word: str) -> str:
        first, last = self.seeds[0], self.seeds[-1]
        seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
        about = f" ({self.scenario.about})" if self.scenario.about else ""
        return f"{word}: {self.scenario.name}, {seeds}{about}"

    def _rows(self) -> list[list[str]]:
        return changes(self.names[0], self.before, self.names[1], self.after)


def effect(programs: tuple[Program, Program], names: tuple[str, str], scenario: Scenario, seeds: range) -> PolicyEffect:
    """Run both; who interrupts gets the seeds that are whole, if there are any."""
    work = settled(scenario, programs)
    before: list[Figures] = []
    after: list[Figures] = []
    with ProgressLine() as line:
        progress = RunProgress(line, seeds)
        try:
            for seed in seeds:
                ((old, new),) = side_by_side(*programs, work, [seed], told=progress.of(seed))
                before.append(old)
                after.append(new)
        except KeyboardInterrupt:
            click.echo(f"interrupted after {len(before)} of {len(seeds)} seeds", err=True)
            if not before:
                sys.exit(EXIT_INTERRUPTED)
    return PolicyEffect(
        scenario=scenario,
        names=names,
        seeds=tuple(seeds[: len(before)]),
        before=tuple(before),
        after=tuple(after),
        whole=len(before) == len(seeds),
        as_said=not same_truth(*programs, scenario),
    )
