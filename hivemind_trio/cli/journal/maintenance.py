"""`hivemind-trio journal`: its place, its size, and what keeps it sound."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from hivemind_trio.cli.console import EXIT_CLEAN, EXIT_PROBLEMS, fail

from .behind import say_behind
from .find import asked, journal_of, journal_options


@click.group(
    epilog="""\b
Examples:
  hivemind-trio journal path --policy team.hmp     print where it is
  hivemind-trio journal check                      verify the journal written last
  hivemind-trio journal backup november.db         copy it, also while it is written
  hivemind-trio journal vacuum                     give the room of deleted rows back to the disk"""
)
def journal() -> None:
    """Find or maintain the journal."""


@journal.command(epilog="\b\nExamples:\n  hivemind-trio journal path --policy team.hmp")
@journal_options
def path(file: str | None, policy: str | None) -> None:
    """Print the path of the journal."""
    click.echo(journal_of(file, policy))


@journal.command(epilog="\b\nExamples:\n  hivemind-trio journal check --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@journal_options
def check(file: str | None, policy: str | None, as_json: bool) -> None:
    """Verify the journal.

    Show what is in it, too.

    Exit status: 0 sound, 1 damaged, 2 it cannot be read.
    """
    where = journal_of(file, policy)

    def question(database: sqlite3.Connection) -> dict[str, Any]:
        problems = [row[0] for row in database.execute("PRAGMA integrity_check(20)")]
        calls, first_ns, last_ns = database.execute("SELECT count(*), min(wall_ns), max(wall_ns) FROM calls").fetchone()
        sessions, unended = database.execute("SELECT count(*), count(*) - count(ended_ns) FROM sessions").fetchone()
        return {
            "path": where,
            "problems": [] if problems == ["ok"] else problems,
            "bytes": _bytes(where),
            "calls": calls,
            "sessions": sessions,
            "sessions_without_end": unended,
            "first": _iso(first_ns),
            "last": _iso(last_ns),
        }

    lacks = say_behind(where)
    found = asked(where, question)
    if as_json:
        click.echo(json.dumps({"format_version": 1, **found, "journal_behind": lacks}, indent=2))
    else:
        state = "sound" if not found["problems"] else "damaged"
        click.echo(f"{where}: {state}, {found['bytes']:,} bytes")
        click.echo(f"calls: {found['calls']:,}, sessions: {found['sessions']:,}, {found['first']} to {found['last']}")
        for problem in found["problems"]:
            click.echo(f"  {problem}")
    sys.exit(EXIT_PROBLEMS if found["problems"] else EXIT_CLEAN)


@journal.command(epilog="\b\nExamples:\n  hivemind-trio journal backup november.db")
@click.argument("target", metavar="FILE")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@journal_options
def backup(target: str, file: str | None, policy: str | None, force: bool) -> None:
    """Copy the journal to FILE.

    The proxy may be writing it meanwhile.
    """
    where = journal_of(file, policy)
    if Path(target).exists() and not force:
        fail(f"{target} exists", hint="name another file, or use --force")
    say_behind(where)
    partial = f"{target}.partial"
    try:
        Path(partial).unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(partial)) as copy:
            asked(where, lambda database: database.backup(copy))
        os.replace(partial, target)
    except (OSError, sqlite3.Error) as error:
        Path(partial).unlink(missing_ok=True)
        fail(f"{target}: cannot be written: {error}")
    click.echo(f"{where} copied to {target} ({os.stat(target).st_size:,} bytes)")


@journal.command(epilog="\b\nExamples:\n  hivemind-trio journal vacuum")
@journal_options
def vacuum(file: str | None, policy: str | None) -> None:
    """Shrink the journal.

    Rewrites it without the room of deleted rows. No proxy may be writing it.
    """
    from hivemind_trio.store import JournalError, vacuum_journal

    where = journal_of(file, policy)
    before = os.stat(where).st_size if Path(where).exists() else 0
    try:
        vacuum_journal(where)
    except JournalError as error:
        fail(str(error), hint=error.help)
    click.echo(f"{where}: {before:,} bytes before, {os.stat(where).st_size:,} after")


def _bytes(where: str) -> int:
    """Return the size of a journal with its write-ahead log, which has what a running proxy wrote last."""
    log = Path(f"{os.path.realpath(where)}-wal")
    return os.stat(where).st_size + (log.stat().st_size if log.exists() else 0)


def _iso(time_ns: int | None) -> str:
    if time_ns is None:
        return "-"
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().isoformat(sep=" ", timespec="seconds")
