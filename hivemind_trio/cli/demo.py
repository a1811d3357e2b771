"""`hivemind-trio demo`."""

from __future__ import annotations

import sys

import click

from .console import color_option, wants_color


@click.command(
    epilog="""\b
Examples:
  hivemind-trio demo            the whole incident
  hivemind-trio demo --quick    a smaller one, some seconds
  hivemind-trio demo --json     figures only, for machines"""
)
@click.option("--quick", is_flag=True, help="Fewer turns; for a first look and for CI.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON and nothing else.")
@click.option("--seed", default=7, show_default=True, help="Latencies, lengths and failures are drawn from it.")
@color_option
def demo(quick: bool, as_json: bool, seed: int, color: str) -> None:
    """Watch eleven agents die on one key, and then not.

    Runs an embedded provider with a concurrency cap, a request limit, 502s and connection resets on a loopback port,
    sends eleven agents straight at it, and then the same eleven through the proxy. Needs no key and no network. Exit
    status 0: no agent died behind the proxy.
    """
    from hivemind_trio.demo import run

    sys.exit(run(quick=quick, as_json=as_json, seed=seed, color=wants_color(color, sys.stdout)))
