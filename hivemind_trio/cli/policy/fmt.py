"""`hivemind-trio fmt`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hivemind_trio.cli.console import EXIT_CLEAN, EXIT_PROBLEMS, EXIT_USAGE, color_option, fail, wants_color
from hivemind_trio.cli.policy_files import policies

from .rewriting import print_diff, replace_file


@click.command(
    epilog="""\b
Examples:
  hivemind-trio fmt                   format every *.hmp in this folder and below
  hivemind-trio fmt policies          format every *.hmp in another folder and below
  hivemind-trio fmt --check           exit with status 1 if a file would change, for CI
  hivemind-trio fmt --diff team.hmp   show what would change
  hivemind-trio fmt - < team.hmp      format standard input to standard output"""
)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; name the files that would change and exit with status 1 if there are any.",
)
@click.option(
    "--diff", is_flag=True, help="Write nothing; print a unified diff and exit with status 1 if a file would change."
)
@color_option
def fmt(paths: tuple[str, ...], check: bool, diff: bool, color: str) -> None:
    """Format policy files.

    Only white space changes. A file with a syntax error is not changed, and neither is one whose words or comments
    would differ afterwards.
    """
    from hivemind_trio.policy import visible

    if "-" in paths:
        if len(paths) > 1:
            fail("`-` stands alone: standard input goes to standard output")
        text = sys.stdin.buffer.read()
        formatted = _formatted("<stdin>", text)
        if formatted is None:
            sys.exit(EXIT_PROBLEMS)
        if check or diff:
            sys.exit(_report("<stdin>", text, formatted, diff=diff, color=wants_color(color, sys.stdout)))
        sys.stdout.buffer.write(formatted)
        sys.exit(EXIT_CLEAN)

    status = EXIT_CLEAN
    for path in [Path(one.path) for one in policies(paths, "fmt")]:
        try:
            if path.exists() and not path.is_file():
                raise OSError(None, "not a regular file")
            text = path.read_bytes()
            formatted = _formatted(str(path), text)
            if formatted is None:
                status = max(status, EXIT_PROBLEMS)
            elif check or diff:
                problems = _report(str(path), text, formatted, diff=diff, color=wants_color(color, sys.stdout))
                status = max(status, problems)
            elif formatted != text:
                replace_file(path, formatted)
                click.echo(visible(f"formatted {path}"))
        except OSError as error:
            click.echo(visible(f"hivemind-trio: {path}: {error.strerror or error}"), err=True)
            status = EXIT_USAGE
    sys.exit(status)


def _formatted(name: str, text: bytes) -> bytes | None:
    """Return the canonical bytes, or None after saying why the file is left alone."""
    from hivemind_trio.policy import FormatError, format_text, masked, visible

    try:
        return format_text(text.decode("utf-8-sig")).encode("utf-8")
    except UnicodeDecodeError:
        reason = "not UTF-8"
    except FormatError as error:
        reason = str(error)
    click.echo(visible(masked(f"{name}: left as it is: {reason}")), err=True)
    return None


def _report(name: str, before: bytes, after: bytes, *, diff: bool, color: bool) -> int:
    from hivemind_trio.policy import masked, visible

    if before == after:
        return EXIT_CLEAN
    if not diff:
        click.echo(visible(f"would format {name}"))
        return EXIT_PROBLEMS
    # A key in the file is not shown again, and nothing in it acts on the terminal.
    print_diff(name, masked(before.decode()), masked(after.decode()), "formatted", color=color)
    return EXIT_PROBLEMS
