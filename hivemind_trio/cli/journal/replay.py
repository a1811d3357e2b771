"""`hivemind-trio replay`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from hivemind_trio.cli.console import EXIT_PROBLEMS, fail

from .behind import say_behind
from .find import asked, journal_of, journal_options

if TYPE_CHECKING:
    from sqlite3 import Connection

    from hivemind_trio.serve import Difference, Replay


@click.command(
    epilog="""\b
Examples:
  hivemind-trio replay                                the latest recorded session of the journal written last
  hivemind-trio replay --policy team.hmp --session 3  another session, of the journal of that policy
  hivemind-trio replay --journal run.db --json        the result as JSON

\b
`hivemind-trio serve --record` records sessions. A session that ran on another version of hivemind-trio may differ where
that version decides otherwise: the first difference is shown.
Exit status: 0 the same commands, 1 they differ, 2 there is nothing to repeat."""
)
@click.option("--session", type=int, help="Number of the session. Default: the latest that was recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@journal_options
def replay(session: int | None, as_json: bool, file: str | None, policy: str | None) -> None:
    """Repeat the decisions of a recorded session and compare them.

    Gives the recorded events to a fresh scheduler, at their times, and compares its commands with the recorded ones.
    """
    path = journal_of(file, policy)
    lacks = say_behind(path)
    number, events, version, told, difference = asked(path, lambda database: _replayed(path, database, session))
    if as_json:
        _print_json(path, number, version, told, difference, lacks)
    elif difference is None:
        click.echo(f"session {number}: {told.events:,} events, {told.commands:,} commands: the same")
    else:
        _print_difference(number, version, events, difference)
    sys.exit(EXIT_PROBLEMS if difference is not None else 0)


def _replayed(path: str, database: Connection, session: int | None) -> tuple[int, int, str, Replay, Difference | None]:
    from hivemind_trio.serve import NotReplayable, Replay
    from hivemind_trio.store import first_policy, policy_files, recorded_events, recorded_sessions

    known = recorded_sessions(database)
    found = [one for one in known if session is None or one[0] == session]
    if not found:
        there = f"recorded sessions: {', '.join(f'{one[0]}' for one in known)}" if known else ""
        what = f"session {session} is not recorded" if known else "no session is recorded"
        fail(f"{path}: {what}", hint=there or "`hivemind-trio serve --record` records what `replay` repeats")
    number, events, version = found[-1]
    told = Replay(lambda policy_hash: policy_files(database, policy_hash))
    try:
        difference = told.run(first_policy(database, number), recorded_events(database, number))
    except (NotReplayable, ValueError) as error:
        fail(f"{path}: session {number}: {error}", hint=f"{told.events:,} of {events:,} events were the same")
    return number, events, version, told, difference


def _print_difference(number: int, version: str, events: int, difference: Difference) -> None:
    from hivemind_trio.policy import visible

    click.echo(
        f"session {number} (version {version}): event {difference.number:,} of {events:,}, "
        f"{difference.event}, at {difference.at_ns / 1e9:,.3f} s: the commands differ"
    )
    for name, recorded, replayed in difference.fields():
        click.echo(f"  {visible(name)}")
        click.echo(f"    recorded: {visible(_shown(recorded))}")
        click.echo(f"    replayed: {visible(_shown(replayed))}")


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value)


def _print_json(
    path: str, number: int, version: str, told: Replay, difference: Difference | None, lacks: dict[str, Any] | None
) -> None:
    said: dict[str, Any] = {
        "format_version": 1,
        "journal": path,
        "session": number,
        "version": version,
        "events": told.events,
        "commands": told.commands,
        "policies": told.policies,
        "same": difference is None,
        "journal_behind": lacks,
    }
    if difference is not None:
        said["difference"] = {
            "event": difference.number,
            "at_ns": difference.at_ns,
            "kind": difference.event,
            "recorded": difference.recorded,
            "replayed": difference.replayed,
        }
    json.dump(said, sys.stdout, indent=2)
    sys.stdout.write("\n")
