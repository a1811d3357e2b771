"""`hivemind-trio forecast`."""

from __future__ import annotations

import json
from typing import Any

import click

from hivemind_trio.cli.console import EXIT_PROBLEMS
from hivemind_trio.cli.control.connect import json_option, proxy_of, proxy_options
from hivemind_trio.cli.control.words import span


@click.command(
    epilog="""\b
Examples:
  hivemind-trio forecast 8                              may eight agents start now?
  hivemind-trio forecast 8 --agent ci --calls 20        eight of agent `ci`, of 20 calls each
  hivemind-trio forecast 1 --within 60                  exit status 0: its calls wait a minute at most
  hivemind-trio forecast 8 --json | jq .fits

Exit status: 0 all fit, 1 some do not, 2 no proxy runs, or wrong usage."""
)
@click.argument("agents", type=click.IntRange(1, 200))
@click.option("--agent", metavar="NAME", default="", help="Agent that they would be, as the base URL names it.")
@click.option("--calls", type=click.IntRange(1, 100), default=1, show_default=True, help="Calls of each, in a row.")
@click.option("--model", default="", help="Model that they call. Default: that of the agent's last call.")
@click.option("--tokens-in", type=click.IntRange(0), default=0, help="Tokens of a call. Default: as seen lately.")
@click.option("--tokens-out", type=click.IntRange(0), default=0, help="Tokens of an answer. Default: as seen lately.")
@click.option(
    "--within", type=click.FloatRange(0, 3_600), default=5.0, show_default=True, help="Longest wait of a call, seconds."
)
@json_option
@proxy_options
def forecast(agents: int, within: float, as_json: bool, socket: str | None, policy: str | None, **which: Any) -> None:
    """Show how many new agents can start now.

    It is simulated from the present state of the running proxy (`hivemind-trio help agent-tools`). Agents ask the same
    by the tool `forecast` of `hivemind-trio mcp`.
    """
    with proxy_of(socket, policy) as client:
        found = client.get("/v1/forecast", agents=agents, within_s=within, **which)
    click.echo(json.dumps(found, indent=2) if as_json else shown(found), nl=as_json)
    if found["fits"] < agents:
        raise SystemExit(EXIT_PROBLEMS)


def shown(found: dict[str, Any]) -> str:
    """Return the forecast in words."""
    from hivemind_trio.policy import visible

    lines = [found["text"]]
    where = f"{found['model']} at provider {found['provider']}, lane {found['lane']}"
    lines.append(f"calls of {where}" if found["provider"] is not None else f"no provider serves {found['model']}")
    starts = [start for start in found["starts_s"] if start is not None]
    if starts and found["fits"] < found["asked"]:
        never = len(found["starts_s"]) - len(starts)
        rest = f", {never} not within half an hour" if never else ""
        lines.append(f"if all start now: first calls after {span(starts[0])} to {span(starts[-1])}{rest}")
    if found["ends_s"] is not None:
        lines.append(f"done after {span(found['ends_s']['p50'])}, at worst {span(found['ends_s']['p90'])}")
    if found["cost_usd"] is not None:
        lines.append(f"cost ${found['cost_usd']:,.4g}")
    lines.append(f"basis: {found['basis']}")
    return "".join(f"{visible(line)}\n" for line in lines)
