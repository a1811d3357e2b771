"""`hivemind-trio help`: the documents that are shipped with the package."""

from __future__ import annotations

from importlib import resources

import click
from click.shell_completion import CompletionItem

TOPICS = {
    "life-of-a-call": "each step from arrival to release",
    "running-jobs": "run agents for a list of tasks, and resume them after limits",
    "batch": "batch pipelines: from max_requests_per_minute to one line",
    "leases": "share browsers, ports and GPUs between agents; leader election, start barrier",
    "agent-tools": "tools for agents over MCP: how many sub-agents fit now",
    "clients": "point Claude Code, Codex and other clients at the proxy",
    "operating": "reload, shutdown, state, journal, log, traces, editors and CI",
    "control-api": "control API of a running proxy: resources, fields, errors",
    "plans": "subscription windows: reading, accounts, where they are shown",
    "rejections": "codes, statuses and messages of rejected calls; what calls wait for",
    "simulate": "simulate, replay, compare and test a policy",
    "security": "threat model: who may spend the key",
    "architecture": "rooms, rules and recipes for changes",
    "glossary": "terms",
}


def _topics(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a topic or a command."""
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    return [CompletionItem(name) for name in (*TOPICS, *root.command.list_commands(root)) if name.startswith(begun)]


@click.command(
    "help",
    epilog="""\b
Examples:
  hivemind-trio help                list the topics
  hivemind-trio help operating      show a document, in a pager on a terminal
  hivemind-trio help check          show the same as `hivemind-trio check --help`""",
)
@click.argument("topic", required=False, shell_complete=_topics)
@click.pass_context
def help_command(context: click.Context, topic: str | None) -> None:
    """Show a document, or the help of a command."""
    root = context.find_root()
    group = root.command
    assert isinstance(group, click.Group)
    if topic is None:
        click.echo("Topics of `hivemind-trio help TOPIC`:\n")
        for name, line in TOPICS.items():
            click.echo(f"  {name:16} {line}")
        click.echo("\n`hivemind-trio help COMMAND` shows the options of a command, `explain HM203` a diagnostic.")
    elif topic in TOPICS:
        text = (resources.files("hivemind_trio.docs") / f"{topic}.md").read_text(encoding="utf-8")
        click.echo_via_pager(text)
    elif (command := group.get_command(root, topic)) is not None:
        click.echo(command.get_help(click.Context(command, parent=root, info_name=topic)))
    else:
        _unknown(topic, [*TOPICS, *group.list_commands(root)])


def _unknown(topic: str, known: list[str]) -> None:
    from difflib import get_close_matches

    from .console import fail

    alike = get_close_matches(topic, known, n=1)
    hint = f"did you mean `{alike[0]}`?" if alike else "`hivemind-trio help` lists the topics"
    fail(f"no topic or command `{topic}`", hint=hint)
