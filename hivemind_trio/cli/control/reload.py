"""`hivemind-trio reload`."""

from __future__ import annotations

import json

import click

from .connect import json_option, proxy_of, proxy_options


@click.command(
    epilog="""\b
Examples:
  hivemind-trio reload                        read the policy's file again, and wait until it is in force
  hivemind-trio reload --diff                 show what that would change, and change nothing
  hivemind-trio reload --if-match 96dfe5ad    only if this policy is in force

\b
A policy with errors is not loaded: its errors are printed, the running policy stays, and the exit status is 2.
`hivemind-trio status` shows the hash of the policy in force."""
)
@click.option("--diff", "shows", is_flag=True, help="Show what a reload would change, and change nothing.")
@click.option("--if-match", metavar="HASH", help="Reload only if the policy in force has this hash.")
@json_option
@proxy_options
def reload(shows: bool, if_match: str | None, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Reload the policy of a running proxy."""
    with proxy_of(socket, policy) as client:
        if shows:
            found = client.get("/v1/policy/diff")
            click.echo(json.dumps(found, indent=2) if as_json else found["text"], nl=as_json)
            return
        headers = {"if-match": f'"{if_match}"'} if if_match is not None else None
        found = client.ask("POST", "/v1/reload", headers=headers)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        was = f"in place of {found['before'][:8]}" if found["changed"] else "as before"
        click.echo(f"policy {found['hash'][:8]} is in force, {was}")
