"""Shared parts of commands: colour, exit codes, and errors about files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

import click

PROGRAM = "hivemind-trio"

EXIT_CLEAN = 0
EXIT_PROBLEMS = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def color_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--color`."""
    return click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Colour the output. auto: on a terminal, unless NO_COLOR is set.",
    )(command)


def wants_color(choice: str, stream: TextIO) -> bool:
    """Return True if output to `stream` is coloured (https://no-color.org)."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fail(message: str, *, hint: str = "") -> NoReturn:
    """Say what is wrong with the invocation and end with status 2; what it names may be anybody's words."""
    from hivemind_trio.policy import visible

    click.echo(f"hivemind-trio: {visible(message)}", err=True)
    if hint:
        click.echo(f"  {visible(hint)}", err=True)
    sys.exit(EXIT_USAGE)
