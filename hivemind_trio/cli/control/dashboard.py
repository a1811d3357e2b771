"""`hivemind-trio dashboard`."""

from __future__ import annotations

import json
import os
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from .connect import json_option, proxy_of, proxy_options

CONTAINER_FILES: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman put into every container."""


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
    one, the proxy opens a port of loopback until it ends, which only browsers of the same machine, and none outside of
    its container, can open. With `--socket URL` the link is at that URL.
    """
    with proxy_of(socket, policy) as client:
        found = client.ask("POST", "/v1/dashboard")
        url = found["url"] = opened_at(found["url"], client.where)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(url)
    if found["loopback"] and "://" not in client.where and (away := away_advice(url, os.environ)):
        click.echo(away, err=True)
    if opens and not webbrowser.open(url):
        click.echo("no browser was found; open the link by hand", err=True)


def opened_at(url: str, where: str) -> str:
    """Return a link at the URL by which the proxy was asked, which may be that of a TLS proxy before it."""
    return f"{where.rstrip('/')}{url.removeprefix(_origin(url))}" if "://" in where else url


def away_advice(url: str, environment: Mapping[str, str]) -> str:
    """Return how a browser that is elsewhere opens a link at loopback; empty: nothing hints at one."""
    if "KUBERNETES_SERVICE_HOST" in environment or any(file.exists() for file in CONTAINER_FILES):
        return (
            "this link works inside of the container only. For a browser of the host write\n"
            '  server { admin "0.0.0.0:8788" token file("/run/secrets/admin") }\n'
            "and publish port 8788, as policies/deploy/compose.yml does"
        )
    if "SSH_CONNECTION" in environment:
        port = urlsplit(url).port
        return f"for a browser of the machine that you come from: ssh -L {port}:127.0.0.1:{port} and this host"
    return ""


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
