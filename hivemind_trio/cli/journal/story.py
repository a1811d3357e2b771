"""The story of a recorded call, for `hivemind-trio explain`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from hivemind_trio.cli.console import fail
from hivemind_trio.cli.table import aligned

from .behind import say_behind
from .find import asked, journal_of, journals, moment_ns
from .live_call import show_live
from .plans import credential_text, plan_text

if TYPE_CHECKING:
    from hivemind_trio.scheduler import SessionFacts
    from hivemind_trio.store import AttemptStory, CallStory

SLOW_SHOWN: Final = 10
UNRETRIED: Final = {
    "class": "its retry class does not list the failure (`on`)",
    "attempts": "its retry class allows no further attempt (`attempts`)",
    "retry-after": "the provider's retry-after is longer than its retry class waits for (`honor`)",
    "deadline": "the next attempt would have begun after its deadline",
    "retry-budget": "the retry budget of provider {provider} was used up (`ratio` of the retry class)",
}
"""Reason for which a failed attempt was the last -> words."""
DAY_NS: Final = 86_400 * 10**9


def explain_recorded(
    name: str | None,
    *,
    last: bool,
    slow: bool,
    agent: str | None,
    since: str | None,
    file: str | None,
    policy: str | None,
    as_json: bool,
) -> None:
    """Print the story of one call, or the list of slow ones; ends with status 2 if there is none."""
    from hivemind_trio.store import latest_story, slowest_stories

    if name is not None and file is None and show_live(name, policy, as_json=as_json):
        return
    if name is not None:
        _show_named(name, file, policy, as_json=as_json)
        return
    path = journal_of(file, policy)
    lacks = say_behind(path)
    if slow:
        since_ns = moment_ns(since, "--since") if since is not None else time.time_ns() - DAY_NS
        stories = asked(path, lambda database: slowest_stories(database, since_ns, agent, SLOW_SHOWN))
        _show_slow(stories, lacks, as_json=as_json)
        return
    assert last or agent is not None
    story = asked(path, lambda database: latest_story(database, agent))
    if story is None:
        fail(
            f"no call{f' of agent {agent}' if agent is not None else ''} in {path}",
            hint="`hivemind-trio usage --by agent` lists the agents",
        )
    _show(story, lacks, as_json=as_json)


def _show_named(name: str, file: str | None, policy: str | None, *, as_json: bool) -> None:
    paths = [journal_of(file, policy)] if file is not None or policy is not None else journals()
    lacks = say_behind(*paths)
    _show(_named(name, paths), lacks, as_json=as_json)


def _named(name: str, paths: Sequence[str]) -> CallStory:
    from hivemind_trio.store import story_named, turned_away

    stories = (asked(path, lambda database: story_named(database, name)) for path in paths)
    story = next((one for one in stories if one is not None), None)
    if story is None:
        refusals = (asked(path, lambda database: turned_away(database, name)) for path in paths)
        refusal = next((one for one in refusals if one is not None), None)
        if refusal is not None:
            fail(refusal, hint="`hivemind-trio help rejections` explains the reason")
        where = paths[0] if len(paths) == 1 else f"{len(paths)} journals"
        fail(
            f"no call {name} in {where}",
            hint="the id is in the header `x-hivemind-call`; `--journal FILE` names another journal",
        )
    return story


# ---- text ----


def _show(story: CallStory, lacks: dict[str, Any] | None, *, as_json: bool) -> None:
    from hivemind_trio.admin import story_object

    shown = story_object(story) | {"journal_behind": lacks}
    click.echo(json.dumps(shown, indent=2) if as_json else _text(story), nl=as_json)


def _input(story: CallStory) -> str:
    if story.tokens_counted is None:
        return f"about {story.tokens_in:,} input"
    return f"about {story.tokens_counted:,} input by the {story.counted_by}, {story.tokens_in:,} by its bytes"


def _plan(story: CallStory) -> str:
    ended_ns = story.wall_ns + (story.total_ns or 0)
    return plan_text(story.plan, ended_ns) + credential_text(story.plan[0].account)


def _text(story: CallStory) -> str:
    from hivemind_trio.admin import advice

    at = datetime.fromtimestamp(story.wall_ns / 1e9).astimezone().isoformat(sep=" ", timespec="milliseconds")
    rows = [
        ("call", story.name or "not answered yet"),
        ("arrived", at),
        ("request", f"{story.method} {story.path}{', stream' if story.stream else ''}"),
        ("model", story.model or "none"),
        ("tokens", f"{_input(story)}, at most {story.tokens_max_out:,} output" if story.model else "-"),
        ("agent", f"{story.agent}{f' (team {story.team})' if story.team not in ('', 'none') else ''}"),
        *([("job", story.job)] if story.job else []),
        *([("session", _session(story.session))] if story.session is not None else []),
        ("lane", story.lane or "none"),
        ("policy", story.policy[:8] or "unknown"),
        *([("decided by", _deciders(story))] if story.deciders else []),
        *([("plan", _plan(story))] if story.plan else []),
    ]
    text = "".join(f"{' '.join(row).rstrip()}\n" for row in aligned(rows))
    lines = [f"  {seconds(0):>9}  arrived"]
    for attempt in story.attempts:
        lines += _attempt_lines(attempt)
    if story.left_ns is not None:
        why = f" ({story.reason})" if story.reason != "none" else ""
        lines.append(f"  {seconds(story.left_ns):>9}  the client disconnected while the call waited{why}")
    if story.refused is not None:
        at_ns = story.total_ns if story.total_ns is not None else story.waited_ns
        words = f": {story.message}" if story.message else ""
        lines.append(f"  {seconds(at_ns):>9}  rejected by the proxy ({story.refused}){words}")
    elif story.total_ns is not None:
        end = f"answered with {story.status}" if story.status else "the client disconnected"
        lines.append(f"  {seconds(story.total_ns):>9}  {end}")
    faster = advice(story)
    return "\n".join([text, *lines, "", *([f"faster: {faster}", ""] if faster else [])])


def _session(session: SessionFacts) -> str:
    """Return the session of a call when it arrived, in words."""
    if not session.turns:
        return "no turn before it"
    cost = f", ${session.cost / 1e6:,.2f}" if session.cost else ""
    return f"{session.turns:,} turns before it, context {session.context:,} tokens{cost}, {seconds(session.age_ns)} old"


def _deciders(story: CallStory) -> str:
    by = {setting: by for setting, by in story.deciders.items() if by != "built-in"}
    return ", ".join(f"{setting}: {name}" for setting, name in by.items()) or "defaults"


def _attempt_lines(attempt: AttemptStory) -> list[str]:
    from hivemind_trio.admin import turn_text

    waited = f"waited {seconds(attempt.waited_ns)} ({attempt.reason}), then " if attempt.reason != "none" else ""
    instead = f" instead of {attempt.instead_of}" if attempt.instead_of else ""
    lines = [
        f"  {seconds(attempt.granted_ns):>9}  {waited}attempt {attempt.number} at {attempt.provider}{instead}, "
        f"model {attempt.model or 'none'}, lane {attempt.lane}, priority {attempt.priority}"
    ]
    if attempt.turn is not None:
        lines.append(f"             {turn_text(attempt.turn, attempt.provider)}")
    if attempt.first_byte_ns is not None and attempt.failure != "first-byte":  # else the time that it waited for one
        lines.append(f"  {seconds(attempt.granted_ns + attempt.first_byte_ns):>9}  first byte")
    if attempt.lasted_ns is None:
        return [*lines, "             its end is not recorded"]
    facts = [f"{attempt.outcome}, status {attempt.status or 'none'}"]
    if attempt.failure is not None:
        facts.append(attempt.failure)
    if attempt.retry_after_ns is not None:
        facts.append(f"retry-after {seconds(attempt.retry_after_ns)}")
    if attempt.tokens is not None:
        counts = {name.replace("_", " "): count for name, count in attempt.tokens.items() if count}
        facts.append("tokens " + (", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"))
    if attempt.cost_microusd is not None:
        facts.append(f"${attempt.cost_microusd / 1e6:,.6f}")
    ended_at = seconds(attempt.granted_ns + attempt.lasted_ns)
    lines.append(f"  {ended_at:>9}  ended: {'; '.join(facts)}")
    if (why := UNRETRIED.get(attempt.unretried or "")) is not None:
        lines.append(f"  {ended_at:>9}  not retried: {why.format(provider=attempt.provider.partition('.')[0])}")
    return lines


def _show_slow(stories: tuple[CallStory, ...], lacks: dict[str, Any] | None, *, as_json: bool) -> None:
    from hivemind_trio.admin import story_object

    if as_json:
        calls = [story_object(story) for story in stories]
        click.echo(json.dumps({"format_version": 1, "calls": calls, "journal_behind": lacks}, indent=2))
        return
    if not stories:
        click.echo("no call was answered in that time")
        return
    rows = [("call", "agent", "lane", "model", "waited", "reason", "status")]
    rows += [
        (one.name, one.agent, one.lane, one.model, seconds(one.waited_ns), one.reason, str(one.status))
        for one in stories
    ]
    for row in aligned(rows, right={4}):
        click.echo("  ".join(row).rstrip())


def seconds(time_ns: int) -> str:
    """`0.250 s`; `12.4 s` from ten seconds on."""
    value = time_ns / 1e9
    return f"{value:.3f} s" if value < 10 else f"{value:,.1f} s"
