"""A policy's tests, run for the command line: those about calls at once, the simulated ones with a word on how far."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from hivemind_trio.cli.progress import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hivemind_trio.policy import Checked, RanTest
    from hivemind_trio.policy_tests import Heard

CHOICES: Final = ("all", "calls", "none")


def ran_tests(checked: Checked, which: str, *, coverage: bool) -> tuple[RanTest, ...]:
    """Return the results of a policy's tests, in order; none if it has errors.

    Args:
        which: `all`, those about `calls`, or `none`.
        coverage: Find out which rules they exercise.
    """
    from hivemind_trio.policy import Run, run_tests

    if checked.program is None or which == "none":
        return ()
    ran = {id(one.test): one for one in run_tests(checked, coverage=coverage, clock=time.process_time)}
    simulated = [test for test in checked.tests if isinstance(test.asks, Run)] if which == "all" else []
    if not simulated:
        return tuple(ran.values())
    from hivemind_trio.policy_tests import rehearse  # half of a start, which other policies do without

    with ProgressLine() as line:
        for number, test in enumerate(simulated, 1):
            what = f"{checked.sources[0].name}: simulated test {number} of {len(simulated)}"
            ran[id(test)] = rehearse(checked, test, heard=_heard(line, what))
    return tuple(ran[id(test)] for test in checked.tests if id(test) in ran)


def with_what_they_found(checked: Checked, ran: tuple[RanTest, ...], *, coverage: bool) -> Checked:
    """Return the policy with what its tests have found, and with the rules that they do not exercise."""
    from hivemind_trio.policy import unexercised, with_findings, with_tests

    checked = with_tests(checked, ran)
    return with_findings(checked, unexercised(checked, ran)) if coverage and checked.program is not None else checked


def outcome(tests: Sequence[tuple[Checked, Sequence[RanTest]]]) -> str:
    """Return a line with the numbers of tests passed and failed; empty if there are none."""
    every = [one for _, ran in tests for one in ran]
    failed = sum(one.failed for one in every)
    mistaken = sum(len(checked.tests) for checked, _ in tests if checked.program is None)
    left_out = sum(len(checked.tests) for checked, _ in tests) - len(every) - mistaken
    counts = {
        "passed": len(every) - failed,
        "failed": failed,
        "left out": left_out,
        "not run, for the policy has errors": mistaken,
    }
    said = [f"{count} {what}" for what, count in counts.items() if count]
    return f"tests: {', '.join(said)}" if said else ""


def _heard(line: ProgressLine, what: str) -> Heard | None:
    """Whom to tell of a run."""
    return (lambda share: line.write(f"{what}, {share:.0%}")) if line.shown else None
