"""`hivemind-trio serve`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, final

import click

from .console import color_option, wants_color
from .policy_files import allowed_folders

if TYPE_CHECKING:
    from hivemind_trio.jobs import ServeJobs
    from hivemind_trio.model import SecretRef
    from hivemind_trio.serve import ProxyServer

MOST_WORKERS: Final = 64


@final
class WorkerCount(click.ParamType[int]):
    """A count, or `auto`, which is 0."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the count."""
        if value == "auto":
            return 0
        if not f"{value}".isdigit() or not 1 <= int(value) <= MOST_WORKERS:
            self.fail(f"{value!r} is no count of processes; write 1 to {MOST_WORKERS}, or auto", param, ctx)
        return int(value)


@click.command(
    epilog="""\b
Examples:
  hivemind-trio serve                          use the providers whose keys are in the environment
  hivemind-trio serve --policy team.hmp        run a policy; reload it when a file of it changes
  hivemind-trio serve --print-policy > my.hmp  write the policy that `serve` alone would run
  hivemind-trio serve --policy team.hmp --workers auto                       use all cores
  hivemind-trio serve --policy team.hmp --log-format json 2>> proxy.log      log JSON to a file
  hivemind-trio serve --policy team.hmp --journal team.journal               record calls, to replay them

\b
Environment: OTEL_EXPORTER_OTLP_ENDPOINT exports traces of calls (`help operating`; extra `otel`).
Signals: SIGHUP reloads the policy. SIGTERM and SIGINT let calls in flight finish (`server { drain 30s }`);
a second one exits at once.
Exit status: 0 after a shutdown, 1 the policy has errors, 2 the proxy cannot start."""
)
@click.option(
    "--policy", type=click.Path(dir_okay=False), help="Policy file. Default: a policy made from the environment."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on, in place of `server { listen }`. Port 0 takes any free port. "
    "Sockets that systemd passes (LISTEN_FDS) are taken in place of both.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Format of the log on standard error. Default: `server { log }` of the policy, or text.",
)
@click.option("--log-calls", is_flag=True, help="Log a line for every call.")
@click.option(
    "--journal",
    metavar="FILE",
    help="Record calls in this SQLite file instead of the default one, without bodies and credentials. "
    "Appends to an existing file.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Keep every event of the scheduler in the journal, so that `replay` can repeat its decisions. "
    "About 5 KB a call.",
)
@click.option(
    "--node",
    metavar="NAME",
    help="Name of this proxy among those that share by `store redis`; no two have the same. "
    "Default: host name and port.",
)
@click.option(
    "--workers",
    metavar="N|auto",
    type=WorkerCount(),
    help="Processes that serve together and share limits, in place of `server { workers }`. "
    "`auto` is one for each core, at most 8.",
)
@click.option(
    "--transport",
    type=click.Choice(["pool", "stock"]),
    default="pool",
    show_default=True,
    help="HTTP client for providers: the built-in pool, or `stock` (httpx2), which uses HTTPS_PROXY.",
)
@click.option("--print-policy", is_flag=True, help="Print the policy that would run without --policy, and exit.")
@color_option
def serve(
    policy: str | None,
    listen: str | None,
    log_format: str | None,
    log_calls: bool,
    journal: str | None,
    record: bool,
    node: str | None,
    workers: int | None,
    transport: str,
    print_policy: bool,
    color: str,
) -> None:
    """Run the proxy.

    Prints its address; set it as the base URL of the agents. Without --policy it serves the providers whose keys are
    in the environment, and Ollama if it answers.
    """
    from hivemind_trio.serve import Options, main

    options = Options(
        policy=policy,
        listen=listen,
        log_json=None if log_format is None else log_format == "json",
        log_calls=log_calls,
        journal=journal,
        records=record,
        node=node,
        workers=workers,
        stock_transport=transport == "stock",
        print_policy=print_policy,
        allow_include=allowed_folders(),
        color=wants_color(color, sys.stderr),
    )
    sys.exit(main(options, _open_jobs))


@asynccontextmanager
async def _open_jobs(
    house: ProxyServer, name: str, secrets: Callable[[], Mapping[SecretRef, str]], on_trouble: Callable[[str], None]
) -> AsyncIterator[ServeJobs]:
    """Run the jobs of agents within the context."""
    from hivemind_trio.jobs import open_jobs

    clock: Callable[[], float] = time.time  # noqa: TID251 - limits open by the clock on the wall
    async with open_jobs(house, name, secrets, clock, os.environ, on_trouble) as desk:
        yield desk
