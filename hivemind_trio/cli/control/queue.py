"""`hivemind-trio queue`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from .connect import json_option, proxy_of, proxy_options
from .words import counted, moment, span, start, table


@click.command(
    epilog="""\b
Examples:
  hivemind-trio queue                      what calls wait for, by lane, provider and reason
  hivemind-trio queue --json | jq '.queue[] | select(.reason == "budget")'
  hivemind-trio queue --policy team.hmp    of the proxy that serves this policy"""
)
@json_option
@proxy_options
def queue(as_json: bool, socket: str | None, policy: str | None) -> None:
    """Show what calls wait for, and until when.

    `first` is when the first of them starts, `all` when they all have: an estimate, and in brackets the time before
    which it is with 90 %. Empty: not within half an hour, or there are too many calls. `next` is the earliest start
    that is known for certain. `rejected` is when the first of them has waited as long as its deadline allows.
    `hivemind-trio calls --state waiting` has them one by one.
    """
    with proxy_of(socket, policy) as client:
        found = client.get("/v1/queue")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(queue_table(found, datetime.now(UTC)), nl=False)


def queue_table(found: dict[str, Any], now: datetime) -> str:
    """Return the rows of the queue, the longest wait first."""
    if not found["queue"]:
        return "no call waits\n"
    rows = [
        [
            one["lane"],
            f"{one['n']:,}",
            one["reason"],
            span(one["oldest_s"]),
            start(one["first"], now),
            start(one["last"], now),
            moment(one["next_at"], now),
            one["provider"] or "",
            f"{one['agents']:,}",
            moment(one["first_deadline_at"], now),
        ]
        for one in sorted(found["queue"], key=lambda one: -one["oldest_s"])
    ]
    # What matters most is left: a narrow terminal has the first columns.
    head = ["lane", "calls", "waiting for", "oldest", "first", "all", "next", "provider", "agents", "rejected"]
    return f"{counted(found['waiting'], 'call')} waiting\n\n" + table(head, rows, right={1, 8})
