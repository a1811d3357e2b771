"""`hivemind-trio dashboard`."""

from __future__ import annotations

import json
import webbrowser

import click

from .connect import json_option, proxy_of, proxy_options


@click.command(
    epilog="""\b
Examples:
  hivemind-trio dashboard                       print a link to the page of the proxy that runs
  hivemind-trio dashboard --open                open it in the browser
  hivemind-trio dashboard --policy team.hmp     that of the proxy that serves this policy"""
)
@click.option("--open", "opens", is_flag=True, help="Open the link in the default browser.")
@json_option
@proxy_options
def dashboard(opens: bool, as_json: bool, socket: str | None, policy: str | None) -> None:
    """Print a link to the page of a running proxy.

    The page shows who waits, for what and until when. The link works once, within five minutes; the browser is then
    signed in for twelve hours. The page is at the address of `server { admin "127.0.0.1:8788" token env(T) }`; without
    one, the proxy opens a port of loopback until it ends.
    """
    with proxy_of(socket, policy) as client:
        url = client.ask("POST", "/v1/dashboard")["url"]
    if as_json:
        click.echo(json.dumps({"url": url}, indent=2))
        return
    click.echo(url)
    if opens and not webbrowser.open(url):
        click.echo("no browser was found; open the link by hand", err=True)
