"""`hivemind-trio calls`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click

from hivemind_trio.cli.table import table

from .connect import json_option, proxy_of, proxy_options
from .words import fitted, moment, span

DOING: Final = {
    "arriving": "is arriving",
    "waiting": "waits",
    "inflight": "is in flight",
    "delivering": "is being delivered",
    "ended": "has ended lately",
}
"""State -> verb for a call in it."""


@click.command(
    epilog="""\b
Examples:
  hivemind-trio calls                              calls that are not over
  hivemind-trio calls --state waiting --lane batch
  hivemind-trio calls --state ended --limit 20     the last calls
  hivemind-trio calls --agent ci --json | jq -r '.calls[].id'"""
)
@click.option(
    "--state", type=click.Choice(tuple(DOING)), help="Show only calls in this state. Default: all but `ended`."
)
@click.option("--agent", metavar="NAME", help="Show only calls of this agent.")
@click.option("--lane", metavar="NAME", help="Show only calls in this lane.")
@click.option("--provider", metavar="NAME", help="Show only calls to this provider.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Show at most so many, the youngest."
)
@json_option
@proxy_options
def calls(
    state: str | None,
    agent: str | None,
    lane: str | None,
    provider: str | None,
    limit: int,
    as_json: bool,
    socket: str | None,
    policy: str | None,
) -> None:
    """Show calls in progress, or the last that ended."""
    most = limit if as_json else limit + 1  # one more tells that some are left out
    with proxy_of(socket, policy) as client:
        found = client.get("/v1/calls", state=state, agent=agent, lane=lane, provider=provider, limit=most)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        chosen = {"agent": agent, "lane": lane, "provider": provider}
        if found["calls"]:
            click.echo(fitted(call_table(found["calls"][-limit:], datetime.now(UTC))), nl=False)
            if len(found["calls"]) > limit:
                click.echo(f"older calls are left out: --limit {10 * limit}")
        else:
            click.echo(no_call(state, {name: value for name, value in chosen.items() if value is not None}))


def no_call(state: str | None, chosen: Mapping[str, str]) -> str:
    """Return the text for an empty list: `no call of agent ci waits`."""
    from hivemind_trio.policy import visible

    which = "".join(f" of {name} {visible(value)}" for name, value in chosen.items())
    return f"no call{which} {DOING[state] if state is not None else 'is in progress'}"


def call_table(calls: list[dict[str, Any]], now: datetime) -> str:
    """Return a row for each call."""
    rows = [
        [
            one["id"],
            one["caller"] if one["agent"] == "unknown" else one["agent"],
            one["lane"] or "",
            one["provider"] or "",
            one["sent_model"] or one["model"],
            one["state"] if one["status"] is None else f"{one['state']} {one['status']}",
            span(one["age_s"]),
            span(one["waited_s"]),
            "" if one["reason"] == "none" else one["reason"],
            moment(one["not_before_at"], now),
        ]
        for one in calls
    ]
    head = ["call", "agent", "lane", "provider", "model", "state", "age", "waited", "for", "next"]
    return table(head, rows, least=["next", "age", "provider", "lane", "waited", "model"], names=(0, 1))
