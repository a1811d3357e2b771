"""`hivemind-trio lease`."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from hivemind_trio.cli.console import fail
from hivemind_trio.cli.control.connect import (
    NoProxy,
    found_proxy,
    json_option,
    named_in,
    proxy_address,
    proxy_of,
    proxy_options,
)
from hivemind_trio.cli.control.words import counted, moment, span
from hivemind_trio.cli.table import table

if TYPE_CHECKING:
    from hivemind_trio.control import PlaceInLine

EXIT_NO_LEASE: Final = 75
"""`EX_TEMPFAIL`: no lease was free in time."""


class Duration(click.ParamType[float]):
    """Seconds, written as `30s`, `5m` or `1h`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        from hivemind_trio.jobs import seconds

        found = value if isinstance(value, int | float) else seconds(str(value))
        if found is None:
            self.fail(f"`{value}` is no time; write for example `30s`, `5m` or `1h`", param, ctx)
        return float(found)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  hivemind-trio lease                                        list resources, leases and who waits
  hivemind-trio lease browser -- npx playwright test         run tests while no one else has the browser
  hivemind-trio lease --wait 10m gpu -- ./grade.sh 17        give up after ten minutes (exit status 75)
  hivemind-trio lease --wait 0s leader -- ./nightly.sh       run it only if no one else does
  hivemind-trio lease --agent grader gpu -- ./grade.sh 17    ask as an agent of the policy
  hivemind-trio lease staging-db                             hold it until Ctrl-C
  hivemind-trio lease gpu -- sh -c 'put --fence "$HIVEMIND_FENCE" result.json'

The command gets HIVEMIND_FENCE (the fencing token), HIVEMIND_LEASE and HIVEMIND_RESOURCE. The lease is renewed while
it runs and released at its end. If the lease is lost, the command is stopped: SIGTERM, and SIGKILL ten seconds later.

