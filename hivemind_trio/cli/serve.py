"""`hivemind-trio serve`."""

from __future__ import annotations

import sys

import click

from .console import color_option, wants_color
from .policy_files import allowed_folders


@click.command(
    epilog="""\b
Examples:
  hivemind-trio serve                          providers found in the environment
  hivemind-trio serve --policy team.hmp        reloaded when it, or what it includes, changes
  hivemind-trio serve --print-policy > my.hmp  the policy that `serve` alone would run
  hivemind-trio serve --policy team.hmp --log-format json 2>> proxy.log
  hivemind-trio serve --policy team.hmp --journal team.journal     then `simulate new.hmp --trace team.journal`

\b
Signals: SIGHUP reloads; SIGTERM and SIGINT finish what is in flight (`server { drain 30s }`), a second one ends
at once.
Exit status: 0 drained, 1 the policy has errors, 2 it cannot start."""
)
@click.option(
    "--policy", type=click.Path(dir_okay=False), help="The policy file. Default: one made from what is found."
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Instead of the policy's `server { listen }`; port 0: any free one."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Of standard error. Default: the policy's `server { log }`, or text.",
)
@click.option("--log-calls", is_flag=True, help="Also a line for every call.")
@click.option(
    "--journal",
    metavar="FILE",
    help="Write every call down, to SQLite: no bodies, no credentials. What is in the file is added to.",
)
@click.option(
    "--transport",
    type=click.Choice(["pool", "stock"]),
    default="pool",
    show_default=True,
    help="How upstreams are reached: our own pool, or httpx2's, which knows outgoing proxies (HTTPS_PROXY).",
)
@click.option("--print-policy", is_flag=True, help="Print the policy that would run without --policy, and end.")
@color_option
def serve(
    policy: str | None,
    listen: str | None,
    log_format: str | None,
    log_calls: bool,
    journal: str | None,
    transport: str,
    print_policy: bool,
    color: str,
) -> None:
    """Run the proxy.

    Point agents at the address it prints; nothing else of theirs changes. Without --policy it serves the providers
    whose keys are in the environment, and Ollama if it answers.
    """
    from hivemind_trio.serve import Options, main

    options = Options(
        policy=policy,
        listen=listen,
        log_json=None if log_format is None else log_format == "json",
        log_calls=log_calls,
        journal=journal,
        stock_transport=transport == "stock",
        print_policy=print_policy,
        allow_include=allowed_folders(),
        color=wants_color(color, sys.stderr),
    )
    sys.exit(main(options))
