"""What does the simulator say of each policy that ships? Budget: two minutes of one core.

    python -m bench.policies --write        measures, and puts the table into policies/README.md with its date
    python -m bench.policies --check        whether that table says what is measured now

Every policy serves the scenario that `simulate` takes unasked, with the same seeds: thirty agents that are its declared
ones in turn, straight at simulated providers as strict as the policy says they are, and through the proxy. Then four
times as many do. What differs between two rows is thus the policy's limits and rules, and not the work.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Final

import attrs

from hivemind_trio.host import DiskFiles
from hivemind_trio.policy import Program, check
from hivemind_trio.sim import Figures, Pair, parse_scenario, study

FOLDER: Final = Path(__file__).parents[1] / "policies"
README: Final = FOLDER / "README.md"
SCENARIO: Final = "fleet"
SEEDS: Final = range(1, 4)
TIMES: Final = 4
TABLE: Final = re.compile(r"(<!-- measured:begin.*?-->\n)(.*?)(<!-- measured:end -->)", re.DOTALL)
HEAD: Final = (
    "| policy | dead, of 30 | failures met | turn p95 | dead, of 120 | failures met | turn p95 |",
    "|---|---|---|---|---|---|---|",
)
DATED: Final = re.compile(r"^Measured .*$", re.MULTILINE)


def programs(folder: Path) -> dict[str, Program]:
    """The policies by name, in order."""
    found = {}
    for path in sorted(folder.glob("*.hmp")):
        program = check(str(path), DiskFiles()).program
        if program is None:
            sys.exit(f"{path} has errors: `hivemind-trio check {path}`")
        found[path.name] = program
    return found


def measured(program: Program, seeds: range, times: int) -> list[Pair]:
    """Both ways."""
    text = (resources.files("hivemind_trio.sim") / "scenarios" / f"{SCENARIO}.toml").read_text("utf-8")
    scenario = parse_scenario(text, name=SCENARIO)
    fleets = tuple(attrs.evolve(fleet, count=fleet.count * times) for fleet in scenario.fleets)
    return list(study(program, attrs.evolve(scenario, fleets=fleets), seeds))


def cells(pairs: list[Pair]) -> list[str]:
    """Direct and through the proxy, means over the seeds."""

    def cell(of: Callable[[Figures], float], form: str) -> str:
        ways = [[of(pair.direct) for pair in pairs], [of(pair.proxy) for pair in pairs]]
        return " → ".join(form.format(sum(way) / len(way)) for way in ways)

    return [
        cell(lambda run: run.dead, "{:.0f}"),
        cell(lambda run: sum(run.met.values()), "{:,.0f}"),
        cell(lambda run: run.turn.p95 / 1e9, "{:.0f} s"),
    ]


def table(seeds: range) -> str:
    """The Markdown between the marks."""
    rows = []
    for name, program in programs(FOLDER).items():
        found = [cell for times in (1, TIMES) for cell in cells(measured(program, seeds, times))]
        rows.append(f"| {' | '.join([f'`{name}`', *found])} |")
    today = datetime.now(tz=UTC).date()
    dated = (
        f"Measured {today.isoformat()} with `python -m bench.policies --write`: scenario `{SCENARIO}`, "
        f"seeds {seeds[0]} to {seeds[-1]}."
    )
    return "\n".join([*HEAD, *rows, "", dated, ""])


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description="What the simulator says of the policies that ship.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--write", action="store_true")
    which.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = README.read_text("utf-8")
    new = TABLE.sub(lambda match: match[1] + table(SEEDS) + match[3], text)
    if arguments.write:
        README.write_text(new, "utf-8")
    elif DATED.sub("", new) != DATED.sub("", text):
        sys.exit("policies/README.md says something else by now: `python -m bench.policies --write`")


if __name__ == "__main__":
    main()
