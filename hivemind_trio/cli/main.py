"""The `hivemind-trio` command and its subcommands."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final, final

import click

from hivemind_trio import __version__
from hivemind_trio.cli.agents.forecast import forecast
from hivemind_trio.cli.agents.mcp import mcp
from hivemind_trio.cli.control.budget import budget
from hivemind_trio.cli.control.calls import calls
from hivemind_trio.cli.control.cancel import cancel, let_through, priority
from hivemind_trio.cli.control.dashboard import dashboard
from hivemind_trio.cli.control.leases.lease import lease
from hivemind_trio.cli.control.pause import pause, resume
from hivemind_trio.cli.control.queue import advise, queue
from hivemind_trio.cli.control.reload import reload
from hivemind_trio.cli.control.status import status
from hivemind_trio.cli.control.top import top
from hivemind_trio.cli.fleet.jobs import jobs
from hivemind_trio.cli.fleet.setup import setup
from hivemind_trio.cli.policy.check import check
from hivemind_trio.cli.policy.diff import diff
from hivemind_trio.cli.policy.explain import explain
from hivemind_trio.cli.policy.fmt import fmt
from hivemind_trio.cli.simulate.command import simulate

from .completion import completion
from .demo import demo
from .help import help_command
from .journal.maintenance import journal
from .journal.replay import replay
from .journal.usage import usage
from .lsp import lsp
from .man import man
from .run import run as run_jobs
from .serve import serve

_SECTIONS: Final[Mapping[str, tuple[click.Command, ...]]] = {
    "Run the proxy": (serve, setup, reload, demo),
    "Write a policy": (check, fmt, explain, diff, simulate, lsp),
    "Watch a running proxy": (status, top, dashboard, queue, calls, advise),
    "Control a running proxy": (pause, resume, cancel, let_through, priority, budget),
    "Run agents": (run_jobs, jobs, forecast, lease, mcp),
    "Look back": (usage, journal, replay),
    "Help": (help_command, man, completion),
}
"""Heading in `--help` -> its commands, those first that are used first."""


@final
class CommandSections(click.Group):
    """A group whose help lists the commands under headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of commands under each heading."""
        names = {command: name for name, command in self.commands.items()}
        widest = max(map(len, self.commands))
        for heading, commands in _SECTIONS.items():
            rows = [
                (names[one].ljust(widest), one.get_short_help_str(formatter.width - widest - 6)) for one in commands
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


@click.group(
    cls=CommandSections,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  hivemind-trio demo                        compare agents with and without the proxy; needs no key
  hivemind-trio serve                       use the providers whose keys are in the environment
  hivemind-trio serve --policy team.hmp     run a policy; reload it when it changes
  hivemind-trio setup codex --write         point a client at the proxy, with a backup
  hivemind-trio run -n 11 -- claude -p "fix {}" ::: pkg/*      run agents, and resume them after limits
  hivemind-trio jobs                        list runs and their jobs; `jobs resume last` goes on
  hivemind-trio status                      show what a running proxy does; `queue`, `calls` show more
  hivemind-trio pause lane batch            hold calls back until `resume`; `cancel` ends one
  hivemind-trio check --deny warnings       check policies in CI
  hivemind-trio check --fix team.hmp        apply the fixes of problems
  hivemind-trio explain team.hmp agent=ci model=claude-opus-4-1
  hivemind-trio diff --git main team.hmp    show what a merge would change for calls
  hivemind-trio explain HM303               show what a diagnostic means
  hivemind-trio explain --last              tell the story of the last call
  hivemind-trio usage --by agent            add up tokens, money and waits
  hivemind-trio replay                      repeat the decisions of a recorded session
  hivemind-trio simulate team.hmp           simulate thirty agents on it
  hivemind-trio forecast 8                  may eight agents start now?
  hivemind-trio lease browser -- npx playwright test   run it while no one else has the browser
  hivemind-trio mcp                         tools for agents: "how many sub-agents fit now?"
  hivemind-trio help operating              show a document; `help` lists them

Exit status: 0 clean, 1 problems found, 2 wrong usage or a file that cannot be read.""",
)
@click.version_option(__version__, prog_name="hivemind-trio")
@click.option(
    "--allow-include",
    multiple=True,
    metavar="FOLDER",
    help="Allow policies to include files of this folder too. Repeatable.",
)
def main(allow_include: tuple[str, ...]) -> None:
    """Schedule the calls of coding agents to LLM providers.

    A transparent HTTP proxy between agents and providers. A policy file sets concurrency, priorities, budgets, retries
    and fallbacks.
    """


for _command in itertools.chain.from_iterable(_SECTIONS.values()):
    main.add_command(_command)


def run() -> None:
    """Run the command line and exit."""
    main(prog_name="hivemind-trio")
