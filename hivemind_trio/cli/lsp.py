"""`hivemind-trio lsp`."""

from __future__ import annotations

from importlib.util import find_spec

import click

from .console import fail


@click.command(
    epilog="""\b
Examples:
  hivemind-trio lsp                                          what an editor runs
  pip install 'pygls>=2'                                     what it needs
  vim.lsp.start({cmd = {'hivemind-trio', 'lsp'}})            Neovim, in a FileType autocommand for hmp
  grammar/vscode in the repository                           Visual Studio Code"""
)
@click.option("--stdio", is_flag=True, help="What it does anyway; some editors pass it.")
def lsp(stdio: bool) -> None:
    """Help an editor with policies: the language server.

    Speaks the Language Server Protocol on standard input and output: findings as one types, and what mends them;
    completion, hover, definitions, references, rename, formatting, an outline, and who decides what a test expects.
    """
    if find_spec("pygls") is None:
        fail("the language server needs pygls", hint="`pip install 'pygls>=2'`")
    from hivemind_trio.lsp import serve

    serve()
