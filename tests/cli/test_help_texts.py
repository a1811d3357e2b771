"""Help of every command: one imperative summary, every option explained, and examples that parse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from hivemind_trio.cli.main import main

SUMMARY_MAX = 72
VERBS = {
    "Cancel", "Check", "Compare", "Copy", "Find", "Format", "Let", "Pause", "Print", "Reload", "Repeat", "Resume",
    "Run", "Schedule", "Set", "Show", "Shrink", "Simulate", "Verify",
}  # fmt: skip
"""First words of summaries. A new one is a verb in the imperative."""

_EXAMPLE = re.compile(r"^\s+(?:[^|]* \| )?(hivemind-trio\b.*?)(?:\s{2,}.*)?$")
_REST_OF_SHELL = re.compile(r"\s(?:[|<]|\d?>>?)\s.*")


def commands(command: click.Command = main, name: str = "") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for inner, one in sorted(command.commands.items()):
            yield from commands(one, f"{name} {inner}".strip())


COMMANDS = dict(commands())


def examples(command: click.Command) -> list[list[str]]:
    """The arguments of each example, without what the shell does."""
    found = [match[1] for line in (command.epilog or "").splitlines() if (match := _EXAMPLE.match(line))]
    return [shlex.split(_REST_OF_SHELL.sub("", line))[1:] for line in found]


def parsed(args: list[str]) -> str:
    """The name of the command that takes these arguments; it is not run."""
    context: click.Context = main.make_context("hivemind-trio", list(args))
    names: list[str] = []
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest and context.command.invoke_without_command:
            break
        name, command, left = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, left, parent=context)
        names.append(name or "")
    return " ".join(names)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_one_imperative_sentence(name: str) -> None:
    summary = (COMMANDS[name].help or "").split("\n\n")[0]

    assert summary.split()[0] in VERBS
    assert summary.endswith(".")
    assert ". " not in summary
    assert len(summary) <= SUMMARY_MAX


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help[0].isupper(), option.help
            assert re.search(r"[.\]]$", option.help), option.help


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_examples_and_each_of_them_parses(name: str) -> None:
    found = [parsed(args) for args in examples(COMMANDS[name])]

    assert found
    assert "Examples:" in (COMMANDS[name].epilog or "")
    assert not name or all(one == name or one.startswith(f"{name} ") for one in found)


def test_an_example_with_an_unknown_option_does_not_parse() -> None:
    with pytest.raises(click.UsageError):
        parsed(["check", "--no-such-option"])


def test_an_example_is_read_without_its_comment_and_the_shell() -> None:
    command = click.Command("x", epilog='\b\nExamples:\n  cat a | hivemind-trio check --tests "a b" - 2>> log    why')

    assert examples(command) == [["check", "--tests", "a b", "-"]]


def test_the_list_of_commands_cuts_no_summary_short() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.split("Examples:")[0]

    assert all(f"\n  {name} " in shown for name in main.commands)
    assert "..." not in shown.split("[ARGS]...")[1]
