"""`hivemind-trio pause` and `hivemind-trio resume`."""

from __future__ import annotations

import json
from typing import Any

import click

from .connect import json_option, proxy_of, proxy_options
from .words import counted

KINDS = ("provider", "lane", "agent")


@click.command(
    epilog="""\b
Examples:
  hivemind-trio pause provider anthropic     no call begins there until `resume`
  hivemind-trio pause lane batch
  hivemind-trio pause agent ci               an agent of the policy, or a caller as `calls` shows it
  hivemind-trio pause                        what is paused

\b
Calls in flight go on. Those that wait keep their deadlines, and are rejected when their clients would give up.
A pause lasts until `resume`, over reloads, and ends with the process."""
)
@click.argument("kind", type=click.Choice(KINDS), required=False)
@click.argument("name", required=False)
@json_option
@proxy_options
def pause(kind: str | None, name: str | None, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Pause a provider, lane or agent: its calls wait."""
    if kind is not None and name is None:
        raise click.UsageError(f"name the {kind}: `hivemind-trio pause {kind} NAME`")
    with proxy_of(socket, policy) as client:
        if kind is None:
            found = client.get("/v1/paused")
        else:
            found = client.ask("POST", "/v1/pause", body={"kind": kind, "name": name})
    click.echo(json.dumps(found, indent=2) if as_json else paused_text(found), nl=as_json)


@click.command(
    epilog="""\b
Examples:
  hivemind-trio resume provider anthropic
  hivemind-trio resume lane batch
  hivemind-trio resume agent ci"""
)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@json_option
@proxy_options
def resume(kind: str, name: str, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Resume a provider, lane or agent that is paused."""
    with proxy_of(socket, policy) as client:
        found = client.ask("POST", "/v1/resume", body={"kind": kind, "name": name})
    click.echo(json.dumps(found, indent=2) if as_json else paused_text(found), nl=as_json)


def paused_text(found: dict[str, Any]) -> str:
    """Return a line for each pause."""
    if not found["paused"]:
        return "nothing is paused\n"
    return "".join(f"paused: {one['kind']} {one['name']}, {_effect(one)}\n" for one in found["paused"])


def _effect(pause: dict[str, Any]) -> str:
    if pause["known"]:
        return f"{counted(pause['waiting'], 'call')} waiting"
    return "which has not called: the policy has no such agent, and `hivemind-trio calls` no such caller"
