"""`hivemind-trio setup`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from hivemind_trio.cli.console import EXIT_PROBLEMS, fail
from hivemind_trio.cli.control.connect import NoProxy, found_proxy, proxy_of, proxy_options

if TYPE_CHECKING:
    from hivemind_trio.clients import Client

NAMES = (
    "claude-code", "codex", "gemini", "opencode", "aider", "copilot", "cursor", "windsurf", "cline", "generic",
)  # fmt: skip
"""Names of `hivemind_trio.clients`, which are not imported for a `--help`."""
DEFAULT_URL: Final = "http://127.0.0.1:8787"


@click.command(
    epilog="""\b
Examples:
  hivemind-trio setup claude-code                 what to set, and where, for the proxy that runs
  hivemind-trio setup codex --write               set it, with a backup of the file
  hivemind-trio setup codex --undo                restore the file
  hivemind-trio setup opencode --agent lead       its calls come from the agent `lead` of the policy
  hivemind-trio setup aider --policy team.hmp     for the proxy of this policy
  hivemind-trio setup generic --url http://10.0.0.5:8787

\b
--write keeps what else is in the file. --undo restores it byte by byte; if others have changed it since, only the
settings that were written are put back. Cursor and Windsurf cannot use a local proxy, and this says so.
Exit status: 0 shown or done, 1 the client cannot use a local proxy, 2 wrong usage or a file that cannot be changed."""
)
@click.argument("client", type=click.Choice(NAMES))
@click.option(
    "--url", help="Address of the proxy. Default: that of the running one, or of --policy, or http://127.0.0.1:8787."
)
@click.option("--agent", metavar="NAME", help="Name of the agent, for the policy: `/@NAME` is added to the address.")
@click.option("--write", is_flag=True, help="Set it in the client's files, with a backup of each.")
@click.option("--undo", is_flag=True, help="Restore the files as they were before --write.")
@proxy_options
def setup(
    client: str, url: str | None, agent: str | None, write: bool, undo: bool, socket: str | None, policy: str | None
) -> None:
    """Show or set the base URL of a client."""
    from hivemind_trio import clients

    if write and undo:
        fail("--write and --undo exclude each other")
    if url is not None and (socket or policy):
        fail("--url names the proxy; leave out --socket and --policy")
    one = clients.CLIENTS[client]
    try:
        if undo:
            for path, done in clients.undo(one):
                click.echo(f"{path}: {done}")
            return
        url = _address(url if url is not None else _proxy_url(socket, policy), agent)
        if write and one.can_use_a_proxy:
            for path, backup in clients.write(one, url, os.environ):
                click.echo(f"{path}: written" + (f"; before, it was {backup}" if backup is not None else ""))
            click.echo(f"`hivemind-trio setup {client} --undo` restores it.")
            _notes(one, url)
            return
    except clients.SetupFailed as error:
        fail(f"{error}", hint=error.help)
    _show(one, url)
    if not one.can_use_a_proxy and client != "cline":
        raise SystemExit(EXIT_PROBLEMS)


def _proxy_url(socket: str | None, policy: str | None) -> str:
    """Return the address of the proxy that runs, or else the one at which it would listen."""
    if socket is None:
        try:
            found_proxy(policy)
        except NoProxy as none:
            if policy is not None and not Path(policy).is_file():
                fail(str(none), hint=none.hint)
            if not none.choices:
                return _future_url(policy)
    with proxy_of(socket, policy) as client:
        url: str = client.get("/v1/status")["address"]
    return url


def _future_url(policy: str | None) -> str:
    """Return the address at which `serve` would listen, and say on standard error that it does not yet."""
    if policy is None:
        click.echo(f"no proxy runs; `hivemind-trio serve` listens at {DEFAULT_URL} by itself\n", err=True)
        return DEFAULT_URL
    from hivemind_trio.cli.policy_files import checked_policy
    from hivemind_trio.serve import base_url

    program = checked_policy(policy).program
    if program is None:
        fail(f"{policy} has errors", hint=f"`hivemind-trio check {policy}` shows them; or name the address with --url")
    click.echo(f"no proxy of {policy} runs; the address is that of its `server`\n", err=True)
    return base_url((program.server.host, program.server.port))


def _address(url: str, agent: str | None) -> str:
    from hivemind_trio.policy import visible

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or any(one in url for one in " \"'\\#?\n"):
        fail(f"--url: {visible(url)} is no address", hint="write for example http://127.0.0.1:8787")
    if agent is not None and not all(one.isascii() and (one.isalnum() or one in "-_.") for one in agent):
        fail(f"--agent: {visible(agent)} is no name of an agent", hint="it has letters, digits, `-`, `_` and `.`")
    return url.rstrip("/") + (f"/@{agent}" if agent else "")


def _show(client: Client, url: str) -> None:
    """Print the settings, and the notes."""
    from hivemind_trio.clients import config_path, edited
    from hivemind_trio.clients.config_text import line

    for file in client.files:
        values = {name: line(file.format, name, value.replace("{url}", url)) for name, value in file.settings.items()}
        click.echo(f"{client.title}: in {config_path(file, os.environ)}\n")
        click.echo("".join(f"  {one}\n" for one in edited(file.format, "", values).splitlines()))
    if client.variables:
        click.echo("For one shell:\n" if client.files else f"{client.title}: in the environment\n")
        for name, value in client.variables.items():
            click.echo(f"  export {name}={value.replace('{url}', url)}")
        click.echo()
    if not client.files and not client.variables:
        click.echo(f"{client.title}:")
    _notes(client, url)
    if client.files:
        click.echo(f"`hivemind-trio setup {client.name} --write` sets it, with a backup.")


def _notes(client: Client, url: str) -> None:
    for note in client.notes:
        click.echo(note.replace("{url}", url))
