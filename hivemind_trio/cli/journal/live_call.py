"""Explanation of a call that is in progress at a running proxy."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import click


def show_live(name: str, policy: str | None, *, as_json: bool) -> bool:
    """Print why a call in progress waits; False: no running proxy has it."""
    from hivemind_trio.control import ControlClient, NotReachable, RequestRefused, running_sockets, socket_name

    for path in running_sockets(socket_name(policy, 0) if policy is not None else ""):
        try:
            with ControlClient.at(path) as client:
                found = client.get(f"/v1/calls/{quote(name, safe='')}/explain")
        except (NotReachable, RequestRefused):
            continue  # it is another proxy's, or over: then the journal has it
        click.echo(json.dumps(found, indent=2) if as_json else live_text(found), nl=as_json)
        return True
    return False


def live_text(found: dict[str, Any]) -> str:
    """Return the explanation as lines."""
    from hivemind_trio.policy import visible

    call = found["call"]
    rows = [
        ("call", f"{call['id']}, in progress for {call['age_s']:.1f} s"),
        ("state", f"{call['state']}: {found['text']}"),
        ("waited", f"{call['waited_s']:.1f} s" + _place(found)),
        ("next", f"not before {call['not_before_at']}" if call["not_before_at"] else ""),
        ("starts", _start(found["start"])),
        ("rejected", f"if it still waits at {call['deadline_at']}" if call["deadline_at"] else ""),
        ("request", f"{call['method']} {call['path']}"),
        ("model", call["model"] + (f", sent as {call['sent_model']}" if call["sent_model"] else "")),
        ("agent", call["agent"] if call["agent"] != "unknown" else f"unknown ({call['caller']})"),
        ("lane", call["lane"] or ""),
        ("provider", call["provider"] or ""),
        ("priority", str(call["priority"]) if call["priority"] is not None else ""),
        ("session", _session(call.get("session"))),  # an older proxy does not tell
        ("decided by", ", ".join(_decider(one) for one in found["decided"])),
    ]
    return "".join(f"{name:10} {visible(text)}\n" for name, text in rows if text)


def _place(found: dict[str, Any]) -> str:
    before = found["waiting_before"]
    if before is None:
        return ""
    return f"; {before:,} of {found['waiting_in_lane']:,} waiting calls of its lane arrived before it"


def _session(session: dict[str, Any] | None) -> str:
    """Return the size and growth of a session in words."""
    if session is None:
        return ""
    window = f" of {session['window']:,}" if session["window"] is not None else ""
    words = f"turns: {session['turns']:,}; context: {session['context']:,}{window} tokens"
    if session["growth"]:
        words += f", {session['growth']:,} more each turn"
    if session["turns_left"] is not None:
        words += f", full after {session['turns_left']:,} more"
    if session["cost"] is not None:
        words += f"; ${session['cost']:.2f} in {session['age_s']:,.0f} s"
    return words


def _start(estimate: dict[str, Any]) -> str:
    """Return an estimate in words; empty: there is none."""
    if estimate["p50_at"] is None:
        return ""
    late = f"before {estimate['p90_at']}" if estimate["p90_at"] is not None else "at a time that is not foreseen"
    return f"about {estimate['p50_at']}; with 90 % {late}"


def _decider(one: dict[str, Any]) -> str:
    """`lane: rule x (team.hmp:5)`."""
    at = f" ({one['at']})" if one["at"] else ""
    return f"{one['setting']}: {one['by']}{' ' + one['name'] if one['name'] else ''}{at}"
