"""Changed policy files: written back in one step, or shown as a unified diff."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import click


def replace_file(path: Path, content: bytes) -> None:
    """Replace in one step, keeping the mode: a proxy may be watching, and an interrupted write must lose nothing."""
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.chmod(target.stat().st_mode & 0o7777)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def print_diff(name: str, old: str, new: str, what: str, *, color: bool) -> None:
    """Print a unified diff of two texts without keys; nothing in them acts on the terminal.

    Args:
        name: The file.
        old: Its text.
        new: The text that it would have.
        what: Why, beside the name of the new text.
        color: Use ANSI colours.
    """
    from hivemind_trio.policy import visible

    for line in difflib.unified_diff(old.split("\n"), new.split("\n"), name, f"{name} ({what})", lineterm=""):
        hue = {"+": "green", "-": "red", "@": "cyan"}.get(line[0]) if color else None
        safe = "\t".join(map(visible, line.removesuffix("\r").split("\t")))
        click.echo(click.style(safe, fg=hue) if hue else safe, color=color)
