"""Calls that a journal lacks, as the running proxy that writes it says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import click

ANSWER_S: Final = 3.0
"""Time for the answer of a proxy: one that is stopped holds up no report of the past."""


def say_behind(*paths: str) -> dict[str, Any] | None:
    """Say on standard error what the journals lack, in a line for each; return that of the first that lacks any."""
    from hivemind_trio.policy import visible

    found = lacking(paths)
    for lacks in found:
        click.echo(f"hivemind-trio: {visible(_text(lacks))}", err=True)
    return found[0] if found else None


def lacking(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the journals lack of calls of proxies that run now."""
    from hivemind_trio.control import ControlClient, NotReachable, RequestRefused, running_sockets

    found = []
    for socket in running_sockets():
        try:
            with ControlClient.at(socket, ANSWER_S) as client:
                status = client.get("/v1/status")
        except (NotReachable, RequestRefused):
            continue
        journal, lacks = status.get("journal"), status.get("journal_behind")  # an older proxy does not tell
        if lacks is not None and any(_is_same(journal, path) for path in paths):
            found.append(lacks)
    return found


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # it is gone from its place, or on a disk that only the proxy sees
        return os.path.realpath(one) == os.path.realpath(other)


def _text(lacks: dict[str, Any]) -> str:
    """Return what a journal lacks in words."""
    parts = []
    if lacks["error"] is not None:
        parts.append(f"it cannot be written ({lacks['error']})")
    if lacks["unwritten"]:
        parts.append(f"{lacks['unwritten']:,} entries have waited for the disk for {lacks['waits_s']:,.0f} s")
    if lacks["left_out"]:
        parts.append(f"{lacks['left_out']:,} entries were left out for good, for too many waited")
    return f"the journal lacks calls of the running proxy: {'; '.join(parts)}"
