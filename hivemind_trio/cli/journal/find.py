"""Journals as the command line finds them: by file, by policy, or all that there are."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hivemind_trio.cli.console import fail

if TYPE_CHECKING:
    from hivemind_trio.policy import StoreSettings

T = TypeVar("T")

AGO: Final = re.compile(r"([0-9]+)(s|m|h|d|w)")
UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def journal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--journal` and `--policy`, which name the journal."""
    command = click.option("--journal", "file", metavar="FILE", help="Read this journal.")(command)
    return click.option(
        "--policy",
        metavar="FILE",
        help="Read the journal of the proxy that serves this policy. Default: the journal written last.",
    )(command)


def journal_of(file: str | None, policy: str | None) -> str:
    """Return the journal's path; ends with status 2 if there is none."""
    if file is not None:
        return file
    if policy is not None:
        return _of_policy(policy)
    found = journals()
    if not found:
        fail(
            "there is no journal yet",
            hint="`hivemind-trio serve` writes one; name it with `--journal FILE` or `--policy FILE`",
        )
    return found[0]


def journals() -> list[str]:
    """Return the journals in the default place, the one written last first."""
    from hivemind_trio.store import state_home

    try:
        found = [path for path in state_home().glob("*/journal.db") if path.is_file()]
    except (OSError, RuntimeError):
        return []
    return [str(path) for path in sorted(found, key=_written, reverse=True)]


def _written(path: Path) -> float:
    """Return when it was last written; the newest rows are in the log beside it."""
    beside = Path(f"{path}-wal")
    return max(path.stat().st_mtime, beside.stat().st_mtime if beside.exists() else 0.0)


def _of_policy(policy: str) -> str:
    from hivemind_trio.cli.policy_files import checked_policy
    from hivemind_trio.policy import StoreSettings
    from hivemind_trio.store import state_place

    if not Path(policy).is_file():
        fail(f"{policy}: no such file", hint="name the policy that `hivemind-trio serve --policy` has")
    program = checked_policy(policy).program
    settings: StoreSettings = program.store if program is not None else StoreSettings()
    try:
        place = state_place(policy, settings, 0)
    except RuntimeError as error:
        fail(str(error), hint="name the journal with `--journal FILE`")
    if not Path(place.journal).is_file():
        fail(f"no journal of {policy} at {place.journal}", hint=f"`hivemind-trio serve --policy {policy}` writes it")
    return place.journal


def asked(path: str, question: Callable[[sqlite3.Connection], T]) -> T:
    """Return the answer of a journal; ends with status 2 if it cannot be read."""
    from hivemind_trio.store import JournalError, questioned

    try:
        return questioned(path, question)
    except JournalError as error:
        fail(str(error), hint=error.help)


def moment_ns(text: str, option: str) -> int:
    """Return a moment on the wall clock, ns since 1970: `24h` ago, `2026-11-20`, `2026-11-20T14:30`."""
    ago = AGO.fullmatch(text)
    if ago is not None:
        return time.time_ns() - int(ago[1]) * UNITS[ago[2]] * 10**9
    try:
        return int(datetime.fromisoformat(text).timestamp() * 10**9)
    except (ValueError, OverflowError):
        fail(f"{option} {text}: no time", hint="write `24h`, `7d`, `2026-11-20` or `2026-11-20T14:30`")