Exit status: that of the command; 128+N if signal N ended it; 75 no lease was free in time, or the queue is full;
76 the lease was lost; 2 no proxy runs, the proxy refused, or wrong usage.""",
)
@click.option("--wait", type=Duration(), help="Longest wait for the lease; `0s`: only if it is free. Default: no end.")
@click.option("--ttl", type=Duration(), help="Time after which a lease without renewal ends. Default: the policy's.")
@click.option("--purpose", default="", metavar="TEXT", help="Shown to others who look at the lease.")
@click.option(
    "--agent",
    metavar="NAME",
    help="Ask as this agent. Default: the name in ANTHROPIC_BASE_URL or OPENAI_BASE_URL (`/@NAME`), else the job of "
    "`run`, else this process.",
)
@click.option("--keep-running", is_flag=True, help="Let the command run on if the lease is lost, with a warning.")
@json_option
@proxy_options
@click.argument("resource", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def lease(
    resource: str | None,
    command: tuple[str, ...],
    wait: float | None,
    ttl: float | None,
    purpose: str,
    agent: str | None,
    keep_running: bool,
    as_json: bool,
    socket: str | None,
    policy: str | None,
) -> None:
    """Run a command while it holds a lease of a resource.

    The policy declares resources (`resource browser { capacity 1 }`). Those who ask wait in a fair line: higher
    priority first, then teams and agents share by weight. See `hivemind-trio help leases`.
    """
    if resource is None:
        with proxy_of(socket, policy) as client:
            found = client.get("/v1/resources")
        click.echo(json.dumps(found, indent=2) if as_json else overview(found, datetime.now(UTC)), nl=as_json)
        return
    if command[:1] == ("--",):
        command = command[1:]
    proxy_address(socket, policy)  # ends with the reason if there is none
    import trio

    from hivemind_trio.control import LeaseNotGranted, NotReachable, RequestRefused
    from hivemind_trio.policy import visible

    from .leased_command import run_leased

    body = {
        "resource": resource,
        "agent": agent if agent is not None else named_in(os.environ) or f"process-{os.getpid()}",
        "wait_s": wait,
        "ttl_s": ttl,
        "purpose": purpose or " ".join(command)[:200],
    }
    show = partial(_waits, resource)
    try:
        status = trio.run(
            partial(
                run_leased,
                partial(_where, socket, policy),
                body,
                command,
                on_wait=show,
                on_lease=partial(_granted, as_json=as_json, holds=not command),
                keeps_running=keep_running,
            )
        )
    except LeaseNotGranted as none:
        click.echo(f"hivemind-trio: {visible(str(none))}", err=True)
        raise SystemExit(EXIT_NO_LEASE) from None
    except NotReachable as error:
        fail(str(error), hint="it may have stopped; without --socket the running proxies are found")
    except RequestRefused as error:
        fail(str(error))
    raise SystemExit(status)


def _where(path: str | None, policy: str | None) -> str:
    """Return the socket or the URL of the proxy, which may have been started again.

    Raises:
        NotReachable: None runs now.
    """
    from hivemind_trio.control import NotReachable

    try:
        return path if path is not None else str(found_proxy(policy))
    except NoProxy as none:
        raise NotReachable(str(none)) from None


def _waits(resource: str, place: PlaceInLine) -> None:
    from hivemind_trio.policy import visible

    words = f"{counted(place.before, 'request')} before this one" if place.before else "next in line"
    if place.unwritten is not None:
        words = unwritten_text(place.unwritten) + (f"; {words}" if place.before else "")
    click.echo(f"hivemind-trio: waiting for `{resource}`: {visible(words)}", err=True)


def unwritten_text(why: str) -> str:
    """Return in words that leases wait for the disk."""
    return f"no lease is given while leases cannot be written to disk ({why})"


def _granted(found: dict[str, Any], *, as_json: bool, holds: bool) -> None:
    if as_json:
        click.echo(json.dumps(found))
        sys.stdout.flush()
    elif holds:
        click.echo(f"hivemind-trio: lease {found['lease']}, fence {found['fence']}; Ctrl-C releases it", err=True)


def overview(found: dict[str, Any], now: datetime) -> str:
    """Return the resources with their leases, as tables."""
    from hivemind_trio.policy import visible

    if not found["resources"]:
        return "the policy declares no resource; write for example `resource browser { capacity 1 }`\n"
    why = found.get("unwritten")  # an older proxy does not tell
    blocks = [resource_table(found), lease_table(found, now), _line_table(found)]
    blocks += [f"{visible(unwritten_text(why))}\n"] if why is not None else []
    return "\n".join(block for block in blocks if block)


def resource_table(found: dict[str, Any]) -> str:
    """Return the resources, one a row."""
    rows = [
        [
            one["name"] + (" (removed)" if one["removed"] else ""),
            f"{len(one['leases']):,}",
            f"{one['capacity']:,}",
            f"{one['waiting']:,}",
        ]
        for one in found["resources"]
    ]
    return table(["resource", "leases", "capacity", "waiting"], rows, right={1, 2, 3})


def lease_table(found: dict[str, Any], now: datetime) -> str:
    """Return the leases, one a row; empty: there is none."""
    rows = [
        [held["lease"], _holder(held), held["purpose"], _end(held, now)]
        for one in found["resources"]
        for held in one["leases"]
    ]
    return table(["lease", "holder", "purpose", "ends unless renewed"], rows) if rows else ""


def _end(held: dict[str, Any], now: datetime) -> str:
    return moment(held["expires_at"], now) if held.get("written", True) else "not given yet: it is being written"


def _line_table(found: dict[str, Any]) -> str:
    rows = [
        [one["name"], f"{place}", _holder(asks), f"{asks['priority']}", asks["purpose"], span(asks["waited_s"])]
        for one in found["resources"]
        for place, asks in enumerate(one["requests"], 1)
    ]
    return table(["waits for", "place", "who", "priority", "purpose", "since"], rows, right={1, 3}) if rows else ""


def _holder(one: dict[str, Any]) -> str:
    """`grader`, or the name that a caller gives itself."""
    from hivemind_trio.policy import visible

    return visible(one["agent"] if one["agent"] != "unknown" else one["caller"])
