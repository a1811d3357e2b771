"""`hivemind-trio usage`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from hivemind_trio.cli.table import aligned, table

from .behind import say_behind
from .find import asked, journal_of, journal_options, moment_ns
from .plans import plan_lines
from .story import seconds

if TYPE_CHECKING:
    from hivemind_trio.store import UsageRow

KEYS: Final = (
    *("agent", "team", "caller", "credential", "model", "provider", "lane", "session", "day", "hour"),
    *("status", "reason"),
)

BAR: Final = 40
"""Characters of the longest bar."""


@click.command(
    epilog="""\b
Examples:
  hivemind-trio usage                            tokens, money and waits by agent, of the journal written last
  hivemind-trio usage --by model --since 7d
  hivemind-trio usage --by day --plot            a bar for each day
  hivemind-trio usage --policy team.hmp --by team --since 2026-11-01 --csv > november.csv
  hivemind-trio usage --by session --json        a session is what an agent's session header or user names"""
)
@click.option("--by", type=click.Choice(KEYS), default="agent", show_default=True, help="Add up by this.")
@click.option("--since", metavar="TIME", help="Count calls from then on: `24h`, `7d`, `2026-11-20T14:30`.")
@click.option("--until", metavar="TIME", help="Count calls before that.")
@click.option("--json", "form", flag_value="json", help="Print JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV.")
@click.option("--plot", "form", flag_value="plot", help="Draw a bar for each row: cost, or tokens without prices.")
@journal_options
def usage(
    by: str, since: str | None, until: str | None, form: str | None, file: str | None, policy: str | None
) -> None:
    """Show spend, tokens and waits of recorded calls.

    Waits are of calls that were not rejected.
    Money is counted at the prices of the policy that served the call; `unpriced` counts attempts whose tokens or
    price are not known. Below the table is the plan of each account as its last answer told of it, whatever the
    time that is counted.
    """
    from hivemind_trio.store import latest_plans, usage_by

    path = journal_of(file, policy)
    since_ns = moment_ns(since, "--since") if since is not None else None
    until_ns = moment_ns(until, "--until") if until is not None else None
    lacks = say_behind(path)
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None
    rows, plans = asked(
        path, lambda database: (usage_by(database, by, since_ns, until_ns, zone), latest_plans(database))
    )
    if form == "json":
        from hivemind_trio.admin import plan_objects

        shown = {
            "format_version": 1,
            "by": by,
            "rows": [_object(row) for row in rows],
            "plans": plan_objects(plans),
            "journal_behind": lacks,
        }
        click.echo(json.dumps(shown, indent=2))
    elif form == "csv":
        click.echo(_csv(by, rows), nl=False)
    elif not rows:
        click.echo(f"no calls in {path}" + (" in that time" if since or until else ""))
    elif form == "plot":
        click.echo(_bars(rows), nl=False)
    else:
        click.echo(_table(by, rows) + "".join(f"{line}\n" for line in plan_lines(plans)), nl=False)


def _object(row: UsageRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "calls": row.calls,
        "rejected": row.rejected,
        "failed": row.failed,
        "attempts": row.attempts,
        "tokens_input": row.input,
        "tokens_cache_read": row.cache_read,
        "tokens_cache_write": row.cache_write,
        "tokens_output": row.output,
        "cost_usd": row.cost_microusd / 1e6,
        "unpriced": row.unpriced,
        "wait_s": row.waited_ns / 1e9,
        "wait_p50_s": row.wait_quantile_ns(0.5) / 1e9,
        "wait_p95_s": row.wait_quantile_ns(0.95) / 1e9,
    }


def _csv(by: str, rows: Sequence[UsageRow]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    objects = [_object(row) for row in rows]
    names = [name for name in (objects[0] if objects else {"key": ""}) if name != "key"]
    writer.writerow([by, *names])
    for each in objects:
        key = str(each["key"])
        # A spreadsheet would take such a name for a formula.
        writer.writerow([f"'{key}" if key[:1] in "=+-@\t\r" else key, *(each[name] for name in names)])
    return out.getvalue()


def _table(by: str, rows: Sequence[UsageRow]) -> str:
    head = (by, "calls", "rejected", "failed", "input", "cached", "output", "cost", "wait p50", "wait p95")
    shown = [
        (
            row.key,
            f"{row.calls:,}",
            f"{row.rejected:,}",
            f"{row.failed:,}",
            f"{row.input + row.cache_write:,}",
            f"{row.cache_read:,}",
            f"{row.output:,}",
            _cost(row),
            seconds(row.wait_quantile_ns(0.5)),
            seconds(row.wait_quantile_ns(0.95)),
        )
        for row in rows
    ]
    total = (
        "total",
        f"{sum(row.calls for row in rows):,}",
        f"{sum(row.rejected for row in rows):,}",
        f"{sum(row.failed for row in rows):,}",
        f"{sum(row.input + row.cache_write for row in rows):,}",
        f"{sum(row.cache_read for row in rows):,}",
        f"{sum(row.output for row in rows):,}",
        f"${sum(row.cost_microusd for row in rows) / 1e6:,.2f}",
        "",
        "",
    )
    least = ["wait p50", "cached", "failed", "rejected"]
    text = table(head, [*shown, *([total] if len(rows) > 1 else [])], right=set(range(1, len(head))), least=least)
    unpriced = sum(row.unpriced for row in rows)
    if unpriced:
        text += f'* {unpriced:,} attempts without a known price; add `model "..." {{ price ... }}` to the policy\n'
    return text


def _cost(row: UsageRow) -> str:
    return f"${row.cost_microusd / 1e6:,.2f}{'*' if row.unpriced else ''}"


def _bars(rows: Sequence[UsageRow]) -> str:
    priced = any(row.cost_microusd for row in rows)
    tokens = [row.input + row.cache_read + row.cache_write + row.output for row in rows]
    values = [row.cost_microusd for row in rows] if priced else tokens
    most = max([*values, 1])
    lines = [
        (row.key, "#" * round(BAR * value / most), f"${value / 1e6:,.2f}" if priced else f"{value:,} tokens")
        for row, value in zip(rows, values, strict=True)
    ]
    return "".join("  ".join(line).rstrip() + "\n" for line in aligned(lines, right={2}))
