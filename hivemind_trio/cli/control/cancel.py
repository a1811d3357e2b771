"""`hivemind-trio cancel`, `let-through` and `priority`."""

from __future__ import annotations

import json
from urllib.parse import quote

import click

from .connect import json_option, proxy_of, proxy_options


@click.command(
    epilog="""\b
Examples:
  hivemind-trio cancel 3fa2c1-17             the id is in `hivemind-trio calls` and in `x-hivemind-call`
  hivemind-trio cancel 3fa2c1-17 --policy team.hmp

\b
A call that waits, or has had nothing of its answer, is rejected with 403 `cancelled`, which SDKs do not retry.
A stream that has begun ends with an error event that says so. The provider is hung up on."""
)
@click.argument("call_id", metavar="ID")
@json_option
@proxy_options
def cancel(call_id: str, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Cancel a call that waits or is in flight."""
    with proxy_of(socket, policy) as client:
        found = client.ask("POST", f"/v1/calls/{quote(call_id, safe='')}/cancel")
    click.echo(json.dumps(found, indent=2) if as_json else f"cancelled {found['id']}, which was {found['state']}")


@click.command(
    context_settings={"ignore_unknown_options": True},  # `-10` is a number
    epilog="""\b
Examples:
  hivemind-trio priority 3fa2c1-17 100       before all others of its lane that have less
  hivemind-trio priority 3fa2c1-17 -10       behind them

\b
It stands before calls of lower priority in its lane and still needs room in every limit.""",
)
@click.argument("call_id", metavar="ID")
@click.argument("priority", type=click.IntRange(-1_000, 1_000))
@json_option
@proxy_options
def priority(call_id: str, priority: int, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Set the priority of a call that waits."""
    with proxy_of(socket, policy) as client:
        path = f"/v1/calls/{quote(call_id, safe='')}/priority"
        found = client.ask("POST", path, body={"priority": priority})
    text = f"{found['id']} has priority {found['priority']} and is {found['state']}"
    click.echo(json.dumps(found, indent=2) if as_json else text)


@click.command(
    name="let-through",
    epilog="""\b
Examples:
  hivemind-trio let-through 3fa2c1-17        it goes now, or as soon as its provider has room

\b
It goes past its turn, `max` and `reserve` of lanes, the limits of its agent, and what a plan keeps for others. The
provider's concurrency, rate limits and circuit still hold, and so do budgets, rules with `hold` and pauses.""",
)
@click.argument("call_id", metavar="ID")
@json_option
@proxy_options
def let_through(call_id: str, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Let a waiting call go now, past limits of lanes and agents."""
    with proxy_of(socket, policy) as client:
        found = client.ask("POST", f"/v1/calls/{quote(call_id, safe='')}/let-through")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found["state"] == "waiting":
        click.echo(f"{found['id']} is the next at provider {found['provider']}")
    else:
        click.echo(f"{found['id']} goes now")
