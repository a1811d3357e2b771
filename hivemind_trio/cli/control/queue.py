"""`hivemind-trio queue` and `hivemind-trio advise`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from hivemind_trio.cli.progress import ProgressLine
from hivemind_trio.cli.table import table

from .connect import json_option, proxy_of, proxy_options
from .words import counted, fitted, moment, span, start

ASK_S: Final = 0.5
TRIES: Final = 480
"""Questions until the advice is computed."""


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
        click.echo(fitted(queue_table(found, datetime.now(UTC))), nl=False)


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
    head = ["lane", "calls", "waiting for", "oldest", "first", "all", "next", "provider", "agents", "rejected"]
    least = ["agents", "rejected", "provider", "next", "all", "first", "oldest"]
    return f"{counted(found['waiting'], 'call')} waiting\n\n" + table(head, rows, right={1, 8}, least=least)


@click.command(
    epilog="""\b
Examples:
  hivemind-trio advise                      which limit to lift, by a simulation of the last hour
  hivemind-trio advise --json | jq -r '.advice[].text'
  hivemind-trio advise --policy team.hmp    of the proxy that serves this policy

\b
`hivemind-trio simulate team.hmp --trace JOURNAL --compare new.hmp` tries any other change."""
)
@json_option
@proxy_options
def advise(as_json: bool, socket: str | None, policy: str | None) -> None:
    """Show which limit to lift so that calls wait less.

    The running proxy simulates the calls of the last hour, from its journal, with one limit lifted by half at a time:
    `max` and `reserve` of lanes, `concurrency` and `limits` of agents and providers. A sentence is printed for each
    limit that plainly helps. Budgets and plans are left out. The first answer takes up to two minutes, since the
    simulation has a fifth of a processor; it is kept for ten minutes.
    """
    with proxy_of(socket, policy) as client, ProgressLine() as line:
        found = client.get("/v1/advice")
        for _ in range(TRIES):
            if found["state"] != "computing":
                break
            if line.shown:
                line.write("the proxy simulates the last hour")
            time.sleep(ASK_S)
            found = client.get("/v1/advice")
    text = json.dumps(found, indent=2) if as_json else fitted(advice_text(found, datetime.now(UTC)))
    click.echo(text, nl=as_json)


def advice_text(found: dict[str, Any], now: datetime) -> str:
    """Return the sentences, and the waits that they are compared with."""
    lines = [found["text"], ""]
    lines += [f"- {one['text']}" for one in found["advice"]]
    if found["advice"]:
        lines.append("")
    if found["state"] != "ready":
        return f"{found['text']}\n"
    ago = ""
    if found["at"] is not None:
        ago = f"{span(max(0.0, (now - datetime.fromisoformat(found['at'])).total_seconds()))} ago "
    waited = f", which waited {span(found['waited_p95_s'])} (p95)" if "waited_p95_s" in found else ""
    lines.append(
        f"simulated {ago}with {found['calls']:,} calls over {span(found['span_s'])}{waited}; "
        f"{found['tried']} of {found['limits']} limits were lifted by half, one at a time"
    )
    rows = [
        [one["lane"], f"{one['served']:,}", span(one["wait_p95_s"]), f"{one['rejected']:,}"] for one in found["lanes"]
    ]
    head = ["lane", "calls", "simulated waits p95", "rejected"]
    return "\n".join(lines) + "\n\n" + table(head, rows, right={1, 2, 3})
