"""`hivemind-trio demo`."""

from __future__ import annotations

import sys

import click

from .console import color_option, wants_color


@click.command(
    epilog="""\b
Examples:
  hivemind-trio demo            run for about a minute
  hivemind-trio demo --quick    run for some seconds
  hivemind-trio demo --json     print the figures as JSON"""
)
@click.option("--quick", is_flag=True, help="Run fewer turns, for a first look or for CI.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON and nothing else.")
@click.option("--seed", default=7, show_default=True, help="Random seed of latencies, lengths and failures.")
@color_option
def demo(quick: bool, as_json: bool, seed: int, color: str) -> None:
    """Compare eleven agents with and without the proxy.

    Starts a provider on a loopback port, with a concurrency limit, a request limit, 502s and connection resets. Eleven
    agents call it directly, then through the proxy. Needs no key and no network. Exit status 0 if no agent died behind
    the proxy.
    """
    from hivemind_trio.demo import run

    sys.exit(run(quick=quick, as_json=as_json, seed=seed, color=wants_color(color, sys.stdout)))
