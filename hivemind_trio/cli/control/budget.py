"""`hivemind-trio budget`, `budget reset` and `budget set`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

import click

from hivemind_trio.cli.console import fail

from .connect import json_option, proxy_of, proxy_options
from .status import budget_table
from .words import fitted

AMOUNT: Final = re.compile(r"(\$?)([0-9][0-9_]*)(?:\.([0-9]{1,6}))?([kM]?)")
UNITS: Final = {"": 1, "k": 1_000, "M": 1_000_000}


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  hivemind-trio budget                           what is spent of each budget, and when it resets
  hivemind-trio budget reset day --of ci         nothing counts as spent any more
  hivemind-trio budget set day '$2.50' --of ci   so much does""",
)
@json_option
@proxy_options
@click.pass_context
def budget(context: click.Context, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Show the budgets of a running proxy."""
    if context.invoked_subcommand is None:
        with proxy_of(socket, policy) as client:
            _print(client.get("/v1/budgets"), as_json=as_json)


@budget.command(
    "reset",
    epilog="""\b
Examples:
  hivemind-trio budget reset day                 every partition of it
  hivemind-trio budget reset day --of ci         that of one agent, team or whatever it is `per`

\b
Calls that the budget holds go on. It changes the window of now, and survives a restart.""",
)
@click.argument("name")
@click.option("--of", "whose", metavar="PARTITION", help="Reset only this partition.  [default: all]")
@json_option
@proxy_options
def reset(name: str, whose: str | None, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Set what is spent of a budget to nothing."""
    body = {"budget": name, **({"whose": whose} if whose is not None else {})}
    with proxy_of(socket, policy) as client:
        _print(client.ask("POST", "/v1/budgets/reset", body=body), as_json=as_json)


@budget.command(
    "set",
    epilog="""\b
Examples:
  hivemind-trio budget set day '$2.50'           of a budget in dollars
  hivemind-trio budget set tokens 150k --of ci   of a budget in tokens or requests
  hivemind-trio budget set spend '$10' --allowance '$50 per day'   of a budget with several allowances""",
)
@click.argument("name")
@click.argument("amount")
@click.option("--of", "whose", metavar="PARTITION", help="Set it in this partition.  [default: the only one]")
@click.option("--allowance", metavar="TEXT", help="Set it for this allowance, as `budget` shows it.")
@json_option
@proxy_options
def set_spent(
    name: str,
    amount: str,
    whose: str | None,
    allowance: str | None,
    as_json: bool,
    socket: str | None,
    policy: str | None,
) -> None:
    """Set what is spent of a budget."""
    number, is_money = amount_of(amount)
    with proxy_of(socket, policy) as client:
        known = [one for one in client.get("/v1/budgets")["budgets"] if one["budget"] == name]
        if known and any((one["measure"] == "cost") != is_money for one in known):
            unit = "dollars, as in `$2.50`" if not is_money else f"{known[0]['measure']}, as in `150k`"
            fail(f"budget `{name}` counts {unit}")
        body: dict[str, object] = {"budget": name, "spent": number}
        body |= {key: value for key, value in (("whose", whose), ("allowance", allowance)) if value is not None}
        _print(client.ask("POST", "/v1/budgets/spent", body=body), as_json=as_json)


def amount_of(text: str) -> tuple[int, bool]:
    """Return an amount, and True if it is money, which is counted in millionths of a dollar."""
    found = AMOUNT.fullmatch(text)
    if found is None or (found[3] and not found[1]) or (found[1] and found[4]):
        fail(f"{text}: no amount", hint="write `$2.50` of money, and `150k` or `1200` of tokens and requests")
    number = int(found[2].replace("_", ""))
    if found[1]:
        return number * 1_000_000 + int((found[3] or "").ljust(6, "0")), True
    return number * UNITS[found[4]], False


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found["budgets"]:
        click.echo(fitted(budget_table(found["budgets"], datetime.now(UTC))), nl=False)
    else:
        click.echo("no call has counted in a budget yet")
