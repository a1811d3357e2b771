"""The `hivemind-trio` command and its subcommands."""

from __future__ import annotations

import click

from hivemind_trio import __version__
from hivemind_trio.cli.policy.check import check
from hivemind_trio.cli.policy.diff import diff
from hivemind_trio.cli.policy.explain import explain
from hivemind_trio.cli.policy.fmt import fmt
from hivemind_trio.cli.simulate.command import simulate

from .completion import completion
from .demo import demo
from .help import help_command
from .lsp import lsp
from .man import man
from .serve import serve


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  hivemind-trio demo                        see what it does; needs no key
  hivemind-trio serve                       providers found in the environment
  hivemind-trio serve --policy team.hmp     your policy, reloaded when it changes
  hivemind-trio check --deny warnings       in CI
  hivemind-trio explain team.hmp agent=ci model=claude-opus-4-1
  hivemind-trio diff --git main team.hmp    what a merge would change, by meaning
  hivemind-trio explain HM303               what a diagnostic means
  hivemind-trio simulate team.hmp           what it makes of thirty agents
  hivemind-trio help operating              a document; `help` lists them

Exit status: 0 clean, 1 problems found, 2 wrong usage or an unreadable file.""",
)
@click.version_option(__version__, prog_name="hivemind-trio")
@click.option(
    "--allow-include",
    multiple=True,
    metavar="FOLDER",
    help="Let policies include files of this folder too, which is not below theirs. Repeatable.",
)
def main(allow_include: tuple[str, ...]) -> None:
    """Tell a fleet of agents when to call the LLM.

    A transparent proxy between agents and LLM providers. What it does is compiled from a policy file.
    """


for _command in (serve, check, fmt, explain, diff, simulate, lsp, demo, completion, man, help_command):
    main.add_command(_command)


def run() -> None:
    """Run the command line and exit."""
    main(prog_name="hivemind-trio")
