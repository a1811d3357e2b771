"""A comparison of two policies, for a terminal, for a pull request, for machines."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import attrs

from hivemind_trio.policy.diagnostics.terminal import visible, width

from .change import Change, State, Verb
from .comparison import CallChange, DecisionChange, Diff

FORMAT_VERSION: Final = 1
"""Version of the JSON format; rises when a field changes its meaning or is removed, not when one is added."""

DIFF_FORMATS: Final = ("text", "json", "markdown")

_BOLD, _RED, _GREEN, _YELLOW, _DIM, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_HUES: Final = {State.RESETS: _YELLOW, State.RESTART: _RED, State.DRAINS: _YELLOW}

NOT_ALL: Final = "the search was cut short: further calls may be treated differently"


def render_diff(diff: Diff, format_: str, *, color: bool = False, columns: int = sys.maxsize) -> str:
    """Return the comparison in one of `DIFF_FORMATS`; it ends with a newline.

    Args:
        color: Of the text.
        columns: Width of the terminal, for the text: what is wider goes on below.
    """
    match format_:
        case "text":
            return _text(diff, columns, color=color)
        case "json":
            return json.dumps(diff_object(diff), indent=2) + "\n"
        case "markdown":
            return _markdown(diff)
        case _:
            raise ValueError(f"no format {format_}")


def summary(diff: Diff) -> str:
    """`3 settings, 2 kinds of calls`."""
    if not diff:
        return "nothing changes"
    parts = [_counted(len(diff.changes), "setting")] if diff.changes else []
    parts += [_counted(len(diff.calls), "kind") + " of calls"] if diff.calls else []
    return f"{' and '.join(parts)} change{'s' if len(diff.changes) + len(diff.calls) == 1 else ''}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


# ---- text ----


def _text(diff: Diff, columns: int, *, color: bool) -> str:
    paint = _painter(color)
    head = f"{visible(diff.old or '(no policy)')} -> {visible(diff.new)}: {summary(diff)}"
    lines = [paint(_BOLD, head)]
    for subject, changes in groupby(diff.changes, key=lambda change: change.subject):
        lines += ["", *_subject(subject, list(changes), columns, color=color)]
    for number, call in enumerate(diff.calls):
        lines += ["", *([paint(_BOLD, "calls"), ""] if not number else []), *_call(call, columns, color=color)]
    if not diff.complete:
        lines += ["", paint(_YELLOW, NOT_ALL)]
    return "\n".join(lines) + "\n"


def _painter(color: bool) -> Any:
    return (lambda hue, text: f"{hue}{text}{_PLAIN}" if text else text) if color else (lambda _hue, text: text)


def _subject(subject: str, changes: Sequence[Change], columns: int, *, color: bool) -> Iterator[str]:
    paint = _painter(color)
    first = changes[0]
    at = paint(_DIM, f" ({visible(first.at)})") if first.at else ""
    yield paint(_BOLD, visible(subject)) + at
    pad = max(len(visible(change.setting)) for change in changes)
    for change in changes:
        what = _what(change)
        hue = {Verb.ADDED: _GREEN, Verb.REMOVED: _RED}.get(change.verb, "")
        shown = paint(hue, visible(what)) if hue else visible(what)
        setting = f"{visible(change.setting).ljust(pad)}  " if change.setting else ""
        yield f"  {setting}{shown}"
        for line in _lines(_state(change), columns - pad - 4):
            yield f"  {'':{pad}}  {paint(_HUES.get(change.effect.state, _DIM), line)}"


def _lines(text: str, wide: int) -> list[str]:
    """Return the lines of a sentence; on a terminal that is too narrow for any, one."""
    return textwrap.wrap(text, min(wide, 10_000)) if wide > 20 else [text] if text else []


def _what(change: Change) -> str:
    """`8 -> 4, lowered`."""
    if not change.setting:
        return f"{change.verb}, was {change.before}" if change.before else str(change.verb)
    match change.verb:
        case Verb.ADDED if not change.before:
            return f"added: {change.after}" if change.after else "added"
        case Verb.REMOVED if not change.after:
            return f"removed: {change.before}" if change.before else "removed"
        case Verb.CHANGED:
            return f"{change.before} -> {change.after}"
        case _:
            return f"{change.before} -> {change.after}, {change.verb}"


def _state(change: Change) -> str:
    """Return the fate of running state; empty: there is none."""
    effect = change.effect
    if not effect.says:
        return ""
    code = f" [{effect.code}]" if effect.code else ""
    word = f"{effect.state}: " if effect.state in (State.DRAINS, State.RESETS, State.KEPT) else ""
    return f"{word}{effect.says}{code}"


def _call(call: CallChange, columns: int, *, color: bool) -> Iterator[str]:
    paint = _painter(color)
    for number, line in enumerate(_lines(visible(shown_call(call)), columns - 4)):
        yield ("    " if number else "  ") + paint(_BOLD, line)
    rows = [
        (turn.setting, f"{visible(turn.before)} -> {visible(turn.after)}", visible(_by(turn))) for turn in call.turns
    ]
    pads = [max(width(row[column]) for row in rows) for column in range(2)]
    for setting, what, by in rows:
        line = f"    {setting.ljust(pads[0])}  {what}{' ' * (pads[1] - width(what))}"
        if width(line) + 2 + width(by) <= columns:
            yield f"{line}  {paint(_DIM, by)}".rstrip()
            continue
        yield line.rstrip()
        for more in _lines(by, columns - pads[0] - 6):
            yield f"    {'':{pads[0]}}  {paint(_DIM, more)}"


def shown_call(call: CallChange) -> str:
    """Return the example in one line."""
    return " ".join(call.example) or "any call without these facts"


def _by(turn: DecisionChange) -> str:
    """Return the deciders before and after; empty where there is none."""
    if turn.by_before is None or turn.by_after is None:
        return ""
    return str(turn.by_before) if turn.by_before == turn.by_after else f"{turn.by_before} -> {turn.by_after}"


# ---- Markdown ----


def _markdown(diff: Diff) -> str:
    head = f"`{diff.new}`" if diff.old in (None, diff.new) else f"`{diff.old}` → `{diff.new}`"
    lines = [f"### {markdown_words(head)}: {summary(diff)}"]
    if diff.changes:
        lines += ["", "| | setting | before | after | what runs |", "|---|---|---|---|---|"]
        for change in diff.changes:
            setting = _code(change.setting) if change.setting else f"**{change.verb}**"
            verb = f" ({change.verb})" if change.verb in (Verb.RAISED, Verb.LOWERED) else ""
            cells = [_code(change.subject), setting, _code(change.before), _code(change.after) + verb]
            lines.append(f"| {' | '.join([*cells, markdown_words(_state(change))])} |")
    if diff.calls:
        lines += ["", "Calls with a different decision, one example each:"]
        lines += ["", "| a call such as | | before | after |", "|---|---|---|---|"]
        for call in diff.calls:
            for number, turn in enumerate(call.turns):
                example = _code(shown_call(call)) if call.example else shown_call(call)
                before = _code(turn.before) + (f"<br>{markdown_words(str(turn.by_before))}" if turn.by_before else "")
                after = _code(turn.after) + (f"<br>{markdown_words(str(turn.by_after))}" if turn.by_after else "")
                lines.append(f"| {example if not number else ''} | {turn.setting} | {before} | {after} |")
    if not diff.complete:
        lines += ["", f"_{NOT_ALL}_"]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """As code in a cell of a table, whatever is in it."""
    if not text:
        return ""
    shown = visible(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in _runs(shown, "`")), default=0))
    pad = " " if "`" in shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _runs(text: str, letter: str) -> Iterator[str]:
    return ("".join(run) for key, run in groupby(text) if key == letter)


def markdown_words(text: str) -> str:
    """Words for a cell of a table: nothing in it divides it or is HTML."""
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


# ---- JSON ----


def diff_object(diff: Diff) -> dict[str, Any]:
    """Return the comparison as JSON has it."""
    return {
        "format_version": FORMAT_VERSION,
        "old": diff.old,
        "new": diff.new,
        "complete": diff.complete,
        "changes": [_change(change) for change in diff.changes],
        "calls": [
            {
                "example": list(call.example),
                "call": dict(call.facts),
                "changes": [attrs.asdict(turn, recurse=False) | _deciders(turn) for turn in call.turns],
            }
            for call in diff.calls
        ],
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name,
        "setting": change.setting,
        "change": str(change.verb),
        "before": change.before,
        "after": change.after,
        "state": str(change.effect.state),
        "effect": change.effect.says,
        "code": change.effect.code,
        "at": change.at,
    }


def _deciders(turn: DecisionChange) -> dict[str, str | None]:
    return {
        name: None if decider is None else str(decider)
        for name, decider in (("by_before", turn.by_before), ("by_after", turn.by_after))
    }
