"""`hivemind-trio completion`."""

from __future__ import annotations

import click

VARIABLE = "_HIVEMIND_TRIO_COMPLETE"
"""Environment variable by which a shell asks click for completions."""


@click.command(
    epilog="""\b
Examples:
  hivemind-trio completion bash > ~/.local/share/bash-completion/completions/hivemind-trio
  hivemind-trio completion zsh > ~/.zfunc/_hivemind-trio        ~/.zfunc must be in fpath
  hivemind-trio completion fish > ~/.config/fish/completions/hivemind-trio.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell completion script.

    The script asks `hivemind-trio` for the completions, so it stays valid for later versions.
    """
    from click.shell_completion import get_completion_class

    from .console import PROGRAM

    complete = get_completion_class(shell)
    assert complete is not None  # click has these three
    click.echo(complete(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source())
