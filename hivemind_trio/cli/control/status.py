"""`hivemind-trio status`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import click

from hivemind_trio.cli.table import joined, table

from .connect import json_option, proxy_of, proxy_options
from .leases.lease import overview as resource_tables
from .provider import provider_text
from .words import counted, fitted, moment, per, span, start

WAITS_SHOWN: Final = 2
"""Reasons of the calls of one lane."""
BUDGETS_SHOWN: Final = 20
"""Accounts of budgets in a picture of the whole."""

SESSIONS_SHOWN: Final = 10
"""The same of sessions."""


@click.command(
    epilog="""\b
Examples:
  hivemind-trio status                            the proxy of this user that runs
  hivemind-trio status --policy team.hmp          the proxy that serves this policy
  hivemind-trio status anthropic                  limits, beliefs, models and circuit of this provider
  hivemind-trio status --json | jq .waiting"""
)
@click.argument("provider", metavar="[PROVIDER]", required=False)
@json_option
@proxy_options
def status(provider: str | None, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Show calls, providers, budgets and leases, or one provider.

    It asks the proxy by its control socket, which only its user can connect to (`hivemind-trio help control-api`).
    """
    if provider is not None:
        with proxy_of(socket, policy) as client:
            one = client.get(f"/v1/providers/{quote(provider, safe='')}")
        shown = json.dumps(one, indent=2) + "\n" if as_json else fitted(provider_text(one, datetime.now(UTC)))
        click.echo(shown, nl=False)
        return
    with proxy_of(socket, policy) as client:
        found = client.get("/v1/status")
        budgets = [] if as_json else client.get("/v1/budgets")["budgets"]
        resources = {} if as_json else client.get("/v1/resources")
        sessions = [] if as_json else client.get(f"/v1/sessions?limit={SESSIONS_SHOWN}")["sessions"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        now = datetime.now(UTC)
        leases = resource_tables(resources, now) if resources["resources"] else ""
        parts = overview(found, budgets, now), session_table(sessions), leases
        click.echo(fitted("\n".join(part for part in parts if part)), nl=False)


def overview(found: dict[str, Any], budgets: list[dict[str, Any]], now: datetime) -> str:
    """Return the state in words and tables."""
    blocks = [
        header(found),
        provider_table(found["providers"], now),
        estimate_notes(found["providers"]),
        lane_table(found["lanes"], now),
    ]
    if found.get("workers"):
        blocks.append(worker_table(found["workers"]))
    if found.get("nodes"):
        blocks.append(node_table(found["nodes"], found.get("counted_by_each", "")))
    if any(one["plans"] for one in found["providers"]):
        blocks.append(plan_table(found["providers"], now))
    if found["agent_limits"]:
        blocks.append(agent_limit_table(found["agent_limits"]))
    if budgets:
        blocks.append(fullest_budgets(budgets, now))
    return "\n".join(block for block in blocks if block)


def header(found: dict[str, Any], *, is_low: bool = False) -> str:
    """Return the counts, and what needs attention.

    Args:
        is_low: Each of them on one line: rows of the terminal are scarce.
    """
    from hivemind_trio.policy import visible

    calls = found["calls"]
    waiting = f"{found['waiting']:,} waiting"
    if found["oldest_wait_s"] is not None:
        waiting += f" (oldest {span(found['oldest_wait_s'])})"
    if found["held"]:
        waiting += f", {found['held']:,} of them held by rules"
    about = (
        f"hivemind-trio {found['version']}",
        f"{found['policy']['path']} {found['policy']['hash'][:8]}",
        f"up {span(found['uptime_s'])}",
        found["address"],
        f"process {found['pid']}",
    )
    lines = [
        *(["  ".join(about)] if is_low else joined([visible(part) for part in about]).splitlines()),
        f"{waiting}, {found['inflight']:,} of {found['cap']:,} in flight, "
        f"{counted(found['agents'], 'agent')}, {calls['per_min']:,} calls/min",
        f"{counted(calls['ended'], 'call')} since the start: {calls['rejected']:,} rejected, "
        f"{calls['failed']:,} failed, {calls['left']:,} left by their agents"
        + (f"; {calls['unread']:,} refused unread for overload" if calls["unread"] else ""),
    ]
    lines += [f"! {notice['text']}" for notice in found["notices"]]
    return "".join(f"{visible(line)}\n" for line in lines)


def provider_table(providers: list[dict[str, Any]], now: datetime) -> str:
    """Return providers with their limits."""
    rows = []
    for one in providers:
        probe = f", probe {moment(one['probe_at'], now)}" if one["probe_at"] is not None else ""
        circuit = f"{one['circuit']}{probe}"
        limit = f"{one['limit']:,}{' (learned)' if one['learned'] else ''}"
        quotas = ", ".join(_quota(limit) for limit in one["limits"])
        name = ", ".join([one["name"], *one.get("shared_by", ())])
        rows.append([name, f"{one['inflight']:,}", limit, f"{one['waiting']:,}", circuit, quotas])
    head = ["provider", "in flight", "limit", "waiting", "circuit", "rate limits"]
    return table(head, rows, right={1, 2, 3}) if rows else ""


def estimate_notes(providers: list[dict[str, Any]]) -> str:
    """Return why tokens are not counted where the policy wants it."""
    from hivemind_trio.policy import visible

    return "".join(
        f"{one['name']}: `estimate {one['estimate']}` failed, so tokens are estimated from bytes: "
        f"{visible(one['estimate_error'])}\n"
        for one in providers
        if one.get("estimate_error") is not None
    )


def agent_limit_table(limits: list[dict[str, Any]]) -> str:
    """Return the limits of agents with what was started."""
    rows = [
        [
            one["agent"],
            f"{one['limit']:,} {one['measure']}/{per(one['window_s'])}",
            f"{one['used']:,}",
            f"{one['used'] / one['limit']:.0%}",
        ]
        for one in limits
    ]
    return table(["limit of agent", "limit", "started", "used"], rows, right={2, 3})


def _quota(limit: dict[str, Any]) -> str:
    """`input/min 83 %`."""
    used = limit["used"] / limit["limit"] if limit["limit"] else 1.0
    group = f" of {limit['model'] or limit['group']}" if limit["model"] or limit["group"] else ""
    return f"{limit['measure']}/{per(limit['window_s'])}{group} {max(used, 0.0):.0%}"


def plan_table(providers: list[dict[str, Any]], now: datetime) -> str:
    """Return the windows of accounts' plans."""
    rows = [
        [
            provider["name"],
            one["account"] or "the key",
            one["span"] + (f" ({one['models']})" if one["models"] else ""),
            f"{one['used']:.0%}{', paying' if one['overage'] else ''}",
            moment(one["resets_at"], now) if one["resets_at"] is not None else "",
        ]
        for provider in providers
        for one in provider["plans"]
    ]
    return table(["plan of", "account", "window", "used", "resets"], rows, right={3})


def worker_table(workers: list[dict[str, Any]]) -> str:
    """Return the processes of a proxy; one that does not answer has dashes."""

    def shown(count: float | None) -> str:
        return f"{count:,}" if count is not None else "-"

    rows = [
        [
            one["name"],
            f"{one['pid']}" if one["pid"] is not None else "-",
            *(shown(one[name]) for name in ("inflight", "waiting", "connections")),
            f"{one['cpu_s']:,.1f} s" if one["cpu_s"] is not None else "-",
            f"{one['starts']:,}",
        ]
        for one in workers
    ]
    head = ["worker", "process", "in flight", "waiting", "connections", "CPU time", "starts"]
    return table(head, rows, right={1, 2, 3, 4, 5, 6}, least=["starts", "CPU time"])


def node_table(nodes: list[dict[str, Any]], counted_by_each: str) -> str:
    """Return the nodes, or workers, that share limits: a row for each provider; and what they do not share."""
    several = len({one["policy"] for one in nodes if one["policy"] is not None}) > 1
    rows = []
    for one in nodes:
        state = one["state"]
        if one["state"] != "alive" and one["seen_s"] is not None:
            state += f" for {span(one['seen_s'])}"
        policy = one["policy"][:8] if one["policy"] is not None else "?"
        if several and not one["own"] and one["policy"] not in (None, *(own["policy"] for own in nodes if own["own"])):
            policy += " (another)"
        for place, share in enumerate(one["shares"] or [None]):
            name = f"{one['name']}{' (this)' if one['own'] else ''}"
            head = [name, state, policy] if not place else ["", "", ""]
            cells = ["", "", "", "", ""]
            if share is not None:
                counts = (f"{share[name]:,}" for name in ("share", "inflight", "waiting"))
                cells = [share["provider"], *counts, "leads" if share["leads"] else ""]
            rows.append([*head, *cells])
    head = ["node", "state", "policy", "provider", "share", "in flight", "waiting", ""]
    note = f"each of them counts {counted_by_each} for itself\n" if counted_by_each else ""
    return table(head, rows, right={4, 5, 6}, least=["policy"]) + note


def session_table(sessions: list[dict[str, Any]]) -> str:
    """Return sessions with their contexts, the fullest first."""
    if not sessions:
        return ""
    rows = [
        [
            one["session"],
            one["agent"],
            one["model"],
            f"{one['turns']:,}",
            f"{one['context']:,}" + (f" of {one['window']:,}" if one["window"] is not None else ""),
            f"{one['growth']:,}" if one["growth"] else "",
            f"{one['turns_left']:,}" if one["turns_left"] is not None else "",
            f"${one['cost']:,.2f}" if one["cost"] else "",
            span(one["age_s"]),
        ]
        for one in sessions
    ]
    head = ["session", "agent", "model", "turns", "context", "a turn adds", "turns left", "cost", "age"]
    least = ["age", "cost", "a turn adds", "turns left", "model", "agent"]
    return table(head, rows, right={3, 4, 5, 6, 7}, least=least)


def lane_table(lanes: list[dict[str, Any]], now: datetime) -> str:
    """Return lanes with their calls, and when those that wait start."""
    rows = [
        [
            one["name"],
            f"{one['waiting']:,}",
            f"{one['inflight']:,}",
            _waits(one.get("waits", [])),
            start(one["first"], now),
            start(one["last"], now),
        ]
        for one in lanes
    ]
    head = ["lane", "waiting", "in flight", "waiting for", "first starts", "all started"]
    return table(head, rows, right={1, 2}, least=["all started", "first starts"])


def _waits(waits: list[dict[str, Any]]) -> str:
    """`growth`, or `growth 20, retry 3, others 2`."""
    if len(waits) == 1:
        return str(waits[0]["reason"])
    shown = [f"{one['reason']} {one['n']:,}" for one in waits[:WAITS_SHOWN]]
    if rest := sum(one["n"] for one in waits[WAITS_SHOWN:]):
        shown.append(f"others {rest:,}")
    return ", ".join(shown)


def fullest_budgets(budgets: list[dict[str, Any]], now: datetime) -> str:
    """Return the fullest accounts of budgets: a budget `per agent` has up to 10,000."""
    ranked = _ranked(budgets)
    left_out = ranked[BUDGETS_SHOWN:]
    if not left_out:
        return budget_table(ranked, now)
    more = f"{counted(len(left_out), 'further account')} at {left_out[0]['share']:.0%} or less: `hivemind-trio budget`"
    return f"{budget_table(ranked[:BUDGETS_SHOWN], now)}{more}\n"


def _ranked(budgets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(budgets, key=lambda one: (-one["share"], one["budget"], one["whose"]))


def budget_table(budgets: list[dict[str, Any]], now: datetime) -> str:
    """Return accounts of budgets as a table, the fullest first."""
    rows = [
        [
            one["budget"],
            one["whose"],
            one["allowance"],
            f"{one['share']:.0%}",
            f"{one['held']:,}" if one["held"] else "",
            moment(one["resets_at"], now),
        ]
        for one in _ranked(budgets)
    ]
    return table(
        ["budget", "of", "allowance", "spent", "held", "resets"], rows, right={3, 4}, least=["held"], names=(0, 1)
    )
