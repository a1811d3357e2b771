"""`hivemind-trio man`: a manual page from what `--help` says, so that the two cannot disagree."""

from __future__ import annotations

from collections.abc import Iterator

import click

from hivemind_trio import __version__

from .console import PROGRAM

VERBATIM = "\b"
"""Alone on a line, it tells click to leave the paragraph's lines as they are."""


@click.command(
    epilog="""\b
Examples:
  hivemind-trio man | man -l -                                         read the page
  hivemind-trio man > ~/.local/share/man/man1/hivemind-trio.1          install it for `man hivemind-trio`"""
)
def man() -> None:
    """Print the manual page as roff."""
    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)
    click.echo(manual(root), nl=False)


def manual(group: click.Group) -> str:
    """Return the page of a group of commands, as roff."""
    context = click.Context(group, info_name=PROGRAM, **group.context_settings)
    return "".join(f"{line}\n" for line in _page(group, context))


def _page(group: click.Group, context: click.Context) -> Iterator[str]:
    yield f'.TH {PROGRAM.upper()} 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{_plain(PROGRAM)} \\- {_plain(group.get_short_help_str(200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {_plain(PROGRAM)}"
    yield _plain(" ".join(group.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(group.help or "", opens=True)
    yield ".SH OPTIONS"
    yield from _options(group, context)
    yield ".SH COMMANDS"
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # it is listed
        inner = click.Context(command, parent=context, info_name=name)
        usage = " ".join([PROGRAM, name, *command.collect_usage_pieces(inner)])
        yield f'.SS "{_plain(usage)}"'
        yield from _paragraphs(command.help or "", opens=True)
        yield from _options(command, inner)
        yield from _paragraphs(command.epilog or "")
    yield ".SH EXAMPLES"
    yield from _paragraphs(group.epilog or "", opens=True)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:  # an argument is said in the usage
            yield ".TP"
            yield f".B {_plain(record[0])}"
            yield _line(record[1])


def _paragraphs(text: str, *, opens: bool = False) -> Iterator[str]:
    """Yield paragraphs as click has them: filled, or left as they are.

    Args:
        opens: True if the first one is directly below a heading, which already separates it.
    """
    for paragraph in text.split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line.strip() != VERBATIM]
        if not any(line.strip() for line in lines):
            continue
        if not opens:
            yield ".PP"
        opens = False
        if len(lines) < len(paragraph.split("\n")):
            yield ".nf"
            yield from map(_line, lines)
            yield ".fi"
        else:
            yield _line(" ".join(line.strip() for line in lines).strip())


def _line(text: str) -> str:
    """Return a line of text that cannot be taken for a request."""
    plain = _plain(text)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _plain(text: str) -> str:
    """Letters that stand for themselves; a hyphen is the one that can be typed."""
    return text.replace("\\", "\\e").replace("-", "\\-")
