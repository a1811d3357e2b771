"""`hivemind-trio lsp`."""

from __future__ import annotations

from importlib.util import find_spec

import click

from .console import fail


@click.command(
    epilog="""\b
Examples:
  hivemind-trio lsp                                          start the server, as an editor does
  pip install 'pygls>=2'                                     install the library that it needs
  vim.lsp.start({cmd = {'hivemind-trio', 'lsp'}})            for Neovim, in a FileType autocommand for hmp
  grammar/vscode                                             extension for Visual Studio Code"""
)
@click.option(
    "--stdio", is_flag=True, help="Use standard input and output. This is the default; some editors pass the option."
)
def lsp(stdio: bool) -> None:
    """Run the language server for editors.

    Speaks the Language Server Protocol on standard input and output: diagnostics with quick fixes, completion, hover,
    definitions, references, rename, formatting, an outline, and inlay hints in tests.
    """
    if find_spec("pygls") is None:
        fail("the language server needs pygls", hint="`pip install 'pygls>=2'`")
    from hivemind_trio.lsp import serve

    serve()
